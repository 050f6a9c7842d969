//! Writes a value as YAML on one line that any YAML reader reads back.
//!
//! JSON is nearly YAML; what YAML readers refuse inside a JSON string is escaped here.

use serde_json::Value;

/// The YAML standard allows 1024 characters.
const MAX_SIMPLE_KEY: usize = 1000;

/// One value in flow style: words bare where that is safe, everything else in double quotes.
#[must_use]
pub fn flow(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, item)) in entries.iter().enumerate() {
                separate(index, out);
                write_key(key, out);
                write_value(item, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Readers stop looking for the `:` of a long key unless a `?` announces it.
fn write_key(key: &str, out: &mut String) {
    let mut written = String::new();
    write_text(key, &mut written);
    if written.len() > MAX_SIMPLE_KEY {
        out.push_str("? ");
    }
    out.push_str(&written);
    out.push_str(": ");
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push_str(", ");
    }
}

fn write_text(text: &str, out: &mut String) {
    if is_bare(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if needs_escape(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What YAML readers do not take as it is, or fold.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Words that no YAML version reads as anything but themselves.
fn is_bare(text: &str) -> bool {
    let words = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf",
    ];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(plain)
        && !words.iter().any(|word| word.eq_ignore_ascii_case(text))
}
