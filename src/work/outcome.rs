//! What comes of work on a claimed task: a result, or the reason why there is none now.
//!
//! An attempt, the work of a step and the whole of a task all end in a [`Worked`]. Whoever holds the
//! claim does with an [`Unfinished`] what it says.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::mailbox::Next;
use crate::run::record::Record;
use crate::run::state::{Changes, StepResult};
use crate::text::error::Fault;
use crate::work::step::prepare::WantedFiles;
use crate::work::waits::WaitingStep;

/// The result of a piece of work.
pub(crate) type Worked<T> = Result<T, Unfinished>;

/// A result that is ready to be committed.
pub(crate) struct Finished {
    pub record: Record,
    pub outputs: Vec<(&'static str, Arc<File>)>,
    /// The task that a chain goes on with.
    pub next: Option<Next>,
}

impl Finished {
    pub(crate) fn without_output(record: Record) -> Finished {
        Finished {
            record,
            outputs: Vec::new(),
            next: None,
        }
    }
}

/// The result of a step that is not in its run's log yet.
pub(crate) struct FinishedStep {
    pub result: StepResult,
    /// What the step changed in the canonical document.
    pub changes: Changes,
    pub finished: Finished,
}

/// Why a piece of work has no result now.
pub(crate) enum Unfinished {
    /// The attempt failed for a reason that may pass. It is made again after this long.
    Again {
        record: Box<Record>,
        after: Duration,
    },
    /// orch stops. The task goes back to its inbox.
    Stopped(Box<Record>),
    /// The claim was taken away, or the run does not wait for the step any more.
    Lost(Box<Finished>),
    /// orch stops and the result cannot be written. The claim stays for whoever takes it over.
    Abandoned,
    /// The run does not go on now. The task's file is removed, and dropped again when it does.
    Withdrawn,
    /// The step waits for files, and needs no worker meanwhile.
    Waits(WantedFiles, Box<WaitingStep>),
    /// Something went wrong that is no result of the task.
    Failed(Fault),
}

impl From<Fault> for Unfinished {
    fn from(fault: Fault) -> Unfinished {
        Unfinished::Failed(fault)
    }
}
