//! Whether a run is what its log says, and what it tells of the run.
//!
//! The log is replayed from its first line through the same `flow::step` that made it; then the
//! cached state, the artifacts, the snapshots and the spec are held against what came out. It only
//! reads: nothing is repaired here, and what differs comes back as data, every place by its name.

mod derive;
mod render;
#[cfg(test)]
mod tests;
mod told;
mod verify;

pub(crate) use told::{entries, line};

use serde::Serialize;
use serde_json::Value;

use crate::disk::store::{PATIENCE, RunDir, is_stopped};
use crate::run::state::{RunState, RunStatus};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};

/// What an audit found.
#[derive(Debug, Clone, Serialize)]
pub struct Audit {
    /// The run.
    pub run: String,
    /// How it stands: by its log, and where that leads nowhere, by what is kept.
    pub status: Option<RunStatus>,
    /// Why it failed, if it did.
    pub error: Option<Fault>,
    /// How many events its log has.
    pub events: u64,
    /// How many hashes were compared, those of the log's lines included.
    pub hashes: u64,
    /// Everything that is not as it should be.
    pub findings: Vec<Finding>,
    /// What was decided, and when it was locked.
    pub decisions: Vec<Decision>,
    /// Which issues were found.
    pub issues: Vec<Issue>,
    /// What was done about them, and why.
    pub fixes: Vec<Fix>,
    /// Which way it went, and why.
    pub transitions: Vec<Transition>,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, and the line or the field in it.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

/// A locked decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// The name of its snapshot.
    pub name: String,
    /// The step that made it.
    pub step: String,
    /// When it was locked.
    pub locked_at: String,
    /// The hash of the snapshot.
    pub sha256: String,
    /// What was decided, if the snapshot can be read.
    pub content: Option<Value>,
}

/// An entry of a list of `issues` in a step's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Issue {
    /// When the result was committed.
    pub at: String,
    /// The step.
    pub step: String,
    /// Which visit of it.
    pub visit: u64,
    /// The entry as it stands there.
    pub issue: Value,
}

/// An entry of a list of `fixes` in a step's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// When the result was committed.
    pub at: String,
    /// The step.
    pub step: String,
    /// Which visit of it.
    pub visit: u64,
    /// The entry as it stands there.
    pub fix: Value,
}

/// A transition that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// When.
    pub at: String,
    /// The number of the event that led to it.
    pub seq: u64,
    /// The phase of the step.
    pub phase: String,
    /// The step.
    pub step: String,
    /// How it went.
    pub status: String,
    /// Where it led.
    pub next: String,
    /// Why.
    pub reason: String,
    /// Every guard that was evaluated, with its value.
    pub guards: Vec<String>,
}

impl Audit {
    /// Nothing differs.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding {
            place: place.into(),
            what: what.into(),
        });
    }
}

/// Re-derives a run from its log, and compares everything that can be compared. Without a workflow
/// (its copy was changed) the log is held against itself alone.
///
/// # Errors
/// Where the run is busy for too long, or its files cannot be read at all. What is wrong with them
/// is not an error but a [`Finding`].
pub fn audit<'w>(run: &RunDir, workflow: impl Into<Option<&'w Workflow>>) -> Result<Audit> {
    let workflow = workflow.into();
    let mut audit = Audit {
        run: run.id().to_owned(),
        status: None,
        error: None,
        events: 0,
        hashes: 0,
        findings: Vec::new(),
        decisions: Vec::new(),
        issues: Vec::new(),
        fixes: Vec::new(),
        transitions: Vec::new(),
    };
    // Long enough to see log and state as of one moment; not while the log is replayed.
    let locked = match run.lock(PATIENCE) {
        Ok(locked) => Some(locked),
        Err(fault) if fault.kind == Kind::StateCorrupted => {
            audit.find(format!("workspace/{}/lock", run.id()), fault.message);
            None
        }
        Err(fault) => return Err(fault),
    };
    let kept = verify::Kept::read(run, &mut audit)?;
    let log = run.open_log()?;
    drop(locked);
    let derived = derive::derive(run, workflow, log, kept.seq(), &mut audit)?;
    if workflow.is_some() {
        kept.compare(&derived, &mut audit);
    }
    let own = derived.whole.then(|| derived.state.clone());
    let own = own.filter(|state| state.seq > 0);
    // Where the log itself was found changed, only what is kept says that the run was stopped.
    let stopped = kept.state().filter(is_stopped);
    if let Some(state) = stopped.or(own).or_else(|| kept.state()) {
        audit.status = Some(state.status);
        audit.error = state.error;
    }
    verify::artifacts(run, &derived.files, &mut audit);
    verify::snapshots(run, &derived.state, &mut audit);
    verify::specs(run, &derived, &mut audit);
    audit.decisions = decisions(run, &derived.state);
    Ok(audit)
}

/// What is locked in a run, with what its snapshots say.
pub(crate) fn decisions(run: &RunDir, state: &RunState) -> Vec<Decision> {
    let text = |snapshot: &Value, key: &str| snapshot[key].as_str().unwrap_or_default().to_owned();
    let decision = |(name, snapshot): (&String, &Value)| Decision {
        name: name.clone(),
        step: text(snapshot, "step"),
        locked_at: text(snapshot, "locked_at"),
        sha256: text(snapshot, "sha256"),
        content: verify::snapshot_bytes(run, name)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()),
    };
    state.snapshots.iter().map(decision).collect()
}
