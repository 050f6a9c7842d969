//! A run, as data: its canonical state, the events that change it, and what they call for.
//!
//! The log of events is the authority; a [`RunState`] is what they add up to, and `state.json` its
//! cache. Only types and small questions about them: how an event changes a state is decided in
//! `flow` alone.

mod event;
mod waves;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::text::error::{Fault, exit};

pub use event::{Checked, Checkpoint, Effect, Event, Facts, Verdict};

/// The version of `state.json` that this program writes.
pub const VERSION: u32 = 1;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// There is something to do.
    Running,
    /// Only a person can move it on.
    Blocked,
    /// It has reached `_end`.
    Succeeded,
    /// It has failed.
    Failed,
    /// A person ended it.
    Cancelled,
}

impl RunStatus {
    /// Nothing can happen to it any more but a reset.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, RunStatus::Running | RunStatus::Blocked)
    }

    /// The same in the words of `metadata.status`.
    #[must_use]
    pub fn governed(self) -> &'static str {
        match self {
            RunStatus::Running => "in-progress",
            RunStatus::Blocked => "blocked",
            RunStatus::Succeeded => "completed",
            RunStatus::Failed => "failed",
            RunStatus::Cancelled => "cancelled",
        }
    }

    /// The word as it stands in `state.json`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Blocked => "blocked",
            RunStatus::Succeeded => "succeeded",
            RunStatus::Failed => "failed",
            RunStatus::Cancelled => "cancelled",
        }
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It did what was asked.
    Succeeded,
    /// It did not.
    Failed,
    /// It was not to be run.
    Skipped,
}

impl StepStatus {
    /// The word as it stands in `state.json`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StepStatus::Succeeded => "succeeded",
            StepStatus::Failed => "failed",
            StepStatus::Skipped => "skipped",
        }
    }
}

/// What a step left behind, as `steps.X` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The step.
    pub step_name: String,
    /// How it ended.
    pub status: StepStatus,
    /// As the process said; 2 for what was invalid; 124 for a timeout.
    pub exit_code: i32,
    /// When it began, RFC 3339.
    pub start_time: String,
    /// When it ended.
    pub end_time: String,
    /// Seconds in between.
    pub duration: f64,
    /// The text, in text mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The lines, in lines mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// The document, in JSON mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_data: Option<Value>,
    /// Whether more was printed than is kept here.
    #[serde(default)]
    pub truncated: bool,
    /// Why there is no document although the step goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_parse_error: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What a person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Which attempt of this visit it was.
    pub attempt: u32,
    /// Which visit of the step it was.
    pub visit: u64,
    /// The task that did it, `agent/NAME`: its artifacts are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What the task left behind, with hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<crate::run::record::FileEntry>,
    /// Of a step that waited for files: which were there, and how it was looked for them.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// More that a kind of step has to tell, such as how the items of a loop ended.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

/// What a step that waited for files has to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// The files that were there at the end, relative to the root.
    pub files: Vec<String>,
    /// How long it waited.
    pub wait_duration_ms: u64,
    /// How often it was looked for them, since orch was last started.
    pub poll_count: u64,
}

/// A step that is not committed yet, dropped or not. What stands here is to be done, and nothing
/// else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The NAME of its task.
    pub task: String,
    /// Whose inbox it goes through.
    pub agent: String,
    /// The step.
    pub step: String,
    /// The item of the loop that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<usize>,
    /// Which visit of the step this is.
    pub visit: u64,
    /// How many attempts have been started.
    #[serde(default)]
    pub attempts: u32,
    /// When its work began, RFC 3339: with its first attempt, or with the last declared retry. A
    /// crash or a restart does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// What a person has been asked, where that is what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// Whether the last attempt was given up in good order: then no crash ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_back: bool,
}

/// What a person is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asks {
    /// Whether they approve.
    Approval,
    /// What they say.
    Reply,
}

/// Where a run came to a halt, so that a resume can go on from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The step.
    pub step: String,
    /// The item of the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<usize>,
    /// What of the visit.
    pub stage: Stage,
    /// In plain words.
    pub reason: String,
    /// The task with the question, where it ends with a person's answer and not with a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The part of a visit at which a run was blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A precondition does not hold.
    Requires,
    /// The step failed, and that leads to `_block`; or a person does it, and has been asked.
    Run,
    /// A condition on the result does not hold.
    Ensures,
    /// A person has been asked to approve, has rejected it, or has approved what does not hold any more.
    Approval,
    /// No row of `next` holds, or one leads to `_block`.
    Next,
    /// The step was entered too often.
    Limit,
    /// A task came that the run does not wait for. No step is at fault.
    Task,
}

/// What a step changed in the canonical document, by JSON pointer, field by field.
///
/// Lists are one value. What two steps change side by side is merged in the order of their commits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The fields that are new or different, as they are now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// The fields that are gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<String>,
}

impl Changes {
    /// Nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }
}

/// A loop that is being run, or that failed in the visit that may be resumed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// What it goes over.
    pub items: Vec<Value>,
    /// How each item stands.
    pub progress: Vec<ItemState>,
    /// The items that run side by side now.
    pub wave: Vec<usize>,
    /// When the loop was entered.
    pub start_time: String,
    /// Which visit of the loop this is.
    #[serde(default)]
    pub visit: u64,
    /// What can go next: an index over the rest, built again where it is missing.
    #[serde(skip)]
    pub(crate) plan: waves::WaveIndex,
}

/// How one item of a loop stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ItemState {
    /// How it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<StepStatus>,
    /// The exit code of the step that failed it.
    #[serde(default)]
    pub exit_code: i32,
    /// Visits of the body's steps for this item.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// Counts against limits for this item.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
}

/// The canonical state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The version of this format.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow_name: String,
    /// The hash of the workflow's text.
    pub workflow_sha256: String,
    /// How it stands.
    pub status: RunStatus,
    /// The same for people: the phase, and the status in other words.
    pub metadata: Metadata,
    /// What people decided, and why it is blocked.
    pub governance: Governance,
    /// When it began.
    pub start_timestamp: String,
    /// When it ended.
    pub end_timestamp: Option<String>,
    /// The number of the last event.
    pub seq: u64,
    /// The hash of the last event.
    pub log_head: String,
    /// `request`, `reply`, `input`, `context`, `run`.
    pub variables: Map<String, Value>,
    /// How often each step was entered; those of a body, for all items together.
    pub visits: BTreeMap<String, u64>,
    /// Locked decisions.
    pub snapshots: Map<String, Value>,
    /// The latest result of each step; of a loop, those of its items.
    pub step_results: Map<String, Value>,
    /// What is to be done.
    pub pending: Vec<Pending>,
    /// The canonical document.
    pub state: Map<String, Value>,
    /// How many transitions were made.
    pub transitions: u64,
    /// The number of the last task.
    pub tasks: u64,
    /// Counts against limits, restarted by the steps of `per`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Where it is blocked; more than one place where items of a loop run side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// The loops that are being run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loops: BTreeMap<String, LoopState>,
    /// The results of loops themselves: under `step_results` are those of their items.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loop_results: BTreeMap<String, StepResult>,
    /// The results of parallel steps that wait for the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Group>,
    /// Steps with a committed result that must not be produced again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done_once: BTreeSet<String>,
}

/// A parallel step that is being run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The results that are there, by sub-step.
    pub results: BTreeMap<String, StepResult>,
    /// Those whose `ensures` does not hold yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, StepResult>,
    /// When it was entered.
    pub start_time: String,
    /// The item of the loop that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<usize>,
    /// Which visit this is.
    pub visit: u64,
}

/// What a person sees first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The phase of the step that is being worked on.
    pub current_phase: String,
    /// The run's status in other words.
    pub status: String,
}

/// What people decided.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Governance {
    /// Every gate of the workflow, and whether it is approved now.
    pub approvals: Map<String, Value>,
    /// Why it is blocked.
    pub blocked_reason: Option<String>,
    /// The last answer to each gate that has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<String, Decision>,
}

/// What a person decided about a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who.
    pub by: String,
    /// When.
    pub at: String,
    /// The step that asked.
    pub step: String,
    /// What they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl RunState {
    /// Sets the status in both places where it stands.
    pub(crate) fn set_status(&mut self, status: RunStatus) {
        self.status = status;
        self.metadata.status = status.governed().to_owned();
    }

    /// The exit code of a command that ends with the run as it is now. A run that failed has the code
    /// of its error where that tells of tampering, and else the code of any failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.status {
            RunStatus::Succeeded | RunStatus::Running => exit::DONE,
            RunStatus::Blocked => exit::BLOCKED,
            RunStatus::Cancelled => exit::FAILED,
            RunStatus::Failed => tampering(self.error.as_ref()).unwrap_or(exit::FAILED),
        }
    }

    /// The pending step with this task.
    #[must_use]
    pub fn pending(&self, task: &str) -> Option<&Pending> {
        self.pending.get(self.place_of(task)?)
    }
}

/// The exit code that an error keeps wherever its run is told of: a safety violation, or a state that
/// contradicts itself.
#[must_use]
pub fn tampering(error: Option<&Fault>) -> Option<u8> {
    let code = error.map(Fault::exit_code);
    code.filter(|code| [exit::SAFETY, exit::CORRUPTED].contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::Kind;

    #[test]
    fn every_outcome_of_a_run_has_one_exit_code() {
        let table = [
            (RunStatus::Running, None, 0),
            (RunStatus::Succeeded, None, 0),
            (RunStatus::Blocked, None, 4),
            (RunStatus::Blocked, Some(Kind::ScopeViolation), 4),
            (RunStatus::Cancelled, None, 1),
            (RunStatus::Failed, None, 1),
            (RunStatus::Failed, Some(Kind::StepFailed), 1),
            (RunStatus::Failed, Some(Kind::Busy), 1),
            (RunStatus::Failed, Some(Kind::UnknownAgent), 1),
            (RunStatus::Failed, Some(Kind::ScopeViolation), 1),
            (RunStatus::Failed, Some(Kind::SafetyViolation), 2),
            (RunStatus::Failed, Some(Kind::StateCorrupted), 3),
        ];
        for (status, kind, code) in table {
            let mut state = crate::run::flow::nothing();
            state.set_status(status);
            state.error = kind.map(|kind| Fault::new(kind, "why"));
            assert_eq!(state.exit_code(), code, "{status:?}, {kind:?}");
        }
    }
}
