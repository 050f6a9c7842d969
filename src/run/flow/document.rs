//! The canonical document: what a step may change of it, what it changed, and how that is merged.
//!
//! A step sees the fields of `state` at the top level, and beside them `metadata` and `governance`,
//! which nobody changes but orch. What it changed is found by comparison, deletions included, and is
//! merged in the commit of its result, or not at all: a single change outside of `updates` is a
//! violation, and then nothing is taken.
//!
//! # Violations
//!
//! Whoever finds that a step went beyond what it may do, in the document or in files, says so by a
//! result that has failed with an error of the kind [`Kind::ScopeViolation`] ([`violation`] makes
//! one) and exit code 2, and that is all: `Run::violated` does what the workflow's `on_violation`
//! asks for. `reject`: the step has failed, and handlers may catch it. `block`: the run is blocked
//! with that message, and a resume runs the step again. `stop`: the run has failed for good, as a
//! [`Kind::SafetyViolation`]. A violation is never tried again by `retries`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Illegal, Run, illegal};
use crate::run::state::{Block, Changes, Pending, RunState, Stage, StepResult, StepStatus};
use crate::spec::workflow::model::{Action, Step, StepId, Text, Violation, Work};
use crate::text::error::{Fault, Kind};

/// The fields of the document that are orch's own.
pub const RESERVED: [&str; 2] = ["metadata", "governance"];
/// Where the plan stands in the document.
pub const PLAN: &str = "/plan";
/// How many changes a message names.
const NAMED: usize = 3;
/// How much of a path a message shows.
const SHOWN: usize = 80;

/// The document as a step sees it.
#[must_use]
pub fn document(state: &RunState) -> Map<String, Value> {
    let mut document = state.state.clone();
    document.insert("metadata".to_owned(), json!(state.metadata));
    document.insert("governance".to_owned(), json!(state.governance));
    document
}

/// What differs between two documents.
#[must_use]
pub fn compare(before: &Map<String, Value>, after: &Map<String, Value>) -> Changes {
    let mut changes = Changes::default();
    compare_maps("", before, after, &mut changes);
    changes
}

fn compare_maps(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Changes,
) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        changes.removed.insert(pointer(path, key));
    }
    for (key, now) in after {
        let path = pointer(path, key);
        match (before.get(key), now) {
            (Some(Value::Object(before)), Value::Object(now)) => {
                compare_maps(&path, before, now, changes);
            }
            // A map that is new is told by its fields, so that one may be made on the way.
            (None, Value::Object(now)) if !now.is_empty() => {
                compare_maps(&path, &Map::new(), now, changes);
            }
            (Some(before), now) if before == now => {}
            (_, now) => {
                changes.set.insert(path, now.clone());
            }
        }
    }
}

/// What a step that left the document alone says about its parts in its JSON.
#[must_use]
pub fn told(before: &Map<String, Value>, output: &Value, updates: &[Text]) -> Changes {
    let mut after = before.clone();
    for part in updates {
        let told = part
            .value
            .split('.')
            .try_fold(output, |at, key| at.get(key));
        if let Some(value) = told {
            let keys: Vec<String> = part.value.split('.').map(str::to_owned).collect();
            put(&mut after, &keys, value.clone());
        }
    }
    compare(before, &after)
}

/// The violation that a step's changes are, if one of them is outside of its parts.
#[must_use]
pub fn outside(step: &str, changes: &Changes, updates: &[Text]) -> Option<Fault> {
    let all = changes.set.keys().chain(&changes.removed);
    let beyond: BTreeSet<String> = all
        .filter(|path| !is_inside(path, updates))
        .map(|path| shown(path))
        .collect();
    if beyond.is_empty() {
        return None;
    }
    let more = match beyond.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<String> = beyond.into_iter().take(NAMED).collect();
    let message = format!(
        "step `{step}` changed {}{more} in the document, which it may not",
        named.join(", ")
    );
    let parts: Vec<String> = updates
        .iter()
        .map(|part| format!("`{}`", part.value))
        .collect();
    Some(violation(message).hint(match parts.is_empty() {
        true => "it has no `updates`, so the document is only for it to read".to_owned(),
        false => format!(
            "its `updates` are {}; nothing of it was taken",
            parts.join(", ")
        ),
    }))
}

/// What a step did beyond its scope.
#[must_use]
pub fn violation(message: impl Into<String>) -> Fault {
    Fault::new(Kind::ScopeViolation, message)
}

fn is_inside(path: &str, updates: &[Text]) -> bool {
    let keys = keys(path);
    let reserved = |key: &String| RESERVED.contains(&key.as_str());
    let covers = |part: &Text| {
        let parts: Vec<&str> = part.value.split('.').collect();
        parts.len() <= keys.len() && parts.iter().zip(&keys).all(|(part, key)| part == key)
    };
    !keys.first().is_some_and(reserved) && updates.iter().any(covers)
}

fn shown(path: &str) -> String {
    let path: String = keys(path).join(".").escape_debug().collect();
    match path.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}…`", &path[..end]),
        None => format!("`{path}`"),
    }
}

fn pointer(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn keys(path: &str) -> Vec<String> {
    let key = |part: &str| part.replace("~1", "/").replace("~0", "~");
    path.split('/').skip(1).map(key).collect()
}

/// Puts a value at a path, making maps on the way where there are none.
fn put(map: &mut Map<String, Value>, keys: &[String], value: Value) {
    let Some((first, rest)) = keys.split_first() else {
        return;
    };
    if rest.is_empty() {
        map.insert(first.clone(), value);
        return;
    }
    let inner = map.entry(first.clone()).or_insert(Value::Null);
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}

fn remove(map: &mut Map<String, Value>, keys: &[String]) {
    match keys {
        [last] => {
            map.shift_remove(last);
        }
        [first, rest @ ..] => {
            if let Some(Value::Object(inner)) = map.get_mut(first) {
                remove(inner, rest);
            }
        }
        [] => {}
    }
}

/// The state with these changes, if there are any: what guards see that are asked after the merge.
#[must_use]
pub fn merged(state: &RunState, changes: &Changes) -> Option<RunState> {
    if changes.is_empty() {
        return None;
    }
    let mut state = state.clone();
    merge(&mut state.state, changes);
    Some(state)
}

fn merge(document: &mut Map<String, Value>, changes: &Changes) {
    let removed = changes.removed.iter();
    removed.for_each(|path| remove(document, &keys(path)));
    for (path, value) in &changes.set {
        put(document, &keys(path), value.clone());
    }
}

/// The plan is for the actions that read it to set, and they set nothing else.
fn is_own_plan(step: &Step, changes: &Changes) -> bool {
    let reads_plan = matches!(
        step.work,
        Work::Action(Action::LoadPlan { .. } | Action::MarkPlan { .. })
    );
    reads_plan && changes.removed.is_empty() && changes.set.keys().all(|path| path == PLAN)
}

impl Run<'_> {
    /// Takes over what a step changed.
    pub(super) fn merge(
        &mut self,
        id: StepId,
        result: &StepResult,
        changes: &Changes,
    ) -> Result<(), Illegal> {
        if changes.is_empty() {
            return Ok(());
        }
        let step = self.workflow.step(id);
        if result.status != StepStatus::Succeeded {
            return illegal(format!(
                "`{}` has failed and changes nothing",
                step.name.value
            ));
        }
        if !is_own_plan(step, changes)
            && let Some(fault) = outside(&step.name.value, changes, &step.updates)
        {
            return illegal(fault.message);
        }
        merge(&mut self.state.state, changes);
        Ok(())
    }

    /// Does what the workflow asks for where a step went beyond its scope; true where that is all.
    pub(super) fn violated(&mut self, id: StepId, pending: &Pending, result: &StepResult) -> bool {
        let fault = match &result.error {
            Some(fault) if fault.kind == Kind::ScopeViolation => fault,
            _ => return false,
        };
        match self.workflow.on_violation {
            Violation::Reject => return false,
            Violation::Block => {
                self.hold(id, pending.item, result);
                let reason = fault.message.clone();
                self.halt(id, pending.item, Stage::Run, "FAIL", reason, Vec::new());
            }
            Violation::Stop => {
                self.store(id, pending.item, result);
                self.stop(id, "FAIL", fault.clone(), Vec::new());
            }
        }
        true
    }

    /// A task came that the run does not wait for.
    pub(super) fn intruded(&mut self, fault: &Fault) -> Result<(), Illegal> {
        match self.workflow.on_violation {
            Violation::Reject => illegal("a task that nothing waits for is refused alone"),
            Violation::Stop => {
                self.fail(Fault {
                    kind: Kind::SafetyViolation,
                    ..fault.clone()
                });
                Ok(())
            }
            Violation::Block => {
                // It is nobody's step; the block is told at one that the run stands at.
                let steps = self.state.pending.iter().map(|pending| &pending.step);
                let blocks = self.state.blocks.iter().map(|block| &block.step);
                let Some(step) = steps.chain(blocks).next().cloned() else {
                    return illegal("the run stands at no step");
                };
                let id = self.id(&step)?;
                self.checkpoint(id, "INTRUSION", "_block", &fault.message, Vec::new());
                self.block(Block {
                    step,
                    item: None,
                    stage: Stage::Task,
                    reason: fault.message.clone(),
                    task: None,
                });
                Ok(())
            }
        }
    }

    /// A person corrects the document: all of it, or nothing.
    pub(super) fn corrected(
        &mut self,
        set: &Map<String, Value>,
        note: &str,
    ) -> Result<(), Illegal> {
        let mut document = self.state.state.clone();
        for (path, value) in set {
            let words: Vec<String> = path.split('.').map(str::to_owned).collect();
            if words.iter().any(String::is_empty) {
                return illegal(format!("`state.{path}` is not a path"));
            }
            if RESERVED.contains(&words[0].as_str()) {
                return illegal(format!("`state.{path}` is reserved and cannot be set"));
            }
            super::finish::put(&mut document, path, value.clone())
                .map_err(|why| Illegal(format!("`state.{path}` cannot be set: {why}")))?;
        }
        self.state.state = document;
        let Some(block) = self.state.blocks.first() else {
            return illegal("nothing says where the run is blocked");
        };
        let id = self.id(&block.step)?;
        let paths: Vec<String> = set.keys().map(|path| format!("`state.{path}`")).collect();
        let reason = format!("{}: {note}", paths.join(", "));
        self.checkpoint(id, "SET", "_block", &reason, Vec::new());
        self.ask_conditions_first();
        Ok(())
    }

    /// Stops the run for good.
    pub(super) fn stop(&mut self, id: StepId, word: &str, fault: Fault, guards: Vec<String>) {
        self.checkpoint(id, word, "_stop", &fault.message, guards);
        self.fail(Fault {
            kind: Kind::SafetyViolation,
            ..fault
        });
    }
}

#[cfg(test)]
#[path = "tests/document.rs"]
mod tests;
