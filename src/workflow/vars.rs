//! The `${...}` in the texts of a workflow: cut out and parsed, never given a value.
//!
//! `${path}`, `${path:-text}`, and `$$` for a dollar sign; a path is words with `.` between them and
//! `[0]` behind them.

/// The variables that texts can begin with.
pub const ROOTS: &[&str] = &[
    "request",
    "reply",
    "input",
    "run",
    "item",
    "loop",
    "steps",
    "context",
    "state",
    "STATE_FILE",
];

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A field.
    Key(String),
    /// An item of a list.
    Index(usize),
}

/// One `${...}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref {
    /// As it is written, braces included.
    pub raw: String,
    /// The first word.
    pub root: String,
    /// What comes after it.
    pub rest: Vec<Segment>,
    /// The text that stands in where the path is undefined.
    pub default: Option<String>,
}

/// What is wrong with a `${...}`, and the text to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRef {
    /// As it is written.
    pub raw: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
}

const CLOSE_HINT: &str = "close it with `}`, or write `$$` for a dollar sign";
const PATH_HINT: &str = "write a path such as `${steps.X.json.files[0]}`";

/// Every `${...}` in a text, in order.
#[must_use]
pub fn refs(text: &str) -> Vec<Result<Ref, BadRef>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            rest = after;
        } else if rest.starts_with("${") {
            let Some(end) = rest.find('}') else {
                let raw: String = rest.lines().next().unwrap_or_default().to_owned();
                found.push(Err(BadRef {
                    message: "`${` is never closed".to_owned(),
                    raw,
                    hint: CLOSE_HINT,
                }));
                break;
            };
            found.push(reference(&rest[..=end]));
            rest = &rest[end + 1..];
        } else {
            rest = &rest[1..];
        }
    }
    found
}

fn reference(raw: &str) -> Result<Ref, BadRef> {
    let inner = &raw[2..raw.len() - 1];
    let (path, default) = match inner.split_once(":-") {
        Some((path, default)) => (path, Some(default.to_owned())),
        None => (inner, None),
    };
    let mut segments = parse_path(path).ok_or_else(|| BadRef {
        raw: raw.to_owned(),
        message: format!("`{raw}` is not a variable"),
        hint: PATH_HINT,
    })?;
    let Segment::Key(root) = segments.remove(0) else {
        unreachable!("a path begins with a word: `parse_path` takes nothing else")
    };
    Ok(Ref {
        raw: raw.to_owned(),
        root,
        rest: segments,
        default,
    })
}

/// `a.b[0].c` in its parts; nothing if it is not a path.
#[must_use]
pub fn parse_path(path: &str) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    for part in path.split('.') {
        let (word, mut indexes) = match part.find('[') {
            Some(at) => part.split_at(at),
            None => (part, ""),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if word.is_empty() || !word.chars().all(good) {
            return None;
        }
        segments.push(Segment::Key(word.to_owned()));
        while !indexes.is_empty() {
            let (index, rest) = indexes.strip_prefix('[')?.split_once(']')?;
            segments.push(Segment::Index(index.parse().ok()?));
            indexes = rest;
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_cut_out() {
        let table = [
            ("plain $5 and $$HOME and $${x}", vec![]),
            ("${request}", vec!["request"]),
            (
                "a ${steps.x.json.a[0][1]} b ${run.id}",
                vec!["steps", "run"],
            ),
            ("${a.b:-none} ${STATE_FILE}", vec!["a", "STATE_FILE"]),
        ];
        for (text, roots) in table {
            let found: Vec<String> = refs(text).into_iter().map(|r| r.unwrap().root).collect();
            assert_eq!(found, roots, "{text}");
        }
        let found = refs("${context.k:-a b}").remove(0).unwrap();
        assert_eq!(found.default.as_deref(), Some("a b"));
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for text in [
            "${", "${}", "${a b}", "${a..b}", "${a[x]}", "${[0]}", "${a[0}", "${:-x}",
        ] {
            assert!(refs(text)[0].is_err(), "{text}");
        }
    }
}
