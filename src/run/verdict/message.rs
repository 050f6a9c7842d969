//! Finds the line that says what went wrong in the output of a program.
//!
//! The line is safe to show: no control characters, no escape sequences, at most 500 bytes.

use crate::text::clean::clean_line;
use crate::text::cut;

/// The longest line that is quoted.
const MAX_BYTES: usize = 500;
/// How much of the end of an output is searched.
const TAIL_BYTES: usize = 8 * 1024;

/// The end of an output, from the beginning of a line where possible.
pub(super) fn tail(bytes: &[u8]) -> &[u8] {
    let Some(start) = bytes.len().checked_sub(TAIL_BYTES) else {
        return bytes;
    };
    let tail = &bytes[start..];
    match tail.iter().position(|b| *b == b'\n') {
        Some(end) if end + 1 < tail.len() => &tail[end + 1..],
        _ => tail,
    }
}

/// The last line that says something: a `"message"` of JSON, else one with `error` in it, else the
/// last with a letter in it that is not a line of a stack trace.
pub(super) fn last_meaningful_line(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail(output));
    let lines: Vec<String> = text
        .lines()
        .map(clean)
        .filter(|line| says_something(line))
        .collect();
    if let Some(message) = lines.iter().rev().find_map(|line| json_message(line)) {
        return Some(message);
    }
    let of_error = lines
        .iter()
        .rev()
        .find(|line| line.to_ascii_lowercase().contains("error"));
    of_error.or(lines.last()).cloned()
}

/// The text of a line `"message": "..."`, as it stands in JSON over several lines.
fn json_message(line: &str) -> Option<String> {
    let value = line
        .strip_prefix("\"message\":")?
        .trim()
        .trim_end_matches(',');
    let text: String = serde_json::from_str(value).ok()?;
    Some(clean(&text)).filter(|text| says_something(text))
}

fn says_something(line: &str) -> bool {
    let is_frame = line.starts_with("at ") || line.starts_with("File \"");
    !is_frame && line.chars().any(char::is_alphanumeric)
}

/// Text that is safe to show, on one line, shortened.
pub(super) fn clean(text: &str) -> String {
    let line = clean_line(text);
    let line = line.trim();
    if line.len() <= MAX_BYTES {
        return line.to_owned();
    }
    let kept = cut::head(line, MAX_BYTES - '…'.len_utf8());
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_what_went_wrong_is_found() {
        let table: [(&str, Option<&str>); 7] = [
            ("", None),
            ("\n \n---\n", None),
            ("one\ntwo\n\n", Some("two")),
            (
                "Error: bad\n    at foo (x.js:1)\n    at bar\n}\n",
                Some("Error: bad"),
            ),
            ("Error: bad\nsee the log\n", Some("Error: bad")),
            ("\u{1b}[31mred\u{1b}[0m\u{7}\n", Some("red")),
            ("\u{1b}]0;title\u{7}shown\n", Some("shown")),
        ];
        for (text, expected) in table {
            assert_eq!(
                last_meaningful_line(text.as_bytes()).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_long_line_is_shortened_between_characters() {
        let shown = clean(&"é".repeat(10_000));
        assert!(shown.len() <= 500 && shown.ends_with('…'));
        assert_eq!(last_meaningful_line(&[0xff; 20_000]), None);
    }
}
