//! The proof that a run ends, and after how many transitions at most.
//!
//! A run walks through the strongly connected parts of the graph and never comes back to one that it
//! has left. A part with a cycle must hold steps with a limit whose count nothing in the part
//! restarts. Such a step is entered that often and no more; from then on it only passes on to its
//! `on_limit`, and so it is looked at again, in that form, together with the rest of its part. What
//! still has a cycle when no limit is left has no bound. An entry past the limit restarts no count.

use super::edges::{Edge, EdgeKind};
use super::model::{Items, StepId, Target, Work, Workflow};

/// Limits within limits, beyond which the proof is given up.
const MAX_DEPTH: usize = 200;

/// What was found out about a workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The most transitions of a run, if every cycle has a bound; saturating.
    pub(super) most: u64,
    /// Cycles without a bound, each closed: the first step is also the last.
    pub(super) cycles: Vec<Vec<StepId>>,
    /// For each loop over a list that is not in the file: the most transitions for one item.
    pub(super) loops: Vec<(StepId, u64)>,
}

/// Measures the whole workflow.
pub(super) fn measure(workflow: &Workflow, edges: &[Vec<Edge>]) -> Bounds {
    let count = workflow.steps.len();
    let mut walk = Walk {
        workflow,
        edges,
        exhausted: vec![false; count],
        weight: vec![1; count],
        part: vec![usize::MAX; count],
        parts: 0,
        depth: 0,
        found: Bounds::default(),
    };
    for id in workflow.ids() {
        let Work::ForEach(each) = &workflow.step(id).work else {
            continue;
        };
        let item = walk.longest(&each.body);
        let items = match &each.items {
            Items::List(items) => items.len() as u64,
            Items::From(_) => {
                walk.found.loops.push((id, item));
                u64::MAX
            }
        };
        walk.weight[id.0] = item.saturating_mul(items).saturating_add(1);
    }
    walk.found.most = walk.longest(&workflow.order);
    walk.found
}

struct Walk<'w> {
    workflow: &'w Workflow,
    edges: &'w [Vec<Edge>],
    /// Steps whose limit is used up: only their `on_limit` is left.
    exhausted: Vec<bool>,
    /// Transitions that one visit takes.
    weight: Vec<u64>,
    /// The part that a step is in at the moment.
    part: Vec<usize>,
    parts: usize,
    depth: usize,
    found: Bounds,
}

impl Walk<'_> {
    /// The most transitions of a walk through these steps, wherever it begins.
    fn longest(&mut self, steps: &[StepId]) -> u64 {
        let own = self.mark(steps);
        let parts = self.components(steps, own);
        let mut of_part: Vec<u64> = Vec::with_capacity(parts.len());
        let mut index = vec![usize::MAX; self.workflow.steps.len()];
        let mut best = 0;
        for (number, part) in parts.iter().enumerate() {
            part.iter().for_each(|id| index[id.0] = number);
            let after = part
                .iter()
                .flat_map(|&id| self.targets(id))
                .filter_map(|to| of_part.get(index[to.0]))
                .copied()
                .max()
                .unwrap_or(0);
            let total = self.of_part(part).saturating_add(after);
            of_part.push(total);
            best = best.max(total);
        }
        best
    }

    /// The most transitions within one part, from its entry until it is left.
    fn of_part(&mut self, part: &[StepId]) -> u64 {
        let alone = part.len() == 1;
        if alone && !self.targets(part[0]).any(|to| to == part[0]) {
            return match self.exhausted[part[0].0] {
                true => 1,
                false => self.weight[part[0].0],
            };
        }
        let own = self.mark(part);
        let limited: Vec<StepId> = part
            .iter()
            .copied()
            .filter(|&id| self.bounds(id, own))
            .collect();
        if limited.is_empty() || self.depth >= MAX_DEPTH {
            let cycle = self.cycle(part, own);
            self.found.cycles.push(cycle);
            return u64::MAX;
        }
        let (mut visits, mut spent) = (0u64, 0u64);
        let before = match limited.as_slice() {
            [only] => self.without(part, *only),
            _ => None,
        };
        for id in limited {
            let limit = self.workflow.step(id).limit.as_ref();
            let most = limit.and_then(|limit| limit.max.most()).unwrap_or(u64::MAX);
            visits = visits.saturating_add(most);
            spent = spent.saturating_add(most.saturating_mul(self.weight[id.0]));
            self.exhausted[id.0] = true;
        }
        self.depth += 1;
        let last = self.longest(part);
        self.depth -= 1;
        // One stretch up to each counted visit, and one after the last.
        let stretches = visits.saturating_mul(before.unwrap_or(last));
        spent.saturating_add(stretches).saturating_add(last)
    }

    /// The longest walk within a part that leaves one step out, if no cycle is left then.
    fn without(&mut self, part: &[StepId], out: StepId) -> Option<u64> {
        let rest: Vec<StepId> = part.iter().copied().filter(|&id| id != out).collect();
        let own = self.mark(&rest);
        let loops = |id: StepId| self.targets(id).any(|to| to == id);
        let parts = self.components(&rest, own);
        let straight = parts.iter().all(|part| part.len() == 1 && !loops(part[0]));
        straight.then(|| self.longest(&rest))
    }

    /// Whether the step has a limit that nothing in the part restarts.
    fn bounds(&self, id: StepId, part: usize) -> bool {
        let limit = self.workflow.step(id).limit.as_ref();
        let restarts = |step: &StepId| self.part[step.0] == part && !self.exhausted[step.0];
        limit.is_some_and(|limit| !self.exhausted[id.0] && !limit.per.iter().any(restarts))
    }

    fn mark(&mut self, steps: &[StepId]) -> usize {
        self.parts += 1;
        for id in steps {
            self.part[id.0] = self.parts;
        }
        self.parts
    }

    /// Where a step can lead at the moment.
    fn targets(&self, id: StepId) -> impl Iterator<Item = StepId> + '_ {
        let exhausted = self.exhausted[id.0];
        self.edges[id.0]
            .iter()
            .filter(move |edge| !exhausted || edge.kind == EdgeKind::Limit)
            .filter_map(|edge| match edge.to {
                Target::Step(to) => Some(to),
                _ => None,
            })
    }

    /// Strongly connected parts, those that lead nowhere else first (Tarjan, without recursion).
    fn components(&self, steps: &[StepId], own: usize) -> Vec<Vec<StepId>> {
        let count = self.workflow.steps.len();
        let (mut order, mut low) = (vec![usize::MAX; count], vec![0; count]);
        let mut on_stack = vec![false; count];
        let (mut stack, mut parts, mut time) = (Vec::new(), Vec::new(), 0);
        for &root in steps {
            if order[root.0] != usize::MAX {
                continue;
            }
            let mut calls: Vec<(StepId, Vec<StepId>)> = Vec::new();
            let mut enter = Some(root);
            loop {
                if let Some(id) = enter.take() {
                    (order[id.0], low[id.0]) = (time, time);
                    time += 1;
                    stack.push(id);
                    on_stack[id.0] = true;
                    let inside = self.targets(id).filter(|to| self.part[to.0] == own);
                    calls.push((id, inside.collect()));
                }
                let Some((id, targets)) = calls.last_mut() else {
                    break;
                };
                let id = *id;
                if let Some(to) = targets.pop() {
                    if order[to.0] == usize::MAX {
                        enter = Some(to);
                    } else if on_stack[to.0] {
                        low[id.0] = low[id.0].min(order[to.0]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((parent, _)) = calls.last() {
                    low[parent.0] = low[parent.0].min(low[id.0]);
                }
                if low[id.0] == order[id.0] {
                    parts.push(pop_part(&mut stack, &mut on_stack, id));
                }
            }
        }
        parts
    }

    /// A shortest cycle through the first step of the part that has one.
    fn cycle(&self, part: &[StepId], own: usize) -> Vec<StepId> {
        let start = part.iter().copied().min().unwrap_or(StepId(0));
        let mut before = vec![None; self.workflow.steps.len()];
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(id) = queue.pop_front() {
            for to in self.targets(id).filter(|to| self.part[to.0] == own) {
                if to == start {
                    return unwind(&before, start, id);
                }
                if before[to.0].is_none() {
                    before[to.0] = Some(id);
                    queue.push_back(to);
                }
            }
        }
        vec![start, start]
    }
}

fn pop_part(stack: &mut Vec<StepId>, on_stack: &mut [bool], root: StepId) -> Vec<StepId> {
    let mut part = Vec::new();
    while let Some(id) = stack.pop() {
        on_stack[id.0] = false;
        part.push(id);
        if id == root {
            break;
        }
    }
    part
}

fn unwind(before: &[Option<StepId>], start: StepId, last: StepId) -> Vec<StepId> {
    let mut cycle = vec![start];
    let mut at = last;
    while at != start {
        cycle.push(at);
        at = before[at.0].unwrap_or(start);
    }
    cycle.push(start);
    cycle.reverse();
    cycle
}
