//! Which items of a loop can go now.
//!
//! An index over a loop's items, so that the end of one costs what depends on it and not what the
//! loop is long. It follows from the items and how they stand: it is no part of the state.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::run::state::{ItemState, LoopState, StepStatus};
use crate::spec::workflow::model::ForEach;

/// What waits for what in a loop.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaveIndex {
    built: bool,
    /// Who needs an item.
    needed_by: Vec<Vec<usize>>,
    /// How many of its needs are not done.
    waiting: Vec<usize>,
    /// What an item shares with others, as numbers.
    shared: Vec<Vec<usize>>,
    /// The items that could go.
    ready: BTreeSet<usize>,
    /// The items of the wave that have not ended.
    going: BTreeSet<usize>,
    failed: bool,
}

impl PartialEq for WaveIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl LoopState {
    /// A loop over these items, none of them begun.
    pub(crate) fn over(items: Vec<Value>, visit: u64, start_time: &str) -> Self {
        LoopState {
            progress: items.iter().map(|_| ItemState::default()).collect(),
            items,
            wave: Vec::new(),
            start_time: start_time.to_owned(),
            visit,
            plan: WaveIndex::default(),
        }
    }

    /// The items that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> + '_ {
        let open = |(index, item): (usize, &ItemState)| item.ended.is_none().then_some(index);
        self.progress.iter().enumerate().filter_map(open)
    }

    pub(crate) fn count(&self, status: StepStatus) -> usize {
        self.progress
            .iter()
            .filter(|item| item.ended == Some(status))
            .count()
    }

    /// Whether every item of the wave has ended.
    pub(crate) fn wave_is_over(&mut self, each: &ForEach) -> bool {
        self.prepare(each);
        self.plan.going.is_empty()
    }

    pub(crate) fn has_failed(&mut self, each: &ForEach) -> bool {
        self.prepare(each);
        self.plan.failed
    }

    /// Notes how an item ended. What needs one that did not succeed is skipped for good.
    pub(crate) fn end_item(
        &mut self,
        each: &ForEach,
        index: usize,
        status: StepStatus,
        exit_code: i32,
    ) {
        self.prepare(each);
        if self.progress[index].ended.is_none() {
            self.progress[index].exit_code = exit_code;
            self.plan.failed |= status == StepStatus::Failed;
            self.close(index, status);
        }
    }

    /// Every item that has not ended is skipped.
    pub(crate) fn skip_rest(&mut self) {
        for index in self.open().collect::<Vec<_>>() {
            self.progress[index].ended = Some(StepStatus::Skipped);
        }
        self.plan.ready.clear();
    }

    /// In item order, every item that could go and shares nothing with the wave.
    pub(crate) fn next_wave(&mut self, each: &ForEach, most: usize) -> Vec<usize> {
        self.prepare(each);
        let plan = &mut self.plan;
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        self.wave.clear();
        for &index in &plan.ready {
            if self.wave.len() >= most {
                break;
            }
            if plan.shared[index].iter().any(|one| taken.contains(one)) {
                continue;
            }
            taken.extend(&plan.shared[index]);
            self.wave.push(index);
        }
        for index in &self.wave {
            plan.ready.remove(index);
        }
        plan.going = self.wave.iter().copied().collect();
        self.wave.clone()
    }

    fn close(&mut self, index: usize, status: StepStatus) {
        let mut ending = vec![(index, status)];
        while let Some((index, status)) = ending.pop() {
            if self.progress[index].ended.is_some() {
                continue;
            }
            self.progress[index].ended = Some(status);
            self.plan.ready.remove(&index);
            self.plan.going.remove(&index);
            for &other in &self.plan.needed_by[index] {
                if status != StepStatus::Succeeded {
                    ending.push((other, StepStatus::Skipped));
                    continue;
                }
                self.plan.waiting[other] -= 1;
                if self.plan.waiting[other] == 0 && self.progress[other].ended.is_none() {
                    self.plan.ready.insert(other);
                }
            }
        }
    }

    /// Builds the index, unless it is there.
    fn prepare(&mut self, each: &ForEach) {
        if self.plan.built {
            return;
        }
        let count = self.items.len();
        let mut plan = WaveIndex {
            built: true,
            needed_by: vec![Vec::new(); count],
            waiting: vec![0; count],
            shared: shared(&self.items, each.conflicts.as_deref()),
            failed: self.count(StepStatus::Failed) > 0,
            ..WaveIndex::default()
        };
        let mut lost = Vec::new();
        let by_key = by_key(&self.items, each);
        for (index, item) in self.items.iter().enumerate() {
            for wanted in strings(item, each.needs.as_deref()) {
                let other = by_key.get(&wanted).copied();
                match other.and_then(|other| self.progress[other].ended) {
                    Some(StepStatus::Succeeded) => {}
                    Some(StepStatus::Failed | StepStatus::Skipped) => lost.push(index),
                    None => {
                        plan.waiting[index] += 1;
                        other
                            .into_iter()
                            .for_each(|other| plan.needed_by[other].push(index));
                    }
                }
            }
        }
        let open: BTreeSet<usize> = self.open().collect();
        plan.going = self
            .wave
            .iter()
            .copied()
            .filter(|index| open.contains(index))
            .collect();
        let free = |index: &usize| plan.waiting[*index] == 0 && !plan.going.contains(index);
        plan.ready = open.into_iter().filter(free).collect();
        self.plan = plan;
        lost.into_iter()
            .for_each(|index| self.close(index, StepStatus::Skipped));
    }
}

/// The first item of each key.
fn by_key(items: &[Value], each: &ForEach) -> HashMap<String, usize> {
    let mut by_key = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let key = match &each.key {
            Some(field) => item.get(field),
            None => Some(item),
        };
        if let Some(key) = key {
            by_key.entry(text(key)).or_insert(index);
        }
    }
    by_key
}

/// What each item shares with others, every text as a number.
fn shared(items: &[Value], field: Option<&str>) -> Vec<Vec<usize>> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut number = |text: String| {
        let next = numbers.len();
        *numbers.entry(text).or_insert(next)
    };
    items
        .iter()
        .map(|item| strings(item, field).into_iter().map(&mut number).collect())
        .collect()
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
