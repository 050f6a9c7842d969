//! Task ids: how they are written, and when two are the same.

use std::sync::LazyLock;

use regex::Regex;

use super::markdown::pattern;

/// An id: a number, perhaps with letters before it or one letter after it.
const ID: &str = r"(?:[A-Za-z]{1,8}[-_]?)?\d{1,6}(?:\.\d{1,6})*[a-z]?";

static LEADING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?i)^[\s*_`\[(#]*(?:tasks?[\s#:_-]*)?({ID})(?:$|[^A-Za-z0-9])"
    ))
});

static FILE: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"(?i)^(?:task[-_ ]?)?({ID})(?:[-_. ].*)?\.md$")));

/// The id that a text begins with, and what follows it.
pub(super) fn leading(text: &str) -> Option<(&str, &str)> {
    let found = LEADING.captures(text)?.get(1)?;
    Some((found.as_str(), &text[found.end()..]))
}

/// The id in the name of a task file.
pub(super) fn of_file(name: &str) -> Option<&str> {
    Some(FILE.captures(name)?.get(1)?.as_str())
}

/// Whether a file name is that of a task: it begins with a number, or with `task` or `fix` and a number.
pub(super) fn is_task_file(name: &str) -> bool {
    static TASK: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)^(?:(?:task|fix|t)[-_ ]?)?\d.*\.md$"));
    TASK.is_match(name)
}

/// A key that is the same for all ways to write an id: `1`, `01`, `Task 01`, `T01`, `t1`.
pub(super) fn key(id: &str) -> String {
    let mut key = String::new();
    for c in id.chars().flat_map(char::to_lowercase) {
        let zero = c == '0' && !key.ends_with(|c: char| c.is_ascii_digit());
        if !zero && !matches!(c, '-' | '_') {
            key.push(c);
        }
    }
    // A zero alone is a number too.
    if !key.ends_with(|c: char| c.is_alphanumeric()) || !key.contains(|c: char| c.is_ascii_digit())
    {
        key.push('0');
    }
    key
}

/// The tasks that a value names, as they are written.
pub(super) fn listed(value: &str) -> Vec<String> {
    static ASIDE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\([^)]*\)"));
    static BETWEEN: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\s*[,;&\n]\s*|\s+and\s+|\s*\+\s*"));
    let value = super::markdown::plain(value);
    let value = ASIDE.replace_all(&value, "");
    let value = value.trim().trim_matches(['[', ']']);
    BETWEEN
        .split(value)
        .map(|piece| piece.trim().trim_matches(['"', '\'', '#', '.', '[', ']']))
        .filter(|piece| !is_none(piece))
        .map(word)
        .collect()
}

/// The part of a piece that names the task, or all of it if none does.
fn word(piece: &str) -> String {
    static RANGE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)^(?:tasks?\s+)?#?(\d{1,6})\s*(?:-|–|—|\.\.|to|through)\s*#?(\d{1,6})$")
    });
    if let Some(range) = RANGE.captures(piece) {
        return format!("{}-{}", &range[1], &range[2]);
    }
    match leading(piece) {
        Some((id, _)) => id.to_owned(),
        None => piece.to_owned(),
    }
}

/// The ends of a range of numbers.
pub(super) fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// Whether a text means "none".
pub(super) fn is_none(text: &str) -> bool {
    let text = text.trim().trim_matches(['.', '*', '`', '(', ')', '_']);
    let words = [
        "",
        "none",
        "n/a",
        "na",
        "nothing",
        "null",
        "nil",
        "-",
        "–",
        "—",
        "[]",
        "no",
        "no one",
        "no tasks",
        "independent",
    ];
    words.contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_however_they_are_written() {
        let table = [
            ("01: Set up", Some("01")),
            ("**Task 01**: Set up", Some("01")),
            ("Task #3 - x", Some("3")),
            ("[02-lexer.md](02-lexer.md)", Some("02")),
            ("`task-07.md` x", Some("07")),
            ("FIX-01 the leak", Some("FIX-01")),
            ("T12) x", Some("T12")),
            ("1.2 x", Some("1.2")),
            ("03a. x", Some("03a")),
            ("Set up 3 things", None),
            ("", None),
            ("3rd party", None),
        ];
        for (text, expected) in table {
            assert_eq!(leading(text).map(|(id, _)| id), expected, "{text}");
        }
        for (name, expected) in [
            ("01-setup.md", Some("01")),
            ("task_02_lexer.md", Some("02")),
            ("fix-03-x.md", Some("fix-03")),
            ("7.md", Some("7")),
            ("README.md", None),
        ] {
            assert_eq!(of_file(name), expected, "{name}");
        }
        assert!(is_task_file("01-a.md") && is_task_file("task-1.md") && is_task_file("FIX_02.md"));
        assert!(
            !is_task_file("NOTES.md") && !is_task_file("01-a.txt") && !is_task_file("phase1.md")
        );
    }

    #[test]
    fn zeros_case_and_dashes_do_not_make_another_id() {
        for (one, two) in [
            ("1", "001"),
            ("FIX-01", "fix_1"),
            ("1.02", "01.2"),
            ("0", "00"),
        ] {
            assert_eq!(key(one), key(two));
        }
        for (one, two) in [
            ("1", "10"),
            ("1", "0"),
            ("1.0", "1"),
            ("1a", "1"),
            ("10", "100"),
        ] {
            assert_ne!(key(one), key(two), "{one} {two}");
        }
    }

    #[test]
    fn lists_of_tasks_are_read_however_they_are_written() {
        let table: [(&str, &[&str]); 12] = [
            ("None", &[]),
            ("n/a (first)", &[]),
            ("[]", &[]),
            ("01, 02", &["01", "02"]),
            ("Task 01 and Task 02", &["01", "02"]),
            ("[\"01\", \"02\"]", &["01", "02"]),
            ("`01-a.md`; #3", &["01", "3"]),
            ("[01](01-a.md), 02 (the lexer)", &["01", "02"]),
            ("Tasks 03-05", &["03-05"]),
            ("03 to 05", &["03-05"]),
            ("02 - the lexer", &["02"]),
            ("the lexer", &["the lexer"]),
        ];
        for (text, expected) in table {
            assert_eq!(listed(text), expected, "{text}");
        }
        assert_eq!(range("03-05"), Some((3, 5)));
        assert_eq!(range("05-03"), None);
    }
}
