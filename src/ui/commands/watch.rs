//! `orch watch`: works on the tasks in the inboxes.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::disk::root::Root;
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Live, clean_line, count};
use crate::work::notice::Notice;
use crate::work::runtime::{self, Ended};
use crate::work::scheduler::Options;

pub(super) fn run(root: Option<&Path>, words: &cli::Watch) -> Result<u8> {
    runtime::inherit_nothing()?;
    let root = Arc::new(Root::discover(root)?);
    if root.remote && !words.any_fs {
        return Err(Fault::new(
            Kind::Usage,
            format!(
                "`{}` is on a network or FUSE file system",
                root.path.display()
            ),
        )
        .hint("locks and renames may not hold there; --any-fs takes the risk, and polls"));
    }
    let agents = words
        .agent
        .iter()
        .map(|name| AgentName::parse(name))
        .collect::<Result<_>>()
        .map_err(|fault| Fault {
            kind: Kind::Usage,
            ..fault
        })?;
    let poll = words
        .poll
        .or(root.remote.then_some(std::time::Duration::from_secs(1)));
    let options = Options {
        jobs: words.jobs,
        drain: words.drain,
        agents,
        poll,
        record: words.record,
        ..Options::default()
    };
    let live = Live::new(words.json);
    let greeting = format!(
        "watching {} ({} at a time; Ctrl-C stops)",
        clean_line(&root.inbox.path().display().to_string()),
        count(usize::from(words.jobs), "task"),
    );
    let json = words.json;
    let listener = move |notice: &Notice<'_>| match notice {
        Notice::Watching if !json => {
            // A closed output is nobody's fault: then nobody reads.
            let _ = writeln!(std::io::stderr().lock(), "{greeting}");
        }
        _ => live.print(notice),
    };
    let ended = runtime::watch(&root, words.durability, options, Arc::new(listener))?;
    if !words.json {
        say_goodbye(&ended);
    }
    Ok(exit_code(words.drain, &ended))
}

fn say_goodbye(ended: &Ended) {
    let summary = ended.summary;
    let mut line = format!("{} done", summary.succeeded);
    if summary.failed > 0 {
        line.push_str(&format!(", {} failed", summary.failed));
    }
    if summary.waiting_for_person > 0 {
        line.push_str(&format!(
            ", {} waiting for a person",
            count(summary.waiting_for_person, "task")
        ));
    }
    eprintln!("{line}");
}

fn exit_code(drain: bool, ended: &Ended) -> u8 {
    match (ended.signal, drain) {
        (Some(code), _) => code,
        (None, true) if ended.summary.failed > 0 => exit::FAILED,
        (None, true) if ended.summary.waiting_for_person > 0 => exit::BLOCKED,
        _ => exit::DONE,
    }
}
