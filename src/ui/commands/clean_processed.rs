//! `orch clean-processed`: removes old retired tasks with their results, into an archive if asked.

mod archive;

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::agents::catalogue::Catalogue;
use crate::disk::mailbox::{Old, OldTask, Peek, Removal};
use crate::disk::root::Root;
use crate::text::error::{Fault, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, Reader, age, count, print_json, print_line, short_duration, size};

/// What is kept where neither the command line nor the settings say.
const DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) fn run(root: Option<&Path>, words: &cli::CleanProcessed) -> Result<u8> {
    let root = Root::discover(root)?;
    let older_than = match words.older_than {
        Some(time) => time,
        None => {
            let kept = Catalogue::load(&root.path)?.settings().retention.processed;
            kept.map_or(DEFAULT, |time| time.0)
        }
    };
    let target = words
        .archive
        .as_deref()
        .map(|path| archive::Target::check(&root, path));
    let target = target.transpose()?;
    let now = Timestamp::now();
    let before = now.checked_sub(older_than).unwrap_or(Timestamp::MIN);
    let mut old = Old::find(&root, before.as_nanosecond())?;
    if words.dry_run {
        return list(&old, now, words.json);
    }
    if let Some(target) = &target
        && !old.tasks.is_empty()
    {
        archive::write(&root, target, &mut old)?;
    }
    let (sum, fault) = remove(&root, &old);
    say(&sum, fault.as_ref(), old.live, words)?;
    fault.map_or(Ok(exit::DONE), Err)
}

/// What was removed, and what was not.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Sum {
    tasks: usize,
    files: usize,
    bytes: u64,
    /// Tasks that stay because they changed in the meantime.
    changed: usize,
    /// Tasks that were not reached.
    left: usize,
}

impl Sum {
    fn of(old: &Old) -> Sum {
        Sum {
            tasks: old.tasks.len(),
            files: old.tasks.iter().map(|task| task.files.len()).sum(),
            bytes: old.tasks.iter().map(OldTask::bytes).sum(),
            ..Sum::default()
        }
    }

    fn text(&self) -> String {
        format!(
            "{} ({}, {})",
            count(self.tasks, "task"),
            count(self.files, "file"),
            size(self.bytes)
        )
    }
}

/// Removes until something fails.
fn remove(root: &Root, old: &Old) -> (Sum, Option<Fault>) {
    let mut sum = Sum::default();
    let mut peek: Option<Peek> = None;
    for (done, task) in old.tasks.iter().enumerate() {
        match remove_one(root, &mut peek, task, &mut sum) {
            Ok(Removal::Done) => sum.tasks += 1,
            Ok(Removal::Kept) => sum.changed += 1,
            Err(e) => {
                sum.left = old.tasks.len() - done;
                let fault = Fault::io("remove", format!("{}/{}", task.agent, task.name), &e)
                    .hint("what was not removed is whole or will be found again; mend the cause and repeat the command");
                return (sum, Some(fault));
            }
        }
    }
    (sum, None)
}

/// One agent's folders are held at a time.
fn remove_one(
    root: &Root,
    peek: &mut Option<Peek>,
    task: &OldTask,
    sum: &mut Sum,
) -> std::io::Result<Removal> {
    let folders = match peek {
        Some(folders) if folders.agent == task.agent => folders,
        _ => peek.insert(Peek::at(root, &task.agent)?),
    };
    task.remove(folders, |file| {
        sum.files += 1;
        sum.bytes += file.size;
    })
}

fn say(sum: &Sum, fault: Option<&Fault>, live: usize, words: &cli::CleanProcessed) -> Result<()> {
    if words.json {
        print_json(&json!({
            "dry_run": false, "removed": sum, "in_use": live, "error": fault,
            "archive": words.archive.as_ref().filter(|_| sum.tasks > 0).map(|path| path.display().to_string()),
        }))?;
        return Ok(());
    }
    let mut line = match sum.tasks {
        0 if fault.is_none() => "nothing to remove".to_owned(),
        _ => format!("removed {}", sum.text()),
    };
    if let Some(path) = words.archive.as_ref().filter(|_| sum.tasks > 0) {
        line.push_str(&format!("; they are in {}", path.display()));
    }
    print_line(&line)?;
    let kept = |n: usize, why: &str| {
        if n > 0 {
            eprintln!("kept {}: {why}", count(n, "task"));
        }
    };
    kept(live, "one of that name waits or is worked on");
    kept(sum.changed, "changed or moved in the meantime");
    if sum.left > 0 {
        let tasks = count(sum.left, "task");
        eprintln!("not reached: {tasks}, of which the first may have lost some of its results");
    }
    Ok(())
}

fn list(old: &Old, now: Timestamp, json: bool) -> Result<u8> {
    let sum = Sum::of(old);
    if json {
        let files = |task: &OldTask| -> Vec<String> {
            let path = |f: &crate::disk::mailbox::OldFile| {
                format!("{}/{}/{}", f.area.as_str(), task.agent, f.file)
            };
            task.files.iter().map(path).collect()
        };
        let tasks: Vec<_> = old.tasks.iter().map(|task| json!({
            "task": format!("{}/{}", task.agent, task.name), "files": files(task), "bytes": task.bytes(),
        })).collect();
        print_json(
            &json!({"dry_run": true, "would_remove": sum, "in_use": old.live, "tasks": tasks}),
        )?;
        return Ok(exit::DONE);
    }
    let paint = Paint::stdout();
    for task in &old.tasks {
        let details = format!(
            "{}, {}, {} old",
            count(task.files.len(), "file"),
            size(task.bytes()),
            short_duration(age(now, task.retired_ns)),
        );
        if print_line(&format!(
            "{}/{}  {}",
            task.agent,
            task.name,
            paint.dim(details)
        ))? == Reader::Gone
        {
            return Ok(exit::DONE);
        }
    }
    print_line(&match sum.tasks {
        0 => "nothing to remove".to_owned(),
        _ => format!("would remove {}", sum.text()),
    })?;
    Ok(exit::DONE)
}
