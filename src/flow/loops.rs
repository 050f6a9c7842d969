//! Steps that hold others: side by side, or repeated for each item, in waves.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::facts::scope;
use super::{Run, number};
use crate::error::{Fault, Kind};
use crate::state::{Facts, Group, ItemState, LoopState, Pending, StepResult, StepStatus};
use crate::vars::{Path, lookup};
use crate::workflow::model::{ForEach, Items, Level, OnError, StepId, Work};

impl Run<'_> {
    pub(super) fn start_group(
        &mut self,
        id: StepId,
        item: Option<usize>,
        visit: u64,
        _facts: &Facts,
    ) {
        let name = self.workflow.step(id).name.value.clone();
        let group = Group {
            start_time: self.at.to_owned(),
            item,
            visit,
            ..Group::default()
        };
        self.state.groups.insert(group_key(&name, item), group);
        for &sub in self.workflow.children(id) {
            self.enter(sub, item);
        }
        // The phase is the group's, not that of whichever sub-step was dropped last.
        self.state
            .metadata
            .current_phase
            .clone_from(&self.workflow.step(id).phase);
    }

    /// Keeps a sub-step's result until all are there; then they are committed in written order.
    pub(super) fn finished_in_group(
        &mut self,
        id: StepId,
        item: Option<usize>,
        result: StepResult,
        facts: &Facts,
    ) {
        let Level::Parallel(parent) = self.workflow.step(id).level else {
            return;
        };
        let name = self.workflow.step(parent).name.value.clone();
        let key = group_key(&name, item);
        let children = self.workflow.children(parent).to_vec();
        let Some(group) = self.state.groups.get_mut(&key) else {
            return;
        };
        group.results.insert(result.step_name.clone(), result);
        if group.results.len() < children.len() {
            return;
        }
        let Some(mut group) = self.state.groups.remove(&key) else {
            return;
        };
        let mut exit_code = 0;
        let mut failed = None;
        for child in children {
            let Some(result) = group.results.remove(&self.workflow.step(child).name.value) else {
                continue;
            };
            if exit_code == 0 {
                exit_code = result.exit_code;
            }
            if failed.is_none() && result.status == StepStatus::Failed {
                failed = Some(result.error.clone().unwrap_or_else(|| {
                    Fault::new(Kind::StepFailed, format!("`{}` failed", result.step_name))
                }));
            }
            self.store(child, item, result);
        }
        let pending = placeholder(&name, item, group.visit);
        let status = if failed.is_some() {
            StepStatus::Failed
        } else {
            StepStatus::Succeeded
        };
        let mut own = self.own_result(parent, &pending, status, exit_code, failed);
        own.start_time = group.start_time;
        self.store(parent, item, own.clone());
        self.settle(parent, item, &own, facts);
    }

    pub(super) fn start_loop(&mut self, id: StepId, facts: &Facts) {
        let step = self.workflow.step(id);
        let Work::ForEach(each) = &step.work else {
            return;
        };
        let name = step.name.value.clone();
        let items = match self.items(id, each, facts) {
            Ok(items) => items,
            Err(fault) => return self.finish_loop(id, StepStatus::Failed, 2, Some(fault), facts),
        };
        let blank: Vec<Value> = items.iter().map(|_| Value::Object(Map::new())).collect();
        self.state
            .step_results
            .insert(name.clone(), Value::Array(blank));
        let running = LoopState {
            progress: items.iter().map(|_| ItemState::default()).collect(),
            items,
            wave: Vec::new(),
            start_time: self.at.to_owned(),
        };
        self.state.loops.insert(name, running);
        self.next_wave(id, facts);
    }

    fn items(&self, id: StepId, each: &ForEach, facts: &Facts) -> Result<Vec<Value>, Fault> {
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
        let sees = scope(self.workflow, &self.state, id, None, facts);
        match lookup(&path, &sees) {
            Ok(Value::Array(items)) => Ok(items.clone()),
            Ok(_) => Err(bad("it is not a list".to_owned())),
            Err(fault) => Err(bad(fault.message)),
        }
    }

    /// Starts every item that can go now, in item order.
    fn next_wave(&mut self, id: StepId, facts: &Facts) {
        let Work::ForEach(each) = &self.workflow.step(id).work else {
            return;
        };
        let name = self.workflow.step(id).name.value.clone();
        let (most, _) = number(&each.max_parallel, &self.state.variables);
        let Some(running) = self.state.loops.get_mut(&name) else {
            return;
        };
        let wave = running.plan_wave(each, usize::try_from(most.max(1)).unwrap_or(usize::MAX));
        running.wave.clone_from(&wave);
        if wave.is_empty() {
            return self.end_loop(id, facts);
        }
        let first = each.body[0];
        for index in wave {
            self.enter(first, Some(index));
        }
    }

    /// No item can go any more: all have ended, or what they need never will.
    fn end_loop(&mut self, id: StepId, facts: &Facts) {
        let name = &self.workflow.step(id).name.value;
        let Some(running) = self.state.loops.get(name) else {
            return;
        };
        let stuck: Vec<usize> = running.open().collect();
        let failed = running
            .progress
            .iter()
            .find(|item| item.ended == Some(StepStatus::Failed));
        let on_error = match &self.workflow.step(id).work {
            Work::ForEach(each) => each.on_error,
            _ => OnError::Fail,
        };
        let (status, code, fault) = match (stuck.first(), failed) {
            (Some(index), _) => {
                let why = format!("item {index} needs what no item is, or what needs it");
                (
                    StepStatus::Failed,
                    2,
                    Some(Fault::new(Kind::WorkflowValidationError, why)),
                )
            }
            (None, Some(item)) if on_error == OnError::Fail => {
                let fault = Fault::new(Kind::StepFailed, format!("an item of `{name}` failed"));
                (StepStatus::Failed, item.exit_code, Some(fault))
            }
            _ => (StepStatus::Succeeded, 0, None),
        };
        self.finish_loop(id, status, code, fault, facts);
    }

    fn finish_loop(
        &mut self,
        id: StepId,
        status: StepStatus,
        exit_code: i32,
        error: Option<Fault>,
        facts: &Facts,
    ) {
        let name = self.workflow.step(id).name.value.clone();
        let visit = self.state.visits.get(&name).copied().unwrap_or(1);
        let mut own = self.own_result(
            id,
            &placeholder(&name, None, visit),
            status,
            exit_code,
            error,
        );
        if let Some(running) = self.state.loops.remove(&name) {
            let count = |wanted| {
                running
                    .progress
                    .iter()
                    .filter(|i| i.ended == Some(wanted))
                    .count()
            };
            own.more
                .insert("items".to_owned(), json!(running.items.len()));
            own.more
                .insert("failed".to_owned(), json!(count(StepStatus::Failed)));
            own.more
                .insert("skipped".to_owned(), json!(count(StepStatus::Skipped)));
            own.start_time = running.start_time;
        }
        self.store(id, None, own.clone());
        self.settle(id, None, &own, facts);
    }

    /// The body has been gone through for an item.
    pub(super) fn item_done(&mut self, from: StepId, item: Option<usize>) {
        self.item_ended(from, item, StepStatus::Succeeded, 0);
    }

    /// A step of the body failed, and nothing handles it.
    pub(super) fn item_failed(&mut self, from: StepId, item: Option<usize>, exit_code: i32) {
        self.item_ended(from, item, StepStatus::Failed, exit_code);
    }

    fn item_ended(
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
        if let Some(own) = running.progress.get_mut(index) {
            own.ended = Some(status);
            own.exit_code = exit_code;
        }
        if running
            .wave
            .iter()
            .any(|index| running.progress[*index].ended.is_none())
        {
            return;
        }
        let facts = self.facts.clone();
        let any_failed = running
            .progress
            .iter()
            .any(|i| i.ended == Some(StepStatus::Failed));
        if any_failed && each.on_error == OnError::Fail {
            for index in running.open().collect::<Vec<_>>() {
                running.progress[index].ended = Some(StepStatus::Skipped);
            }
            return self.end_loop(parent, &facts);
        }
        self.next_wave(parent, &facts);
    }

    /// The visits of a step: of an item's own body, or of the run.
    pub(super) fn visits(&mut self, item: Option<usize>, id: StepId) -> &mut BTreeMap<String, u64> {
        match self.item_key(item, id) {
            Some((parent, index)) => {
                let running = self.state.loops.entry(parent).or_default();
                &mut running.progress[index].visits
            }
            None => &mut self.state.visits,
        }
    }

    /// The counts against limits, likewise.
    pub(super) fn counts(&mut self, item: Option<usize>, id: StepId) -> &mut BTreeMap<String, u64> {
        match self.item_key(item, id) {
            Some((parent, index)) => {
                let running = self.state.loops.entry(parent).or_default();
                &mut running.progress[index].counts
            }
            None => &mut self.state.counts,
        }
    }

    fn item_key(&self, item: Option<usize>, id: StepId) -> Option<(String, usize)> {
        let parent = &self.workflow.step(self.workflow.loop_of(id)?).name.value;
        let index = item?;
        let running = self.state.loops.get(parent)?;
        (index < running.progress.len()).then(|| (parent.clone(), index))
    }
}

impl LoopState {
    /// The items that have not ended.
    fn open(&self) -> impl Iterator<Item = usize> + '_ {
        self.progress
            .iter()
            .enumerate()
            .filter(|(_, item)| item.ended.is_none())
            .map(|(index, _)| index)
    }

    /// In item order, every item whose needs are done and which shares nothing with the wave. Items
    /// that need one that failed are skipped for good.
    fn plan_wave(&mut self, each: &ForEach, most: usize) -> Vec<usize> {
        let mut wave = Vec::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for index in 0..self.items.len() {
            if wave.len() >= most {
                break;
            }
            if self.progress[index].ended.is_some() {
                continue;
            }
            match self.needs(index, each) {
                Need::Failed => {
                    self.progress[index].ended = Some(StepStatus::Skipped);
                    continue;
                }
                Need::Open => continue,
                Need::Met => {}
            }
            let shared = strings(&self.items[index], each.conflicts.as_deref());
            if shared.iter().any(|one| taken.contains(one)) {
                continue;
            }
            taken.extend(shared);
            wave.push(index);
        }
        wave
    }

    fn needs(&self, index: usize, each: &ForEach) -> Need {
        let mut open = false;
        for wanted in strings(&self.items[index], each.needs.as_deref()) {
            let other = self
                .items
                .iter()
                .position(|item| key(item, each) == Some(wanted.clone()));
            match other.and_then(|other| self.progress[other].ended) {
                Some(StepStatus::Succeeded) => {}
                Some(StepStatus::Failed | StepStatus::Skipped) => return Need::Failed,
                None => open = true,
            }
        }
        if open { Need::Open } else { Need::Met }
    }
}

enum Need {
    Met,
    Open,
    Failed,
}

/// What identifies an item.
fn key(item: &Value, each: &ForEach) -> Option<String> {
    let value = match &each.key {
        Some(field) => item.get(field)?,
        None => item,
    };
    Some(text(value))
}

/// The entries of a field that is a list, or its one value.
fn strings(item: &Value, field: Option<&str>) -> Vec<String> {
    match field.and_then(|field| item.get(field)) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(all)) => all.iter().map(text).collect(),
        Some(one) => vec![text(one)],
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn group_key(name: &str, item: Option<usize>) -> String {
    match item {
        Some(index) => format!("{name}[{index}]"),
        None => name.to_owned(),
    }
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
    }
}
