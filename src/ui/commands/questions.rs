//! What a blocked run waits for, in words: every open question with the lines to type.

use std::fmt::Write;
use std::sync::Arc;

use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::run::flow::HUMAN;
use crate::run::state::{Asks, Block, Pending, RunState, Stage};
use crate::text::error::{Fault, Kind, Result};
use crate::ui::report::{clean, print_fault};
use crate::work::dispatch::Dispatcher;
use crate::work::pinned::PinnedRun;
use crate::work::step::question::{ANSWER, HOW};

/// So many lines of a question are shown; its file has all of it.
const LINES: usize = 40;

/// The questions that are open.
pub(super) fn open(state: &RunState) -> impl Iterator<Item = &Pending> {
    let final_ = state.status.is_final();
    let pending = state.pending.iter();
    pending.filter(move |pending| pending.asks.is_some() && !final_)
}

/// What to type to answer a question.
pub(super) fn lines(state: &RunState, pending: &Pending) -> Vec<String> {
    let (run, step) = (&state.run_id, &pending.step);
    match pending.asks {
        Some(Asks::Approval) => vec![
            format!("orch approve {run} {step}"),
            format!("orch reject {run} {step} --note \"...\""),
        ],
        _ => vec![format!("orch reply {run}/{} \"...\"", label(pending))],
    }
}

/// `STEP`, or `STEP[0]` for an item of a loop.
pub(super) fn label(pending: &Pending) -> String {
    match pending.item {
        Some(item) => format!("{}[{item}]", pending.step),
        None => pending.step.clone(),
    }
}

/// Where it is blocked by a step that a resume does not run again.
pub(super) fn runs_once(state: &RunState) -> Option<&Block> {
    let ran = |block: &&Block| {
        let stage = matches!(block.stage, Stage::Run | Stage::Ensures | Stage::Next);
        stage && state.done_once.contains(&block.step)
    };
    state.blocks.iter().find(ran)
}

/// Why a run is blocked, what it asks, and what to type.
pub(super) fn say_blocked(root: &Arc<Root>, state: &RunState) {
    let reason = state.governance.blocked_reason.as_deref();
    let id = &state.run_id;
    let reason = reason.unwrap_or("no reason is given");
    let fault = Fault::new(Kind::Blocked, format!("run `{id}` is blocked: {reason}"));
    let asked: Vec<&Pending> = open(state).collect();
    let mut text = String::new();
    for pending in &asked {
        let _ = writeln!(text, "\n{}", shown(root, state, pending).trim_end());
    }
    let stuck = state.blocks.iter().any(|block| block.task.is_none());
    print_fault(&match (asked.is_empty(), stuck) {
        (_, true) => fault.hint(match runs_once(state) {
            None => format!("see to it, then `orch resume {id}`"),
            Some(block) if block.stage == Stage::Run => {
                let step = &block.step;
                format!("`{step}` runs only once: `orch reset {id}` starts over")
            }
            Some(Block { step, .. }) => format!(
                "`{step}` runs only once: see to it, then `orch resume {id}`, or start over with `orch reset {id}`"
            ),
        }),
        (false, false) => fault,
        (true, false) => fault.hint(format!("`orch resume {id}` goes on")),
    });
    eprint!("{}", clean(&text));
}

/// A question, as its file has it, or will have it in a moment.
fn shown(root: &Arc<Root>, state: &RunState, pending: &Pending) -> String {
    let text = written(root, state, pending).unwrap_or_default();
    let Some((asked, how)) = text.split_once(&format!("\n{HOW}\n")) else {
        let lines = lines(state, pending);
        return format!("step `{}` asks:\n  {}", label(pending), lines.join("\n  "));
    };
    let how = how.split(&format!("\n{ANSWER}\n")).next().unwrap_or(how);
    let mut asked: Vec<&str> = asked.trim_end().lines().collect();
    let left = asked.len().saturating_sub(LINES);
    asked.truncate(LINES);
    let more = match left {
        0 => String::new(),
        left => format!(
            "... {left} more lines in inbox/{HUMAN}/{}.task\n",
            pending.task
        ),
    };
    format!("{}\n{more}\n{HOW}\n{how}", asked.join("\n"))
}

fn written(root: &Arc<Root>, state: &RunState, pending: &Pending) -> Result<String> {
    let run = super::run_target::runs(root).open(&state.run_id)?;
    let dispatcher = Dispatcher {
        mailbox: &Mailbox::new(root.clone(), Disk::new(Durability::Process)),
        pinned: &PinnedRun::open(run)?,
    };
    dispatcher.question(state, pending)
}
