//! The path inside `${...}`: a root, then `.name` and `[number]`.
//!
//! Only the grammar, and the way along a path through JSON. It never prints a value, and never
//! decides what an undefined one means.

use std::fmt;

use serde_json::Value;

use crate::text::suggest;

/// The most parts of one path.
const MAX_PARTS: usize = 32;

/// One part of a path behind its root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `.name`.
    Field(String),
    /// `[0]`.
    Index(usize),
}

/// A path as it stands in `${...}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    root: String,
    parts: Vec<Part>,
}

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// What is wrong with it, for the caller to place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let root_len = name_len(text);
        if root_len == 0 {
            return Err(format!("`${{{text}}}` does not start with a name"));
        }
        let mut path = Path {
            root: text[..root_len].to_owned(),
            parts: Vec::new(),
        };
        let mut rest = &text[root_len..];
        while !rest.is_empty() {
            let (part, after) = next_part(rest).ok_or_else(|| bad_part(text, rest))?;
            path.parts.push(part);
            rest = after;
        }
        if path.parts.len() > MAX_PARTS {
            return Err(format!("the path has more than {MAX_PARTS} parts"));
        }
        Ok(path)
    }

    /// The first name.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// What follows the root.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The name of the part at `at`, if it is one.
    #[must_use]
    pub fn field(&self, at: usize) -> Option<&str> {
        match self.parts.get(at) {
            Some(Part::Field(name)) => Some(name),
            _ => None,
        }
    }

    /// The step of `steps.X...`.
    #[must_use]
    pub fn step(&self) -> Option<&str> {
        if self.root == "steps" {
            self.field(0)
        } else {
            None
        }
    }

    /// Cuts `steps.X.FIELD`, `steps.LOOP[0].X.FIELD` into `X` or `LOOP[0].X` and the rest.
    pub(super) fn lazy_step(&self) -> Option<(String, &str, &[Part])> {
        if self.root != "steps" {
            return None;
        }
        let at = self.parts.iter().position(
            |part| matches!(part, Part::Field(name) if name == "output" || name == "tail"),
        )?;
        let whole_step = at == 1 || (at == 3 && matches!(self.parts[1], Part::Index(_)));
        let step = show(&self.parts[..at]);
        let field = self.field(at)?;
        whole_step.then(|| {
            (
                step.trim_start_matches('.').to_owned(),
                field,
                &self.parts[at + 1..],
            )
        })
    }

    /// Whether it is `steps.X.lines` itself, which prints as lines.
    pub(super) fn is_lines(&self) -> bool {
        self.root == "steps"
            && self.parts.len() > 1
            && self.parts.last() == Some(&Part::Field("lines".into()))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.root, show(&self.parts))
    }
}

fn show(parts: &[Part]) -> String {
    let one = |part: &Part| match part {
        Part::Field(name) => format!(".{name}"),
        Part::Index(at) => format!("[{at}]"),
    };
    parts.iter().map(one).collect()
}

/// How many bytes at the start may be a name.
fn name_len(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'))
        .unwrap_or(text.len())
}

fn next_part(rest: &str) -> Option<(Part, &str)> {
    if let Some(after) = rest.strip_prefix('.') {
        let len = name_len(after);
        return (len > 0).then(|| (Part::Field(after[..len].to_owned()), &after[len..]));
    }
    let (digits, after) = rest.strip_prefix('[')?.split_once(']')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let index = plain.then(|| digits.parse().ok()).flatten()?;
    Some((Part::Index(index), after))
}

fn bad_part(text: &str, rest: &str) -> String {
    let text: String = text.chars().take(60).collect();
    let rest: String = rest.chars().take(20).collect();
    format!("`${{{text}}}` is not a variable: `{rest}` is neither `.name` nor `[number]`")
}

/// Why a path has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// What is missing, and where.
    pub message: String,
    /// The nearest name that exists there.
    pub hint: Option<String>,
}

/// Follows `parts` from a value; `reached` is the path that led to it.
pub(super) fn follow<'v>(
    value: &'v Value,
    parts: &[Part],
    reached: &str,
) -> Result<&'v Value, Gap> {
    let mut value = value;
    for (at, part) in parts.iter().enumerate() {
        let next = match part {
            Part::Field(name) => value.get(name.as_str()),
            Part::Index(index) => value.get(*index),
        };
        value =
            next.ok_or_else(|| gap(value, part, &format!("{reached}{}", show(&parts[..at]))))?;
    }
    Ok(value)
}

fn gap(value: &Value, part: &Part, reached: &str) -> Gap {
    let (message, hint) = match (value, part) {
        (Value::Object(fields), Part::Field(name)) => {
            let known: Vec<&str> = fields.keys().map(String::as_str).take(20).collect();
            (
                format!("`{reached}` has no `{name}`"),
                suggest::hint(name, &known),
            )
        }
        (Value::Array(items), Part::Index(_)) => (
            format!("`{reached}` has {} items, counted from 0", items.len()),
            None,
        ),
        (Value::Array(_), Part::Field(_)) => (
            format!("`{reached}` is a list"),
            Some("take an item with `[0]`".into()),
        ),
        (Value::Object(_), Part::Index(_)) => (format!("`{reached}` is a map, not a list"), None),
        (Value::Null, _) => (format!("`{reached}` is null"), None),
        _ => (
            format!("`{reached}` is a plain value and has no parts"),
            None,
        ),
    };
    Gap { message, hint }
}
