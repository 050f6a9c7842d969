//! The graph of a workflow: every transition that a run can make.
//!
//! Used by the checks and by the drawings alike, so that what is drawn is what was proven.

use super::model::{Flow, Level, Step, StepId, Target, Workflow};

/// Why a transition is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// By this row of `next`.
    Next(usize),
    /// `on.success`.
    Success,
    /// `on.failure`, or a failure that nothing handles.
    Failure,
    /// `on.interrupted`.
    Interrupted,
    /// `on.stopped`.
    Stopped,
    /// `on.always`.
    Always,
    /// To the following step.
    Following,
    /// The step was skipped.
    Skipped,
    /// The step was entered too often.
    Limit,
    /// A person rejected it.
    Rejected,
}

/// A transition that a run can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// From this step.
    pub from: StepId,
    /// To this target.
    pub to: Target,
    /// Why.
    pub kind: EdgeKind,
}

impl EdgeKind {
    /// The word for it in drawings; rows are known by their guards.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            EdgeKind::Next(_) | EdgeKind::Following => "",
            EdgeKind::Success => "success",
            EdgeKind::Failure => "failure",
            EdgeKind::Interrupted => "interrupted",
            EdgeKind::Stopped => "stopped",
            EdgeKind::Always => "always",
            EdgeKind::Skipped => "skipped",
            EdgeKind::Limit => "limit",
            EdgeKind::Rejected => "rejected",
        }
    }
}

/// The transitions out of each step, by its id.
#[must_use]
pub fn edges(workflow: &Workflow) -> Vec<Vec<Edge>> {
    let mut all = vec![Vec::new(); workflow.steps.len()];
    let bodies = workflow.ids().map(|id| workflow.children(id));
    for level in std::iter::once(workflow.order.as_slice()).chain(bodies) {
        for (index, &id) in level.iter().enumerate() {
            let step = workflow.step(id);
            let following = match (level.get(index + 1), step.level) {
                (Some(&next), _) => Target::Step(next),
                (None, Level::Top) => Target::End,
                (None, _) => Target::Next,
            };
            if !matches!(step.level, Level::Parallel(_)) {
                all[id.0] = of_step(id, step, following, workflow.strict_flow);
            }
        }
    }
    all
}

fn of_step(from: StepId, step: &Step, following: Target, strict: bool) -> Vec<Edge> {
    let mut out = Vec::new();
    let mut add = |kind, to: Option<Target>| {
        out.extend(to.map(|to| Edge { from, to, kind }));
    };
    match &step.flow {
        Flow::Rows {
            rows,
            failure,
            interrupted,
            stopped,
        } => {
            for (index, row) in rows.iter().enumerate() {
                add(EdgeKind::Next(index), Some(row.goto));
            }
            add(EdgeKind::Failure, *failure);
            add(EdgeKind::Interrupted, *interrupted);
            add(EdgeKind::Stopped, *stopped);
        }
        Flow::Handlers {
            success,
            failure,
            interrupted,
            stopped,
            always,
        } => {
            match (always, success) {
                (Some(always), _) => add(EdgeKind::Always, Some(*always)),
                (None, Some(success)) => add(EdgeKind::Success, Some(*success)),
                (None, None) => add(EdgeKind::Following, Some(following)),
            }
            let unhandled = if strict { Target::Fail } else { following };
            if always.is_none() {
                add(EdgeKind::Failure, Some(failure.unwrap_or(unhandled)));
                add(EdgeKind::Interrupted, *interrupted);
                add(EdgeKind::Stopped, *stopped);
            }
        }
    }
    if step.when.is_some() {
        add(EdgeKind::Skipped, Some(following));
    }
    add(EdgeKind::Limit, step.limit.as_ref().map(|l| l.on_limit));
    let rejected = step.approval.as_ref().and_then(|a| a.on_reject);
    add(EdgeKind::Rejected, rejected);
    out
}
