//! Secrets: declared by name, and read from orch's own environment when they are needed.
//!
//! A value goes to a process by its environment and to the [`Masker`], which keeps it out of everything
//! else. It must never be written anywhere, and no message may contain it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};

use crate::run::mask::{self, Masker};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::Step;
use crate::text::error::{Fault, Kind, Result};
use crate::text::units::show_size;

/// Variables with these suffixes hold keys.
const KEYS: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];
/// The shortest value of such a variable that is masked if it was not declared a secret.
const LONG_ENOUGH: usize = 8;

/// The names that are not set in orch's environment; an empty value counts as set. Names in the step's
/// own `env` are skipped.
#[must_use]
pub fn missing<'n>(
    names: impl IntoIterator<Item = &'n str>,
    given: impl Fn(&str) -> bool,
) -> Vec<String> {
    let absent = |name: &&str| !given(name) && std::env::var_os(name).is_none();
    names
        .into_iter()
        .filter(absent)
        .map(str::to_owned)
        .collect()
}

/// The secrets of a step that are not set.
#[must_use]
pub fn missing_of(step: &Step) -> Vec<String> {
    let names = step.secrets.iter().map(|name| name.value.as_str());
    missing(names, |name| step.env.contains_key(name))
}

/// The values of these names, for a process. Every one is set and can be masked.
///
/// # Errors
/// [`Kind::MissingSecret`] if one is not set; [`Kind::InvalidTask`] if one cannot be masked.
pub fn read<'n>(
    names: impl IntoIterator<Item = &'n str> + Clone,
    given: impl Fn(&str) -> Option<&'n str>,
) -> Result<Vec<(OsString, OsString)>> {
    let missing = missing(names.clone(), |name| given(name).is_some());
    if !missing.is_empty() {
        let list = missing.join("`, `");
        let message = match missing.len() {
            1 => format!("the secret `{list}` is not set"),
            _ => format!("the secrets `{list}` are not set"),
        };
        return Err(Fault::new(Kind::MissingSecret, message)
            .hint("set it in the environment in which orch is started; it may be empty"));
    }
    let mut all = Vec::new();
    for name in names {
        let value = match given(name) {
            Some(value) => OsString::from(value),
            None => std::env::var_os(name).unwrap_or_default(),
        };
        maskable(name, &value)?;
        all.push((name.into(), value));
    }
    Ok(all)
}

fn maskable(name: &str, value: &OsStr) -> Result<()> {
    let bad = |message: String, hint: &str| Err(Fault::new(Kind::InvalidTask, message).hint(hint));
    if mask::is_too_short(value.as_bytes()) {
        let least = mask::SHORTEST;
        return bad(
            format!("the secret `{name}` has fewer than {least} characters"),
            "masking so short a text would hide ordinary words; pass it in `env` if it is not a secret",
        );
    }
    if value.len() > mask::LONGEST {
        let most = show_size(mask::LONGEST as u64);
        return bad(
            format!("the secret `{name}` is longer than {most}, the most that can be masked"),
            "keep it in a file, and pass the file's name",
        );
    }
    Ok(())
}

/// Masks the secrets that any step of a workflow declares.
#[must_use]
pub fn of_workflow(workflow: &Workflow) -> Masker {
    let mut values = Vec::new();
    for step in &workflow.steps {
        for name in step.secrets.iter().map(|name| &name.value) {
            values.extend(std::env::var_os(name));
            values.extend(step.env.get(name).map(OsString::from));
        }
    }
    Masker::new(values.iter().map(|value| value.as_bytes()))
}

/// Whether a variable is named like a key and its value is long enough to be one.
#[must_use]
pub fn is_key(name: &OsStr, value: &OsStr) -> bool {
    let name = name.as_bytes();
    KEYS.iter().any(|end| name.ends_with(end.as_bytes())) && value.len() >= LONG_ENOUGH
}

/// Refuses a text that contains a secret, before it goes to an agent or a file.
///
/// # Errors
/// [`Kind::InvalidTask`], which says where the secret is, but not what it is.
pub fn refuse(masker: &Masker, text: &str, place: &str) -> Result<()> {
    if !masker.is_in(text) {
        return Ok(());
    }
    Err(Fault::new(
        Kind::InvalidTask,
        format!("{place} contains the value of a secret"),
    )
    .hint("secrets are passed only by environment: let the program read it there"))
}

/// Refuses the request and the input of a run if they contain a secret of the workflow.
///
/// # Errors
/// [`Kind::InvalidTask`], as [`refuse`] has it.
pub fn refuse_order(
    workflow: &Workflow,
    request: &str,
    input: Option<&Value>,
    context: &Map<String, Value>,
) -> Result<()> {
    let masker = of_workflow(workflow);
    if masker.is_idle() {
        return Ok(());
    }
    refuse(&masker, request, "the request")?;
    if let Some(input) = input {
        refuse(&masker, &texts(input), "the input")?;
    }
    context
        .iter()
        .try_for_each(|(key, value)| refuse(&masker, &texts(value), &format!("`context.{key}`")))
}

/// Every text in a document, one per line.
fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(items) => items.iter().map(texts).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key}\n{}", texts(value));
            fields.iter().map(field).collect()
        }
        other => format!("{other}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none<'n>(_: &str) -> Option<&'n str> {
        None
    }

    #[test]
    fn missing_names_are_all_told_and_empty_counts_as_present() {
        let names = ["ORCH_TEST_NO_SUCH_1", "PATH", "ORCH_TEST_NO_SUCH_2"];
        let fault = read(names, none).unwrap_err();
        assert_eq!(fault.kind, Kind::MissingSecret);
        for name in [names[0], names[2]] {
            assert!(fault.message.contains(name), "{}", fault.message);
        }
        assert!(!fault.message.contains("PATH"));
        let given = read(["ORCH_TEST_NO_SUCH_1"], |_| Some("")).unwrap();
        assert_eq!(given, [("ORCH_TEST_NO_SUCH_1".into(), OsString::new())]);
    }

    #[test]
    fn what_cannot_be_masked_is_refused_without_being_told() {
        let long = "x".repeat(mask::LONGEST + 1);
        for value in ["q7", long.as_str()] {
            let fault = read(["NAME"], |_| Some(value)).unwrap_err();
            assert_eq!(fault.kind, Kind::InvalidTask);
            assert!(fault.message.contains("`NAME`") && !fault.message.contains(value));
        }
    }

    #[test]
    fn keys_are_known_by_their_names() {
        let is = |name: &str, value: &str| is_key(OsStr::new(name), OsStr::new(value));
        assert!(is("ANTHROPIC_API_KEY", "12345678") && is("GH_TOKEN", "12345678"));
        assert!(!is("ANTHROPIC_API_KEY", "1234567") && !is("KEYBOARD", "12345678"));
    }
}
