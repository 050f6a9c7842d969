//! YAML text in, typed values out; every error has its line and column.
//!
//! The only module that uses `serde_yaml`. `check` first refuses what that library would accept in
//! silence; only then is the text read into the type that is asked for. Where all errors are wanted at
//! once, `tree` keeps the location of every value. Nothing here reads a file or guesses what an
//! ambiguous text may mean.

mod check;
mod flow;
pub mod tree;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::text::error::{Fault, Kind, unhinted};
use crate::text::suggest;

pub use flow::flow;

/// The longest YAML text that is read.
pub const MAX_BYTES: usize = 256 * 1024;
/// The deepest nesting that is read.
pub const MAX_DEPTH: usize = 64;

/// What is wrong with a YAML text, and where in it. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlFault {
    /// The line, or 0 if there is no location.
    pub line: usize,
    /// The column, or 0 if there is no location.
    pub column: usize,
    /// What is wrong. Lower case, no final period.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl YamlFault {
    fn at(line: usize, column: usize, message: impl Into<String>) -> Self {
        YamlFault {
            line,
            column,
            message: message.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error as the user sees it: `label:line:column: message`. The text begins `line_offset`
    /// lines down in its file. An empty label gives `line L, column C: message`.
    #[must_use]
    pub fn fault(self, kind: Kind, label: &str, line_offset: usize) -> Fault {
        let (line, column) = (self.line + line_offset, self.column);
        let message = match (label, self.line) {
            ("", 0) => self.message,
            ("", _) => format!("line {line}, column {column}: {}", self.message),
            (_, 0) => format!("{label}: {}", self.message),
            _ => format!("{label}:{line}:{column}: {}", self.message),
        };
        Fault {
            kind,
            message,
            hint: self.hint,
        }
    }
}

/// Reads one YAML document. An empty document reads as an empty map.
///
/// # Errors
/// Says what is wrong and where: bad syntax, what `check` refuses, or what `T` does not take.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = match check::check(text)? {
        check::Content::Something => text,
        check::Content::Nothing => "{}",
    };
    serde_yaml::from_str(text).map_err(|error| read_error(&error, text))
}

/// For fields that may be written without a value: `params:` alone is an empty map.
///
/// # Errors
/// Whatever `T` itself does not take.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Turns an error of the library into ours.
fn read_error(error: &serde_yaml::Error, text: &str) -> YamlFault {
    let (line, column) = error
        .location()
        .map_or((0, 0), |place| within(text, place.line(), place.column()));
    let full = error.to_string();
    let message = full
        .find(" at line ")
        .map_or(full.as_str(), |end| &full[..end]);
    if let Some(fault) = tab_fault(message, text, line) {
        return fault;
    }
    if message.contains("control characters are not allowed")
        && let Some(fault) = control_fault(text)
    {
        return fault;
    }
    if message.contains("more than one document") {
        let line = second_document(text);
        return YamlFault::at(line, 1, "there is more than one YAML document here")
            .hint("keep one document per file: remove the second `---`");
    }
    if let Some(fault) = unknown_word(message, line, column) {
        return fault;
    }
    let (message, hint) = unhinted(message);
    YamlFault {
        line,
        column,
        message: plain(&message),
        hint: hint.or_else(|| syntax_hint(&message)),
    }
}

/// Our wording where the library's is not fit for a user.
fn plain(message: &str) -> String {
    let table = [
        (
            "mapping values are not allowed",
            "a `:` is not allowed here",
        ),
        (
            "could not find expected ':'",
            "a `:` is missing after a key",
        ),
        (
            "did not find expected key",
            "the indentation is wrong, or a key is missing",
        ),
        ("EOF while parsing a value", "there is nothing here"),
        ("repetition limit", "the aliases expand to too much data"),
        (
            "recursion limit",
            "the nesting is too deep, or an alias contains itself",
        ),
        (
            "unknown anchor",
            "an alias names an anchor that does not exist",
        ),
    ];
    table
        .iter()
        .find(|(theirs, _)| message.contains(theirs))
        .map_or_else(|| message.to_owned(), |(_, ours)| (*ours).to_owned())
}

fn syntax_hint(message: &str) -> Option<String> {
    message
        .contains("mapping values are not allowed")
        .then(|| "put text that contains `: ` in quotes".to_owned())
}

/// A tab in the indentation of the line where reading failed, or just before it.
fn tab_fault(message: &str, text: &str, line: usize) -> Option<YamlFault> {
    let of_syntax = [
        "cannot start any token",
        "tab character",
        "did not find expected",
    ];
    if !of_syntax.iter().any(|part| message.contains(part)) {
        return None;
    }
    let near = line.saturating_sub(2)..line;
    let (index, column) = text
        .lines()
        .enumerate()
        .filter(|(index, _)| near.contains(index))
        .find_map(|(index, row)| {
            let indent = &row[..row.len() - row.trim_start().len()];
            Some((index, indent.find('\t')?))
        })?;
    Some(
        YamlFault::at(index + 1, column + 1, "a tab is used for indentation")
            .hint("indent with spaces"),
    )
}

/// A location inside the text: the library reports what is missing at the end one line too late.
fn within(text: &str, line: usize, column: usize) -> (usize, usize) {
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let last = text.matches(breaks).count() + 1;
    if line <= last {
        return (line, column);
    }
    let row = text.rsplit(breaks).next().unwrap_or_default();
    (last, row.chars().count() + 1)
}

/// The first character that YAML does not allow; the library only counts the bytes before it.
fn control_fault(text: &str) -> Option<YamlFault> {
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        c => !c.is_control(),
    };
    let at = text.find(|c| !allowed(c))?;
    let found = text[at..].chars().next()?;
    let row = text[..at].rsplit('\n').next().unwrap_or_default();
    let (line, column) = (
        text[..at].matches('\n').count() + 1,
        row.chars().count() + 1,
    );
    let code = u32::from(found);
    let message = format!("the character U+{code:04X} is not allowed in YAML");
    let hint = format!("remove it, or write it as `\\u{code:04x}` in double quotes");
    Some(YamlFault::at(line, column, message).hint(hint))
}

/// The line where a second document probably begins.
fn second_document(text: &str) -> usize {
    let is_marker = |row: &str| row.trim_end() == "---" || row.starts_with("--- ");
    let mut content = false;
    for (index, row) in text.lines().enumerate() {
        if is_marker(row) && content {
            return index + 1;
        }
        content |= !row.trim().is_empty() && !row.starts_with('#');
    }
    0
}

/// `unknown field` and `unknown variant` in our wording, with a suggestion.
fn unknown_word(message: &str, line: usize, column: usize) -> Option<YamlFault> {
    let words = [
        ("unknown field `", "unknown key"),
        ("unknown variant `", "unknown value"),
    ];
    let (start, mark, what) = words
        .iter()
        .find_map(|(mark, what)| Some((message.find(mark)?, *mark, *what)))?;
    let (word, expected) = message[start + mark.len()..].split_once('`')?;
    let path = message[..start].trim_end_matches(": ");
    let place = match path {
        "" => String::new(),
        path => format!(" in `{path}`"),
    };
    let candidates: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    Some(YamlFault {
        line,
        column,
        message: format!("{what} `{word}`{place}"),
        hint: suggest::hint(word, &candidates),
    })
}

#[cfg(test)]
mod tests;
