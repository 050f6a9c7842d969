//! What happens to a run, and what that calls for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Changes, Pending, RunStatus, StepResult};
use crate::text::error::Fault;

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Verdict {
    /// They approve.
    Approved {
        /// What they said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// They do not.
    Rejected {
        /// What they said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// They said this.
    Replied {
        /// The reply, read as the step says.
        result: Box<StepResult>,
    },
}

/// What the disk looked like when an event happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Which globs matched a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exists: BTreeMap<String, bool>,
}

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It was started.
    Created {
        /// The run.
        run_id: String,
        /// Its workflow.
        workflow_name: String,
        /// The hash of the workflow's text.
        workflow_sha256: String,
        /// `request`, `input`, `context`, `run`.
        variables: Map<String, Value>,
    },
    /// A pending step was claimed: an attempt begins, or turns out not to be needed.
    Entered {
        /// The task.
        task: String,
        /// Which attempt, from 1.
        attempt: u32,
        /// What the disk looked like.
        facts: Facts,
    },
    /// The same visit tries once more, as declared.
    Retried {
        /// The task.
        task: String,
        /// Which attempt.
        attempt: u32,
    },
    /// An attempt was given up in good order, as orch was asked to stop: the step waits again.
    PutBack {
        /// The task.
        task: String,
        /// Which attempt.
        attempt: u32,
    },
    /// A step has a result.
    Finished {
        /// The task.
        task: String,
        /// What it left behind.
        result: Box<StepResult>,
        /// What it changed in the canonical document.
        #[serde(default, skip_serializing_if = "Changes::is_empty")]
        changes: Changes,
        /// What the disk looked like.
        facts: Facts,
    },
    /// A task came that the run does not wait for: forged, early, or in the wrong inbox.
    Intruded {
        /// In plain words, and which task.
        fault: Fault,
    },
    /// A person corrected the canonical document.
    Corrected {
        /// Paths under `state`, without that word, and their values.
        set: Map<String, Value>,
        /// Why.
        note: String,
    },
    /// A pending step that a person does was put before them, or turned out not to be needed.
    Asked {
        /// The task.
        task: String,
        /// What the disk looked like.
        facts: Facts,
    },
    /// A person answered.
    Answered {
        /// The task with the question.
        task: String,
        /// What they answered.
        verdict: Verdict,
        /// Who.
        by: String,
        /// What the disk looked like.
        facts: Facts,
    },
    /// A person had more to say about a run that had succeeded: it goes on at its `follow_up`.
    Reopened {
        /// What they said.
        reply: String,
        /// Who.
        by: String,
    },
    /// A person asks to go on.
    Resumed {
        /// What the disk looked like.
        facts: Facts,
    },
    /// A person ended it.
    Cancelled,
    /// Something is wrong that cannot be caught.
    Stopped {
        /// What.
        fault: Fault,
    },
    /// A person started it over.
    Reset,
    /// A person adopted the workflow as it is now.
    SpecUpdated {
        /// The hash of its text.
        workflow_sha256: String,
        /// The hash of the whole spec: of its manifest.
        spec_sha256: String,
    },
}

/// What an event calls for.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run this pending step now.
    Run(Pending),
    /// A transition was made: a line for people and the log.
    Checkpoint(Checkpoint),
    /// A decision is locked: its file must be there before the event is.
    Lock {
        /// The name of the snapshot.
        name: String,
        /// Its content, in canonical form.
        text: String,
    },
    /// The run has come to a halt or an end.
    Ended(RunStatus),
    /// Conditions of a step were looked at and no transition tells of them: for the log.
    Checked(Checked),
    /// The run has ended without these, which were to be done.
    Left(Vec<Pending>),
    /// This question needs no answer any more.
    Unasked(Pending),
}

/// Conditions that were looked at, and what they evaluated to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The step.
    pub step: String,
    /// Every guard, with its value.
    pub guards: Vec<String>,
}

/// `[phase] step OK|FAIL -> next | reason`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The phase of the step.
    pub phase: String,
    /// The step.
    pub step: String,
    /// How it went.
    pub status: String,
    /// Where it leads; nowhere, where it is only a remark.
    pub next: String,
    /// Why.
    pub reason: String,
    /// Every guard that was evaluated, with its value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<String>,
}

impl std::fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Checkpoint {
            phase,
            step,
            status,
            next,
            reason,
            ..
        } = self;
        write!(f, "[{phase}] {step} {status}")?;
        if !next.is_empty() {
            write!(f, " -> {next}")?;
        }
        if !reason.is_empty() {
            write!(f, " | {reason}")?;
        }
        Ok(())
    }
}
