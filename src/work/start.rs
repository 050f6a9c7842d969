//! What a run starts from: its id, its workflow with the files that it will be pinned to, and the
//! inboxes that it will go through.
//!
//! Decides whether a run may start. Makes nothing: that is the step worker's.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agents::catalogue::Catalogue;
use crate::disk::specs::{self, Folder, Recorder, is_inside_specs};
use crate::disk::store::{Runs, Spec};
use crate::run::flow;
use crate::spec::policy::Policy;
use crate::spec::workflow::model::{Step, Work};
use crate::spec::workflow::{self, Workflow};
use crate::text::error::{Fault, Kind, Result};

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
    let checked = workflow::check(&found.file, &found.text, &recorder);
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

/// The workflow that a word means, refused where a run of it could not be confined as it says.
///
/// # Errors
/// As [`load_workflow`] and [`refuse_unconfined`].
pub fn load_runnable(root: &Path, word: &str) -> Result<(Workflow, Spec)> {
    let (workflow, spec) = load_workflow(root, word)?;
    refuse_unconfined(root, &workflow)?;
    Ok((workflow, spec))
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
