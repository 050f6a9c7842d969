//! A visit begins: limit, `when`, `requires`, and then the work, or not.

use serde_json::json;

use super::people::HUMAN;
use super::tasks::Cut;
use super::{Illegal, Run, number};
use crate::run::state::{Block, Effect, Pending, RunStatus, Stage, StepResult, StepStatus};
use crate::spec::expr::Expr;
use crate::spec::scope::Scope;
use crate::spec::vars::{NoOutputs, Text};
use crate::spec::workflow::model::{Flow, Gate, StepId, Target, When, Work};
use crate::text::error::{Fault, Kind};

impl Run<'_> {
    /// Goes into a step: counted, unless its limit says that it was enough.
    pub(super) fn enter(&mut self, id: StepId, item: Option<usize>) {
        let step = self.workflow.step(id);
        let name = step.name.value.clone();
        if let Some(limit) = &step.limit {
            let (most, _) = number(&limit.max, &self.state.variables);
            let count = self.counts(item, id).entry(name.clone()).or_insert(0);
            if *count >= most {
                return self.refuse(id, item, limit.on_limit, most);
            }
            *count += 1;
        }
        self.restart_counts(id, item);
        *self.state.visits.entry(name.clone()).or_insert(0) += 1;
        if let Some(own) = self.own_item(item, id) {
            *own.visits.entry(name).or_insert(0) += 1;
        }
        if self.state.status == RunStatus::Running {
            self.state.metadata.current_phase.clone_from(&step.phase);
        }
        self.drop_task(id, item);
    }

    /// The entry after the last that is allowed: uncounted, and the step does not run.
    fn refuse(&mut self, id: StepId, item: Option<usize>, on_limit: Target, most: u64) {
        let name = &self.workflow.step(id).name.value;
        let times = if most == 1 {
            "once"
        } else {
            &format!("{most} times")
        };
        let reason = format!("`{name}` has been entered {times}, and no more is allowed");
        let target = self.workflow.target_name(on_limit).to_owned();
        self.checkpoint(id, "LIMIT", &target, &reason, Vec::new());
        match on_limit {
            Target::Block => self.block(Block {
                step: name.clone(),
                item,
                stage: Stage::Limit,
                reason,
                task: None,
            }),
            Target::Fail => self.fail(Fault::new(Kind::LimitExceeded, reason)),
            other => self.go(id, item, other, &reason),
        }
    }

    /// Entering a step restarts the counts of those whose limit is `per` it.
    fn restart_counts(&mut self, id: StepId, item: Option<usize>) {
        let workflow = self.workflow;
        for other in workflow.ids() {
            let limit = &workflow.step(other).limit;
            if limit.as_ref().is_some_and(|limit| limit.per.contains(&id)) {
                self.counts(item, other)
                    .remove(&workflow.step(other).name.value);
            }
        }
    }

    /// Puts a step on the list of what is to be done.
    pub(super) fn drop_task(&mut self, id: StepId, item: Option<usize>) {
        let agent = self.workflow.step(id).inbox().to_owned();
        let pending = self.next_task(id, item, agent);
        self.state.pending.push(pending);
    }

    /// The next task in the order of their numbers.
    pub(super) fn next_task(&mut self, id: StepId, item: Option<usize>, agent: String) -> Pending {
        let step = self.workflow.step(id).name.value.clone();
        self.state.tasks += 1;
        Pending {
            task: format!("{}.{:04}-{step}", self.state.run_id, self.state.tasks),
            agent,
            visit: self.visit(item, id),
            step,
            item,
            attempts: 0,
            since: None,
            asks: None,
            put_back: false,
        }
    }

    /// An attempt begins: whether it is needed, whether it may, and then what it does.
    /// `cut` is what ended the attempt before it.
    pub(super) fn entered(&mut self, pending: Pending, cut: Option<Cut>) -> Result<(), Illegal> {
        let id = self.id(&pending.step)?;
        let step = self.workflow.step(id);
        let item = pending.item;
        if !self.is_in_group(id) {
            self.state.metadata.current_phase.clone_from(&step.phase);
        }
        if pending.attempts > 1 {
            // It had begun before, so it was needed and it was allowed.
            match cut.and_then(|cut| Some((cut, after(&step.flow, cut)?))) {
                Some((cut, target)) => self.was_cut_short(id, &pending, cut, target),
                None => self.begin_work(id, pending),
            }
            return Ok(());
        }
        if step.once
            && self.state.done_once.contains(&pending.step)
            && let Some(result) = self.stored_result(id, item)
        {
            self.remove_pending(&pending.task);
            self.settle(id, item, &result);
            return Ok(());
        }
        match self.admission(id, item) {
            Admission::Run(guards) => {
                self.checked(id, guards);
                self.begin_work(id, pending);
            }
            Admission::Skip(guards) => self.skip(id, &pending, guards),
            Admission::Refuse(unmet, guards) => {
                self.remove_pending(&pending.task);
                self.unmet(id, item, Stage::Requires, "FAIL", unmet, guards);
            }
        }
        Ok(())
    }

    /// `when`, then `requires`.
    fn admission(&self, id: StepId, item: Option<usize>) -> Admission {
        let step = self.workflow.step(id);
        let sees = self.sees(id, item, None);
        let mut guards = Vec::new();
        if let Some(when) = &step.when {
            let needed = holds(when, &sees);
            guards.push(shown(&written(when), &needed));
            match needed {
                Ok(true) => {}
                Ok(false) => return Admission::Skip(guards),
                Err(why) => {
                    let unmet = Unmet {
                        reason: format!("`when`: {why}"),
                        stop: false,
                    };
                    return Admission::Refuse(unmet, guards);
                }
            }
        }
        let asked = gates(&step.requires, &sees);
        guards.extend(asked.guards);
        match asked.unmet {
            Some(unmet) => Admission::Refuse(unmet, guards),
            None => Admission::Run(guards),
        }
    }

    /// A gate that does not hold blocks the run, or stops it where the gate says so.
    pub(super) fn unmet(
        &mut self,
        id: StepId,
        item: Option<usize>,
        stage: Stage,
        word: &str,
        unmet: Unmet,
        guards: Vec<String>,
    ) {
        match unmet.stop {
            true => self.stop(
                id,
                word,
                Fault::new(Kind::SafetyViolation, unmet.reason),
                guards,
            ),
            false => self.halt(id, item, stage, word, unmet.reason, guards),
        }
    }

    fn begin_work(&mut self, id: StepId, pending: Pending) {
        if pending.agent == HUMAN {
            return self.put_question(id, &pending);
        }
        match &self.workflow.step(id).work {
            Work::Parallel(_) => {
                self.remove_pending(&pending.task);
                self.start_group(id, pending.item, pending.visit);
            }
            Work::ForEach(each) => {
                self.remove_pending(&pending.task);
                self.start_loop(id, each, pending.visit);
            }
            _ => self.effects.push(Effect::Run(pending)),
        }
    }

    /// A step that is not to be run goes on to the following one; nothing else applies.
    fn skip(&mut self, id: StepId, pending: &Pending, guards: Vec<String>) {
        self.remove_pending(&pending.task);
        let result = self.own_result(id, pending, StepStatus::Skipped, 0, None);
        if self.is_in_group(id) {
            return self.join(id, pending.item, result);
        }
        self.store(id, pending.item, &result);
        let target = self.workflow.following(id);
        let shown = self.workflow.target_name(target).to_owned();
        self.checkpoint(id, "SKIP", &shown, "its `when` does not hold", guards);
        self.go(id, pending.item, target, "");
    }

    fn was_cut_short(&mut self, id: StepId, pending: &Pending, cut: Cut, target: Target) {
        self.remove_pending(&pending.task);
        let (word, reason, message) = match cut {
            Cut::Crash => (
                "INTERRUPTED",
                "a crash ended it",
                "its watcher died while it ran",
            ),
            Cut::Stop => (
                "STOPPED",
                "orch was told to stop while it ran",
                "orch was told to stop while it ran",
            ),
        };
        let fault = Fault::new(Kind::Interrupted, message);
        let result = self.own_result(id, pending, StepStatus::Failed, 1, Some(fault));
        self.store(id, pending.item, &result);
        let shown = self.workflow.target_name(target).to_owned();
        self.checkpoint(id, word, &shown, reason, Vec::new());
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
            artifacts: Vec::new(),
            waited: None,
            more: serde_json::Map::new(),
        }
    }
}

/// Whether a visit goes on to the work, with the guards that say so.
enum Admission {
    Run(Vec<String>),
    Skip(Vec<String>),
    Refuse(Unmet, Vec<String>),
}

/// What became of a list of gates.
pub(super) struct Gates {
    /// The first that does not hold.
    pub unmet: Option<Unmet>,
    pub guards: Vec<String>,
}

/// A gate that does not hold.
pub(super) struct Unmet {
    /// Why.
    pub reason: String,
    /// Whether that stops the run.
    pub stop: bool,
}

/// Where a step leads that was cut short, instead of running again: like every handler, these too are
/// overridden by `always`.
fn after(flow: &Flow, cut: Cut) -> Option<Target> {
    let (interrupted, stopped, always) = match flow {
        Flow::Rows {
            interrupted,
            stopped,
            ..
        } => (interrupted, stopped, &None),
        Flow::Handlers {
            interrupted,
            stopped,
            always,
            ..
        } => (interrupted, stopped, always),
    };
    let handler = match cut {
        Cut::Crash => interrupted,
        Cut::Stop => stopped,
    };
    handler.map(|target| always.unwrap_or(target))
}

/// Whether a step is to be run; an error is the reason why that cannot be said.
fn holds(when: &When, sees: &Scope<'_>) -> Result<bool, String> {
    let fill = |text: &str| {
        let filled = Text::parse(text).and_then(|text| text.fill(sees, &NoOutputs));
        filled.map_err(|fault| fault.message)
    };
    let exists = |glob: &str| {
        let glob = fill(glob)?;
        let found = sees.globs().get(&glob).copied();
        found.ok_or_else(|| format!("nobody looked for `{glob}`"))
    };
    match when {
        When::Equals(left, right) => Ok(fill(&left.value)? == fill(&right.value)?),
        When::Exists(glob) => exists(&glob.value),
        When::NotExists(glob) => exists(&glob.value).map(|found| !found),
        When::If(guard) => check(&guard.value, sees),
    }
}

/// A `when` as the log shows it.
fn written(when: &When) -> String {
    match when {
        When::Equals(left, right) => {
            format!("equals {} {}", json!(left.value), json!(right.value))
        }
        When::Exists(glob) => format!("exists {}", json!(glob.value)),
        When::NotExists(glob) => format!("not_exists {}", json!(glob.value)),
        When::If(guard) => guard.value.clone(),
    }
}

/// Asks each gate until one does not hold.
pub(super) fn gates(gates: &[Gate], sees: &Scope<'_>) -> Gates {
    let mut guards = Vec::new();
    for gate in gates {
        let value = check(&gate.check.value, sees);
        guards.push(shown(&gate.check.value, &value));
        let reason = match &gate.reason {
            Some(reason) => filled(&reason.value, sees),
            None => format!("`{}` does not hold", gate.check.value),
        };
        let reason = match (value, &gate.reason) {
            (Ok(true), _) => continue,
            (Ok(false), _) => reason,
            (Err(why), Some(_)) => format!("{reason}: {why}"),
            (Err(why), None) => why,
        };
        let stop = gate.stop;
        return Gates {
            unmet: Some(Unmet { reason, stop }),
            guards,
        };
    }
    Gates {
        unmet: None,
        guards,
    }
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
