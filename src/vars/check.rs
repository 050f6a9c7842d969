//! What can be said about a variable before there is a value: its root and the fields that are fixed.
//!
//! Only words are compared. Whether a step or a key exists is the loader's to know.

use super::{Part, Path, Var, VarFault, VarFaultKind};
use crate::suggest;

/// The roots that every text may name; the loop's `as` and a provider's own words come on top.
pub const ROOTS: &[&str] = &[
    "request",
    "reply",
    "input",
    "run",
    "item",
    "loop",
    "steps",
    "context",
    "state",
    "STATE_FILE",
];
/// What `run` has.
pub const RUN_FIELDS: &[&str] = &["id", "root", "files", "timestamp_utc"];
/// What `loop` has.
pub const LOOP_FIELDS: &[&str] = &["index", "total"];
/// What a step's result has.
pub const STEP_FIELDS: &[&str] = &[
    "exit_code",
    "output",
    "lines",
    "json",
    "duration",
    "tail",
    "note",
];

/// The fault of a variable, if one can be seen.
pub(super) fn check(var: &Var, extra: &[&str]) -> Option<VarFault> {
    let path = &var.path;
    let root = path.root();
    if extra.contains(&root) {
        return None;
    }
    if !ROOTS.contains(&root) {
        let known: Vec<&str> = ROOTS.iter().chain(extra).copied().collect();
        return Some(unknown(
            var,
            format!("there is no variable `{root}`"),
            root,
            &known,
        ));
    }
    match root {
        "run" => must_have(var, RUN_FIELDS),
        "loop" => must_have(var, LOOP_FIELDS),
        "STATE_FILE" if !path.parts().is_empty() => Some(unknown(
            var,
            "`STATE_FILE` is a path and has no parts".into(),
            "",
            &[],
        )),
        "steps" => step(var, path),
        _ => None,
    }
}

/// `run` and `loop` are named with exactly one of their fields.
fn must_have(var: &Var, fields: &[&str]) -> Option<VarFault> {
    match var.path.parts() {
        [Part::Field(name)] if fields.contains(&name.as_str()) => None,
        _ => {
            let name = var.path.field(0).unwrap_or_default();
            let message = format!("`${{{}}}` does not exist", var.path);
            Some(unknown(var, message, name, fields))
        }
    }
}

/// `steps` needs a step; its field is checked unless the step is a loop with an index.
fn step(var: &Var, path: &Path) -> Option<VarFault> {
    if path.step().is_none() {
        return Some(unknown(
            var,
            "`steps` needs the name of a step".into(),
            "",
            &[],
        ));
    }
    let field = path.field(1)?;
    if STEP_FIELDS.contains(&field) {
        return None;
    }
    let message = format!("a step's result has no `{field}`");
    Some(unknown(var, message, field, STEP_FIELDS))
}

fn unknown(var: &Var, message: String, word: &str, known: &[&str]) -> VarFault {
    VarFault::new(VarFaultKind::Load, var.at, message).maybe_hint(suggest::hint(word, known))
}
