//! What a run is given: the context, typed by the workflow's defaults, and the input, checked
//! against its schema.

use serde_json::{Map, Number, Value};

use crate::disk::store::Spec;
use crate::run::schema::Schema;
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};
use crate::text::suggest;

/// The variable that `--max-retries` sets.
pub const MAX_RETRIES: &str = "max_retries";

/// A value that was typed as text, in the type of the workflow's default.
///
/// # Errors
/// `Usage`: the workflow has no such key, or the text is not of that type.
pub fn typed(workflow: &Workflow, key: &str, text: &str) -> Result<Value> {
    let value = match known(workflow, key)? {
        Some(Value::String(_) | Value::Null) | None => return Ok(Value::from(text)),
        Some(Value::Bool(_)) => text.parse().ok().map(Value::Bool),
        Some(Value::Number(_)) => number(text),
        Some(Value::Array(_)) => json(text).filter(Value::is_array),
        Some(Value::Object(_)) => json(text).filter(Value::is_object),
    };
    value.ok_or_else(|| unfit(key, text, workflow.context.get(key)))
}

/// A value that has a type of its own, where that is the type of the default.
///
/// # Errors
/// As [`typed`].
pub fn fitting(workflow: &Workflow, key: &str, value: Value) -> Result<Value> {
    let default = known(workflow, key)?;
    let (Some(default), false) = (default, value.is_string()) else {
        return match &value {
            Value::String(text) => typed(workflow, key, text),
            _ => Ok(value),
        };
    };
    match default.is_null() || kind(default) == kind(&value) {
        true => Ok(value),
        false => Err(unfit(key, &value.to_string(), Some(default))),
    }
}

/// The context of a run: what was given over the workflow's defaults.
///
/// # Errors
/// As [`fitting`].
pub fn context(workflow: &Workflow, given: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut all = workflow.context.clone();
    for (key, value) in given {
        all.insert(key.clone(), fitting(workflow, key, value.clone())?);
    }
    Ok(all)
}

/// Holds a run's input against the schema that the workflow names.
///
/// # Errors
/// `Usage` where an input is needed and there is none; `InvalidTask` where it does not match.
pub fn check_input(workflow: &Workflow, spec: &Spec, input: Option<&Value>) -> Result<()> {
    let Some(path) = &workflow.input_schema else {
        return Ok(());
    };
    let name = &workflow.name.value;
    let Some(input) = input else {
        let message = format!("workflow `{name}` needs an input");
        let hint = format!("give --input FILE, which `{}` describes", path.value);
        return Err(Fault::new(Kind::Usage, message).hint(hint));
    };
    let schema = spec
        .files
        .get(&path.value)
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .ok_or_else(|| {
            let message = format!("`{}` is not a JSON Schema that can be read", path.value);
            Fault::new(Kind::WorkflowValidationError, message)
        })?;
    Schema::compile(&schema)?
        .check(input)
        .map_err(|fault| Fault {
            kind: Kind::InvalidTask,
            message: fault.message.replacen("the JSON", "the input", 1),
            hint: Some(format!("`{}` describes it", path.value)),
        })
}

/// The default of a key, if it has one; a key that nothing in the workflow knows is a fault.
fn known<'w>(workflow: &'w Workflow, key: &str) -> Result<Option<&'w Value>> {
    let default = workflow.context.get(key);
    if default.is_some() || (key == MAX_RETRIES && workflow.uses_max_retries) {
        return Ok(default);
    }
    let keys: Vec<&str> = workflow.context.keys().map(String::as_str).collect();
    let name = &workflow.name.value;
    let hint = suggest::hint(key, &keys).unwrap_or_else(|| {
        "its `context` is empty: a key is made known there by its default".to_owned()
    });
    let message = format!("workflow `{name}` has no `{key}` in its `context`");
    Err(Fault::new(Kind::Usage, message).hint(hint))
}

fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    let number = text.parse::<f64>().ok().and_then(Number::from_f64);
    number.map(Value::Number)
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "anything",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a JSON list",
        Value::Object(_) => "a JSON object",
    }
}

fn unfit(key: &str, text: &str, default: Option<&Value>) -> Fault {
    let default = default.unwrap_or(&Value::Null);
    Fault::new(
        Kind::Usage,
        format!("`{text}` cannot be `{key}`, which is {}", kind(default)),
    )
    .hint(format!("its default is `{default}`"))
}
