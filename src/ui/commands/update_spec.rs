//! `orch resume --update-spec`: a run that is not finished goes on with `specs/` as it is now.
//!
//! All checks come first, under the run's lock; what the old spec dropped into an inbox that the new
//! one does not use is ended before the event, so that nothing waits that nobody waits for.

use serde_json::Value;

use super::reset::refuse_while_worked_on;
use super::resume::is_final;
use crate::disk::mailbox::Mailbox;
use crate::disk::store::{PATIENCE, RunDir};
use crate::run::state::{Pending, RunState};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};
use crate::work::clock::now;
use crate::work::{cancel::cancel_tasks, inputs, pinned, start};

/// What became of it.
pub(super) enum Updated {
    /// The run goes by this workflow now.
    To(Box<Workflow>),
    /// `specs/` is what the run goes by already.
    Unchanged,
}

impl Updated {
    pub(super) fn told(&self) -> &'static str {
        match self {
            Updated::To(_) => "it goes on with specs/ as it is now; the spec of before is kept",
            Updated::Unchanged => {
                "specs/ has nothing new for it: it goes on with the spec that it has"
            }
        }
    }
}

pub(super) fn update_spec(mailbox: &Mailbox, run: &RunDir, workflow: &Workflow) -> Result<Updated> {
    let old = run.spec()?;
    let root = &mailbox.root.path;
    let locked = run.lock(PATIENCE)?;
    let state = pinned::begun(run, locked.load(workflow)?)?;
    if state.status.is_final() {
        return Err(is_final(run.id(), state.status, &state));
    }
    locked.check_snapshots(&state)?;
    let (new, spec) = start::load_runnable(root, word(&old.workflow))?;
    if new.name.value != workflow.name.value {
        let message = format!(
            "run `{}` is of workflow `{}`, and `{}` names `{}` now",
            run.id(),
            workflow.name.value,
            old.workflow,
            new.name.value
        );
        let hint = "give it its old name for this run; `orch run` starts one of another workflow";
        return Err(Fault::new(Kind::Usage, message).hint(hint));
    }
    if spec.sha256() == old.sha256() {
        return Ok(Updated::Unchanged);
    }
    let input = state
        .variables
        .get("input")
        .filter(|input| **input != Value::Null);
    inputs::check_input(&new, &spec, input)?;
    refuse_while_worked_on(mailbox, run.id(), &state.pending)?;
    locked.would_update(&new, &spec, &state)?;
    let why = Fault::new(
        Kind::Cancelled,
        "its step goes through another inbox since `orch resume --update-spec`",
    );
    cancel_tasks(mailbox, run.id(), &moved(&new, &state), &why)?;
    locked.update_spec(&new, &spec, state, &now())?;
    Ok(Updated::To(Box::new(new)))
}

/// The pending steps that go through another inbox in the new workflow.
fn moved(new: &Workflow, state: &RunState) -> Vec<Pending> {
    let is_moved = |pending: &&Pending| {
        let step = new.find(&pending.step).map(|id| new.step(id));
        pending.asks.is_none() && step.is_some_and(|step| step.inbox() != pending.agent)
    };
    state.pending.iter().filter(is_moved).cloned().collect()
}

/// How the workflow is found again in `specs/`, wherever this is called from.
fn word(path: &str) -> &str {
    let name = path.strip_prefix("specs/").unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, _)) if !name.contains('/') => stem,
        _ => path,
    }
}
