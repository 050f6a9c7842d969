//! A step has a result: what it changed is merged, then come `ensures`, and then the transition with
//! its `lock` and `set`, all in one commit.

use serde_json::{Map, Value};

use super::facts::{scope, stored, with_result};
use super::lock::{Lock, locked};
use super::visit::{check, filled, gates, shown};
use super::{Illegal, Run};
use crate::run::output::is_deeper;
use crate::run::state::{Block, Changes, Pending, Stage, StepResult, StepStatus};
use crate::spec::expr::Expr;
use crate::spec::scope::Scope;
use crate::spec::workflow::model::{Flow, Level, Row, StepId, Target, Text, Verdict, Work};
use crate::text::canonical::MAX_JSON_DEPTH;
use crate::text::error::{Fault, Kind};

/// Where a result leads, and why.
pub(super) struct Decision {
    outcome: Outcome,
    reason: String,
    /// The fields of the document that change, whole.
    set: Map<String, Value>,
    lock: Option<Lock>,
    /// The word of the checkpoint.
    word: &'static str,
    guards: Vec<String>,
}

enum Outcome {
    Go(Target),
    /// A failure that nothing handles: of an item, else of the run.
    Unhandled,
}

/// Why it leads nowhere.
pub(super) struct Stuck {
    reason: String,
    pub(super) guards: Vec<String>,
}

impl Run<'_> {
    pub(super) fn finished(
        &mut self,
        pending: Pending,
        mut result: StepResult,
        changes: &Changes,
    ) -> Result<(), Illegal> {
        let id = self.id(&pending.step)?;
        if result.attempt != pending.attempts {
            return super::illegal(format!(
                "`{}` is in attempt {}, not {}",
                pending.task, pending.attempts, result.attempt
            ));
        }
        if result.status == StepStatus::Skipped {
            return super::illegal(format!(
                "`{}` was begun and cannot be skipped",
                pending.task
            ));
        }
        result.visit = pending.visit;
        result.step_name.clone_from(&pending.step);
        self.remove_pending(&pending.task);
        self.go_on_unless_blocked();
        if let Some(fault) = uncatchable(&result) {
            self.store(id, pending.item, &result);
            self.fail(fault);
            return Ok(());
        }
        self.merge(id, &result, changes)?;
        if !self.violated(id, &pending, &result) {
            self.commit(id, pending.item, result);
        }
        Ok(())
    }

    /// Keeps a result, and goes where it leads.
    pub(super) fn commit(&mut self, id: StepId, item: Option<usize>, result: StepResult) {
        let step = self.workflow.step(id);
        if step.once {
            self.state.done_once.insert(step.name.value.clone());
        }
        self.hold(id, item, &result);
        self.settle(id, item, &result);
    }

    /// Keeps a result: that of a step that runs beside others, until all are there.
    pub(super) fn hold(&mut self, id: StepId, item: Option<usize>, result: &StepResult) {
        match self.group_of(id, item) {
            Some(group) => {
                group.held.insert(result.step_name.clone(), result.clone());
            }
            None => self.store(id, item, result),
        }
    }

    /// What guards see at a step, with its result if there is one.
    pub(super) fn sees<'s>(
        &'s self,
        id: StepId,
        item: Option<usize>,
        result: Option<&'s StepResult>,
    ) -> Scope<'s> {
        let mut sees = scope(self.workflow, &self.state, id, item, self.facts);
        if let Some(result) = result {
            with_result(&mut sees, result);
        }
        sees
    }

    /// Decides where a kept result leads, and goes there.
    pub(super) fn settle(&mut self, id: StepId, item: Option<usize>, result: &StepResult) {
        if result.status == StepStatus::Succeeded {
            let asked = gates(
                &self.workflow.step(id).ensures,
                &self.sees(id, item, Some(result)),
            );
            if let Some(unmet) = asked.unmet {
                return self.unmet(id, item, Stage::Ensures, "OK", unmet, asked.guards);
            }
            self.checked(id, asked.guards);
            if self.is_approved_afterwards(id) {
                return self.ask_for_approval(id, item);
            }
        }
        if self.is_in_group(id) {
            return self.join(id, item, result.clone());
        }
        self.transit(id, item, result);
    }

    /// The transition, once everything holds.
    pub(super) fn transit(&mut self, id: StepId, item: Option<usize>, result: &StepResult) {
        match self.decide(id, item, result) {
            Ok(decision) => self.follow(id, item, result, decision),
            Err(stuck) => self.halt(
                id,
                item,
                Stage::Next,
                word(result),
                stuck.reason,
                stuck.guards,
            ),
        }
    }

    pub(super) fn follow(
        &mut self,
        id: StepId,
        item: Option<usize>,
        result: &StepResult,
        decision: Decision,
    ) {
        if let Some(lock) = decision.lock
            && let Err(fault) = self.lock(id, lock)
        {
            return self.stop(id, decision.word, fault, decision.guards);
        }
        self.state.state.extend(decision.set);
        let failed_item = matches!(decision.outcome, Outcome::Unhandled) && self.is_item(id, item);
        let target = match decision.outcome {
            Outcome::Go(target) => target,
            Outcome::Unhandled if failed_item => Target::Next,
            Outcome::Unhandled => Target::Fail,
        };
        let shown = self.workflow.target_name(target).to_owned();
        self.checkpoint(id, decision.word, &shown, &decision.reason, decision.guards);
        if !failed_item {
            self.go(id, item, target, &decision.reason);
        } else if self.may_go() {
            self.item_ended(id, item, StepStatus::Failed, result.exit_code);
        }
    }

    pub(super) fn halt(
        &mut self,
        id: StepId,
        item: Option<usize>,
        stage: Stage,
        word: &str,
        reason: String,
        guards: Vec<String>,
    ) {
        self.checkpoint(id, word, "_block", &reason, guards);
        self.block(Block {
            step: self.workflow.step(id).name.value.clone(),
            item,
            stage,
            reason,
            task: None,
        });
    }

    pub(super) fn decide(
        &self,
        id: StepId,
        item: Option<usize>,
        result: &StepResult,
    ) -> Result<Decision, Stuck> {
        let failed = result.status == StepStatus::Failed;
        let (handler, default) = match &self.workflow.step(id).flow {
            Flow::Rows { failure, rows, .. } => match failure.filter(|_| failed) {
                None => return self.by_rows(rows, result, &self.sees(id, item, Some(result))),
                handler => (handler, Outcome::Unhandled),
            },
            Flow::Handlers {
                success,
                failure,
                always,
                ..
            } => {
                let handler = always.or(if failed { *failure } else { *success });
                match failed && self.workflow.strict_flow {
                    true => (handler, Outcome::Unhandled),
                    false => (handler, Outcome::Go(self.workflow.following(id))),
                }
            }
        };
        let error = result.error.as_ref().filter(|_| failed);
        Ok(Decision {
            outcome: handler.map_or(default, Outcome::Go),
            reason: error.map(|error| error.message.clone()).unwrap_or_default(),
            set: Map::new(),
            lock: None,
            word: word(result),
            guards: Vec::new(),
        })
    }

    /// The first row that holds; a guard that cannot be evaluated is not false.
    fn by_rows(
        &self,
        rows: &[Row],
        result: &StepResult,
        sees: &Scope<'_>,
    ) -> Result<Decision, Stuck> {
        let mut guards = Vec::new();
        for row in rows {
            let value = check(&row.guard.value, sees);
            guards.push(shown(&row.guard.value, &value));
            let taken = match value {
                Ok(false) => continue,
                Ok(true) => changed(&self.state.state, &row.set, sees)
                    .and_then(|set| Ok((set, locked(row, result)?))),
                Err(reason) => Err(reason),
            };
            let reason = row.reason.as_ref().map(|text| filled(&text.value, sees));
            return match taken {
                Err(reason) => Err(Stuck { reason, guards }),
                Ok((set, lock)) => Ok(Decision {
                    outcome: Outcome::Go(row.goto),
                    reason: reason.unwrap_or_default(),
                    set,
                    lock,
                    word: row.verdict.map_or_else(|| word(result), Verdict::as_str),
                    guards,
                }),
            };
        }
        let reason = "no row of `next` holds".to_owned();
        Err(Stuck { reason, guards })
    }

    /// Keeps a result where `steps.X` finds it.
    pub(super) fn store(&mut self, id: StepId, item: Option<usize>, result: &StepResult) {
        let step = self.workflow.step(id);
        let name = step.name.value.clone();
        if matches!(step.work, Work::ForEach(_)) {
            if result.status == StepStatus::Skipped {
                self.state
                    .step_results
                    .insert(name.clone(), Value::Array(Vec::new()));
            }
            self.state.loop_results.insert(name, result.clone());
            return;
        }
        let value = serde_json::to_value(result).unwrap_or(Value::Null);
        match (self.workflow.loop_of(id), item) {
            (Some(parent), Some(index)) => {
                let parent = self.workflow.step(parent).name.value.clone();
                let slot = self
                    .state
                    .step_results
                    .get_mut(&parent)
                    .and_then(|all| all.get_mut(index));
                if let Some(Value::Object(own)) = slot {
                    own.insert(name, value);
                }
            }
            _ => {
                self.state.step_results.insert(name, value);
            }
        }
    }

    /// The result of a step that is kept.
    pub(super) fn stored_result(&self, id: StepId, item: Option<usize>) -> Option<StepResult> {
        stored(self.workflow, &self.state, id, item)
    }

    pub(super) fn has_failed(&self, id: StepId, item: Option<usize>) -> bool {
        self.stored_result(id, item)
            .is_some_and(|result| result.status == StepStatus::Failed)
    }

    pub(super) fn is_in_group(&self, id: StepId) -> bool {
        matches!(self.workflow.step(id).level, Level::Parallel(_))
    }

    fn is_item(&self, id: StepId, item: Option<usize>) -> bool {
        item.is_some() && self.workflow.loop_of(id).is_some()
    }
}

fn word(result: &StepResult) -> &'static str {
    match result.status {
        StepStatus::Failed => "FAIL",
        StepStatus::Succeeded | StepStatus::Skipped => "OK",
    }
}

/// The fields of the document that a row changes, as they will be.
fn changed(
    document: &Map<String, Value>,
    set: &[(Text, Text)],
    sees: &Scope<'_>,
) -> Result<Map<String, Value>, String> {
    let mut changed = Map::new();
    for (path, expression) in set {
        let bad = |why: String| format!("`set` of `state.{}`: {why}", path.value);
        let value = Expr::cached(&expression.value).and_then(|expr| expr.eval(sees));
        let value = value.map_err(|fault| bad(fault.message))?;
        let first = path.value.split('.').next().unwrap_or_default();
        if !changed.contains_key(first)
            && let Some(present) = document.get(first)
        {
            changed.insert(first.to_owned(), present.clone());
        }
        put(&mut changed, &path.value, value).map_err(bad)?;
    }
    Ok(changed)
}

/// Puts a value at a path of fields, making the maps on the way; not where the document would be
/// deeper than what is read back of it may be.
pub(super) fn put(
    document: &mut Map<String, Value>,
    path: &str,
    value: Value,
) -> Result<(), String> {
    let fields = path.split('.').count();
    let left = MAX_JSON_DEPTH.checked_sub(fields);
    if left.is_none_or(|left| is_deeper(&value, left)) {
        return Err(format!(
            "the document would be nested more than {MAX_JSON_DEPTH} levels deep"
        ));
    }
    put_below(document, path, value)
}

fn put_below(document: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_once('.') else {
        document.insert(path.to_owned(), value);
        return Ok(());
    };
    let inner = document.entry(first.to_owned()).or_insert(Value::Null);
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    match inner {
        Value::Object(inner) => put_below(inner, rest, value),
        _ => Err(format!("`{first}` is not a map")),
    }
}

/// What no workflow can catch.
fn uncatchable(result: &StepResult) -> Option<Fault> {
    let fault = result.error.as_ref()?;
    matches!(fault.kind, Kind::SafetyViolation | Kind::StateCorrupted).then(|| fault.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_makes_the_document_deeper_than_it_may_be() {
        let deep = |levels: usize| {
            (0..levels).fold(Value::Null, |inner, _| {
                Value::Object(Map::from_iter([("x".to_owned(), inner)]))
            })
        };
        for path in ["a", "a.b.c"] {
            let fields = path.split('.').count();
            let mut document = Map::new();
            put(&mut document, path, deep(MAX_JSON_DEPTH - fields)).unwrap();
            assert!(!is_deeper(&Value::Object(document.clone()), MAX_JSON_DEPTH));
            let before = document.clone();
            let why = put(&mut document, path, deep(MAX_JSON_DEPTH - fields + 1)).unwrap_err();
            assert!(why.contains("64 levels"), "{why}");
            assert_eq!(document, before);
        }
        let long = vec!["a"; MAX_JSON_DEPTH + 1].join(".");
        assert!(put(&mut Map::new(), &long, Value::Null).is_err());
    }
}
