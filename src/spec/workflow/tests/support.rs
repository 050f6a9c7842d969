//! A disk and a reader of expressions, both as small as the tests need them.

use std::collections::BTreeMap;

use crate::spec::provider::UserProviders;
use crate::spec::workflow::{Checked, Specs, check};
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

/// Checks a text on the usual disk.
pub fn checked(text: &str) -> Checked {
    check("w.yaml", text, &Disk::usual())
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
