//! An audit as text: the verdict first, then the four questions that a run must answer.
//!
//! What came from an agent or a file is stripped of control characters; nothing is left out.

use std::fmt::Write;

use serde_json::Value;

use super::{Audit, Issue, Transition};
use crate::report::{clean_line, count};

impl Audit {
    /// The whole audit for people, in plain lines.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let verdict = match self.findings.len() {
            0 => "sound".to_owned(),
            found => count(found, "finding"),
        };
        let status = self.status.map_or("not begun", |status| status.as_str());
        let events = count(usize::try_from(self.events).unwrap_or(usize::MAX), "event");
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{}: {verdict} ({status}, {events}, {} hashes compared)",
            self.run, self.hashes
        );
        if let Some(fault) = &self.error {
            let _ = writeln!(out, "  failed: {}", clean_line(&fault.message));
        }
        for finding in &self.findings {
            let _ = writeln!(
                out,
                "  {}: {}",
                clean_line(&finding.place),
                clean_line(&finding.what)
            );
        }
        let decisions = self.decisions.iter().map(|decision| {
            let content = decision
                .content
                .as_ref()
                .map_or_else(|| "cannot be read".to_owned(), Value::to_string);
            format!(
                "{} by {}, locked {}, sha256 {}: {content}",
                decision.name, decision.step, decision.locked_at, decision.sha256
            )
        });
        section(&mut out, "decisions", decisions);
        section(&mut out, "issues", self.issues.iter().map(issue));
        section(
            &mut out,
            "transitions",
            self.transitions.iter().map(transition),
        );
        out
    }
}

fn section(out: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let _ = writeln!(out, "{title}:");
    let mut any = false;
    for line in lines {
        any = true;
        let _ = writeln!(out, "  {}", clean_line(&line));
    }
    if !any {
        let _ = writeln!(out, "  none");
    }
}

fn issue(issue: &Issue) -> String {
    let text = match &issue.issue {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!(
        "{} {} (visit {}): {text}",
        issue.at, issue.step, issue.visit
    )
}

fn transition(made: &Transition) -> String {
    let mut line = format!(
        "{} [{}] {} {} -> {}",
        made.at, made.phase, made.step, made.status, made.next
    );
    if !made.reason.is_empty() {
        line = format!("{line} | {}", made.reason);
    }
    match made.guards.is_empty() {
        true => line,
        false => format!("{line} ({})", made.guards.join("; ")),
    }
}
