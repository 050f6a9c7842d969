//! Front matter that is not quite YAML, line by line: `key: rest of the line`.
//!
//! Many agent files in the wild hold `description: use this: always`, which Claude Code takes and
//! YAML does not. Only for files that carry `name:`; a file of our own is never read this way.

use serde_json::{Map, Value};

use super::{Front, KEYS, foreign};
use crate::text::error::{Fault, Kind};
use crate::text::yaml;

/// Whether this front matter was written for Claude Code.
pub(super) fn is_candidate(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("name:"))
}

/// Reads `text` line by line; the first note is what was wrong with it as YAML.
pub(super) fn read(text: &str, label: &str, strict: &Fault) -> Result<(Front, Vec<String>), Fault> {
    let entries = entries(text);
    let mut notes = vec![format!("{}; read line by line instead", strict.message)];
    notes.extend(foreign(entries.iter().map(|(key, _)| key), label));
    let known: Map<String, Value> = entries
        .into_iter()
        .filter(|(key, _)| KEYS.contains(&key.as_str()))
        .map(|(key, raw)| {
            let value = typed(&key, &raw);
            (key, value)
        })
        .collect();
    let front = serde_json::from_value(Value::Object(known)).map_err(|error| {
        let error = error.to_string().replace('\u{1f}', "; ");
        Fault::new(Kind::YamlParseError, format!("{label}: {error}"))
    })?;
    Ok((front, notes))
}

/// Keys with everything up to the next key, in the order of the file.
fn entries(text: &str) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match split_key(line) {
            Some((key, rest)) => entries.push((key.to_owned(), rest.trim().to_owned())),
            None => {
                if let Some((_, value)) = entries.last_mut() {
                    value.push('\n');
                    value.push_str(line);
                }
            }
        }
    }
    entries
}

fn split_key(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(':')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let starts_well = key.starts_with(|c: char| c.is_ascii_alphabetic());
    (starts_well && key.chars().all(is_word)).then_some((key, rest))
}

/// Text stays text; for the other keys YAML decides, if it can read the value alone.
fn typed(key: &str, raw: &str) -> Value {
    let is_text = matches!(key, "description" | "name" | "model" | "provider" | "dir");
    let read = yaml::from_str::<Value>(raw)
        .ok()
        .filter(|_| !raw.is_empty());
    match read {
        Some(value) if !is_text || value.is_string() => value,
        _ => Value::String(raw.trim().to_owned()),
    }
}
