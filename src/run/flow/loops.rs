//! Steps that hold others: side by side, or repeated for each item, in waves.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::facts::group_key;
use super::{Run, number};
use crate::run::state::{Group, ItemState, LoopState, Pending, StepResult, StepStatus};
use crate::spec::vars::{Path, lookup};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::{ForEach, Items, Level, OnError, StepId, Work};
use crate::text::error::{Fault, Kind};

impl Run<'_> {
    pub(super) fn start_group(&mut self, id: StepId, item: Option<usize>, visit: u64) {
        let step = self.workflow.step(id);
        let group = Group {
            start_time: self.at.to_owned(),
            item,
            visit,
            ..Group::default()
        };
        // A resume is not a visit: where this one has a result, the sub-steps have been counted.
        let counted = self
            .stored_result(id, item)
            .is_some_and(|result| result.visit == visit);
        self.state
            .groups
            .insert(group_key(&step.name.value, item), group);
        for &sub in self.workflow.children(id) {
            match counted {
                true => self.drop_task(sub, item),
                false => self.enter(sub, item),
            }
        }
        // The phase is the group's, not that of whichever sub-step was dropped last.
        self.state.metadata.current_phase.clone_from(&step.phase);
    }

    /// The group that a sub-step runs in.
    pub(super) fn group_of(&mut self, id: StepId, item: Option<usize>) -> Option<&mut Group> {
        let Level::Parallel(parent) = self.workflow.step(id).level else {
            return None;
        };
        let name = &self.workflow.step(parent).name.value;
        self.state.groups.get_mut(&group_key(name, item))
    }

    /// Keeps a sub-step's result until all are there; then they are committed in written order.
    pub(super) fn join(&mut self, id: StepId, item: Option<usize>, result: StepResult) {
        let Level::Parallel(parent) = self.workflow.step(id).level else {
            return;
        };
        let Some(group) = self.group_of(id, item) else {
            return;
        };
        group.held.remove(&result.step_name);
        group.results.insert(result.step_name.clone(), result);
        let there = group.results.len();
        if there == self.workflow.children(parent).len() {
            self.end_group(parent, item);
        }
    }

    fn end_group(&mut self, parent: StepId, item: Option<usize>) {
        let name = &self.workflow.step(parent).name.value;
        let Some(mut group) = self.state.groups.remove(&group_key(name, item)) else {
            return;
        };
        let mut exit_code = 0;
        let mut failed = None;
        for &child in self.workflow.children(parent) {
            let Some(result) = group.results.remove(&self.workflow.step(child).name.value) else {
                continue;
            };
            if exit_code == 0 {
                exit_code = result.exit_code;
            }
            if failed.is_none() && result.status == StepStatus::Failed {
                failed = Some(failure(&result));
            }
            self.store(child, item, &result);
        }
        let pending = placeholder(name, item, group.visit);
        let status = if failed.is_some() {
            StepStatus::Failed
        } else {
            StepStatus::Succeeded
        };
        let mut own = self.own_result(parent, &pending, status, exit_code, failed);
        own.start_time = group.start_time;
        self.commit(parent, item, own);
    }

    /// Begins a loop. One that failed in this same visit goes on with what is not done.
    pub(super) fn start_loop(&mut self, id: StepId, each: &ForEach, visit: u64) {
        let name = &self.workflow.step(id).name.value;
        let before = self
            .state
            .loops
            .remove(name)
            .filter(|before| before.visit == visit);
        let mut results = match self.state.step_results.remove(name) {
            Some(Value::Array(results)) if before.is_some() => results,
            _ => Vec::new(),
        };
        let items = match self.items(id, each) {
            Ok(items) => items,
            Err(fault) => {
                self.state.step_results.insert(name.clone(), json!([]));
                return self.finish_loop(id, StepStatus::Failed, 2, Some(fault));
            }
        };
        results.resize(items.len(), Value::Null);
        let mut running = LoopState::over(items, visit, self.at);
        for (index, result) in results.iter_mut().enumerate() {
            match before
                .as_ref()
                .and_then(|before| before.done(index, &running.items[index]))
            {
                Some(done) => running.progress[index] = done.clone(),
                None => *result = Value::Object(Map::new()),
            }
        }
        self.state
            .step_results
            .insert(name.clone(), Value::Array(results));
        self.state.loops.insert(name.clone(), running);
        self.due = Some(id);
    }

    fn items(&self, id: StepId, each: &ForEach) -> Result<Vec<Value>, Fault> {
        let from = match &each.items {
            Items::List(items) => return Ok(items.clone()),
            Items::From(path) => &path.value,
        };
        let inner = from
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(from);
        let bad = |why: String| {
            Fault::new(
                Kind::UndefinedVariableError,
                format!("`items_from: {from}`: {why}"),
            )
        };
        let path = Path::parse(inner).map_err(bad)?;
        let sees = self.sees(id, None, None);
        match lookup(&path, &sees) {
            Ok(Value::Array(items)) => Ok(items.clone()),
            Ok(_) => Err(bad("it is not a list".to_owned())),
            Err(fault) => Err(bad(fault.message)),
        }
    }

    /// Starts what can go after a wave, or ends the loop.
    pub(super) fn end_waves(&mut self) {
        while let Some(id) = self.due.take() {
            let Work::ForEach(each) = &self.workflow.step(id).work else {
                return;
            };
            let Some(running) = self.state.loops.get_mut(&self.workflow.step(id).name.value) else {
                return;
            };
            if each.on_error == OnError::Fail && running.has_failed(each) {
                running.skip_rest();
            }
            self.next_wave(id, each);
        }
    }

    /// Starts every item that can go now, in item order.
    fn next_wave(&mut self, id: StepId, each: &ForEach) {
        let (most, _) = number(&each.max_parallel, &self.state.variables);
        let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
        let name = &self.workflow.step(id).name.value;
        let Some(running) = self.state.loops.get_mut(name) else {
            return;
        };
        let wave = running.next_wave(each, most);
        if wave.is_empty() {
            return self.end_loop(id, each);
        }
        for index in wave {
            if !self.state.status.is_final() {
                self.enter(each.body[0], Some(index));
            }
        }
    }

    /// No item can go any more: all have ended, or what they need never will.
    fn end_loop(&mut self, id: StepId, each: &ForEach) {
        let name = &self.workflow.step(id).name.value;
        let Some(running) = self.state.loops.get(name) else {
            return;
        };
        let failed = running
            .progress
            .iter()
            .position(|item| item.ended == Some(StepStatus::Failed));
        let (status, code, fault) = match (running.open().next(), failed) {
            (Some(index), _) => {
                let why =
                    format!("item {index} of `{name}` needs what no item is, or what needs it");
                (
                    StepStatus::Failed,
                    2,
                    Some(Fault::new(Kind::WorkflowValidationError, why)),
                )
            }
            (None, Some(index)) if each.on_error == OnError::Fail => {
                let fault =
                    Fault::new(Kind::StepFailed, format!("item {index} of `{name}` failed"));
                (
                    StepStatus::Failed,
                    running.progress[index].exit_code,
                    Some(fault),
                )
            }
            _ => (StepStatus::Succeeded, 0, None),
        };
        self.finish_loop(id, status, code, fault);
    }

    fn finish_loop(
        &mut self,
        id: StepId,
        status: StepStatus,
        exit_code: i32,
        error: Option<Fault>,
    ) {
        let name = &self.workflow.step(id).name.value;
        let visit = self.visit(None, id);
        let mut own = self.own_result(
            id,
            &placeholder(name, None, visit),
            status,
            exit_code,
            error,
        );
        if let Some(running) = self.state.loops.get(name) {
            own.more
                .insert("items".to_owned(), json!(running.items.len()));
            own.more.insert(
                "failed".to_owned(),
                json!(running.count(StepStatus::Failed)),
            );
            own.more.insert(
                "skipped".to_owned(),
                json!(running.count(StepStatus::Skipped)),
            );
            own.start_time.clone_from(&running.start_time);
        }
        if status == StepStatus::Succeeded {
            self.state.loops.remove(name);
        }
        self.commit(id, None, own);
    }

    /// The body has been gone through for an item, or failed in a way that nothing handles.
    pub(super) fn item_ended(
        &mut self,
        from: StepId,
        item: Option<usize>,
        status: StepStatus,
        exit_code: i32,
    ) {
        let (Some(parent), Some(index)) = (self.workflow.loop_of(from), item) else {
            return;
        };
        let step = self.workflow.step(parent);
        let Work::ForEach(each) = &step.work else {
            return;
        };
        let Some(running) = self.state.loops.get_mut(&step.name.value) else {
            return;
        };
        running.end_item(each, index, status, exit_code);
        if running.wave_is_over(each) {
            self.due = Some(parent);
        }
    }

    /// Which visit of a step this is: for an item, of its own.
    pub(super) fn visit(&mut self, item: Option<usize>, id: StepId) -> u64 {
        let name = &self.workflow.step(id).name.value;
        let visit = match self.own_item(item, id) {
            Some(own) => own.visits.get(name),
            None => self.state.visits.get(name),
        };
        visit.copied().unwrap_or(1)
    }

    /// The counts against limits: of an item, or of the run.
    pub(super) fn counts(&mut self, item: Option<usize>, id: StepId) -> &mut BTreeMap<String, u64> {
        let state = &mut self.state;
        match own_item(self.workflow, &mut state.loops, item, id) {
            Some(own) => &mut own.counts,
            None => &mut state.counts,
        }
    }

    /// How the item stands that a step of a body runs for.
    pub(super) fn own_item(&mut self, item: Option<usize>, id: StepId) -> Option<&mut ItemState> {
        own_item(self.workflow, &mut self.state.loops, item, id)
    }
}

fn own_item<'l>(
    workflow: &Workflow,
    loops: &'l mut BTreeMap<String, LoopState>,
    item: Option<usize>,
    id: StepId,
) -> Option<&'l mut ItemState> {
    let parent = &workflow.step(workflow.loop_of(id)?).name.value;
    loops.get_mut(parent)?.progress.get_mut(item?)
}

impl LoopState {
    /// How an item stands that is done, if it is still the same.
    fn done(&self, index: usize, item: &Value) -> Option<&ItemState> {
        let same = self.items.get(index) == Some(item);
        let own = self.progress.get(index).filter(|_| same)?;
        (own.ended == Some(StepStatus::Succeeded)).then_some(own)
    }
}

fn failure(result: &StepResult) -> Fault {
    let own = || {
        let why = format!(
            "`{}` failed with exit code {}",
            result.step_name, result.exit_code
        );
        Fault::new(Kind::StepFailed, why)
    };
    result.error.clone().unwrap_or_else(own)
}

/// For the result of a step that has no task of its own.
fn placeholder(name: &str, item: Option<usize>, visit: u64) -> Pending {
    Pending {
        task: String::new(),
        agent: String::new(),
        step: name.to_owned(),
        item,
        visit,
        attempts: 1,
        since: None,
        asks: None,
        put_back: false,
    }
}
