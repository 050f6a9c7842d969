//! What guards and texts may see of a run, and which globs have to be looked up for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::run::state::{Facts, RunState, StepResult};
use crate::spec::expr::Expr;
use crate::spec::scope::{Scope, Table};
use crate::spec::vars::{NoOutputs, Text};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::{Flow, Level, Row, Step, StepId, When, Work};

/// Nothing was looked up.
pub(super) static NO_FACTS: Facts = Facts {
    exists: BTreeMap::new(),
};

/// Everything that can be named in a step: for an item of a loop, with that item's own results.
#[must_use]
pub fn scope<'s>(
    workflow: &'s Workflow,
    state: &'s RunState,
    id: StepId,
    item: Option<usize>,
    facts: &'s Facts,
) -> Scope<'s> {
    let mut scope = Scope::new();
    for root in ["request", "reply", "input", "context", "run"] {
        match state.variables.get(root) {
            Some(value) => scope.lend(root, value),
            None if root == "input" || root == "context" => scope.set(root, json!({})),
            None => {}
        }
    }
    scope.table("state", Table::of(&state.state));
    scope.table("snapshots", Table::of(&state.snapshots));
    scope.table("approvals", Table::of(&state.governance.approvals));
    scope.table("steps", steps(workflow, state, id, item));
    scope.later("visits", move || visits(workflow, state, id, item));
    if let (Some(parent), Some(index)) = (workflow.loop_of(id), item)
        && let Work::ForEach(each) = &workflow.step(parent).work
        && let Some(running) = state.loops.get(&workflow.step(parent).name.value)
        && let Some(value) = running.items.get(index)
    {
        scope.lend("item", value);
        scope.lend(each.name.as_str(), value);
        scope.set(
            "loop",
            json!({"index": index, "total": running.items.len()}),
        );
    }
    scope.answers(&facts.exists);
    scope
}

/// The same, with what the step itself has just produced.
pub(super) fn with_result<'s>(scope: &mut Scope<'s>, result: &'s StepResult) {
    match (&result.json_data, &result.lines, &result.output) {
        (Some(document), ..) => scope.lend("output", document),
        (None, Some(lines), _) => scope.set("output", json!(lines)),
        (None, None, Some(text)) => scope.set("output", text.as_str()),
        (None, None, None) => scope.set("output", Value::Null),
    }
    scope.set("exit_code", result.exit_code);
    scope.set("status", result.status.as_str());
    scope.set(
        "error",
        result
            .error
            .as_ref()
            .map_or_else(|| json!({}), |e| json!(e)),
    );
}

/// `steps.X` in the words of the dialect.
fn steps<'s>(
    workflow: &Workflow,
    state: &'s RunState,
    id: StepId,
    item: Option<usize>,
) -> Table<'s> {
    let mut all = Table::default();
    all.show(&state.step_results, shown);
    if let (Some(parent), Some(index)) = (workflow.loop_of(id), item)
        && let Some(Value::Array(items)) = state.step_results.get(&workflow.step(parent).name.value)
        && let Some(Value::Object(own)) = items.get(index)
    {
        all.show(own, shown);
    }
    all
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

/// How often each step was entered: those of the body in which a step stands, for its item.
fn visits(workflow: &Workflow, state: &RunState, id: StepId, item: Option<usize>) -> Value {
    let parent = workflow.loop_of(id).filter(|_| item.is_some());
    let own = item.and_then(|index| {
        let running = state.loops.get(&workflow.step(parent?).name.value)?;
        Some(&running.progress.get(index)?.visits)
    });
    let count = |other: StepId| {
        let name = &workflow.step(other).name.value;
        let counts = match own {
            Some(own) if workflow.loop_of(other) == parent => own,
            _ => &state.visits,
        };
        (name.clone(), json!(counts.get(name).copied().unwrap_or(0)))
    };
    workflow
        .ids()
        .map(count)
        .collect::<Map<String, Value>>()
        .into()
}

/// The result of a step that is kept: of one that runs beside others, the one that is held back.
pub(super) fn stored(
    workflow: &Workflow,
    state: &RunState,
    id: StepId,
    item: Option<usize>,
) -> Option<StepResult> {
    let step = workflow.step(id);
    let name = &step.name.value;
    if matches!(step.work, Work::ForEach(_)) {
        return state.loop_results.get(name).cloned();
    }
    if let Level::Parallel(parent) = step.level
        && let Some(group) = state
            .groups
            .get(&group_key(&workflow.step(parent).name.value, item))
        && let Some(held) = group.held.get(name)
    {
        return Some(held.clone());
    }
    let value = match (workflow.loop_of(id), item) {
        (Some(parent), Some(index)) => {
            let parent = &workflow.step(parent).name.value;
            state.step_results.get(parent)?.get(index)?.get(name)?
        }
        _ => state.step_results.get(name)?,
    };
    StepResult::deserialize(value).ok()
}

/// Under which name a group that is being run is kept.
pub(super) fn group_key(name: &str, item: Option<usize>) -> String {
    match item {
        Some(index) => format!("{name}[{index}]"),
        None => name.to_owned(),
    }
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
    let step = workflow.step(id);
    let mut globs = BTreeSet::new();
    if moment == Moment::Entering {
        let asks = entering(step);
        if !asks.is_empty() {
            let sees = scope(workflow, state, id, item, &NO_FACTS);
            globs.extend(asks.iter().flat_map(|ask| ask.globs(&sees)));
        }
    }
    // Also at the entry: a loop may be empty, and what runs once may have its result. The last of a
    // group or of a loop's items is followed by the guards of what it stands in.
    let mut at = Some(id);
    while let Some(here) = at {
        let asks = finishing(workflow.step(here));
        if !asks.is_empty() {
            let fresh = fresh(workflow, state, id, item, moment);
            let kept = match moment {
                Moment::Entering if step.once => stored(workflow, state, id, item),
                _ => None,
            };
            let mut sees = scope(workflow, state, here, item, &NO_FACTS);
            let mut all = steps(workflow, state, here, item);
            all.show(&fresh, shown);
            sees.table("steps", all);
            let result = match moment {
                Moment::Finishing(result) => Some(result),
                Moment::Entering => kept.as_ref(),
            };
            if let Some(result) = result.filter(|_| here == id) {
                with_result(&mut sees, result);
            }
            globs.extend(asks.iter().flat_map(|ask| ask.globs(&sees)));
        }
        at = match workflow.step(here).level {
            Level::Body(up) | Level::Parallel(up) => Some(up),
            Level::Top => None,
        };
    }
    globs
}

/// The globs that a resume has to bring with it.
#[must_use]
pub fn wanted_on_resume(workflow: &Workflow, state: &RunState) -> BTreeSet<String> {
    let mut globs = BTreeSet::new();
    for block in &state.blocks {
        if let Some(id) = workflow.find(&block.step)
            && let Some(result) = stored(workflow, state, id, block.item)
        {
            globs.extend(wanted(
                workflow,
                state,
                id,
                block.item,
                Moment::Finishing(&result),
            ));
        }
    }
    globs
}

/// The results that will be there when the guards are asked: this one, and those of its group.
fn fresh(
    workflow: &Workflow,
    state: &RunState,
    id: StepId,
    item: Option<usize>,
    moment: Moment<'_>,
) -> Map<String, Value> {
    let mut fresh = Map::new();
    if let Level::Parallel(parent) = workflow.step(id).level
        && let Some(group) = state
            .groups
            .get(&group_key(&workflow.step(parent).name.value, item))
    {
        let results = group.results.iter();
        fresh.extend(results.map(|(name, result)| (name.clone(), json!(result))));
    }
    if let Moment::Finishing(result) = moment {
        fresh.insert(workflow.step(id).name.value.clone(), json!(result));
    }
    fresh
}

/// Something in a workflow that asks for files.
enum Ask<'w> {
    Glob(&'w str),
    Guard(Arc<Expr>),
}

impl Ask<'_> {
    /// Which, as far as that can be said.
    fn globs(&self, scope: &Scope<'_>) -> Vec<String> {
        match self {
            Ask::Guard(guard) => guard.asks_exists(scope),
            Ask::Glob(glob) => {
                let filled = Text::parse(glob).and_then(|text| text.fill(scope, &NoOutputs));
                filled.into_iter().collect()
            }
        }
    }
}

fn entering(step: &Step) -> Vec<Ask<'_>> {
    let when = match &step.when {
        Some(When::Exists(glob) | When::NotExists(glob)) => Some(Ask::Glob(&glob.value)),
        Some(When::If(guard)) => asking(&guard.value),
        Some(When::Equals(..)) | None => None,
    };
    let requires = step.requires.iter();
    let requires = requires.filter_map(|gate| asking(&gate.check.value));
    when.into_iter().chain(requires).collect()
}

fn finishing(step: &Step) -> Vec<Ask<'_>> {
    let ensures = step.ensures.iter().map(|gate| &gate.check.value);
    let rows: &[Row] = match &step.flow {
        Flow::Rows { rows, .. } => rows,
        Flow::Handlers { .. } => &[],
    };
    let rows = rows.iter().map(|row| &row.guard.value);
    ensures
        .chain(rows)
        .filter_map(|guard| asking(guard))
        .collect()
}

/// A guard, if it asks for files.
fn asking<'w>(guard: &str) -> Option<Ask<'w>> {
    let guard = Expr::cached(guard).ok()?;
    guard.is_about_files().then_some(Ask::Guard(guard))
}
