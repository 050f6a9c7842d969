//! What the dialect has and this version cannot do yet.

use crate::error::{Fault, Kind, Result};
use crate::workflow::Workflow;
use crate::workflow::model::{Step, Work};

/// Every use of what this version cannot do, with its step and line, so that a run can be refused
/// before it begins.
#[must_use]
pub fn unsupported(workflow: &Workflow) -> Vec<String> {
    let mut all = Vec::new();
    for step in &workflow.steps {
        let (name, line) = (&step.name.value, step.name.place.line);
        let told = |what: &&str| format!("line {line}: step `{name}`: {what}");
        all.extend(uses(step).iter().map(told));
    }
    all
}

/// Refuses a step that uses any of it.
pub(super) fn refuse(step: &Step) -> Result<()> {
    let uses = uses(step);
    if uses.is_empty() {
        return Ok(());
    }
    let message = format!("not supported yet by this version: {}", uses.join(", "));
    Err(Fault::new(Kind::WorkflowValidationError, message)
        .hint("take it out of the workflow, or use a newer orch"))
}

fn uses(step: &Step) -> Vec<&'static str> {
    let mut uses = Vec::new();
    match &step.work {
        Work::Human(_) => uses.push("`agent: human`"),
        _ => {}
    }
    if step.approval.is_some() || matches!(step.work, Work::Approval) {
        uses.push("`approval`");
    }
    uses
}
