//! A step has a result: `ensures`, and then the transition with its `set`, in one commit.

use serde_json::{Map, Value};

use super::facts::{scope, with_result};
use super::visit::{check, filled, first_unmet, shown};
use super::{Illegal, Run};
use crate::error::{Fault, Kind};
use crate::expr::Expr;
use crate::scope::Scope;
use crate::state::{Block, Facts, Pending, Stage, StepResult, StepStatus};
use crate::workflow::model::{Flow, Level, Row, StepId, Target, Work};

/// Where a result leads, and why.
struct Decision {
    target: Target,
    reason: String,
    set: Vec<(String, Value)>,
    guards: Vec<String>,
}

/// Why it leads nowhere.
struct Stuck {
    reason: String,
    guards: Vec<String>,
}

impl Run<'_> {
    pub(super) fn finished(
        &mut self,
        pending: Pending,
        mut result: StepResult,
        facts: &Facts,
    ) -> Result<(), Illegal> {
        let id = self.id(&pending.step)?;
        if result.attempt != pending.attempts {
            return super::illegal(format!(
                "`{}` is in attempt {}, not {}",
                pending.task, pending.attempts, result.attempt
            ));
        }
        result.visit = pending.visit;
        self.remove_pending(&pending.task);
        let step = self.workflow.step(id);
        if step.once && result.status == StepStatus::Succeeded {
            self.state.done_once.insert(pending.step.clone());
        }
        if let Some(fault) = uncatchable(&result) {
            self.store(id, pending.item, result);
            self.fail(fault);
            return Ok(());
        }
        if self.is_in_group(id) {
            self.finished_in_group(id, pending.item, result, facts);
        } else {
            self.store(id, pending.item, result.clone());
            self.settle(id, pending.item, &result, facts);
        }
        Ok(())
    }

    /// Whether everything holds that must hold after success.
    pub(super) fn ensured(
        &self,
        id: StepId,
        item: Option<usize>,
        result: &StepResult,
        facts: &Facts,
    ) -> bool {
        let mut sees = scope(self.workflow, &self.state, id, item, facts);
        with_result(&mut sees, result);
        first_unmet(&self.workflow.step(id).ensures, &sees).is_none()
    }

    /// Decides where a stored result leads, and goes there.
    pub(super) fn settle(
        &mut self,
        id: StepId,
        item: Option<usize>,
        result: &StepResult,
        facts: &Facts,
    ) {
        let step = self.workflow.step(id);
        let word = if result.status == StepStatus::Failed {
            "FAIL"
        } else {
            "OK"
        };
        let mut sees = scope(self.workflow, &self.state, id, item, facts);
        with_result(&mut sees, result);
        if result.status == StepStatus::Succeeded
            && let Some(reason) = first_unmet(&step.ensures, &sees)
        {
            drop(sees);
            return self.halt(id, item, Stage::Ensures, word, reason, Vec::new());
        }
        let decided = self.decide(id, result, &sees);
        drop(sees);
        match decided {
            Ok(decision) => {
                for (path, value) in decision.set {
                    put(&mut self.state.state, &path, value);
                }
                let shown = self.workflow.target_name(decision.target).to_owned();
                self.checkpoint(id, word, &shown, &decision.reason, decision.guards);
                if decision.target == Target::Fail
                    && self.is_item(id, item)
                    && !self.is_written(id, Target::Fail)
                {
                    return self.item_failed(id, item, result.exit_code);
                }
                self.go(id, item, decision.target, &decision.reason);
            }
            Err(stuck) => self.halt(id, item, Stage::Next, word, stuck.reason, stuck.guards),
        }
    }

    fn halt(
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
        });
    }

    fn decide(&self, id: StepId, result: &StepResult, sees: &Scope<'_>) -> Result<Decision, Stuck> {
        let failed = result.status == StepStatus::Failed;
        let plain = |target, reason: String| {
            Ok(Decision {
                target,
                reason,
                set: Vec::new(),
                guards: Vec::new(),
            })
        };
        let why = || {
            result
                .error
                .as_ref()
                .map(|e| e.message.clone())
                .unwrap_or_default()
        };
        match &self.workflow.step(id).flow {
            Flow::Rows {
                failure: Some(target),
                ..
            } if failed => plain(*target, why()),
            Flow::Rows { rows, .. } => by_rows(rows, sees),
            Flow::Handlers {
                success,
                failure,
                always,
                ..
            } => {
                let handler = always.or(if failed { *failure } else { *success });
                let reason = if failed { why() } else { String::new() };
                match handler {
                    Some(target) => plain(target, reason),
                    None if failed && self.workflow.strict_flow => plain(Target::Fail, reason),
                    None => plain(self.workflow.following(id), reason),
                }
            }
        }
    }

    /// Whether the step itself says that this outcome leads there.
    fn is_written(&self, id: StepId, target: Target) -> bool {
        match &self.workflow.step(id).flow {
            Flow::Rows { .. } => true,
            Flow::Handlers {
                success,
                failure,
                always,
                ..
            } => [success, failure, always]
                .into_iter()
                .any(|handler| *handler == Some(target)),
        }
    }

    /// Keeps a result where `steps.X` finds it.
    pub(super) fn store(&mut self, id: StepId, item: Option<usize>, result: StepResult) {
        let step = self.workflow.step(id);
        let name = step.name.value.clone();
        if matches!(step.work, Work::ForEach(_)) {
            self.state.loop_results.insert(name, result);
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
        let step = self.workflow.step(id);
        let name = &step.name.value;
        if matches!(step.work, Work::ForEach(_)) {
            return self.state.loop_results.get(name).cloned();
        }
        let value = match (self.workflow.loop_of(id), item) {
            (Some(parent), Some(index)) => {
                let parent = &self.workflow.step(parent).name.value;
                self.state.step_results.get(parent)?.get(index)?.get(name)?
            }
            _ => self.state.step_results.get(name)?,
        };
        serde_json::from_value(value.clone()).ok()
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

/// The first row that holds; a guard that cannot be evaluated is not false.
fn by_rows(rows: &[Row], sees: &Scope<'_>) -> Result<Decision, Stuck> {
    let mut guards = Vec::new();
    for row in rows {
        let value = check(&row.guard.value, sees);
        guards.push(shown(&row.guard.value, &value));
        match value {
            Ok(false) => {}
            Err(reason) => return Err(Stuck { reason, guards }),
            Ok(true) => {
                let set = match values(&row.set, sees) {
                    Ok(set) => set,
                    Err(reason) => return Err(Stuck { reason, guards }),
                };
                let reason = row.reason.as_ref().map(|text| filled(&text.value, sees));
                return Ok(Decision {
                    target: row.goto,
                    reason: reason.unwrap_or_default(),
                    set,
                    guards,
                });
            }
        }
    }
    Err(Stuck {
        reason: "no row of `next` holds".to_owned(),
        guards,
    })
}

fn values(
    set: &[(crate::workflow::model::Text, crate::workflow::model::Text)],
    sees: &Scope<'_>,
) -> Result<Vec<(String, Value)>, String> {
    set.iter()
        .map(|(path, expression)| {
            let value = Expr::cached(&expression.value).and_then(|expr| expr.eval(sees));
            value
                .map(|value| (path.value.clone(), value))
                .map_err(|fault| format!("`set` of `{}`: {}", path.value, fault.message))
        })
        .collect()
}

/// Puts a value at a path of fields, making the maps on the way.
fn put(document: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            document.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = document
                .entry(first.to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// What no workflow can catch.
fn uncatchable(result: &StepResult) -> Option<Fault> {
    let fault = result.error.as_ref()?;
    matches!(fault.kind, Kind::SafetyViolation | Kind::StateCorrupted).then(|| fault.clone())
}
