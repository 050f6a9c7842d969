//! A visit begins: limit, `when`, `requires`, and then the work, or not.

use serde_json::json;

use super::facts::scope;
use super::{Illegal, Run, number};
use crate::error::{Fault, Kind};
use crate::expr::Expr;
use crate::scope::Scope;
use crate::state::{Block, Effect, Facts, Pending, Stage, StepResult, StepStatus};
use crate::vars::{NoOutputs, Text};
use crate::workflow::model::{Flow, Gate, Step, StepId, Target, When, Who, Work};

impl Run<'_> {
    /// Goes into a step: counted, unless its limit says that it was enough.
    pub(super) fn enter(&mut self, id: StepId, item: Option<usize>) {
        let step = self.workflow.step(id);
        let name = step.name.value.clone();
        self.restart_counts(id, item);
        if let Some(limit) = &step.limit {
            let (most, _) = number(&limit.max, &self.state.variables);
            let count = self.counts(item, id).entry(name.clone()).or_insert(0);
            if *count >= most {
                let reason = format!("`{name}` has been entered {most} times");
                let target = self.workflow.target_name(limit.on_limit).to_owned();
                self.checkpoint(id, "LIMIT", &target, &reason, Vec::new());
                return match limit.on_limit {
                    Target::Block => self.block(Block {
                        step: name,
                        item,
                        stage: Stage::Limit,
                        reason,
                    }),
                    other => self.go(id, item, other, &reason),
                };
            }
            *count += 1;
        }
        *self.visits(item, id).entry(name).or_insert(0) += 1;
        self.state.metadata.current_phase.clone_from(&step.phase);
        self.drop_task(id, item);
    }

    /// Entering a step restarts the counts of those whose limit is `per` it.
    fn restart_counts(&mut self, id: StepId, item: Option<usize>) {
        let restarted: Vec<StepId> = self
            .workflow
            .ids()
            .filter(|other| {
                let limit = &self.workflow.step(*other).limit;
                limit.as_ref().is_some_and(|limit| limit.per.contains(&id))
            })
            .collect();
        for other in restarted {
            let name = self.workflow.step(other).name.value.clone();
            self.counts(item, other).remove(&name);
        }
    }

    /// Puts a step on the list of what is to be done.
    pub(super) fn drop_task(&mut self, id: StepId, item: Option<usize>) {
        let step = self.workflow.step(id);
        let name = step.name.value.clone();
        self.state.tasks += 1;
        let visit = self.visits(item, id).get(&name).copied().unwrap_or(1);
        let task = format!("{}.{:04}-{name}", self.state.run_id, self.state.tasks);
        self.state.pending.push(Pending {
            task,
            agent: inbox(step),
            step: name,
            item,
            visit,
            attempts: 0,
        });
    }

    /// An attempt begins: whether it is needed, whether it may, and then what it does.
    pub(super) fn entered(&mut self, pending: Pending, facts: &Facts) -> Result<(), Illegal> {
        let id = self.id(&pending.step)?;
        let step = self.workflow.step(id);
        let item = pending.item;
        if pending.attempts > 1 {
            // It had begun before a crash, so it was needed and it was allowed.
            match interrupted(&step.flow) {
                Some(target) => self.was_interrupted(id, &pending, target),
                None => self.begin_work(id, pending, facts),
            }
            return Ok(());
        }
        if step.once
            && self.state.done_once.contains(&pending.step)
            && let Some(result) = self.stored_result(id, item)
        {
            self.remove_pending(&pending.task);
            self.settle(id, item, &result, facts);
            return Ok(());
        }
        let sees = scope(self.workflow, &self.state, id, item, facts);
        let needed = step
            .when
            .as_ref()
            .map_or(Ok(true), |when| holds(when, &sees));
        let allowed = match needed {
            Ok(true) => first_unmet(&step.requires, &sees),
            Ok(false) => {
                self.skip(id, &pending, facts);
                return Ok(());
            }
            Err(why) => Some(why),
        };
        if let Some(reason) = allowed {
            self.remove_pending(&pending.task);
            self.checkpoint(id, "FAIL", "_block", &reason, Vec::new());
            self.block(Block {
                step: pending.step,
                item,
                stage: Stage::Requires,
                reason,
            });
            return Ok(());
        }
        self.begin_work(id, pending, facts);
        Ok(())
    }

    fn begin_work(&mut self, id: StepId, pending: Pending, facts: &Facts) {
        match &self.workflow.step(id).work {
            Work::Parallel(_) => {
                self.remove_pending(&pending.task);
                self.start_group(id, pending.item, pending.visit, facts);
            }
            Work::ForEach(_) => {
                self.remove_pending(&pending.task);
                self.start_loop(id, facts);
            }
            _ => self.effects.push(Effect::Run(pending)),
        }
    }

    /// A step that is not to be run goes on to the following one; nothing else applies.
    fn skip(&mut self, id: StepId, pending: &Pending, facts: &Facts) {
        self.remove_pending(&pending.task);
        let result = self.own_result(id, pending, StepStatus::Skipped, 0, None);
        if self.is_in_group(id) {
            return self.finished_in_group(id, pending.item, result, facts);
        }
        self.store(id, pending.item, result);
        let target = self.workflow.following(id);
        let shown = self.workflow.target_name(target).to_owned();
        self.checkpoint(id, "SKIP", &shown, "its `when` does not hold", Vec::new());
        self.go(id, pending.item, target, "");
    }

    fn was_interrupted(&mut self, id: StepId, pending: &Pending, target: Target) {
        self.remove_pending(&pending.task);
        let fault = Fault::new(Kind::Interrupted, "its watcher died while it ran");
        let result = self.own_result(id, pending, StepStatus::Failed, 1, Some(fault));
        self.store(id, pending.item, result);
        let shown = self.workflow.target_name(target).to_owned();
        self.checkpoint(id, "INTERRUPTED", &shown, "a crash ended it", Vec::new());
        self.go(id, pending.item, target, "");
    }

    /// A result that no process gave.
    pub(super) fn own_result(
        &self,
        id: StepId,
        pending: &Pending,
        status: StepStatus,
        exit_code: i32,
        error: Option<Fault>,
    ) -> StepResult {
        StepResult {
            step_name: self.workflow.step(id).name.value.clone(),
            status,
            exit_code,
            start_time: self.at.to_owned(),
            end_time: self.at.to_owned(),
            duration: 0.0,
            output: None,
            lines: None,
            json_data: None,
            truncated: false,
            json_parse_error: None,
            error,
            note: None,
            attempt: pending.attempts,
            visit: pending.visit,
            task: None,
            files: Vec::new(),
            more: serde_json::Map::new(),
        }
    }
}

/// Whose inbox a step goes through.
fn inbox(step: &Step) -> String {
    match &step.work {
        Work::Agent(agent) => match &agent.who {
            Who::Agent { name, .. } => name.value.to_string(),
            Who::Provider(provider) => provider.value.clone(),
        },
        Work::Command(_) => "shell".to_owned(),
        Work::Human(_) | Work::Approval => "human".to_owned(),
        Work::Wait(_) | Work::Parallel(_) | Work::ForEach(_) | Work::Action(_) => "orch".to_owned(),
    }
}

fn interrupted(flow: &Flow) -> Option<Target> {
    match flow {
        Flow::Rows { interrupted, .. } | Flow::Handlers { interrupted, .. } => *interrupted,
    }
}

/// Whether a step is to be run; an error is the reason why that cannot be said.
fn holds(when: &When, sees: &Scope<'_>) -> Result<bool, String> {
    let fill = |text: &str| {
        let filled = Text::parse(text).and_then(|text| text.fill(sees, &NoOutputs));
        filled.map_err(|fault| format!("`when`: {}", fault.message))
    };
    let exists = |glob: &str| {
        let glob = fill(glob)?;
        Ok(sees.globs().get(&glob).copied().unwrap_or(false))
    };
    match when {
        When::Equals(left, right) => Ok(fill(&left.value)? == fill(&right.value)?),
        When::Exists(glob) => exists(&glob.value),
        When::NotExists(glob) => exists(&glob.value).map(|found| !found),
        When::If(guard) => check(&guard.value, sees).map_err(|why| format!("`when`: {why}")),
    }
}

/// Why the first gate that does not hold does not.
pub(super) fn first_unmet(gates: &[Gate], sees: &Scope<'_>) -> Option<String> {
    gates.iter().find_map(|gate| {
        let reason = || match &gate.reason {
            Some(reason) => filled(&reason.value, sees),
            None => format!("`{}` does not hold", gate.check.value),
        };
        match check(&gate.check.value, sees) {
            Ok(true) => None,
            Ok(false) => Some(reason()),
            Err(why) => Some(format!("{}: {why}", reason())),
        }
    })
}

/// Evaluates a guard; an error says which name was missing.
pub(super) fn check(guard: &str, sees: &Scope<'_>) -> Result<bool, String> {
    let holds = Expr::cached(guard).and_then(|expr| expr.holds(sees));
    holds.map_err(|fault| format!("`{guard}` cannot be evaluated: {}", fault.message))
}

/// A text for people: where a variable is missing, it stays as it is written.
pub(super) fn filled(text: &str, sees: &Scope<'_>) -> String {
    Text::parse(text)
        .and_then(|parsed| parsed.fill(sees, &NoOutputs))
        .unwrap_or_else(|_| text.to_owned())
}

/// What a guard evaluated to, for the log.
pub(super) fn shown(guard: &str, value: &Result<bool, String>) -> String {
    match value {
        Ok(value) => format!("{guard} => {value}"),
        Err(why) => format!("{guard} => {}", json!(why)),
    }
}
