//! `orch doctor`: is everything there that the work needs, and what to do where it is not.
//!
//! Nothing is repaired. What has to be tried on the file system is tried in `logs/`, with a file
//! that is removed again.

mod specs;
mod system;
mod work;

use std::io::IsTerminal;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::disk::root::Root;
use crate::text::error::{Fault, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, clean_line, print, print_json};

pub(super) fn run(root: Option<&Path>, words: &cli::Json) -> Result<u8> {
    let mut checks = Checks::default();
    match Root::discover(root) {
        Ok(root) => {
            checks.area("root");
            checks.good("root", root.path.display().to_string());
            system::check_root(&mut checks, &root);
            specs::check(&mut checks, &root);
            system::check(&mut checks, Some(&root));
            work::check(&mut checks, &root);
        }
        Err(fault) => {
            checks.area("root");
            checks.fault("root", &fault);
            system::check(&mut checks, None);
        }
    }
    if words.json {
        print_json(&json!({"good": checks.is_good(), "checks": checks.all}))?;
    } else {
        print(&checks.text())?;
    }
    Ok(if checks.is_good() {
        exit::DONE
    } else {
        exit::FAILED
    })
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Note,
    Bad,
}

#[derive(Debug, Serialize)]
struct Check {
    area: &'static str,
    level: Level,
    what: String,
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default)]
struct Checks {
    area: &'static str,
    all: Vec<Check>,
}

impl Checks {
    fn area(&mut self, area: &'static str) {
        self.area = area;
    }

    fn good(&mut self, what: impl Into<String>, detail: impl Into<String>) {
        self.add(Level::Ok, what, detail, None);
    }

    /// Worth knowing, with nothing to do.
    fn note(&mut self, what: impl Into<String>, detail: impl Into<String>) {
        self.add(Level::Note, what, detail, None);
    }

    fn advise(
        &mut self,
        what: impl Into<String>,
        detail: impl Into<String>,
        todo: impl Into<String>,
    ) {
        self.add(Level::Note, what, detail, Some(todo.into()));
    }

    fn bad(&mut self, what: impl Into<String>, detail: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Bad, what, detail, Some(todo.into()));
    }

    fn fault(&mut self, what: impl Into<String>, fault: &Fault) {
        let todo = fault.hint.clone().unwrap_or_else(|| fault.message.clone());
        self.bad(what, fault.message.clone(), todo);
    }

    fn add(
        &mut self,
        level: Level,
        what: impl Into<String>,
        detail: impl Into<String>,
        todo: Option<String>,
    ) {
        self.all.push(Check {
            area: self.area,
            level,
            what: what.into(),
            detail: detail.into(),
            todo,
        });
    }

    fn is_good(&self) -> bool {
        self.all.iter().all(|check| check.level != Level::Bad)
    }

    fn text(&self) -> String {
        let paint = Paint::stdout();
        let mut text = String::new();
        let mut area = "";
        for check in &self.all {
            if check.area != area {
                let gap = if area.is_empty() { "" } else { "\n" };
                area = check.area;
                text.push_str(&format!("{gap}{}\n", paint.strong(area)));
            }
            let (what, detail) = (clean_line(&check.what), clean_line(&check.detail));
            text.push_str(&format!(
                "  {} {what}: {detail}\n",
                mark(check.level, paint)
            ));
        }
        text.push_str(&self.conclusion(paint));
        text
    }

    fn conclusion(&self, paint: Paint) -> String {
        let mut todos: Vec<(&Check, &str)> = Vec::new();
        for check in &self.all {
            if let Some(todo) = &check.todo
                && !todos.iter().any(|(_, other)| other == todo)
            {
                todos.push((check, todo));
            }
        }
        // What is broken comes before what could be better.
        todos.sort_by_key(|(check, _)| check.level != Level::Bad);
        if todos.is_empty() {
            return format!("\n{}\n", paint.good("all good"));
        }
        let mut text = format!("\n{}\n", paint.strong("what to do"));
        for (number, (check, todo)) in todos.iter().enumerate() {
            let (what, todo) = (clean_line(&check.what), clean_line(todo));
            text.push_str(&format!("  {}. {what}: {todo}\n", number + 1));
        }
        if self.is_good() {
            text.push_str("nothing of that stops the work\n");
        }
        text
    }
}

fn mark(level: Level, paint: Paint) -> String {
    let is_terminal = std::io::stdout().is_terminal();
    match (level, is_terminal) {
        (Level::Ok, true) => paint.good("✓"),
        (Level::Note, true) => paint.odd("!"),
        (Level::Bad, true) => paint.bad("✗"),
        (Level::Ok, false) => "ok  ".to_owned(),
        (Level::Note, false) => "note".to_owned(),
        (Level::Bad, false) => "bad ".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_in_what_to_do_the_worst_first_or_in_all_good() {
        let mut checks = Checks::default();
        checks.area("a");
        checks.good("x", "fine");
        assert!(checks.text().ends_with("all good\n") && checks.is_good());
        checks.advise("y", "so-so", "polish it");
        checks.bad("z", "broken", "mend it");
        checks.bad("zz", "broken too", "mend it");
        let text = checks.text();
        assert!(
            text.contains("1. z: mend it\n  2. y: polish it\n"),
            "{text}"
        );
        assert_eq!(text.matches("mend it").count(), 1);
        assert!(!checks.is_good());
    }
}
