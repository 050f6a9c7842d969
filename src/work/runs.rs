//! What everybody who handles a run needs: its id, its workflow, its inboxes, an event under its lock.
//!
//! Between the commands and the engine on one side and the store on the other. It decides nothing
//! about a run (that is `flow`); of tasks it only drops those that a run waits for.

pub mod people;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agents::catalogue::Catalogue;
use crate::disk::mailbox::Mailbox;
use crate::disk::specs::{self, Folder, Recorder, is_inside_specs};
use crate::disk::store::{PATIENCE, RunDir, Runs, Spec, workflow_of};
use crate::run::flow;
use crate::run::state::{Effect, Event, Pending, RunState};
use crate::spec::policy::Policy;
use crate::spec::task::TaskName;
use crate::spec::workflow::model::{Step, Work};
use crate::spec::workflow::{self, Cel, Workflow};
use crate::text::error::{Fault, Kind, Result};
use crate::work::clock::now;

/// The id of a run that begins now: `YYYYMMDDTHHMMSSZ-<workflow>-xxxx`.
#[must_use]
pub fn fresh_id(workflow: &str, now: Timestamp, random: &Uuid) -> String {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    format!("{stamp}-{workflow}-{:04x}", random.as_u128() & 0xffff)
}

/// The run of a singleton that has the same input and is not finished.
///
/// # Errors
/// There is an unfinished one of another input.
pub fn unfinished(
    runs: &Runs,
    workflow: &Workflow,
    input: Option<&Value>,
) -> Result<Option<String>> {
    if !workflow.singleton {
        return Ok(None);
    }
    // As a run keeps it that was given none.
    let input = input.cloned().unwrap_or_else(|| json!({}));
    for id in runs.list()?.into_iter().rev() {
        let Ok(state) = runs.open(&id).and_then(|run| run.peek()) else {
            continue;
        };
        if state.workflow_name != workflow.name.value || state.status.is_final() {
            continue;
        }
        let given = state.variables.get("input");
        if given == Some(&input) {
            return Ok(Some(id));
        }
        let name = &workflow.name.value;
        let given = given.cloned().unwrap_or_default();
        let message = format!(
            "workflow `{name}` has one run at a time: `{id}` is not finished, of the input {given}, and this is of {input}"
        );
        let hint = format!("`orch resume {id}` goes on with it, `orch cancel {id}` ends it");
        return Err(Fault::new(Kind::Usage, message).hint(hint));
    }
    Ok(None)
}

/// The workflow that a word means, and every file that a run of it is pinned to.
///
/// # Errors
/// There is no such workflow, or `check` finds something wrong with it: then with the whole report.
pub fn load_workflow(root: &Path, word: &str) -> Result<(Workflow, Spec)> {
    let folder = Folder::open(root)?;
    let found = specs::find(root, word)?;
    let recorder = Recorder::new(&folder)?;
    let checked = workflow::check(&found.file, &found.text, &recorder, &Cel);
    let clean = checked.report.is_clean();
    let Some(workflow) = checked.workflow.filter(|_| clean) else {
        return Err(Fault::new(
            checked.report.kind(),
            format!(
                "`{}` is not valid\n{}",
                found.file,
                checked.report.render().trim_end()
            ),
        )
        .hint(format!(
            "`orch check {word}` shows this without running anything"
        )));
    };
    let path = spec_path(&found.file);
    recorder.add(path.clone(), found.text);
    let spec = Spec {
        workflow: path,
        files: recorder.used(),
    };
    Ok((workflow, spec))
}

/// Refuses a workflow with a step that must be confined and cannot be on this system, before a run
/// of it begins.
///
/// # Errors
/// Which step, and what is missing.
pub fn refuse_unconfined(root: &Path, workflow: &Workflow) -> Result<()> {
    let catalogue = Catalogue::load(root)?;
    for step in &workflow.steps {
        let setup = match &step.work {
            Work::Agent(work) => catalogue.step_setup(&work.who, &workflow.providers),
            Work::Command(_) => Ok(catalogue.command_setup()),
            _ => continue,
        };
        // What is wrong with an agent is said by who reads it.
        let Ok(setup) = setup else { continue };
        let own = Policy {
            sandbox: step.confine.sandbox,
            network: step.confine.network,
            ..Policy::default()
        };
        if let Some(fault) = own.over(catalogue.policy(&setup)).refusal() {
            let message = format!("step `{}`: {}", step.name.value, fault.message);
            return Err(Fault { message, ..fault });
        }
    }
    Ok(())
}

/// Where a workflow's file lies among the files of a run.
fn spec_path(file: &str) -> String {
    match is_inside_specs(file) {
        true => file.to_owned(),
        false => format!("specs/{}", file.rsplit('/').next().unwrap_or(file)),
    }
}

/// The workflow that a run was begun with.
///
/// # Errors
/// Its copy was changed or is missing, or this orch finds it faulty.
pub fn pinned(run: &RunDir) -> Result<Workflow> {
    let spec = run.spec()?;
    workflow_of(&spec).map_err(|why| {
        let message = format!("run `{}` cannot go on with its workflow: {why}", run.id());
        Fault::new(Kind::WorkflowValidationError, message)
            .hint("another version of orch began it, perhaps; start a new run")
    })
}

/// The agents, providers and settings that a run was begun with.
///
/// # Errors
/// Where they cannot be read.
pub fn pinned_registry(run: &RunDir) -> Result<Catalogue> {
    Catalogue::pinned(&run.dir().path().join("spec"), &run.root().path)
}

/// The workflow that a word means, refused where a run of it could not be confined as it says.
///
/// # Errors
/// As [`load_workflow`] and [`refuse_unconfined`].
pub fn load_runnable(root: &Path, word: &str) -> Result<(Workflow, Spec)> {
    let (workflow, spec) = load_workflow(root, word)?;
    refuse_unconfined(root, &workflow)?;
    Ok((workflow, spec))
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

/// Ends a run for good because it cannot be trusted, and its tasks, all but the one that found out.
/// Whether that was necessary: one that has ended already stays as it is.
///
/// # Errors
/// Where the disk refuses, or the run is busy: it is then not stopped, or some of its tasks are not.
pub fn stop(
    mailbox: &Mailbox,
    run: &RunDir,
    workflow: Option<&Workflow>,
    fault: &Fault,
    own: Option<&str>,
) -> Result<bool> {
    let Some(before) = run.lock(PATIENCE)?.stop(workflow, &now(), fault)? else {
        return Ok(false);
    };
    let is_name = |pending: &Pending| TaskName::parse(&pending.task).is_ok();
    let others = before.pending.into_iter();
    let others: Vec<Pending> = others
        .filter(|pending| own != Some(&pending.task) && is_name(pending))
        .collect();
    super::cancel::cancel_tasks(mailbox, run.id(), &others, fault)?;
    Ok(true)
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

/// Every inbox that a run of this workflow goes through: its own at the start, then its steps'.
#[must_use]
pub fn inboxes(workflow: &Workflow) -> BTreeSet<&str> {
    let own = std::iter::once(workflow.name.value.as_str());
    let asks = |step: &&Step| step.approval.is_some();
    let people = workflow.steps.iter().find(asks).map(|_| flow::HUMAN);
    let steps = workflow.steps.iter().map(Step::inbox);
    own.chain(steps).chain(people).collect()
}
