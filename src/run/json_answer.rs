//! JSON in an answer, as models print it: alone, in a fenced block, or somewhere in the prose.
//!
//! Nothing is guessed. The whole text is taken if it is JSON, else the only fenced block that is,
//! else the only JSON value in the prose. Two values that differ, and text that only looks like
//! JSON, are refused with the reason, which is what the agent is told when it is asked again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Trying to read a value from every bracket of a text costs at most this many times its length.
const EFFORT: usize = 4;
/// Blocks inside of blocks are looked at this deep.
const MAX_NESTING: usize = 4;

/// Where in the answer the JSON was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The whole answer is JSON.
    Whole,
    /// A fenced block.
    Fence,
    /// A value in the prose.
    Prose,
}

/// The JSON value of an answer, and where it was found.
///
/// # Errors
/// The reason why there is none, or not just one.
pub fn find(text: &str) -> Result<(Value, Source), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let whole = match serde_json::from_str(text) {
        Ok(value) => return Ok((value, Source::Whole)),
        Err(error) => error,
    };
    let mut prose = String::with_capacity(text.len());
    let blocks = blocks(text, 1, &mut prose, MAX_NESTING);
    let good = blocks.iter().filter_map(|block| block.value.as_ref().ok());
    if let Some(value) = the_only(good.cloned(), "fenced blocks")? {
        return Ok((value, Source::Fence));
    }
    // A block that says that it is JSON, and is not, is what was meant: its error is the one to tell.
    let meant = blocks.iter().filter(|block| block.is_json);
    if let Some((line, error)) = meant.filter_map(Block::error).next() {
        return Err(format!("the block that begins in line {line}: {error}"));
    }
    if let Some(value) = the_only(values(&prose).into_iter(), "values")? {
        return Ok((value, Source::Prose));
    }
    Err(whole.to_string())
}

/// The value, if there is one and all of them are the same.
fn the_only(mut values: impl Iterator<Item = Value>, what: &str) -> Result<Option<Value>, String> {
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let others = values.filter(|value| *value != first).count();
    match others {
        0 => Ok(Some(first)),
        _ => Err(format!(
            "there are {} different {what} of JSON in it, and only one is wanted",
            others + 1
        )),
    }
}

/// A fenced block that may be JSON.
struct Block {
    /// The line that its content begins in, from 1.
    line: usize,
    /// Whether its first line says that it is JSON.
    is_json: bool,
    value: Result<Value, String>,
}

impl Block {
    fn error(&self) -> Option<(usize, &str)> {
        Some((self.line, self.value.as_ref().err()?))
    }
}

/// The fenced blocks of a text, those inside of others included; what is outside goes to `prose`.
fn blocks(text: &str, first_line: usize, prose: &mut String, nesting: usize) -> Vec<Block> {
    let mut all = Vec::new();
    let mut open: Option<(&str, usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, fence(line)) {
            (None, Some((mark, _))) => open = Some((mark, first_line + index, line.to_owned())),
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (Some((mark, ..)), Some((end, ""))) if end.starts_with(*mark) => {
                if let Some(block) = open.take() {
                    close(block, nesting, &mut all);
                }
            }
            (Some(_), _) => {}
        }
        if let Some((_, begin, body)) = &mut open
            && first_line + index > *begin
        {
            body.push('\n');
            body.push_str(line);
        }
    }
    // An answer that was cut off: what the block holds so far counts.
    if let Some(block) = open {
        close(block, nesting, &mut all);
    }
    all
}

/// Reads a block that has ended: its first line, then its content.
fn close((mark, line, lines): (&str, usize, String), nesting: usize, all: &mut Vec<Block>) {
    let (head, body) = lines.split_once('\n').unwrap_or((&lines, ""));
    let info = head.trim_start().trim_start_matches(&mark[..1]).trim();
    let language = info.split([' ', ':', '{']).next().unwrap_or_default();
    let is_json = ["json", "jsonc", "json5"].contains(&language.to_ascii_lowercase().as_str());
    let value = serde_json::from_str(body).map_err(|error| error.to_string());
    if value.is_err() && nesting > 0 {
        let inner = blocks(body, line + 1, &mut String::new(), nesting - 1);
        if inner
            .iter()
            .any(|block| block.value.is_ok() || block.is_json)
        {
            all.extend(inner);
            return;
        }
    }
    all.push(Block {
        line: line + 1,
        is_json,
        value,
    });
}

/// The marks of a fence, and what follows them.
fn fence(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start();
    let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = rest.len() - rest.trim_start_matches(mark).len();
    let info = rest[length..].trim();
    (length >= 3 && !info.contains('`')).then_some((&rest[..length], info))
}

/// The JSON values in prose that somebody can have meant: objects with a key or, where there is
/// none, lists with something in them that is not a number. `{}` and `[1]` are punctuation.
fn values(prose: &str) -> Vec<Value> {
    let mut effort = prose.len().saturating_mul(EFFORT).max(1 << 12);
    let (mut objects, mut lists) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(step) = prose[at..].find(['{', '[']) {
        at += step;
        let mut reader = serde_json::Deserializer::from_str(&prose[at..]).into_iter::<Value>();
        let read = reader.next();
        let used = match &read {
            Some(Err(error)) => cost(&prose[at..], error),
            _ => reader.byte_offset(),
        };
        // So many brackets that lead nowhere are no prose around a value.
        let Some(left) = effort.checked_sub(used) else {
            return Vec::new();
        };
        effort = left;
        match read {
            Some(Ok(value)) => {
                at += reader.byte_offset();
                match &value {
                    Value::Object(fields) if !fields.is_empty() => objects.push(value),
                    Value::Array(items) if items.iter().any(|item| !item.is_number()) => {
                        lists.push(value);
                    }
                    _ => {}
                }
            }
            _ => at += 1,
        }
    }
    if objects.is_empty() { lists } else { objects }
}

/// How far a reader came before it gave up, in bytes at most.
fn cost(text: &str, error: &serde_json::Error) -> usize {
    let lines = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    lines.map(str::len).sum::<usize>() + error.column()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every shape with what becomes of it: where it was found, or a part of the reason.
    #[test]
    fn answers_in_the_shapes_that_models_print() {
        use Source::{Fence, Prose, Whole};
        let ok = json!({"ok": true});
        let taken: [(&str, Source, &str); 21] = [
            ("alone", Whole, "{\"ok\": true}"),
            ("with blank lines", Whole, "\n\n {\"ok\": true}\n \n"),
            ("with a byte order mark", Whole, "\u{feff}{\"ok\": true}"),
            ("line ends of windows", Whole, "{\r\n\"ok\": true\r\n}\r\n"),
            (
                "fence with a language",
                Fence,
                "```json\n{\"ok\": true}\n```",
            ),
            ("fence without", Fence, "```\n{\"ok\": true}\n```\n"),
            ("fence in capitals", Fence, "```JSON\n{\"ok\": true}\n```"),
            (
                "fence with a name",
                Fence,
                "```json verdict.json\n{\"ok\": true}\n```",
            ),
            ("tildes", Fence, "~~~json\n{\"ok\": true}\n~~~"),
            (
                "prose around a fence",
                Fence,
                "Here it is:\n\n```json\n{\"ok\": true}\n```\nDone.",
            ),
            (
                "indented fence",
                Fence,
                "1. So:\n   ```json\n   {\"ok\": true}\n   ```",
            ),
            (
                "fence with windows line ends",
                Fence,
                "```json\r\n{\"ok\": true}\r\n```\r\n",
            ),
            (
                "fence that is never closed",
                Fence,
                "```json\n{\"ok\": true}\n",
            ),
            (
                "fence inside of a fence",
                Fence,
                "````markdown\n# Answer\n```json\n{\"ok\": true}\n```\n````",
            ),
            (
                "beside code",
                Fence,
                "```sh\nmake test\n```\n```json\n{\"ok\": true}\n```",
            ),
            (
                "the same block twice",
                Fence,
                "```json\n{\"ok\": true}\n```\nagain\n```\n{ \"ok\":true }\n```",
            ),
            ("prose before", Prose, "The verdict is {\"ok\": true}"),
            (
                "prose around",
                Prose,
                "Sure!\n{\"ok\": true}\nLet me know [1] if {} helps.",
            ),
            (
                "over several lines",
                Prose,
                "Verdict:\n{\n  \"ok\": true\n}\nBye.",
            ),
            ("inline code", Prose, "The verdict is `{\"ok\": true}`."),
            (
                "after broken braces",
                Prose,
                "{not json} but {\"ok\": true}",
            ),
        ];
        for (name, source, text) in taken {
            assert_eq!(find(text), Ok((ok.clone(), source)), "{name}");
        }
        let refused: [(&str, &str, &str); 14] = [
            ("empty", " \n", "it is empty"),
            ("no JSON at all", "I could not decide.", "expected value"),
            (
                "two blocks",
                "```json\n{\"ok\": true}\n```\n```json\n{\"ok\": false}\n```",
                "2 different fenced blocks",
            ),
            (
                "two values",
                "{\"ok\": true} or {\"ok\": false}",
                "2 different values",
            ),
            (
                "JSON lines",
                "{\"n\": 1}\n{\"n\": 2}\n{\"n\": 3}\n",
                "3 different values",
            ),
            (
                "trailing comma",
                "{\"ok\": true,}",
                "trailing comma at line 1",
            ),
            (
                "trailing comma in a fence",
                "So:\n```json\n{\n\"ok\": true,\n}\n```",
                "line 3: trailing comma at line 3",
            ),
            (
                "comments",
                "```json\n{\"ok\": true} // yes\n```",
                "line 2: trailing characters",
            ),
            ("single quotes", "{'ok': true}", "key must be a string"),
            ("bare keys", "{ok: true}", "key must be a string"),
            (
                "cut off",
                "{\"ok\": true, \"why\": \"beca",
                "EOF while parsing a string",
            ),
            (
                "cut off in a fence",
                "```json\n{\"ok\": tr",
                "the block that begins in line 2",
            ),
            ("python", "{\"ok\": True}", "expected value"),
            (
                "nothing but punctuation",
                "see [1] and {}",
                "expected value",
            ),
        ];
        for (name, text, part) in refused {
            let why = find(text).unwrap_err();
            assert!(why.contains(part), "{name}: {why}");
        }
        assert_eq!(find("\"word\"").unwrap().0, json!("word"));
        assert_eq!(find("null").unwrap(), (Value::Null, Whole));
        let list = find("The files: [\"a\", \"b\"].").unwrap();
        assert_eq!(list, (json!(["a", "b"]), Prose));
    }

    #[test]
    fn any_text_is_read_in_bounded_time() {
        for text in [
            "[".repeat(1 << 16),
            "{\"a\":".repeat(1 << 15),
            "[1,".repeat(1 << 15),
            "[\"[".repeat(1 << 15),
            "```\n".repeat(1 << 13),
            format!("{}1", "[1,1 ".repeat(1 << 15)),
        ] {
            assert!(find(&text).is_err());
        }
    }
}
