//! What orch does itself for a step: reads a plan, marks a phase of it, writes files.
//!
//! What a text means is decided by the pure [`plan`](crate::run::plan) and [`printed`](crate::run::printed); here it is read from and
//! written to the disk, through handles alone. Every action can be done again after a crash, and
//! then ends as if it had been done once.

mod files;
mod folder;
mod plans;

use std::io::{self, Write};

use rustix::fs::FileType;
use serde_json::Value;

use crate::disk::order::{Disk, Point, at};
use crate::disk::root::Root;
use crate::disk::safety::{Dir, Meta};
use crate::disk::store::{RunDir, sha256};
use crate::run::state::Changes;
use crate::spec::workflow::model::{Mark, Ticks};
use crate::text::error::Fault;

pub use files::forget;
pub use folder::Looked;

/// What is to be done. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Read the plan in this folder.
    LoadPlan {
        /// The folder.
        dir: String,
        /// Whose ticks are taken.
        ticks: Ticks,
    },
    /// Mark the current phase of the plan in this folder.
    MarkPlan {
        /// The folder.
        dir: String,
        /// As what.
        mark: Mark,
    },
    /// Write the files that a step printed.
    ApplyFiles {
        /// The step.
        from: String,
        /// Where they go.
        into: String,
        /// What it printed.
        text: String,
        /// Whether it changed files there by itself.
        wrote: bool,
    },
}

/// Where it is done.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The root.
    pub root: &'a Root,
    /// What is made durable.
    pub disk: Disk,
    /// The run, and the step's task in it.
    pub run: &'a RunDir,
    /// The NAME of that task.
    pub task: &'a str,
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
    pub fault: Box<Fault>,
    /// The step's exit code.
    pub exit_code: i32,
    /// More about it.
    pub json: Option<Value>,
}

impl From<Fault> for NotDone {
    fn from(fault: Fault) -> Self {
        NotDone {
            fault: Box::new(fault),
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
        Act::LoadPlan { dir, ticks } => plans::load(place, dir, *ticks),
        Act::MarkPlan { dir, mark } => plans::mark(place, dir, *mark),
        Act::ApplyFiles {
            from,
            into,
            text,
            wrote,
        } => {
            let wrote = *wrote;
            let printed = files::Printed {
                from,
                into,
                text,
                wrote,
            };
            files::apply(place, &printed)
        }
    }
}

/// `1 task`, `2 tasks`.
fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// The points of one replacement.
struct Replace {
    write: Point,
    sync: Point,
    rename: Point,
}

const PLAN: Replace = Replace {
    write: Point::PlanWrite,
    sync: Point::PlanSync,
    rename: Point::PlanRename,
};

const APPLY: Replace = Replace {
    write: Point::ApplyWrite,
    sync: Point::ApplySync,
    rename: Point::ApplyRename,
};

/// Puts a file in the place of another, in one step, with its permissions. The temporary file has a
/// name that follows from the file's, so that one left by a dead process is used up by the next.
fn replace(disk: Disk, dir: &Dir, name: &str, bytes: &[u8], points: &Replace) -> io::Result<()> {
    let permissions = match dir.open(name) {
        Ok(file) if Meta::of_file(&file)?.kind == FileType::RegularFile => {
            Some(file.metadata()?.permissions())
        }
        _ => None,
    };
    let temp = format!(".{:.32}.orch", sha256(name.as_bytes()));
    at(points.write)?;
    let mut file = dir.create_anew(&temp)?;
    let written = file.write_all(bytes).and_then(|()| {
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        disk.sync_file(points.sync, &file)?;
        at(points.rename)?;
        dir.rename_over(&temp, name)?;
        disk.sync_dir(points.sync, dir)
    });
    if written.is_err() {
        let _ = dir.remove(&temp);
    }
    written
}
