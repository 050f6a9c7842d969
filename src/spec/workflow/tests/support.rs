//! A disk and a reader of expressions, both as small as the tests need them.

use std::collections::BTreeMap;

use crate::spec::provider::UserProviders;
use crate::spec::workflow::{Checked, GuardFault, Guards, Specs, check};
use crate::text::error::Result;

/// Files by path; agents are the files under `specs/agents/`.
#[derive(Default)]
pub struct Disk {
    pub files: BTreeMap<String, String>,
    pub providers: UserProviders,
    pub everything: bool,
}

impl Disk {
    /// The files that most tests name.
    pub fn usual() -> Self {
        let mut disk = Disk::default();
        for agent in ["coder", "reviewer"] {
            disk.add(
                &format!("specs/agents/{agent}.md"),
                "---\nprovider: echo\n---\nWork.\n",
            );
        }
        disk.add("specs/prompts/p.md", "Do it.");
        disk.add("specs/schemas/s.json", "{\"type\": \"object\"}");
        disk.add("specs/schemas/bad.json", "{");
        disk
    }

    pub fn add(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }
}

impl Specs for Disk {
    fn file(&self, path: &str) -> Result<Option<String>> {
        if self.everything {
            let text = if path.ends_with("json") { "{}" } else { "" };
            return Ok(Some(text.to_owned()));
        }
        Ok(self.files.get(path).cloned())
    }

    fn agents(&self) -> Vec<String> {
        let name = |path: &String| {
            let name = path.strip_prefix("specs/agents/")?.strip_suffix(".md")?;
            Some(name.to_owned())
        };
        self.files.keys().filter_map(name).collect()
    }

    fn providers(&self) -> &UserProviders {
        &self.providers
    }

    fn default_provider(&self) -> Option<String> {
        Some("echo".to_owned())
    }

    fn dirs(&self) -> Vec<String> {
        vec!["app".to_owned()]
    }
}

/// Finds paths, without those that a macro binds; `(` that is not closed cannot be read.
pub struct Words;

impl Guards for Words {
    fn check(&self, guard: &str) -> Result<Vec<String>, GuardFault> {
        let (plain, mut quote) = (String::new(), None);
        let mut plain = plain;
        for c in guard.chars() {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, c) => plain.push(c),
                _ => {}
            }
        }
        if plain.matches('(').count() != plain.matches(')').count() {
            return Err(GuardFault {
                message: "a bracket is not closed".to_owned(),
                hint: None,
                at: None,
            });
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let mut bound = vec!["true", "false", "null", "in"];
        for name in [".all(", ".exists(", ".filter(", ".map("] {
            for (at, _) in plain.match_indices(name) {
                bound.extend(plain[at + name.len()..].split(',').next());
            }
        }
        let mut paths = Vec::new();
        let mut rest = plain.as_str();
        while let Some(at) = rest.find(word) {
            let end = rest[at..].find(|c| !word(c)).map_or(rest.len(), |n| at + n);
            let (path, after) = (&rest[at..end], &rest[end..]);
            let called = after.starts_with('(');
            let path = match (called, path.rfind('.')) {
                (true, Some(dot)) => &path[..dot],
                (true, None) => "",
                (false, _) => path,
            };
            let root = path.split('.').next().unwrap_or_default();
            let starts = path.starts_with(|c: char| c.is_ascii_alphabetic());
            if starts && !bound.contains(&root) {
                paths.push(path.to_owned());
            }
            rest = after;
        }
        Ok(paths)
    }
}

/// Checks a text on the usual disk.
pub fn checked(text: &str) -> Checked {
    check("w.yaml", text, &Disk::usual(), &Words)
}

/// A good text gives no fault at all.
pub fn good(text: &str) -> Checked {
    let checked = checked(text);
    assert!(
        checked.report.is_clean(),
        "{text}\n{}",
        checked.report.render()
    );
    checked
}

/// A bad text gives, among others, a fault at this place with this part in its message.
pub fn bad(text: &str, line: usize, column: usize, part: &str) {
    all_bad([(text.to_owned(), line, column, part)]);
}

/// The same for a whole table; every row that is not as expected is shown.
pub fn all_bad<'p>(rows: impl IntoIterator<Item = (String, usize, usize, &'p str)>) {
    let mut wrong = String::new();
    for (text, line, column, part) in rows {
        let report = checked(&text).report;
        let found = report.faults.iter().any(|fault| {
            (fault.place.line, fault.place.column) == (line, column) && fault.message.contains(part)
        });
        if !found {
            wrong.push_str(&format!("{line}:{column} {part}\n{}\n", report.render()));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The head of a workflow, three lines long; steps follow from line 4.
pub const HEAD: &str = "version: \"1\"\nname: w\nsteps:\n";

/// A workflow of these steps.
pub fn with(steps: &str) -> String {
    format!("{HEAD}{steps}")
}
