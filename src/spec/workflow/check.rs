//! All faults of a workflow file at once, and the proof that its runs end.
//!
//! The order is: syntax, shapes, names, then everything that needs the whole: the graph, the gates,
//! the variables, the files. It never stops at the first fault.

use std::collections::HashMap;

use super::bounds::{self, Bounds};
use super::edges::{Edge, edges};
use super::fields::WORKFLOW;
use super::load::{self, Loaded};
use super::model::*;
use super::problem::{Gather, Report};
use super::{Specs, check_files, check_vars, conform};
use crate::text::suggest;
use crate::text::yaml::tree::{self, Content};

/// What a check gives.
#[derive(Debug)]
pub struct Checked {
    /// The workflow; only if nothing is wrong with it.
    pub workflow: Option<Workflow>,
    /// What was found.
    pub report: Report,
}

/// Checks the text of a workflow file; `file` is what messages call it.
#[must_use]
pub fn check(file: &str, text: &str, specs: &dyn Specs) -> Checked {
    let mut out = Gather::new(file, text);
    let (root, faults) = tree::tree(text);
    for fault in faults {
        let place = Place {
            line: fault.line,
            column: fault.column,
        };
        out.bad_yaml(place, fault.message, fault.hint);
    }
    let loaded = root.and_then(|root| {
        match root.content {
            Content::Map(_) => conform::object(&root, &WORKFLOW, "", &mut out),
            _ => out.hinted(
                root.place,
                format!("a workflow is a map, and this is {}", root.kind()),
                "begin with `version: \"1\"`, `name:` and `steps:`",
            ),
        }
        load::load(&root, &mut out)
    });
    let Some(loaded) = loaded else {
        return Checked {
            workflow: None,
            report: out.finish(None),
        };
    };
    let proven = whole(&loaded, &mut out, specs);
    let report = out.finish(proven);
    Checked {
        workflow: report.is_clean().then_some(loaded.workflow),
        report,
    }
}

/// What needs the whole workflow.
fn whole(loaded: &Loaded, out: &mut Gather<'_>, specs: &dyn Specs) -> Option<u64> {
    let workflow = &loaded.workflow;
    let edges = edges(workflow);
    gates(workflow, out);
    updates(workflow, out);
    sources(workflow, out);
    check_vars::check(workflow, &edges, loaded.broken_flow, out);
    check_files::check(workflow, specs, out);
    if loaded.broken_flow {
        return None;
    }
    reachable(workflow, &edges, out);
    let bounds = bounds::measure(workflow, &edges);
    cycles(workflow, &bounds, out);
    bounds
        .cycles
        .is_empty()
        .then(|| proven(workflow, &bounds, out))
}

fn proven(workflow: &Workflow, bounds: &Bounds, out: &mut Gather<'_>) -> u64 {
    let place = workflow.name.place;
    for (id, item) in &bounds.loops {
        let step = workflow.step(*id);
        let message = format!(
            "`{}` takes at most {item} transition{} for each item, and the list is known only to the run",
            step.name.value,
            if *item == 1 { "" } else { "s" }
        );
        out.note(step.name.place, message);
    }
    if bounds.most > workflow.max_transitions {
        let most = match bounds.most {
            u64::MAX => "any number of".to_owned(),
            most => format!("up to {most}"),
        };
        let message = format!(
            "the steps alone allow {most} transitions; `max_transitions` ends a run after {}",
            workflow.max_transitions
        );
        out.note(place, message);
    }
    bounds.most.min(workflow.max_transitions)
}

fn cycles(workflow: &Workflow, bounds: &Bounds, out: &mut Gather<'_>) {
    for cycle in &bounds.cycles {
        let names: Vec<&str> = cycle
            .iter()
            .map(|&id| workflow.step(id).name.value.as_str())
            .collect();
        let inside = |id: &StepId| cycle.contains(id);
        let with_limit = cycle
            .iter()
            .filter_map(|&id| Some((workflow.step(id), workflow.step(id).limit.as_ref()?)))
            .next();
        let hint = match with_limit {
            Some((step, limit)) if limit.per.iter().any(inside) => format!(
                "the count of `{}` is restarted by a step of the cycle: name others in `per`, or give another step `max_visits`",
                step.name.value
            ),
            Some((step, _)) => format!(
                "`on_limit` of `{}` leads back into the cycle: let it lead out, or give another step `max_visits`",
                step.name.value
            ),
            None => {
                "give one of its steps `max_visits: N`, and `on_limit` with the way out".to_owned()
            }
        };
        let place = workflow.step(cycle[0]).name.place;
        let message = format!("the cycle `{}` has no bound", names.join(" -> "));
        out.hinted(place, message, &hint);
    }
}

fn reachable(workflow: &Workflow, edges: &[Vec<Edge>], out: &mut Gather<'_>) {
    let mut seen = vec![false; workflow.steps.len()];
    let starts = workflow.order.first().copied().into_iter();
    let mut stack: Vec<StepId> = starts.chain(workflow.follow_up).collect();
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut seen[id.0], true) {
            continue;
        }
        match &workflow.step(id).work {
            Work::ForEach(each) => stack.extend(each.body.first()),
            Work::Parallel(subs) => stack.extend(subs),
            _ => {}
        }
        stack.extend(edges[id.0].iter().filter_map(|edge| match edge.to {
            Target::Step(to) => Some(to),
            _ => None,
        }));
    }
    for id in workflow.ids().filter(|id| !seen[id.0]) {
        let parent_seen = match workflow.step(id).level {
            Level::Top => true,
            Level::Body(parent) | Level::Parallel(parent) => seen[parent.0],
        };
        if parent_seen {
            let name = &workflow.step(id).name;
            let message = format!("no run comes to step `{}`", name.value);
            let hint = "let a `goto` lead to it, or take it out";
            out.hinted(name.place, message, hint);
        }
    }
}

/// Gates must be told apart by their names and by the names of their steps.
fn gates(workflow: &Workflow, out: &mut Gather<'_>) {
    let mut owners: HashMap<&str, StepId> = HashMap::new();
    let asking: Vec<(StepId, &Approval)> = workflow
        .ids()
        .filter_map(|id| Some((id, workflow.step(id).approval.as_ref()?)))
        .collect();
    for &(id, approval) in &asking {
        let gate = &approval.gate;
        if gate.value.trim().is_empty() {
            out.fault(gate.place, "the gate has no name");
        }
        if let Some(first) = owners.insert(&gate.value, id) {
            let other = &workflow.step(first).name.value;
            let message = format!("step `{other}` asks for the gate `{}` too", gate.value);
            out.hinted(gate.place, message, "give each gate a name of its own");
        }
    }
    for (id, _) in asking {
        let step = workflow.step(id);
        if let Some(owner) = owners.get(step.name.value.as_str()).filter(|o| **o != id) {
            let other = workflow.step(*owner);
            let gate = other
                .approval
                .as_ref()
                .map_or(other.name.place, |a| a.gate.place);
            let message = format!(
                "the gate `{0}` has the name of the step `{0}`, which asks for another",
                step.name.value
            );
            out.hinted(
                gate,
                message,
                "a gate can be called by its step: rename one of them",
            );
        }
    }
}

/// `updates` names parts of the document that exist, and no two steps side by side the same.
fn updates(workflow: &Workflow, out: &mut Gather<'_>) {
    for id in workflow.ids() {
        if let Work::Parallel(subs) = &workflow.step(id).work {
            apart(workflow, subs, out);
        }
    }
    for part in workflow.steps.iter().flat_map(|step| &step.updates) {
        let root = part.value.split('.').next().unwrap_or_default();
        if part.value.split('.').any(str::is_empty) {
            let message = format!("`{}` is not a part of the document", part.value);
            out.hinted(part.place, message, "write it like `code` or `code.status`");
        } else if load::RESERVED_STATE.contains(&root) {
            let message = format!("`{root}` is read-only and no part to update");
            out.fault(part.place, message);
        } else if !workflow.state.contains_key(root) {
            let known: Vec<&str> = workflow.state.keys().map(String::as_str).collect();
            let message = format!("`updates`: there is no part `{root}` in `state`");
            let hint = suggest::hint(root, &known)
                .unwrap_or_else(|| "declare it under `state:`".to_owned());
            out.hinted(part.place, message, &hint);
        }
    }
}

/// What runs side by side is merged in no certain order, so the parts must not lie in each other.
fn apart(workflow: &Workflow, subs: &[StepId], out: &mut Gather<'_>) {
    let within = |one: &str, other: &str| {
        let rest = one.strip_prefix(other);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for (index, &sub) in subs.iter().enumerate() {
        for part in &workflow.step(sub).updates {
            let clash = subs[..index].iter().find(|other| {
                let parts = &workflow.step(**other).updates;
                parts.iter().any(|other| {
                    within(&part.value, &other.value) || within(&other.value, &part.value)
                })
            });
            if let Some(other) = clash {
                let message = format!(
                    "`{}` is updated by `{}` too, which runs side by side with this step",
                    part.value,
                    workflow.step(*other).name.value
                );
                let hint = "give each of them a part of its own, such as `code.a` and `code.b`";
                out.hinted(part.place, message, hint);
            }
        }
    }
}

/// Numbers that come from the context must be there, or have a default.
fn sources(workflow: &Workflow, out: &mut Gather<'_>) {
    for step in &workflow.steps {
        let timeout = step.timeout.as_ref().map(|timeout| match timeout {
            Timeout::Millis(number) | Timeout::Seconds(number) => number,
        });
        let parallel = match &step.work {
            Work::ForEach(each) => Some(&each.max_parallel),
            _ => None,
        };
        let limit = step.limit.as_ref().map(|limit| &limit.max);
        let retries = step.retries.as_ref().map(|retries| &retries.max);
        for number in [timeout, parallel, limit, retries].into_iter().flatten() {
            let Number::From { path, default, .. } = number else {
                continue;
            };
            let key = path.strip_prefix("context.").unwrap_or_default();
            let known = workflow.context.get(key);
            let place = out.within(step.name.place, &format!("from: {path}"));
            if default.is_none() && known.is_none() && !key.is_empty() {
                let message = format!("`{path}` is not in `context`, and there is no `default`");
                out.hinted(
                    place,
                    message,
                    "add a `default`, or declare it under `context:`",
                );
            }
            let time = matches!(step.timeout, Some(Timeout::Millis(_)));
            if known.is_some_and(|value| value.as_u64().is_none()) && !time {
                out.fault(
                    place,
                    format!("`{path}` is not a whole number in `context`"),
                );
            }
        }
    }
}
