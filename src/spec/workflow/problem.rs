//! What is wrong with a workflow, and where: gathered, sorted, and shown with the line it stands on.
//!
//! Only words and places. It never prints, and it never decides whether something is wrong.

use unicode_width::UnicodeWidthStr;

use crate::text::clean::is_harmful;
use crate::text::error::{Fault, Kind};
use crate::text::yaml::tree::Place;

/// The longest part of a source line that is shown.
const MAX_SHOWN: usize = 100;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the user knows it.
    pub file: String,
    /// Line and column.
    pub place: Place,
    /// What is wrong. Lower case, no final period.
    pub message: String,
    /// The line it stands on; empty if there is none.
    pub snippet: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything that is wrong, in the order of the file.
    pub faults: Vec<Problem>,
    /// The run ends after at most so many transitions; nothing if that is not proven.
    pub proven: Option<u64>,
    /// What is worth knowing and not wrong, in the order of the file.
    pub notes: Vec<Problem>,
    /// Some of it is not YAML, or not YAML that says only one thing.
    pub bad_yaml: bool,
}

impl Problem {
    /// `file:line:column: message`.
    #[must_use]
    pub fn line(&self) -> String {
        match self.place.line {
            0 => format!("{}: {}", self.file, self.message),
            line => format!(
                "{}:{line}:{}: {}",
                self.file, self.place.column, self.message
            ),
        }
    }

    /// The problem with its line, a caret and the hint.
    #[must_use]
    pub fn render(&self, word: &str) -> String {
        let mut out = format!("{word}: {}\n", self.message);
        let number = self.place.line.to_string();
        let gutter = " ".repeat(number.len());
        match self.place.line {
            0 => out.push_str(&format!("{gutter}--> {}\n", self.file)),
            _ => out.push_str(&format!(
                "{gutter}--> {}:{number}:{}\n",
                self.file, self.place.column
            )),
        }
        if self.place.line > 0 {
            let (shown, caret) = cut(&self.snippet, self.place.column);
            let blank = " ".repeat(caret);
            out.push_str(&format!(
                "{gutter} |\n{number} | {shown}\n{gutter} | {blank}^\n"
            ));
        }
        if let Some(hint) = &self.hint {
            out.push_str(&format!("{gutter} = hint: {hint}\n"));
        }
        out
    }
}

/// A line fit for a terminal, and how many columns of it stand before the place.
fn cut(line: &str, column: usize) -> (String, usize) {
    let clean = |c: char| match c {
        '\t' => ' ',
        c if is_harmful(c) => '\u{fffd}',
        c => c,
    };
    let at = column.saturating_sub(1);
    let start = match line.chars().count() <= MAX_SHOWN {
        true => 0,
        false => at.saturating_sub(MAX_SHOWN * 3 / 4),
    };
    let shown = line.chars().skip(start).take(MAX_SHOWN).map(clean);
    let shown: String = shown.collect();
    let before: String = shown.chars().take(at - start).collect();
    // A place behind the end of the line has no characters of its own.
    let behind = (at - start).saturating_sub(shown.chars().count());
    let columns = before.width() + behind;
    (shown, columns)
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The whole report as text: faults, notes, and what was proven.
    #[must_use]
    pub fn render(&self) -> String {
        let faults = self.faults.iter().map(|fault| fault.render("error"));
        let notes = self.notes.iter().map(|note| note.render("note"));
        let mut out = faults.chain(notes).collect::<Vec<_>>().join("\n");
        if !out.is_empty() {
            out.push('\n');
        }
        match (self.faults.len(), self.proven) {
            (0, Some(1)) => out.push_str("ends after at most 1 transition\n"),
            (0, Some(most)) => out.push_str(&format!("ends after at most {most} transitions\n")),
            (0, None) => {}
            (1, _) => out.push_str("1 fault\n"),
            (count, _) => out.push_str(&format!("{count} faults\n")),
        }
        out
    }

    /// The faults as one, for those who can show only one.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let first = self.faults.first()?;
        let more = match self.faults.len() - 1 {
            0 => String::new(),
            1 => " (and 1 more fault)".to_owned(),
            more => format!(" (and {more} more faults)"),
        };
        Some(Fault {
            kind: self.kind(),
            message: format!("{}{more}", first.line()),
            hint: first.hint.clone(),
        })
    }

    /// What kind of failure a file with these faults is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.bad_yaml {
            true => Kind::YamlParseError,
            false => Kind::WorkflowValidationError,
        }
    }
}

/// Gathers problems of one file.
#[derive(Debug)]
pub(super) struct Gather<'t> {
    file: &'t str,
    text: &'t str,
    /// Where each line begins, in bytes.
    lines: Vec<usize>,
    faults: Vec<Problem>,
    notes: Vec<Problem>,
    bad_yaml: bool,
}

impl<'t> Gather<'t> {
    /// The file, as the user knows it.
    pub(super) fn file(&self) -> &'t str {
        self.file
    }

    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let ends = text.match_indices('\n').map(|(index, _)| index + 1);
        Gather {
            file,
            text,
            lines: std::iter::once(0).chain(ends).collect(),
            faults: Vec::new(),
            notes: Vec::new(),
            bad_yaml: false,
        }
    }

    fn row(&self, line: usize) -> &'t str {
        let Some(&start) = line.checked_sub(1).and_then(|index| self.lines.get(index)) else {
            return "";
        };
        self.text[start..].lines().next().unwrap_or_default()
    }

    fn problem(&self, place: Place, message: String, hint: Option<String>) -> Problem {
        Problem {
            file: self.file.to_owned(),
            place,
            message,
            snippet: self.row(place.line).to_owned(),
            hint,
        }
    }

    /// Adds a fault without a hint.
    pub(super) fn fault(&mut self, place: Place, message: impl Into<String>) {
        self.fault_with(place, message, None);
    }

    /// Adds a fault of the YAML itself.
    pub(super) fn bad_yaml(&mut self, place: Place, message: String, hint: Option<String>) {
        self.bad_yaml = true;
        self.fault_with(place, message, hint);
    }

    /// Adds a fault with a hint.
    pub(super) fn hinted(&mut self, place: Place, message: impl Into<String>, hint: &str) {
        self.fault_with(place, message, Some(hint.to_owned()));
    }

    /// Adds a fault that may have a hint.
    pub(super) fn fault_with(
        &mut self,
        place: Place,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        let problem = self.problem(place, message.into(), hint);
        self.faults.push(problem);
    }

    /// Adds a note.
    pub(super) fn note(&mut self, place: Place, message: impl Into<String>) {
        let problem = self.problem(place, message.into(), None);
        self.notes.push(problem);
    }

    /// Where `needle` stands in a text that begins at `place`; `place` itself if it is not found.
    pub(super) fn within(&self, place: Place, needle: &str) -> Place {
        let Some(index) = place.line.checked_sub(1) else {
            return place;
        };
        for (offset, &start) in self.lines.iter().enumerate().skip(index).take(500) {
            let row = self.text[start..].lines().next().unwrap_or_default();
            let skip = if offset == index { place.column - 1 } else { 0 };
            let from = row.char_indices().nth(skip).map_or(row.len(), |(at, _)| at);
            if let Some(found) = row[from..].find(needle) {
                let column = row[..from + found].chars().count() + 1;
                return Place {
                    line: offset + 1,
                    column,
                };
            }
        }
        place
    }

    /// The place of byte `at` of a text that begins at `place`, quotes included; `place` itself if
    /// the text does not stand there letter by letter.
    pub(super) fn inside(&self, place: Place, text: &str, at: Option<usize>) -> Place {
        let start = self.within(place, text);
        let row = self.row(start.line);
        let skip = row.chars().take(start.column.saturating_sub(1));
        let skip: usize = skip.map(char::len_utf8).sum();
        let before = at.and_then(|at| text.get(..at));
        match before {
            Some(before) if start.line == place.line && row[skip..].starts_with(text) => Place {
                line: start.line,
                column: start.column + before.chars().count(),
            },
            _ => place,
        }
    }

    /// Everything gathered, in the order of the file and each once.
    pub(super) fn finish(self, proven: Option<u64>) -> Report {
        let sorted = |mut list: Vec<Problem>| {
            list.sort_by(|a, b| (a.place, &a.message).cmp(&(b.place, &b.message)));
            list.dedup();
            list
        };
        let faults = sorted(self.faults);
        Report {
            proven: proven.filter(|_| faults.is_empty()),
            faults,
            notes: sorted(self.notes),
            bad_yaml: self.bad_yaml,
        }
    }
}
