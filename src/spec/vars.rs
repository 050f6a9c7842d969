//! `${...}`: texts with variables, cut once, filled any number of times.
//!
//! What is put in is never looked at again, so a value may hold `$`, quotes or `${x}` and stays as it
//! is. Nothing here reads a file, the environment or a clock: outputs that are too large for the
//! state come through [`Outputs`]. An undefined variable is a fault, never an empty text, and `null`
//! counts as undefined, so that `${reply:-none}` is `none` where there is no reply.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::spec::scope::Scope;
use crate::text::error::{Fault, Kind};
use crate::text::suggest;

mod path;
mod words;

pub use path::{Part, Path};
pub use words::{LOOP_FIELDS, ROOTS, RUN_FIELDS, STEP_FIELDS};

/// The longest output of a step that is put into a prompt.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The longest text that a substitution may make.
pub const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// What sort of fault a variable has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarFaultKind {
    /// The text is not well formed, or names what cannot exist: found at load.
    Load,
    /// The variable has no value.
    Undefined,
    /// The value is too large.
    TooLarge,
}

/// What is wrong with a variable, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VarFault {
    /// What sort of fault it is.
    pub kind: VarFaultKind,
    /// What is wrong. Lower case, no final period.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The byte of the text where the `$` stands.
    pub at: usize,
}

impl VarFault {
    fn new(kind: VarFaultKind, at: usize, message: impl Into<String>) -> Self {
        VarFault {
            kind,
            message: message.into(),
            hint: None,
            at,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn maybe_hint(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }
}

impl fmt::Display for VarFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VarFault {}

impl From<VarFault> for Fault {
    fn from(fault: VarFault) -> Self {
        let kind = match fault.kind {
            VarFaultKind::Load => Kind::WorkflowValidationError,
            VarFaultKind::Undefined => Kind::UndefinedVariableError,
            VarFaultKind::TooLarge => Kind::OutputTooLargeError,
        };
        Fault {
            kind,
            message: fault.message,
            hint: fault.hint,
        }
    }
}

/// What a step printed, for values that are not kept in the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printed {
    /// The step has printed nothing yet, or is not known.
    Nothing,
    /// All that was asked for.
    Text(String),
    /// It is longer than [`MAX_OUTPUT_BYTES`]: so many bytes.
    TooLong(u64),
    /// It cannot be read any more, and why.
    Lost(String),
}

/// Where the outputs of steps come from. A step in a loop's item is `LOOP[0].STEP`.
pub trait Outputs {
    /// The whole output of a step, or `None` where the text kept in the state is to be used: only a
    /// prompt takes the whole.
    fn whole(&self, step: &str) -> Option<Printed>;
    /// The end of what a step printed: the last 64 KiB of stdout, then of stderr.
    fn tail(&self, step: &str) -> Printed;
}

/// No outputs but what is in the scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOutputs;

impl Outputs for NoOutputs {
    fn whole(&self, _step: &str) -> Option<Printed> {
        None
    }

    fn tail(&self, _step: &str) -> Printed {
        Printed::Nothing
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Var(Var),
}

/// A variable in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Var {
    /// What it names.
    pub path: Path,
    /// What stands there where it is undefined.
    pub default: Option<String>,
    /// The byte where its `$` stands.
    pub at: usize,
}

/// A text that was cut at its variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pieces: Vec<Piece>,
}

impl Text {
    /// Cuts a text.
    ///
    /// `$$` is `$`; a `$` before anything else but `{` stays. The default of `${a:-default}` ends at
    /// the first `}`; it may hold `$$`, and a `${` inside it is refused.
    ///
    /// # Errors
    /// An open `${`, what is not a path, or `${env.*}`; with its place.
    pub fn parse(text: &str) -> Result<Self, VarFault> {
        let (cut, faults) = Text::scan(text);
        match faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(cut),
        }
    }

    /// Cuts a text, and goes on behind what is wrong: for those who show all faults at once. What is
    /// wrong is left out of the text.
    #[must_use]
    pub fn scan(text: &str) -> (Self, Vec<VarFault>) {
        let mut pieces = Vec::new();
        let mut faults = Vec::new();
        let mut plain = String::new();
        let mut at = 0;
        while let Some(found) = text[at..].find('$') {
            plain.push_str(&text[at..at + found]);
            at += found;
            let after = &text[at + 1..];
            if after.starts_with('{') {
                match variable(text, at) {
                    Ok(var) => {
                        if !plain.is_empty() {
                            pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                        }
                        pieces.push(Piece::Var(var));
                    }
                    Err(fault) => faults.push(fault),
                }
                at += written(text, at).len();
            } else {
                plain.push('$');
                at += if after.starts_with('$') { 2 } else { 1 };
            }
        }
        plain.push_str(&text[at..]);
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        (Text { pieces }, faults)
    }

    /// The variables that it names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &Var> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Var(var) => Some(var),
            Piece::Plain(_) => None,
        })
    }

    /// The text, if there is no variable in it.
    #[must_use]
    pub fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Plain(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with every variable filled in.
    ///
    /// # Errors
    /// The first variable that has no value, or a value that is too large.
    pub fn fill(&self, scope: &Scope, outputs: &dyn Outputs) -> Result<String, VarFault> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Plain(text) => filled.push_str(text),
                Piece::Var(var) => {
                    let found = value(var, scope, outputs)?;
                    filled.push_str(&print(var, &found));
                    if filled.len() > MAX_TEXT_BYTES {
                        return Err(too_large(var));
                    }
                }
            }
        }
        Ok(filled)
    }

    /// The arguments that it stands for in a command: one, or as many as the list has that is the
    /// whole of it.
    ///
    /// # Errors
    /// As [`Text::fill`], and a null in the list.
    pub fn arguments(&self, scope: &Scope, outputs: &dyn Outputs) -> Result<Vec<String>, VarFault> {
        let [Piece::Var(var)] = self.pieces.as_slice() else {
            return self.fill(scope, outputs).map(|text| vec![text]);
        };
        let found = value(var, scope, outputs)?;
        let Value::Array(items) = found.as_ref() else {
            return Ok(vec![print(var, &found)]);
        };
        items
            .iter()
            .enumerate()
            .map(|(at, item)| match item {
                Value::Null => Err(undefined(var, format!("`{}[{at}]` is null", var.path))),
                _ => Ok(show(item)),
            })
            .collect()
    }
}

/// The value at a bare path, as in `items_from: state.plan.tasks`; null is a value here.
///
/// # Errors
/// [`VarFaultKind::Undefined`], with the part that is missing.
pub fn lookup<'v>(path: &Path, scope: &'v Scope<'_>) -> Result<&'v Value, VarFault> {
    let var = Var {
        path: path.clone(),
        default: None,
        at: 0,
    };
    in_scope(&var, scope)
}

/// A variable as it is written in a text, `${` and `}` included; all that is left where it is never
/// closed.
#[must_use]
pub fn written(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    rest.find('}').map_or(rest, |end| &rest[..=end])
}

/// Reads the variable whose `$` is at `at`.
fn variable(text: &str, at: usize) -> Result<Var, VarFault> {
    let load = |message: String| VarFault::new(VarFaultKind::Load, at, message);
    let body = &text[at + 2..];
    let Some(len) = body.find('}') else {
        let message = "`${` is never closed".to_owned();
        return Err(load(message).hint("write `$${` for the characters themselves"));
    };
    let (name, default) = match body[..len].split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (&body[..len], None),
    };
    if default.is_some_and(|text| text.replace("$$", "").contains("${")) || name.contains('$') {
        let message = "a variable inside a variable".to_owned();
        return Err(load(message).hint("a default is plain text"));
    }
    let path = Path::parse(name)
        .map_err(|message| load(message).hint("write `${a.b[0]}`, or `$$` for a dollar sign"))?;
    if path.root() == "env" {
        let message = format!("`${{{path}}}`: the environment is not put into texts");
        return Err(load(message)
            .hint("list the name under `secrets` or `inherit_env`; the program reads it itself"));
    }
    let default = default.map(|text| text.replace("$$", "$"));
    Ok(Var { path, default, at })
}

/// The value of a variable, or its default.
fn value<'v>(
    var: &Var,
    scope: &'v Scope<'_>,
    outputs: &dyn Outputs,
) -> Result<Cow<'v, Value>, VarFault> {
    let found = match printed(var, outputs)? {
        Some(text) => Ok(Cow::Owned(text)),
        None => in_scope(var, scope).map(Cow::Borrowed),
    };
    let found = found.and_then(|found| match found.is_null() {
        true => Err(undefined(var, format!("`{}` has no value", var.path))),
        false => Ok(found),
    });
    match &var.default {
        Some(default) => Ok(found.unwrap_or_else(|_| Cow::Owned(default.as_str().into()))),
        None => found,
    }
}

fn in_scope<'v>(var: &Var, scope: &'v Scope<'_>) -> Result<&'v Value, VarFault> {
    let root = var.path.root();
    if let [Part::Field(field), rest @ ..] = var.path.parts()
        && let Some(value) = scope.field(root, field)
        && let Ok(found) = path::follow(value, rest, field)
    {
        return Ok(found);
    }
    let Some(value) = scope.root(root) else {
        let known: Vec<&str> = scope.names().collect();
        let fault = undefined(var, format!("`{root}` is not known here"));
        return Err(fault.maybe_hint(suggest::hint(root, &known)));
    };
    path::follow(value, var.path.parts(), root)
        .map_err(|gap| undefined(var, gap.message).maybe_hint(gap.hint))
}

/// What a step printed, where the variable asks for that; null where it printed nothing.
fn printed(var: &Var, outputs: &dyn Outputs) -> Result<Option<Value>, VarFault> {
    let Some((step, field, rest)) = var.path.lazy_step() else {
        return Ok(None);
    };
    let printed = match field {
        "tail" => outputs.tail(&step),
        _ => match outputs.whole(&step) {
            Some(printed) => printed,
            None => return Ok(None),
        },
    };
    match printed {
        Printed::Nothing => Ok(Some(Value::Null)),
        Printed::Text(text) if text.len() > MAX_OUTPUT_BYTES => {
            Err(too_long(var, text.len() as u64))
        }
        Printed::Text(_) if !rest.is_empty() && var.default.is_some() => Ok(Some(Value::Null)),
        Printed::Text(_) if !rest.is_empty() => {
            let hint = "a parsed output is at `.json`";
            Err(undefined(
                var,
                format!("`steps.{step}.{field}` is text and has no parts"),
            )
            .hint(hint))
        }
        Printed::Text(text) => Ok(Some(Value::String(text))),
        Printed::TooLong(bytes) => Err(too_long(var, bytes)),
        Printed::Lost(why) => Err(undefined(
            var,
            format!("`{}` cannot be read: {why}", var.path),
        )),
    }
}

fn undefined(var: &Var, why: String) -> VarFault {
    let message = format!("`${{{}}}` is undefined: {why}", var.path);
    VarFault::new(VarFaultKind::Undefined, var.at, message)
}

fn too_long(var: &Var, bytes: u64) -> VarFault {
    let message = format!(
        "`${{{}}}` is {bytes} bytes long, over the limit of {MAX_OUTPUT_BYTES}",
        var.path
    );
    VarFault::new(VarFaultKind::TooLarge, var.at, message)
        .hint("name its `tail`, or the file that `output_file` wrote")
}

fn too_large(var: &Var) -> VarFault {
    let message = format!(
        "with `${{{}}}` the text is longer than {MAX_TEXT_BYTES} bytes",
        var.path
    );
    VarFault::new(VarFaultKind::TooLarge, var.at, message)
}

/// How a variable's value stands in a text.
fn print(var: &Var, value: &Value) -> String {
    match value {
        Value::Array(items) if var.path.is_lines() => {
            items.iter().map(show).collect::<Vec<_>>().join("\n")
        }
        _ => show(value),
    }
}

/// Texts as they are, everything else as compact JSON.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
