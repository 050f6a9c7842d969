//! Workflows: every fault stands where it says, a comment above changes nothing but the lines, and
//! what is clean can be drawn and begun.

use orch::run::flow;
use orch::run::state::Event;
use orch::spec::provider::UserProviders;
use orch::spec::workflow::graph::{Format, draw};
use orch::spec::workflow::{Checked, Problem, Specs, Workflow, check};
use orch::text::error::Result;
use orch::text::yaml;
use orch::text::yaml::tree::{Node, Place, tree};
use serde_json::Map;

use super::place;

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let checked = checked(text);
    let report = &checked.report;
    assert_eq!(checked.workflow.is_some(), report.is_clean());
    assert!(report.proven.is_none() || report.is_clean());
    for problem in report.faults.iter().chain(&report.notes) {
        placed(problem, text);
    }
    let places = |problems: &[Problem]| problems.iter().map(|p| p.place).collect::<Vec<_>>();
    assert!(places(&report.faults).is_sorted() && places(&report.notes).is_sorted());
    assert!(report.is_clean() || report.fault().is_some());
    assert!(!report.render().is_empty() || report.is_clean());
    below_a_comment(text, &checked);
    if let Some(workflow) = &checked.workflow {
        clean(workflow);
    }
}

pub fn checked(text: &str) -> Checked {
    check("specs/w.yaml", text, &Everything::default())
}

fn placed(problem: &Problem, text: &str) {
    if problem.file != "specs/w.yaml" || problem.place.line == 0 {
        return;
    }
    let (line, column) = (problem.place.line, problem.place.column);
    assert!(place::is_inside(text, line, column), "{problem:?}");
}

/// The same a line further down. A mark in front of everything must stay there, a long text must not
/// become too long, and where there is nothing it has no place.
fn below_a_comment(text: &str, checked_above: &Checked) {
    let nothing = |node: Option<Node>| {
        node.is_none_or(|node| {
            node.place == Place { line: 1, column: 1 } && node.entries().is_empty()
        })
    };
    if text.starts_with('\u{feff}') || text.len() + 2 > yaml::MAX_BYTES || nothing(tree(text).0) {
        return;
    }
    let below = checked(&format!("#\n{text}"));
    let told = |problems: &[Problem], down: usize| -> Vec<(usize, usize, String)> {
        let one = |p: &Problem| {
            let line = p.place.line + usize::from(p.place.line > 0) * down;
            (line, p.place.column, without_numbers(&p.message))
        };
        problems.iter().map(one).collect()
    };
    let above = &checked_above.report;
    assert_eq!(told(&above.faults, 1), told(&below.report.faults, 0));
    assert_eq!(told(&above.notes, 1), told(&below.report.notes, 0));
    assert_eq!(above.proven, below.report.proven);
}

/// Messages may name lines.
fn without_numbers(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn clean(workflow: &Workflow) {
    for format in [Format::Mermaid, Format::Dot, Format::Svg] {
        assert!(!draw(workflow, format, None).is_empty());
    }
    let event = Event::Created {
        run_id: "20260101T000000Z-w-0001".to_owned(),
        workflow_name: workflow.name.value.clone(),
        workflow_sha256: String::new(),
        variables: Map::new(),
    };
    let begin = || flow::step(workflow, flow::nothing(), "2026-01-01T00:00:00Z", &event);
    let begun = begin().expect("a clean workflow begins");
    assert_eq!(begun, begin().expect("and does so again"));
}

/// A disk on which every file is there.
#[derive(Default)]
pub struct Everything(UserProviders);

impl Specs for Everything {
    fn file(&self, path: &str) -> Result<Option<String>> {
        let text = match path {
            path if path.contains("none") => return Ok(None),
            path if path.ends_with(".json") => "{\"type\": \"object\"}",
            path if path.ends_with(".md") => "---\nprovider: echo\n---\nWork on ${request}.\n",
            _ => "",
        };
        Ok(Some(text.to_owned()))
    }
    fn agents(&self) -> Vec<String> {
        ["tester", "reviewer", "engineer"].map(str::to_owned).into()
    }
    fn providers(&self) -> &UserProviders {
        &self.0
    }
    fn default_provider(&self) -> Option<String> {
        Some("echo".to_owned())
    }
    fn dirs(&self) -> Vec<String> {
        vec!["app".to_owned()]
    }
}
