//! `orch log RUN`: the transitions of a run, with their time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::drive::{Tail, wait_for_log};
use crate::disk::root::Root;
use crate::disk::store::RunDir;
use crate::disk::store::log::{Line, Note};
use crate::text::error::{Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, Reader, clean_json, clean_line, parse_since, print};

pub(super) fn run(root: &Arc<Root>, run: &RunDir, words: &cli::Log) -> Result<u8> {
    let since = words.since.as_deref();
    let since = since
        .map(|text| parse_since(text, Timestamp::now()))
        .transpose()?;
    let mut tail = Tail::from_start(root, run.id(), words.json);
    loop {
        let text: String = tail
            .news()?
            .iter()
            .filter(|line| is_since(line, since))
            .map(|line| shown(run.id(), line, words))
            .collect();
        let ended = run.peek().is_ok_and(|state| state.status.is_final());
        if print(&text)? == Reader::Gone || !words.follow || (ended && text.is_empty()) {
            return Ok(exit::DONE);
        }
        wait_for_log(root.logs.path(), run.id(), Duration::from_secs(1));
    }
}

fn is_since(line: &Line, since: Option<Timestamp>) -> bool {
    match (since, line.at.parse::<Timestamp>()) {
        (Some(since), Ok(at)) => at >= since,
        _ => true,
    }
}

fn shown(run_id: &str, line: &Line, words: &cli::Log) -> String {
    let wanted = |note: &&Note| !words.failed || note.line.contains(" FAIL -> ");
    let each = line.checkpoints.iter().filter(wanted).map(|note| {
        if words.json {
            let Note { line: text, guards } = note;
            let value = json!({"run": run_id, "seq": line.seq, "at": line.at, "checkpoint": text, "guards": guards});
            return clean_json(&value.to_string()).into_owned();
        }
        let at = Paint::stdout().dim(clean_line(&line.at));
        format!("{at}  {}", clean_line(&note.line))
    });
    each.map(|line| line + "\n").collect()
}
