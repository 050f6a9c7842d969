//! The output of a process as a step's result keeps it: text, lines or JSON, each within its limit.
//!
//! Bytes in, data out. An error in the output is part of the answer: the caller decides what fails. The
//! complete bytes are kept elsewhere.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::json_answer::{self, Source};
use crate::run::schema::Schema;
use crate::text::canonical::MAX_JSON_DEPTH;
use crate::text::cut;
use crate::text::error::{Fault, Kind};

/// The most text that is kept in the state.
pub const MAX_TEXT_BYTES: usize = 8 * 1024;
/// The most lines that are kept.
pub const MAX_LINES: usize = 10_000;
/// The most bytes that all kept lines have together.
pub const MAX_LINES_BYTES: usize = 1024 * 1024;
/// The longest output that is parsed as JSON.
pub const MAX_JSON_BYTES: usize = 1024 * 1024;
/// The exit code of a step whose output is invalid.
pub const INVALID_OUTPUT: i32 = 2;

/// How an output is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The first [`MAX_TEXT_BYTES`], as text.
    #[default]
    Text,
    /// A list of lines.
    Lines,
    /// One JSON document.
    Json,
}

/// What happens if the output is not the expected JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBadJson {
    /// The step fails with exit code 2.
    #[default]
    Fail,
    /// The step succeeds with the raw text and `json_parse_error`.
    KeepText,
}

/// An output as a step's result keeps it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Captured {
    /// The text, in text mode or if the output is not the expected JSON.
    pub output: Option<String>,
    /// The lines, in lines mode.
    pub lines: Option<Vec<String>>,
    /// The document, in JSON mode.
    pub json_data: Option<Value>,
    /// Where in the output the document was found.
    pub json_source: Option<Source>,
    /// More was printed than is kept here.
    pub truncated: bool,
    /// Why there is no document although the step did not fail.
    pub json_parse_error: Option<String>,
    /// Why the step fails, if the process itself did not.
    pub fault: Option<Fault>,
}

impl Captured {
    /// The exit code of the step, given that of its process. A failed process stays failed.
    #[must_use]
    pub fn exit_code(&self, process: i32) -> i32 {
        match (process, &self.fault) {
            (0, Some(_)) => INVALID_OUTPUT,
            _ => process,
        }
    }

    /// What a guard sees as `output`: the document, the lines or the text.
    #[must_use]
    pub fn value(&self) -> Value {
        if let Some(document) = &self.json_data {
            return document.clone();
        }
        match (&self.lines, &self.output) {
            (Some(lines), _) => lines.clone().into(),
            (None, Some(text)) => text.clone().into(),
            (None, None) => Value::Null,
        }
    }
}

/// Reads an output. The schema applies to JSON only.
#[must_use]
pub fn capture(mode: Mode, bytes: &[u8], on_bad: OnBadJson, schema: Option<&Schema>) -> Captured {
    match mode {
        Mode::Text => text(bytes),
        Mode::Lines => lines(bytes),
        Mode::Json => match parse(bytes).and_then(|found| check(found, schema)) {
            Ok((document, source)) => Captured {
                json_data: Some(document),
                json_source: Some(source),
                ..Captured::default()
            },
            Err(fault) => bad_json(bytes, fault, on_bad),
        },
    }
}

fn text(bytes: &[u8]) -> Captured {
    let (output, truncated) = first_text(bytes, MAX_TEXT_BYTES);
    Captured {
        output: Some(output),
        truncated,
        ..Captured::default()
    }
}

/// As much text as fits into `limit` bytes, cut between characters, and whether anything was cut.
/// Bytes that are not UTF-8 become `U+FFFD`.
fn first_text(bytes: &[u8], limit: usize) -> (String, bool) {
    // A few bytes more, so that a character across the limit is decoded whole.
    let looked_at = &bytes[..bytes.len().min(limit + 4)];
    let mut text = String::from_utf8_lossy(looked_at).into_owned();
    let cut = text.len() > limit || looked_at.len() < bytes.len();
    text.truncate(cut::boundary(&text, limit));
    (text, cut)
}

fn lines(bytes: &[u8]) -> Captured {
    let mut kept = Vec::new();
    let mut size = 0;
    let mut truncated = false;
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if !bytes.is_empty() {
        for line in body.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let (line, cut) = first_text(line, MAX_LINES_BYTES - size);
            if cut || kept.len() == MAX_LINES {
                truncated = true;
                break;
            }
            size += line.len();
            kept.push(line);
        }
    }
    Captured {
        lines: Some(kept),
        truncated,
        ..Captured::default()
    }
}

fn parse(bytes: &[u8]) -> Result<(Value, Source), Fault> {
    let bad = |why: String| {
        Fault::new(
            Kind::JsonParseError,
            format!("the output is not JSON: {why}"),
        )
        .hint("print one JSON document, alone or in one fenced block")
    };
    if bytes.len() > MAX_JSON_BYTES {
        let message = format!(
            "the output is {} bytes long, over the limit of {MAX_JSON_BYTES} for JSON",
            bytes.len()
        );
        return Err(Fault::new(Kind::OutputTooLargeError, message)
            .hint("print less, or write a file and print its name"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| bad(format!("byte {} is not UTF-8", error.valid_up_to())))?;
    let (document, source) = json_answer::find(text).map_err(bad)?;
    match is_deeper(&document, MAX_JSON_DEPTH) {
        true => Err(bad(format!(
            "it is nested more than {MAX_JSON_DEPTH} levels deep"
        ))
        .hint("print a flatter document")),
        false => Ok((document, source)),
    }
}

/// Whether a document has lists or maps in each other beyond this many levels.
#[must_use]
pub fn is_deeper(document: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return document.is_array() || document.is_object();
    };
    match document {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, left)),
        _ => false,
    }
}

fn check(found: (Value, Source), schema: Option<&Schema>) -> Result<(Value, Source), Fault> {
    schema.map_or(Ok(()), |schema| schema.check(&found.0))?;
    Ok(found)
}

fn bad_json(bytes: &[u8], fault: Fault, on_bad: OnBadJson) -> Captured {
    let mut captured = text(bytes);
    match on_bad {
        OnBadJson::Fail => captured.fault = Some(fault),
        OnBadJson::KeepText => captured.json_parse_error = Some(fault.message),
    }
    captured
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mode: Mode, bytes: &[u8]) -> Captured {
        capture(mode, bytes, OnBadJson::Fail, None)
    }

    #[test]
    fn text_keeps_the_first_8_kib_between_characters() {
        let crab = "🦀".repeat(3000);
        let table: [(Vec<u8>, usize, bool); 8] = [
            (vec![], 0, false),
            (b"hello\r\n".to_vec(), 7, false),
            (vec![b'a'; 8192], 8192, false),
            (vec![b'a'; 8193], 8192, true),
            (vec![b'a'; 1_000_000], 8192, true),
            ([vec![b'a'; 8191], "é".into()].concat(), 8191, true),
            (crab.into_bytes(), 8192, true),
            (vec![0xff; 4000], 8190, true),
        ];
        for (bytes, len, truncated) in table {
            let captured = read(Mode::Text, &bytes);
            let text = captured.output.as_deref().unwrap();
            assert_eq!(
                (text.len(), captured.truncated),
                (len, truncated),
                "{}",
                bytes.len()
            );
        }
        assert_eq!(
            read(Mode::Text, b"a\xffb").output.as_deref(),
            Some("a\u{fffd}b")
        );
        let split = [vec![b'a'; 8191], "é".repeat(9).into_bytes()].concat();
        assert!(
            !read(Mode::Text, &split)
                .output
                .unwrap()
                .contains('\u{fffd}')
        );
    }

    #[test]
    fn lines_are_cut_at_line_ends_of_both_kinds() {
        let table: [(&[u8], &[&str]); 8] = [
            (b"", &[]),
            (b"\n", &[""]),
            (b"a", &["a"]),
            (b"a\nb\n", &["a", "b"]),
            (b"a\r\nb\r\n", &["a", "b"]),
            (b"a\n\nb\n\n", &["a", "", "b", ""]),
            (b"a\rb\r\r\n", &["a\rb\r"]),
            (b"\xff\n", &["\u{fffd}"]),
        ];
        for (bytes, expected) in table {
            let captured = read(Mode::Lines, bytes);
            assert_eq!(captured.lines.unwrap(), expected, "{bytes:?}");
            assert!(!captured.truncated);
        }
    }

    #[test]
    fn lines_are_limited_in_number_and_in_size() {
        let exact = read(Mode::Lines, "x\n".repeat(MAX_LINES).as_bytes());
        assert_eq!(
            (exact.lines.unwrap().len(), exact.truncated),
            (MAX_LINES, false)
        );
        let more = read(Mode::Lines, "x\n".repeat(MAX_LINES + 1).as_bytes());
        assert_eq!(
            (more.lines.unwrap().len(), more.truncated),
            (MAX_LINES, true)
        );
        let long = read(
            Mode::Lines,
            &[b"a\n".to_vec(), vec![b'b'; 3_000_000]].concat(),
        );
        assert_eq!(
            (long.lines.unwrap(), long.truncated),
            (vec!["a".to_owned()], true)
        );
    }

    #[test]
    fn json_is_parsed_and_a_bad_one_is_a_fault() {
        let good = read(Mode::Json, b" \xef\xbb\xbf".strip_prefix(b" ").unwrap());
        assert!(good.fault.unwrap().message.contains("empty"));
        let good = read(Mode::Json, "\u{feff}{\"a\": [1, 2.5, null]}\r\n".as_bytes());
        assert_eq!(good.value(), json!({"a": [1, 2.5, null]}));
        assert_eq!((good.exit_code(0), good.output.clone()), (0, None));

        let deep = "[".repeat(100_000);
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(read(Mode::Json, nested(64).as_bytes()).fault, None);
        let (nested, maps) = (
            nested(65),
            format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65)),
        );
        let large = format!("\"{}\"", "x".repeat(MAX_JSON_BYTES));
        let table: [(&[u8], Kind, &str); 9] = [
            (b"", Kind::JsonParseError, "empty"),
            (b"{\"a\": }", Kind::JsonParseError, "line 1 column 7"),
            (b"{} {}", Kind::JsonParseError, "trailing"),
            (
                b"```json\n{,}\n```",
                Kind::JsonParseError,
                "line 2: key must",
            ),
            (b"\"\xff\"", Kind::JsonParseError, "byte 1 is not UTF-8"),
            (deep.as_bytes(), Kind::JsonParseError, "recursion limit"),
            (nested.as_bytes(), Kind::JsonParseError, "64 levels deep"),
            (maps.as_bytes(), Kind::JsonParseError, "64 levels deep"),
            (large.as_bytes(), Kind::OutputTooLargeError, "1048578 bytes"),
        ];
        for (bytes, kind, part) in table {
            let captured = read(Mode::Json, bytes);
            let fault = captured.fault.clone().unwrap();
            assert_eq!(fault.kind, kind);
            assert!(fault.message.contains(part), "{fault}");
            assert_eq!((captured.exit_code(0), captured.exit_code(7)), (2, 7));

            let kept = capture(Mode::Json, bytes, OnBadJson::KeepText, None);
            assert_eq!((kept.fault.clone(), kept.exit_code(0)), (None, 0));
            assert!(kept.json_parse_error.as_deref().unwrap().contains(part));
            assert!(kept.output.is_some() && kept.json_data.is_none());
            assert_eq!(kept.truncated, bytes.len() > MAX_TEXT_BYTES);
        }
    }

    #[test]
    fn a_document_against_its_schema_is_bad_json() {
        let schema = Schema::compile(&json!({"required": ["a"]})).unwrap();
        let ask = |bytes: &[u8], on_bad| capture(Mode::Json, bytes, on_bad, Some(&schema));
        assert_eq!(ask(b"{\"a\": 1}", OnBadJson::Fail).fault, None);
        let failed = ask(b"{}", OnBadJson::Fail);
        assert_eq!(failed.exit_code(0), 2);
        assert_eq!(failed.fault.unwrap().kind, Kind::SchemaError);
        let kept = ask(b"{}", OnBadJson::KeepText);
        assert_eq!((kept.value(), kept.json_data.clone()), (json!("{}"), None));
        assert!(kept.json_parse_error.unwrap().contains("required property"));
    }
}
