//! Drawings of a workflow: Mermaid, DOT and SVG, with the course of a run on top if one is given.
//!
//! Text only; names and guards are escaped for each language. What is drawn are the transitions
//! that the checks know, apart from failures that nothing handles.

use std::collections::BTreeMap;

use super::edges::{Edge, EdgeKind, edges};
use super::model::{Flow, Step, StepId, Target, Who, Work, Workflow};
use super::svg;
use crate::text::clean::is_harmful;
use crate::text::cut;

/// The language of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For Markdown.
    Mermaid,
    /// For Graphviz.
    Dot,
    /// For a browser.
    Svg,
}

/// The course of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// How often each step was entered.
    pub visits: BTreeMap<String, u64>,
    /// How often each transition was made, by the names of its ends.
    pub taken: BTreeMap<(String, String), u64>,
    /// The step that the run is at.
    pub current: Option<String>,
    /// The status of the run.
    pub status: Option<String>,
}

/// All transitions between two ends, as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) from: StepId,
    pub(super) to: Target,
    pub(super) label: String,
    pub(super) aside: bool,
    pub(super) taken: u64,
}

const MAX_LABEL: usize = 48;

/// Draws a workflow.
#[must_use]
pub fn draw(workflow: &Workflow, format: Format, overlay: Option<&Overlay>) -> String {
    let lines = lines(workflow, overlay);
    match format {
        Format::Mermaid => mermaid(workflow, &lines, overlay),
        Format::Dot => dot(workflow, &lines, overlay),
        Format::Svg => svg::svg(workflow, &lines, overlay),
    }
}

fn lines(workflow: &Workflow, overlay: Option<&Overlay>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for edge in edges(workflow).into_iter().flatten() {
        let step = workflow.step(edge.from);
        if is_unhandled(step, edge) {
            continue;
        }
        let label = label(step, edge);
        let aside = !matches!(
            edge.kind,
            EdgeKind::Next(_) | EdgeKind::Success | EdgeKind::Following | EdgeKind::Always
        );
        let start = lines.len().saturating_sub(16);
        let same = lines[start..]
            .iter_mut()
            .find(|line| line.from == edge.from && line.to == edge.to);
        match same {
            Some(line) => {
                // A way that is always open needs no reasons.
                let is_open = |label: &str, aside: bool| label.is_empty() && !aside;
                line.label = match is_open(&line.label, line.aside) || is_open(&label, aside) {
                    true => String::new(),
                    false => format!("{} / {label}", line.label),
                };
                line.aside &= aside;
            }
            None => lines.push(Line {
                from: edge.from,
                to: edge.to,
                label,
                aside,
                taken: taken(workflow, edge, overlay),
            }),
        }
    }
    lines
}

fn is_unhandled(step: &Step, edge: Edge) -> bool {
    let handled = match &step.flow {
        Flow::Rows { failure, .. } | Flow::Handlers { failure, .. } => failure.is_some(),
    };
    edge.kind == EdgeKind::Failure && !handled
}

fn taken(workflow: &Workflow, edge: Edge, overlay: Option<&Overlay>) -> u64 {
    let name = |id: StepId| workflow.step(id).name.value.clone();
    let key = (name(edge.from), workflow.target_name(edge.to).to_owned());
    overlay
        .and_then(|overlay| overlay.taken.get(&key))
        .copied()
        .unwrap_or(0)
}

fn label(step: &Step, edge: Edge) -> String {
    match (&step.flow, edge.kind) {
        (Flow::Rows { rows, .. }, EdgeKind::Next(index)) => rows
            .get(index)
            .map(|row| {
                let guard = row.guard.value.trim();
                let guard = Some(guard).filter(|guard| *guard != "true").map(short);
                let lock = row
                    .lock
                    .as_ref()
                    .map(|name| format!("locks {}", name.value));
                let parts: Vec<String> = guard.into_iter().chain(lock).collect();
                parts.join(", ")
            })
            .unwrap_or_default(),
        (_, EdgeKind::Success) => String::new(),
        (_, EdgeKind::Limit) => match step.limit.as_ref().and_then(|limit| limit.max.most()) {
            Some(most) => format!("after {most}"),
            None => "limit".to_owned(),
        },
        (_, kind) => kind.word().to_owned(),
    }
}

/// One line, cut, without control characters.
fn short(text: &str) -> String {
    let clean: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !is_harmful(*c))
        .collect();
    cut::ellipsis(&clean, MAX_LABEL).into_owned()
}

/// What a step does, in a word or two.
pub(super) fn subtitle(workflow: &Workflow, step: &Step) -> String {
    let work = work(workflow, step);
    match (&step.approval, &step.work) {
        (None, _) => work,
        (Some(approval), Work::Approval) => format!("{work} {}", approval.gate.value),
        (Some(approval), _) => format!("{work}, approval {}", approval.gate.value),
    }
}

fn work(workflow: &Workflow, step: &Step) -> String {
    match &step.work {
        Work::Agent(work) => match &work.who {
            Who::Agent { name, .. } => format!("agent {}", name.value),
            Who::Provider(name) => format!("provider {}", short(&name.value)),
        },
        Work::Command(command) => {
            let words: Vec<&str> = command.iter().map(|word| word.value.as_str()).collect();
            format!("$ {}", short(&words.join(" ")))
        }
        Work::Wait(wait) => format!("wait for {}", short(&wait.glob.value)),
        Work::Human(_) => "a person answers".to_owned(),
        Work::Approval => "a person approves".to_owned(),
        Work::Parallel(subs) => format!("in parallel: {}", inner_names(workflow, subs)),
        Work::ForEach(each) => format!(
            "for each {}: {}",
            each.name,
            inner_names(workflow, &each.body)
        ),
        Work::Action(action) => match action {
            super::model::Action::LoadPlan { .. } => "load the plan".to_owned(),
            super::model::Action::MarkPlan { .. } => "mark the plan".to_owned(),
            super::model::Action::ApplyFiles { .. } => "apply files".to_owned(),
        },
    }
}

fn inner_names(workflow: &Workflow, ids: &[StepId]) -> String {
    let names: Vec<&str> = ids
        .iter()
        .map(|&id| workflow.step(id).name.value.as_str())
        .collect();
    names.join(", ")
}

pub(super) fn visits(step: &Step, overlay: Option<&Overlay>) -> u64 {
    let visits = overlay.and_then(|overlay| overlay.visits.get(&step.name.value));
    visits.copied().unwrap_or(0)
}

pub(super) fn is_current(step: &Step, overlay: Option<&Overlay>) -> bool {
    overlay.is_some_and(|overlay| overlay.current.as_deref() == Some(&step.name.value))
}

fn with_count(label: &str, taken: u64) -> String {
    match (label, taken) {
        (label, 0) => label.to_owned(),
        ("", taken) => format!("{taken}×"),
        (label, taken) => format!("{label} ({taken}×)"),
    }
}

/// The targets that are not steps and that some line leads to.
fn ends(lines: &[Line]) -> Vec<Target> {
    [Target::End, Target::Fail, Target::Block, Target::Stop]
        .into_iter()
        .filter(|end| lines.iter().any(|line| line.to == *end))
        .collect()
}

fn node_id(workflow: &Workflow, from: StepId, target: Target) -> String {
    match target {
        Target::Step(id) => format!("s{}", id.0),
        // The end of an item leads back to its loop.
        Target::Next => workflow
            .loop_of(from)
            .map_or_else(|| "done".to_owned(), |id| format!("s{}", id.0)),
        Target::End => "done".to_owned(),
        Target::Fail => "failed".to_owned(),
        Target::Block => "blocked".to_owned(),
        Target::Stop => "stopped".to_owned(),
    }
}

fn mermaid(workflow: &Workflow, lines: &[Line], overlay: Option<&Overlay>) -> String {
    let mut out = String::from("flowchart TD\n");
    let node = |id: StepId| {
        let step = workflow.step(id);
        let name = with_count(&step.name.value, visits(step, overlay));
        let text = format!(
            "{}<br/>{}",
            mermaid_text(&name),
            mermaid_text(&subtitle(workflow, step))
        );
        format!("s{}[\"{text}\"]", id.0)
    };
    out.push_str("  start((start)) --> s");
    out.push_str(&format!(
        "{}\n",
        workflow.order.first().map_or(0, |id| id.0)
    ));
    for &id in &workflow.order {
        out.push_str(&format!("  {}\n", node(id)));
        let inside = workflow.children(id);
        if let Some(first) = inside.first() {
            out.push_str(&format!(
                "  subgraph g{} [\"inside {}\"]\n",
                id.0,
                mermaid_text(&workflow.step(id).name.value)
            ));
            for &inner in inside {
                out.push_str(&format!("    {}\n", node(inner)));
            }
            out.push_str(&format!("  end\n  s{} -.-> s{}\n", id.0, first.0));
        }
    }
    for end in ends(lines) {
        let id = node_id(workflow, StepId(0), end);
        out.push_str(&format!("  {id}([\"{}\"])\n", workflow.target_name(end)));
    }
    for line in lines {
        let arrow = if line.aside { "-.->" } else { "-->" };
        let label = with_count(&line.label, line.taken);
        let label = match label.as_str() {
            "" => String::new(),
            label => format!("|\"{}\"|", mermaid_text(label)),
        };
        let to = node_id(workflow, line.from, line.to);
        out.push_str(&format!("  s{} {arrow}{label} {to}\n", line.from.0));
    }
    if let Some(id) = current(workflow, overlay) {
        out.push_str("  classDef current stroke-width:3px,fill:#fff3c4,stroke:#b7791f\n");
        out.push_str(&format!("  class s{} current\n", id.0));
    }
    out
}

fn current(workflow: &Workflow, overlay: Option<&Overlay>) -> Option<StepId> {
    workflow
        .ids()
        .find(|&id| is_current(workflow.step(id), overlay))
}

/// Mermaid has entities of its own, with `#` for `&`.
fn mermaid_text(text: &str) -> String {
    let mut out = String::new();
    for c in short_all(text).chars() {
        match c {
            '"' | '<' | '>' | '#' | '&' | '|' | '`' | '[' | ']' | '{' | '}' | '\\' | ';' => {
                out.push_str(&format!("#{};", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

fn short_all(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn dot(workflow: &Workflow, lines: &[Line], overlay: Option<&Overlay>) -> String {
    let mut out = format!("digraph {} {{\n", dot_text(&workflow.name.value));
    out.push_str("  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n");
    out.push_str("  edge [fontname=\"sans-serif\", fontsize=10];\n");
    let node = |id: StepId| {
        let step = workflow.step(id);
        let name = with_count(&step.name.value, visits(step, overlay));
        let text = dot_text(&format!("{name}\n{}", subtitle(workflow, step)));
        let look = match is_current(step, overlay) {
            true => ", style=\"rounded,filled\", fillcolor=\"#fff3c4\", penwidth=2",
            false => "",
        };
        format!("s{} [label={text}{look}];\n", id.0)
    };
    for &id in &workflow.order {
        out.push_str(&format!("  {}", node(id)));
        let inside = workflow.children(id);
        if let Some(first) = inside.first() {
            out.push_str(&format!(
                "  subgraph cluster_{} {{\n    label={};\n",
                id.0,
                dot_text(&workflow.step(id).name.value)
            ));
            for &inner in inside {
                out.push_str(&format!("    {}", node(inner)));
            }
            out.push_str(&format!(
                "  }}\n  s{} -> s{} [style=dotted];\n",
                id.0, first.0
            ));
        }
    }
    for end in ends(lines) {
        let id = node_id(workflow, StepId(0), end);
        out.push_str(&format!(
            "  {id} [label=\"{}\", shape=oval];\n",
            workflow.target_name(end)
        ));
    }
    for line in lines {
        let style = if line.aside { ", style=dashed" } else { "" };
        let label = dot_text(&with_count(&line.label, line.taken));
        let to = node_id(workflow, line.from, line.to);
        out.push_str(&format!(
            "  s{} -> {to} [label={label}{style}];\n",
            line.from.0
        ));
    }
    out.push_str("}\n");
    out
}

fn dot_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
