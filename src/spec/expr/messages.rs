//! The messages of expressions: what went wrong, which name was missing, and what is known instead.
//!
//! The engine's own messages print whole values; none of them is ever passed on as it is.

use cel::{ExecutionError, ParseErrors, Value as Cel};
use serde_json::Value;

use super::limits::LOOP;
use super::names::Names;
use super::{ExprFault, FaultKind};
use crate::spec::scope::Scope;
use crate::text::suggest;

/// A parse error, with its place in the text.
pub(super) fn syntax(errors: &ParseErrors, text: &str) -> ExprFault {
    let Some(first) = errors.errors.first() else {
        return ExprFault::new(FaultKind::Load, "the expression cannot be read");
    };
    let said = first.msg.lines().next().unwrap_or_default();
    let said = said.replace(LOOP, "loop").replace('\'', "`");
    let fault = ExprFault::new(FaultKind::Load, plain_syntax(&said));
    match place(text, first.pos) {
        Some(at) => fault.at(at),
        None => fault,
    }
}

/// The parser's message without its list of everything that it would have taken.
fn plain_syntax(said: &str) -> String {
    if said.contains("input `<EOF>`") {
        return "it ends too early".to_owned();
    }
    let quoted = said.split('`').nth(1).map(str::trim).unwrap_or_default();
    if said.contains("recognition error") {
        format!("`{quoted}` is not understood")
    } else if said.contains(" input `") {
        format!("`{quoted}` is not expected here")
    } else if said.contains("nsupported syntax") {
        format!("`{quoted}` is not supported")
    } else {
        short(&said.to_lowercase())
    }
}

/// The byte at a line and a column that both count from 1, the column in characters.
fn place(text: &str, (line, column): (isize, isize)) -> Option<usize> {
    let (line, column) = (
        usize::try_from(line - 1).ok()?,
        usize::try_from(column - 1).ok()?,
    );
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..)?;
    let within = rest
        .char_indices()
        .nth(column)
        .map_or(rest.len(), |(at, _)| at);
    Some(start + within)
}

/// An error of an evaluation.
pub(super) fn failure(error: &ExecutionError, names: &Names, scope: &Scope) -> ExprFault {
    match error {
        ExecutionError::UndeclaredReference(name) => unknown_root(name, scope),
        ExecutionError::NoSuchKey(key) => missing_key(key, names, scope),
        ExecutionError::NoSuchOverload(overload) => {
            overload_fault(overload.function(), overload.argument_types(), names, scope)
        }
        ExecutionError::ValuesNotComparable(a, b) => mismatch("compared", a, b),
        ExecutionError::UnsupportedBinaryOperator(operator, a, b) => {
            let verb = match *operator {
                "add" => "added",
                "sub" => "subtracted",
                "mul" => "multiplied",
                "div" => "divided",
                _ => "combined",
            };
            mismatch(verb, a, b)
        }
        ExecutionError::UnexpectedType { got, want } => {
            wrong(format!("{got} where {want} is expected"))
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            wrong("division by zero".into())
        }
        ExecutionError::Overflow(..) => wrong("the number is too large".into()),
        ExecutionError::IndexOutOfBounds(at) => {
            let at = super::convert::to_json(at).map_or(String::new(), |at| format!(" {at}"));
            ExprFault::new(FaultKind::Missing, format!("the list has no item{at}"))
        }
        ExecutionError::DuplicateKey(_) => wrong("a map has the same key twice".into()),
        ExecutionError::FunctionError { function, message } => {
            wrong(format!("`{function}()`: {}", short(message)))
        }
        other => wrong(format!(
            "it cannot be evaluated: {}",
            short(&variant(other))
        )),
    }
}

/// The name of the kind of error, without the values that it carries.
fn variant(error: &ExecutionError) -> String {
    let shown = format!("{error}");
    let end = shown.find([':', '\'', '(']).unwrap_or(shown.len());
    shown[..end].trim().to_lowercase()
}

fn wrong(message: String) -> ExprFault {
    ExprFault::new(FaultKind::Type, message)
}

fn mismatch(verb: &str, a: &Cel, b: &Cel) -> ExprFault {
    wrong(format!(
        "{} and {} cannot be {verb}",
        a.type_of(),
        b.type_of()
    ))
}

fn unknown_root(name: &str, scope: &Scope) -> ExprFault {
    let name = if name == LOOP { "loop" } else { name };
    let known: Vec<&str> = scope.names().collect();
    let fault = ExprFault::new(FaultKind::Missing, format!("`{name}` is not known here"));
    with_hint(fault, suggest::hint(name, &known))
}

fn with_hint(fault: ExprFault, hint: Option<String>) -> ExprFault {
    match hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// Where a fixed path stops, and what is there.
struct Stop<'v> {
    /// The part of the path that has a value.
    reached: String,
    /// The field that it does not have.
    field: String,
    value: &'v Value,
}

/// The first field of a fixed path that does not exist in the scope.
fn stop<'v>(path: &[String], scope: &'v Scope) -> Option<Stop<'v>> {
    let mut value = scope.root(&path[0])?;
    for (at, field) in path.iter().enumerate().skip(1) {
        match value.get(field.as_str()) {
            Some(next) => value = next,
            None => {
                return Some(Stop {
                    reached: path[..at].join("."),
                    field: field.clone(),
                    value,
                });
            }
        }
    }
    None
}

fn missing_key(key: &str, names: &Names, scope: &Scope) -> ExprFault {
    let stops = names.paths.iter().filter_map(|path| stop(path, scope));
    let found = stops
        .into_iter()
        .find(|stop| stop.field == key && stop.value.is_object());
    let Some(found) = found else {
        return ExprFault::new(FaultKind::Missing, format!("there is no field `{key}`"))
            .hint("ask with `has(x.field)` first");
    };
    let known: Vec<&str> = found
        .value
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys().map(String::as_str).take(20))
        .collect();
    let message = format!("`{}.{key}` is missing", found.reached);
    with_hint(
        ExprFault::new(FaultKind::Missing, message),
        suggest::hint(key, &known),
    )
}

fn overload_fault(function: &str, types: &[String], names: &Names, scope: &Scope) -> ExprFault {
    if function == "_._" || function == "_[_]" {
        let stops = names.paths.iter().filter_map(|path| stop(path, scope));
        let found = stops.into_iter().find(|stop| !stop.value.is_object());
        return match found {
            Some(found) => ExprFault::new(
                FaultKind::Missing,
                format!(
                    "`{}.{}` is missing: `{}` is {}",
                    found.reached,
                    found.field,
                    found.reached,
                    kind(found.value)
                ),
            ),
            None => ExprFault::new(
                FaultKind::Missing,
                format!(
                    "{} has no fields or items",
                    types.first().map_or("this", |t| plain(t))
                ),
            ),
        };
    }
    let types: Vec<&str> = types.iter().map(|name| plain(name)).collect();
    let name = function.trim_matches(['_', '@']);
    wrong(format!("`{name}` does not take {}", types.join(" and ")))
}

fn plain(name: &str) -> &str {
    if name == "null_type" { "null" } else { name }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn short(message: &str) -> String {
    message
        .chars()
        .filter(|c| !c.is_control())
        .take(160)
        .collect()
}
