//! An audit as text: the verdict first, then the four questions that a run must answer.
//!
//! What came from an agent or a file is stripped of control characters; nothing is left out.

use std::fmt::Write;

use serde_json::Value;

use super::{Audit, Decision, Transition, line};
use crate::text::clean::{clean_line, count};

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
        let decisions = self.decisions.iter().map(Decision::line);
        section(&mut out, "decisions", decisions);
        let entry = |at: &str, step: &str, visit: u64, value: &Value| {
            format!("{at} {step} (visit {visit}): {}", line(value))
        };
        let issues = self.issues.iter();
        let issues = issues.map(|i| entry(&i.at, &i.step, i.visit, &i.issue));
        section(&mut out, "issues", issues);
        let fixes = self.fixes.iter();
        let fixes = fixes.map(|f| entry(&f.at, &f.step, f.visit, &f.fix));
        section(&mut out, "fixes", fixes);
        section(
            &mut out,
            "transitions",
            self.transitions.iter().map(transition),
        );
        out
    }
}

impl Decision {
    /// What was decided, by whom, and since when it is locked.
    pub(crate) fn line(&self) -> String {
        let content = self.content.as_ref().map(line);
        format!(
            "{} by {}, locked {}, sha256 {}: {}",
            self.name,
            self.step,
            self.locked_at,
            self.sha256,
            content.as_deref().unwrap_or("cannot be read")
        )
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
