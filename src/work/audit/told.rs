//! What results tell by the names of their lists, and how an entry reads in a line.

use serde_json::Value;

/// How deep in a result a list is looked for.
const DEPTH: usize = 4;

/// The entries of every list of this name in a document.
pub(crate) fn entries(document: &Value, list: &str) -> Vec<Value> {
    let mut found = Vec::new();
    gather(document, list, DEPTH, &mut found);
    found
}

fn gather(document: &Value, list: &str, depth: usize, found: &mut Vec<Value>) {
    let Value::Object(fields) = document else {
        return;
    };
    for (name, value) in fields {
        match value {
            Value::Array(all) if name == list => found.extend(all.iter().cloned()),
            inner if depth > 0 => gather(inner, list, depth - 1, found),
            _ => {}
        }
    }
}

/// A value in a line: the fields of an object one after the other, text without its quotes.
pub(crate) fn line(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::String(text) => format!("{name}: {text}"),
                other => format!("{name}: {other}"),
            };
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
