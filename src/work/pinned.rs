//! A run with the spec that it is pinned to: what everybody needs who works on a run or answers it.
//!
//! Also the events that a command applies to a run, each under the run's lock. What an event means is
//! decided by `flow`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agents::catalogue::Catalogue;
use crate::agents::secrets;
use crate::disk::globs;
use crate::disk::store::{PATIENCE, RunDir, workflow_of};
use crate::run::mask::Masker;
use crate::run::state::{Effect, Event, Facts, RunState};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::StepId;
use crate::text::error::{Fault, Kind, Result};
use crate::work::clock::now;

/// A run with its folder and everything that it is pinned to.
pub struct PinnedRun {
    /// The folder of the run, and its log.
    pub run: RunDir,
    /// The workflow that the run was begun with.
    pub workflow: Workflow,
    /// The agents, providers and settings that the run was begun with.
    pub catalogue: Catalogue,
    /// The secrets that any of its steps declares.
    pub masker: Masker,
}

impl PinnedRun {
    /// Reads the spec of a run, and checks it against its hashes.
    ///
    /// # Errors
    /// The spec was changed or is missing, or this orch finds it invalid.
    pub fn open(run: RunDir) -> Result<PinnedRun> {
        let workflow = workflow(&run)?;
        PinnedRun::with(run, workflow)
    }

    /// The same where the workflow has been read already.
    ///
    /// # Errors
    /// The agents and settings of the run cannot be read.
    pub fn with(run: RunDir, workflow: Workflow) -> Result<PinnedRun> {
        let catalogue = Catalogue::pinned(&run.dir().path().join("spec"), &run.root().path)?;
        Ok(PinnedRun {
            masker: secrets::of_workflow(&workflow),
            run,
            workflow,
            catalogue,
        })
    }

    /// The step of this name, which the state of the run names.
    ///
    /// # Errors
    /// `StateCorrupted` where the workflow has no such step.
    pub fn step(&self, name: &str) -> Result<StepId> {
        self.workflow.find(name).ok_or_else(|| {
            let run = self.run.id();
            let message =
                format!("run `{run}` waits for step `{name}`, which its workflow does not have");
            Fault::new(Kind::StateCorrupted, message)
        })
    }

    /// Which of these globs match a file now.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn facts(&self, wanted: &BTreeSet<String>) -> Result<Facts> {
        let root = &self.run.root().path;
        globs::facts(root, wanted).map_err(|e| Fault::io("look for files in", root, &e))
    }
}

/// The workflow that a run was begun with.
///
/// # Errors
/// Its copy was changed or is missing, or this orch finds it faulty.
pub fn workflow(run: &RunDir) -> Result<Workflow> {
    let spec = run.spec()?;
    workflow_of(&spec).map_err(|why| {
        let message = format!("run `{}` cannot go on with its workflow: {why}", run.id());
        Fault::new(Kind::WorkflowValidationError, message)
            .hint("another version of orch began it, perhaps; start a new run")
    })
}

/// The latest state of a run.
///
/// # Errors
/// As [`RunDir::lock`] and `load`; `StateNotFound` where the run has not begun.
pub fn load(run: &RunDir, workflow: &Workflow) -> Result<Arc<RunState>> {
    begun(run, run.lock(PATIENCE)?.load(workflow)?)
}

/// Applies an event to the latest state of a run, under its lock.
///
/// # Errors
/// As [`load`], and where the event does not fit the state.
pub fn apply(
    run: &RunDir,
    workflow: &Workflow,
    event: Event,
) -> Result<(Arc<RunState>, Vec<Effect>)> {
    apply_with(run, workflow, |_| Ok(event))
}

/// The same for an event that depends on the state, or that the state forbids.
///
/// # Errors
/// As [`apply`], and whatever `event` says.
pub fn apply_with(
    run: &RunDir,
    workflow: &Workflow,
    event: impl FnOnce(&RunState) -> Result<Event>,
) -> Result<(Arc<RunState>, Vec<Effect>)> {
    let locked = run.lock(PATIENCE)?;
    let state = begun(run, locked.load(workflow)?)?;
    let event = event(&state)?;
    locked.apply(workflow, state, &now(), event)
}

/// A state that has a first event.
///
/// # Errors
/// `StateNotFound` where the run has not begun.
pub fn begun(run: &RunDir, state: Arc<RunState>) -> Result<Arc<RunState>> {
    if state.seq > 0 {
        return Ok(state);
    }
    let message = format!("run `{}` has not begun yet", run.id());
    Err(Fault::new(Kind::StateNotFound, message).hint("`orch watch` works on what waits"))
}
