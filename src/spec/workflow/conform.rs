//! Whether a tree has the shape that the table of fields gives it: all faults at once.
//!
//! It judges shapes only; what names and numbers mean is for the loader and the checks.

use super::fields::{FROM, Object, PROVIDER_KEYS, Shape};
use super::problem::Gather;
use crate::text::suggest;
use crate::text::units::{parse_duration, show_duration};
use crate::text::yaml::tree::{Content, Node};

/// The longest timeout that can be asked for, in milliseconds.
pub(super) const MAX_TIMEOUT_MS: u64 = 7 * 24 * 3_600_000;

/// Keys that people write and what they mean here.
const HABITS: &[(&str, &str)] = &[
    ("cmd", "command"),
    ("run", "command"),
    ("id", "name"),
    ("goto", "next"),
    ("needs", "depends_on"),
    ("if", "when"),
    ("lock", "next"),
    ("set", "next"),
    ("loop", "for_each"),
    ("retry", "retries"),
    ("max_retries", "retries"),
    ("delay", "delay_ms"),
    ("schema", "output_schema"),
    ("cond", "if"),
    ("then", "goto"),
];

/// Checks one value.
pub(super) fn conform(node: &Node, shape: &Shape, path: &str, out: &mut Gather<'_>) {
    match (shape, &node.content) {
        (Shape::Any, _)
        | (Shape::Text, Content::Text(_))
        | (Shape::Guard, Content::Text(_) | Content::Bool(_))
        | (Shape::Flag | Shape::FlagOr(_), Content::Bool(_))
        | (Shape::Scalar, Content::Text(_) | Content::Bool(_) | Content::Number(_))
        | (Shape::Map(_) | Shape::Provider, Content::Null) => {}
        (Shape::Count(min, max) | Shape::Number(min, max), Content::Number(_)) => {
            range(node, *min, *max, path, out);
        }
        (Shape::Number(min, max), Content::Map(_)) => {
            object(node, &FROM, path, out);
            for key in ["default", "min", "max"] {
                if let Some(value) = node.get(key) {
                    conform(value, &Shape::Count(*min, *max), &join(path, key), out);
                }
            }
        }
        (Shape::Duration, Content::Map(_)) => {
            object(node, &FROM, path, out);
            for key in ["default", "min", "max"] {
                if let Some(value) = node.get(key) {
                    duration(value, &join(path, key), out);
                }
            }
        }
        (Shape::Duration, _) => duration(node, path, out),
        (Shape::Word(words), Content::Text(word)) => {
            if !words.contains(&word.as_str()) {
                let message = format!("unknown value `{word}` for `{path}`");
                out.fault_with(node.place, message, suggest::hint(word, words));
            }
        }
        (Shape::Some(_), Content::List(items)) if items.is_empty() => {
            out.fault(node.place, format!("`{path}` is empty"));
        }
        (Shape::List(inner) | Shape::Some(inner), Content::List(items)) => {
            for (index, item) in items.iter().enumerate() {
                conform(item, inner, &item_path(path, index, item, inner), out);
            }
        }
        (Shape::Map(inner), Content::Map(entries)) => {
            for entry in entries {
                conform(&entry.value, inner, &join(path, &entry.key), out);
            }
        }
        (Shape::Object(inner) | Shape::FlagOr(inner), Content::Map(_)) => {
            object(node, inner, path, out);
        }
        (Shape::Provider, Content::Map(entries)) => {
            for entry in entries {
                if !PROVIDER_KEYS.contains(&entry.key.as_str()) {
                    let message = format!("unknown field `{}` in `{path}`", entry.key);
                    let hint = suggest::hint(&entry.key, PROVIDER_KEYS);
                    out.fault_with(entry.place, message, hint);
                }
            }
        }
        _ => mismatch(node, shape, path, out),
    }
}

/// A step is called by its name, anything else by its number.
fn item_path(path: &str, index: usize, item: &Node, shape: &Shape) -> String {
    let name = match shape {
        Shape::Object(object) if object.name == "step" => item.get("name").and_then(Node::text),
        _ => None,
    };
    match name {
        Some(name) => join(path, name),
        None => format!("{path}[{index}]"),
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// Checks the keys of a map: unknown ones, missing ones, and the values of the rest.
pub(super) fn object(node: &Node, object: &'static Object, path: &str, out: &mut Gather<'_>) {
    for entry in node.entries() {
        match object.field(&entry.key) {
            Some(field) => conform(&entry.value, &field.shape, &join(path, field.name), out),
            None => unknown(entry.place, &entry.key, object, path, out),
        }
    }
    for name in object.required {
        if node.get(name).is_none() {
            let message = match path {
                "" => format!("`{name}` is missing"),
                path => format!("`{name}` is missing in `{path}`"),
            };
            let hint = object
                .field(name)
                .map(|field| format!("`{name}`: {}", lower(field.doc)));
            out.fault_with(node.place, message, hint);
        }
    }
}

fn unknown(
    at: crate::text::yaml::tree::Place,
    key: &str,
    object: &Object,
    path: &str,
    out: &mut Gather<'_>,
) {
    let message = match path {
        "" => format!("unknown field `{key}`"),
        path => format!("unknown field `{key}` in `{path}`"),
    };
    let names = object.names();
    let habit = HABITS
        .iter()
        .find(|(theirs, ours)| *theirs == key && names.contains(ours))
        .map(|(_, ours)| format!("did you mean `{ours}`?"));
    let hint = habit.or_else(|| suggest::hint(key, &names));
    out.fault_with(at, message, hint);
}

/// A sentence as the end of a hint.
fn lower(doc: &str) -> String {
    let doc = doc.trim_end_matches('.');
    let mut chars = doc.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

fn range(node: &Node, min: u64, max: u64, path: &str, out: &mut Gather<'_>) {
    match node.number() {
        Some(number) if (min..=max).contains(&number) => {}
        _ => {
            let given = node.to_value();
            let message = format!("`{path}` is {given}, and must be a whole number");
            out.fault(node.place, format!("{message} from {min} to {max}"));
        }
    }
}

fn duration(node: &Node, path: &str, out: &mut Gather<'_>) {
    let text = match &node.content {
        Content::Text(text) => text.clone(),
        Content::Number(number) => number.to_string(),
        _ => return mismatch(node, &Shape::Duration, path, out),
    };
    match parse_duration(&text) {
        Err(fault) => out.fault_with(node.place, fault.message, fault.hint),
        Ok(time) if time.is_zero() || time.as_millis() > u128::from(MAX_TIMEOUT_MS) => {
            let most = show_duration(std::time::Duration::from_millis(MAX_TIMEOUT_MS));
            let message = format!("`{path}` is `{text}`, and must be from 1ms to {most}");
            out.fault(node.place, message);
        }
        Ok(_) => {}
    }
}

fn mismatch(node: &Node, shape: &Shape, path: &str, out: &mut Gather<'_>) {
    let (wanted, hint) = expected(shape);
    let path = match path {
        "" => "the workflow",
        path => path,
    };
    let message = format!("`{path}` is {}, and must be {wanted}", node.kind());
    let quotes = matches!(shape, Shape::Text | Shape::Word(_))
        && matches!(node.content, Content::Number(_) | Content::Bool(_));
    let hint = match quotes {
        true => Some("put it in quotes"),
        false => hint,
    };
    out.fault_with(node.place, message, hint.map(str::to_owned));
}

fn expected(shape: &Shape) -> (&'static str, Option<&'static str>) {
    match shape {
        Shape::Text => ("text", None),
        Shape::Guard => ("an expression in quotes", Some("put it in quotes")),
        Shape::Flag => ("true or false", None),
        Shape::Count(..) => ("a whole number", None),
        Shape::Number(..) => (
            "a number or a map",
            Some("write a number, or `{from: context.k, default: 5, min: 1, max: 50}`"),
        ),
        Shape::Duration => ("a duration", Some("write it like `90s`, `15m` or `2h`")),
        Shape::Word(_) => ("a word", None),
        Shape::List(_) | Shape::Some(_) => ("a list", Some("write `[a, b]`, or one `- ` a line")),
        Shape::Map(_) | Shape::Provider => ("a map", None),
        Shape::Object(object) => (
            "a map",
            match object.name {
                "goto" => Some("write `{goto: STEP}`"),
                "retries" => Some("write `{max: 2, delay_ms: 500}`"),
                _ => None,
            },
        ),
        Shape::FlagOr(_) => ("true, false or a map", None),
        Shape::Scalar => ("text", None),
        Shape::Any => ("anything", None),
    }
}
