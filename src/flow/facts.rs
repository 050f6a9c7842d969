//! What guards and texts may see of a run, and which globs have to be looked up for them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::expr::Expr;
use crate::scope::Scope;
use crate::state::{Facts, RunState, StepResult};
use crate::vars::{NoOutputs, Text};
use crate::workflow::Workflow;
use crate::workflow::model::{Flow, Step, StepId, When, Work};

/// Everything that can be named in a step: for an item of a loop, with that item's own results.
#[must_use]
pub fn scope<'s>(
    workflow: &Workflow,
    state: &'s RunState,
    id: StepId,
    item: Option<usize>,
    facts: &Facts,
) -> Scope<'s> {
    let mut scope = Scope::new();
    for root in ["request", "reply", "input", "context", "run"] {
        match state.variables.get(root) {
            Some(value) => scope.lend(root, value),
            None if root == "input" || root == "context" => scope.set(root, json!({})),
            None => {}
        }
    }
    scope.set("state", Value::Object(state.state.clone()));
    scope.set("snapshots", Value::Object(state.snapshots.clone()));
    scope.set(
        "approvals",
        Value::Object(state.governance.approvals.clone()),
    );
    scope.set("steps", steps(workflow, state, id, item));
    scope.set("visits", visits(workflow, state, id, item));
    if let (Some(parent), Some(index)) = (workflow.loop_of(id), item)
        && let Work::ForEach(each) = &workflow.step(parent).work
        && let Some(running) = state.loops.get(&workflow.step(parent).name.value)
        && let Some(value) = running.items.get(index)
    {
        scope.set("item", value.clone());
        scope.set(each.name.clone(), value.clone());
        scope.set(
            "loop",
            json!({"index": index, "total": running.items.len()}),
        );
    }
    for (glob, found) in &facts.exists {
        scope.answer(glob.clone(), *found);
    }
    scope
}

/// The same, with what the step itself has just produced.
pub(super) fn with_result(scope: &mut Scope<'_>, result: &StepResult) {
    scope.set("output", output(result));
    scope.set("exit_code", result.exit_code);
    scope.set("status", json!(result.status));
    scope.set(
        "error",
        result
            .error
            .as_ref()
            .map_or_else(|| json!({}), |e| json!(e)),
    );
}

fn output(result: &StepResult) -> Value {
    if let Some(document) = &result.json_data {
        return document.clone();
    }
    match (&result.lines, &result.output) {
        (Some(lines), _) => json!(lines),
        (None, Some(text)) => json!(text),
        (None, None) => Value::Null,
    }
}

/// `steps.X` in the words of the dialect.
fn steps(workflow: &Workflow, state: &RunState, id: StepId, item: Option<usize>) -> Value {
    let mut all: Map<String, Value> = state
        .step_results
        .iter()
        .map(|(name, value)| (name.clone(), shown(value)))
        .collect();
    if let (Some(parent), Some(index)) = (workflow.loop_of(id), item)
        && let Some(Value::Array(items)) = state.step_results.get(&workflow.step(parent).name.value)
        && let Some(Value::Object(own)) = items.get(index)
    {
        for (name, value) in own {
            all.insert(name.clone(), shown(value));
        }
    }
    Value::Object(all)
}

/// A result under the names that guards and texts use.
fn shown(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| match item {
                    Value::Object(steps) => steps
                        .iter()
                        .map(|(name, value)| (name.clone(), shown(value)))
                        .collect(),
                    other => other.clone(),
                })
                .collect(),
        ),
        Value::Object(result) => {
            let mut result = result.clone();
            if let Some(document) = result.remove("json_data") {
                result.insert("json".to_owned(), document);
            }
            Value::Object(result)
        }
        other => other.clone(),
    }
}

fn visits(workflow: &Workflow, state: &RunState, id: StepId, item: Option<usize>) -> Value {
    let own = item.and_then(|index| {
        let parent = workflow.loop_of(id)?;
        let running = state.loops.get(&workflow.step(parent).name.value)?;
        Some(&running.progress.get(index)?.visits)
    });
    workflow
        .steps
        .iter()
        .map(|step| {
            let name = &step.name.value;
            let count = own
                .and_then(|own| own.get(name))
                .or_else(|| state.visits.get(name))
                .copied()
                .unwrap_or(0);
            (name.clone(), json!(count))
        })
        .collect::<Map<String, Value>>()
        .into()
}

/// When a step's guards are asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment<'r> {
    /// Before it runs.
    Entering,
    /// After it has this result.
    Finishing(&'r StepResult),
}

/// The globs that an event at this step has to bring with it. They may be more than are needed.
#[must_use]
pub fn wanted(
    workflow: &Workflow,
    state: &RunState,
    id: StepId,
    item: Option<usize>,
    moment: Moment<'_>,
) -> BTreeSet<String> {
    let mut globs = BTreeSet::new();
    let mut next = Some(id);
    // The last of a group or of a loop's items is followed by the guards of what it stands in.
    while let Some(at) = next {
        let step = workflow.step(at);
        let mut scope = scope(workflow, state, at, item, &Facts::default());
        match moment {
            Moment::Entering => entering(step, &scope, &mut globs),
            Moment::Finishing(result) => {
                with_result(&mut scope, result);
                finishing(step, &scope, &mut globs);
            }
        }
        next = match step.level {
            crate::workflow::model::Level::Top => None,
            crate::workflow::model::Level::Body(up)
            | crate::workflow::model::Level::Parallel(up) => Some(up),
        };
    }
    globs
}

fn entering(step: &Step, scope: &Scope<'_>, globs: &mut BTreeSet<String>) {
    match &step.when {
        Some(When::Exists(glob) | When::NotExists(glob)) => {
            let filled = Text::parse(&glob.value)
                .ok()
                .and_then(|text| text.fill(scope, &NoOutputs).ok());
            globs.extend(filled);
        }
        Some(When::If(guard)) => asked(&guard.value, scope, globs),
        Some(When::Equals(..)) | None => {}
    }
    step.requires
        .iter()
        .for_each(|gate| asked(&gate.check.value, scope, globs));
}

fn finishing(step: &Step, scope: &Scope<'_>, globs: &mut BTreeSet<String>) {
    step.ensures
        .iter()
        .for_each(|gate| asked(&gate.check.value, scope, globs));
    if let Flow::Rows { rows, .. } = &step.flow {
        rows.iter()
            .for_each(|row| asked(&row.guard.value, scope, globs));
    }
}

fn asked(guard: &str, scope: &Scope<'_>, globs: &mut BTreeSet<String>) {
    if let Ok(expr) = Expr::cached(guard) {
        globs.extend(expr.asks_exists(scope));
    }
}
