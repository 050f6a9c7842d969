//! What orch does itself for a step: reads a plan, marks a phase of it, writes files.
//!
//! What a text means is decided by the pure [`plan`](crate::plan); here it is read from and
//! written to the disk, through handles alone. Every action can be done again after a crash, and
//! then ends as if it had been done once.

mod plans;

use serde_json::Value;

use crate::disk::Disk;
use crate::error::Fault;
use crate::root::Root;
use crate::state::Changes;
use crate::workflow::model::Mark;

/// What is to be done. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Read the plan in this folder.
    LoadPlan {
        /// The folder.
        dir: String,
    },
    /// Mark the current phase of the plan in this folder.
    MarkPlan {
        /// The folder.
        dir: String,
        /// As what.
        mark: Mark,
    },
}

/// Where it is done.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The root.
    pub root: &'a Root,
    /// What is made durable.
    pub disk: Disk,
    /// The plan as the run last saw it.
    pub plan: Option<&'a Value>,
}

/// What came of it.
#[derive(Debug)]
pub struct Done {
    /// In one line.
    pub text: String,
    /// As a document.
    pub json: Value,
    /// What it changes in the run's document.
    pub changes: Changes,
}

/// Why it was not done.
#[derive(Debug)]
pub struct NotDone {
    /// What went wrong.
    pub fault: Fault,
    /// The step's exit code.
    pub exit_code: i32,
    /// More about it.
    pub json: Option<Value>,
}

impl From<Fault> for NotDone {
    fn from(fault: Fault) -> Self {
        NotDone {
            fault,
            exit_code: 2,
            json: None,
        }
    }
}

/// Does it.
///
/// # Errors
/// Where it cannot be done; then nothing has been changed.
pub fn perform(act: &Act, place: &Place<'_>) -> Result<Done, NotDone> {
    match act {
        Act::LoadPlan { dir } => plans::load(place, dir),
        Act::MarkPlan { dir, mark } => plans::mark(place, dir, *mark),
    }
}

/// `1 task`, `2 tasks`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
