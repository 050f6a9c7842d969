//! Marks a phase as done or skipped: changes its boxes, its status and the counts, and no other byte.

use std::ops::Range;

use super::{Folder, MASTER, Tick, master, task_file};
use crate::spec::workflow::model::Mark;

/// The files that change when a phase is marked, with their new texts. The folder must hold a readable
/// plan. If the phase is marked already, no file changes.
#[must_use]
pub fn mark(folder: &Folder, number: u32, mark: Mark) -> Vec<(String, String)> {
    let becomes = match mark {
        Mark::Done => Tick::Done,
        Mark::Skipped => Tick::Skipped,
    };
    let text = &folder.master;
    let read = master::read(text);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut changed = Vec::new();
    for phase in read.phases.iter().filter(|phase| phase.number == number) {
        for task in phase.tasks.iter().filter(|task| task.tick == Tick::Open) {
            edits.push((task.mark.clone(), in_box(becomes).to_owned()));
            changed.extend(own_file(folder, task, becomes));
        }
        let status = phase
            .status
            .as_ref()
            .filter(|status| status.says != becomes);
        if let Some(status) = status {
            edits.push((status.value.clone(), in_words(becomes).to_owned()));
        }
    }
    let after = |phase: &master::RawPhase, tick: Tick| match tick {
        Tick::Open if phase.number == number => becomes,
        tick => tick,
    };
    for count in &read.progress {
        let phases = read.phases.iter().enumerate();
        let own = phases.filter(|(place, _)| count.phase.is_none_or(|phase| phase == *place));
        let ticks: Vec<Tick> = own
            .flat_map(|(_, phase)| phase.tasks.iter().map(move |task| after(phase, task.tick)))
            .collect();
        let done = ticks.iter().filter(|tick| **tick == Tick::Done).count();
        edits.push((count.done.clone(), done.to_string()));
        edits.push((count.total.clone(), ticks.len().to_string()));
        if let Some(percent) = &count.percent {
            let share = (done * 100).checked_div(ticks.len()).unwrap_or(0);
            edits.push((percent.clone(), share.to_string()));
        }
    }
    let marked = edited(text, edits);
    if &marked != text {
        changed.push((MASTER.to_owned(), marked));
    }
    changed
}

/// A task's own file, if it has a status of its own.
fn own_file(folder: &Folder, task: &master::RawTask, becomes: Tick) -> Option<(String, String)> {
    let named = task
        .file
        .as_deref()
        .and_then(|file| file.rsplit('/').next());
    let key = super::ids::key(&task.id);
    let fits =
        |name: &&String| super::ids::of_file(name).is_some_and(|id| super::ids::key(id) == key);
    let name = match named {
        Some(name) => name,
        None => folder.files.keys().find(fits)?,
    };
    let text = folder.files.get(name)?;
    let status = task_file::read(name, text).0.status?;
    let value = &text[status.value.clone()];
    let boxed = ["[ ]", "[]"]
        .iter()
        .find_map(|open| value.find(open).map(|at| (at, open.len())));
    let edit = match boxed {
        Some((at, length)) => {
            let start = status.value.start + at;
            (start..start + length, format!("[{}]", in_box(becomes)))
        }
        // An earlier attempt changed this file and died before it changed the master plan.
        None if value.contains(&format!("[{}]", in_box(becomes))) => return None,
        None if status.says == becomes => return None,
        None => (status.value, in_words(becomes).to_owned()),
    };
    Some((name.to_owned(), edited(text, vec![edit])))
}

fn in_box(tick: Tick) -> &'static str {
    match tick {
        Tick::Done => "x",
        Tick::Skipped => "-",
        Tick::Open => " ",
    }
}

fn in_words(tick: Tick) -> &'static str {
    match tick {
        Tick::Done => "Done",
        Tick::Skipped => "Skipped (known issue)",
        Tick::Open => "Open",
    }
}

/// The text with these ranges replaced; they do not overlap.
fn edited(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(place, _)| place.start);
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (place, new) in edits {
        if place.start < at {
            continue;
        }
        out.push_str(&text[at..place.start]);
        out.push_str(&new);
        at = place.end;
    }
    out.push_str(&text[at..]);
    out
}
