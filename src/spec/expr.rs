//! Guards: CEL behind limits, over values that somebody else looked up.
//!
//! A text is measured, parsed, listed and metered once; afterwards it may be evaluated any number of
//! times. Parsing and evaluating happen on a large stack of their own, because the engine recurses
//! and an overflow could not be caught. Nothing here reads a file, a clock or the
//! environment, and a guard that cannot be evaluated is a fault, never `false`.
//!
//! Which parts of a guard are needed is CEL's to say: `a || true` and `a && false` have their value
//! whatever `a` is, even where a key of it is missing. Where the missing key could change the
//! outcome, it is a fault. Names that no run has are found when the workflow is checked, in every
//! part.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::ast::IdedExpr;
use cel::{Context, Env, ExecutionError, Value as Cel};
use serde_json::Value;

use crate::spec::scope::Scope;
use crate::text::cut;
use crate::text::error::{Fault, Kind};

mod convert;
mod limits;
mod messages;
mod meter;
mod names;

pub use convert::{MAX_DEPTH, MAX_VALUES};
pub use limits::{MAX_BRACKETS, MAX_BYTES, MAX_TOKENS};
pub use meter::MAX_STEPS;
pub use names::{FUNCTIONS, MACROS, METHODS};

use names::{Names, Need, Part};

/// Deep enough for [`MAX_TOKENS`] nested calls of parser and evaluator in a debug build, with half of
/// it to spare. Pages that are never touched cost nothing.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// The longest value that a message or a trace shows, in characters.
const MAX_SHOWN: usize = 120;

/// What sort of fault an expression has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The text is no expression, or uses what is not offered: found at load.
    Load,
    /// It is too long, too deep, or takes too much work.
    Limit,
    /// A name, field or item does not exist.
    Missing,
    /// A value has the wrong type, or no value can be given.
    Type,
}

/// What is wrong with an expression, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExprFault {
    /// What sort of fault it is.
    pub kind: FaultKind,
    /// What is wrong. Lower case, no final period.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The byte of the expression where it is, if it has a place.
    pub at: Option<usize>,
}

impl ExprFault {
    fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        ExprFault {
            kind,
            message: message.into(),
            hint: None,
            at: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }
}

impl fmt::Display for ExprFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExprFault {}

impl From<ExprFault> for Fault {
    fn from(fault: ExprFault) -> Self {
        let kind = match fault.kind {
            FaultKind::Load => Kind::WorkflowValidationError,
            FaultKind::Limit | FaultKind::Missing | FaultKind::Type => Kind::ExpressionError,
        };
        Fault {
            kind,
            message: fault.message,
            hint: fault.hint,
        }
    }
}

/// An expression that was parsed and is within its limits.
#[derive(Clone)]
pub struct Expr {
    text: String,
    program: Arc<IdedExpr>,
    names: Names,
    needs: BTreeMap<String, Need>,
}

/// One evaluation, for `show` and the log: what was asked, and what came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The expression as it was written.
    pub text: String,
    /// Its value.
    pub outcome: Result<Value, ExprFault>,
}

impl Trace {
    /// The value as a guard: anything but true or false is a fault.
    ///
    /// # Errors
    /// That of the evaluation, or that the value is not boolean.
    pub fn holds(&self) -> Result<bool, ExprFault> {
        match &self.outcome {
            Ok(Value::Bool(truth)) => Ok(*truth),
            Ok(other) => {
                let shown = cut::ellipsis(&other.to_string(), MAX_SHOWN).into_owned();
                let message = format!("a guard must be true or false, and this is {shown}");
                Err(ExprFault::new(FaultKind::Type, message))
            }
            Err(fault) => Err(fault.clone()),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<&str> = self.text.split_whitespace().collect();
        let outcome = match &self.outcome {
            Ok(value) => cut::ellipsis(&value.to_string(), MAX_SHOWN).into_owned(),
            Err(fault) => format!("error: {}", fault.message),
        };
        write!(f, "{} => {outcome}", text.join(" "))
    }
}

impl Expr {
    /// Reads an expression once for each text: the guards of a workflow are evaluated again and again.
    ///
    /// # Errors
    /// As [`Expr::parse`].
    pub fn cached(text: &str) -> Result<Arc<Self>, ExprFault> {
        static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Expr>>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(expr) = known.get(text) {
            return Ok(Arc::clone(expr));
        }
        let expr = Arc::new(Expr::parse(text)?);
        if known.len() < 10_000 {
            known.insert(text.to_owned(), Arc::clone(&expr));
        }
        Ok(expr)
    }

    /// Parses an expression.
    ///
    /// # Errors
    /// It is too long or nested too deep, is no CEL, calls what is not offered, or asks `exists()`
    /// about something that is not known beforehand.
    pub fn parse(text: &str) -> Result<Self, ExprFault> {
        let source = limits::check(text)?;
        let (program, names) = on_large_stack(|| {
            let parser = ENV.parser().enable_ident_escape_syntax(true);
            let parsed = parser.parse_with_source_info(&source);
            let (node, info) = parsed.map_err(|errors| messages::syntax(&errors, text))?;
            let names = names::list(&node, &info)?;
            Ok((meter::metered(node), names))
        })?;
        Ok(Expr {
            text: text.to_owned(),
            program: Arc::new(program),
            needs: names.needs(),
            names,
        })
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The roots that it names.
    #[must_use]
    pub fn roots(&self) -> &BTreeSet<String> {
        &self.names.roots
    }

    /// The steps named as `steps.X` or `steps["X"]`.
    #[must_use]
    pub fn steps(&self) -> BTreeSet<String> {
        self.names.under("steps")
    }

    /// The steps named as `visits.X`.
    #[must_use]
    pub fn visits(&self) -> BTreeSet<String> {
        self.names.under("visits")
    }

    /// Every fixed path that it names, root first, in the order of the text.
    #[must_use]
    pub fn paths(&self) -> &[Vec<String>] {
        &self.names.paths
    }

    /// Whether there is a glob whose answer it needs.
    #[must_use]
    pub fn is_about_files(&self) -> bool {
        !self.names.globs.is_empty()
    }

    /// The globs whose answers it needs. One that hangs on a missing name is left out: if the
    /// evaluation gets that far, it fails by that name.
    #[must_use]
    pub fn asks_exists(&self, scope: &Scope) -> Vec<String> {
        let globs = self
            .names
            .globs
            .iter()
            .filter_map(|parts| glob(parts, scope));
        globs.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Evaluates it, whatever type the value has.
    ///
    /// # Errors
    /// A missing name, a wrong type, or too much work; never a value in their place.
    pub fn eval(&self, scope: &Scope) -> Result<Value, ExprFault> {
        on_large_stack(|| self.run(scope))
    }

    /// Evaluates a guard.
    ///
    /// # Errors
    /// As [`Expr::eval`], and a value that is not boolean.
    pub fn holds(&self, scope: &Scope) -> Result<bool, ExprFault> {
        self.trace(scope).holds()
    }

    /// Evaluates it and keeps the text with the outcome.
    #[must_use]
    pub fn trace(&self, scope: &Scope) -> Trace {
        Trace {
            text: self.text.clone(),
            outcome: self.eval(scope),
        }
    }

    fn run(&self, scope: &Scope) -> Result<Value, ExprFault> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        let mut input = convert::Input::new();
        for (root, need) in &self.needs {
            let value = match need {
                Need::Fields(fields) if scope.is_table(root) => {
                    Some(input.table(fields, |field| scope.field(root, field))?)
                }
                _ => scope
                    .root(root)
                    .map(|value| input.value(value, need))
                    .transpose()?,
            };
            if let Some(value) = value {
                let name = if root == "loop" { limits::LOOP } else { root };
                context.add_variable_as_val(name, value);
            }
        }
        if self.is_about_files() {
            answer_exists(&mut context, scope.globs().clone())?;
        }
        meter::start();
        let value = Cel::resolve(&self.program, &context);
        if let Some(why) = meter::refused() {
            return Err(why.fault());
        }
        let value = value.map_err(|error| messages::failure(&error, &self.names, scope))?;
        convert::to_json(&value)
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expr").field(&self.text).finish()
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The engine's functions and ours; the syntax of optional values stays off.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib().with_optional_support(false);
    meter::declare(&mut env).expect("names with `@` are free in the standard library");
    Arc::new(env)
});

fn answer_exists(
    context: &mut Context<'_, '_>,
    answers: BTreeMap<String, bool>,
) -> Result<(), ExprFault> {
    let look = move |glob: Arc<String>| {
        answers.get(glob.as_str()).copied().ok_or_else(|| {
            let message = format!("nobody looked for `{glob}`");
            ExecutionError::function_error("exists", message)
        })
    };
    context
        .add_function("exists", look)
        .map_err(|error| ExprFault::new(FaultKind::Load, error.to_string()))
}

fn glob(parts: &[Part], scope: &Scope) -> Option<String> {
    let mut glob = String::new();
    for part in parts {
        match part {
            Part::Text(text) => glob.push_str(text),
            Part::Path(path) => {
                let mut value = match path.get(1) {
                    Some(field) => scope.field(&path[0], field)?,
                    None => scope.root(&path[0])?,
                };
                for field in path.iter().skip(2) {
                    value = value.get(field.as_str())?;
                }
                glob.push_str(value.as_str()?);
            }
        }
    }
    Some(glob)
}

/// Runs `work` on a stack that is large enough for any number of expressions, one after the other:
/// for those who evaluate several, so that not each of them needs one of its own.
pub fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}

/// Runs `work` where deep recursion is harmless, and where a panic of the engine ends only the work.
fn on_large_stack<T>(work: impl FnOnce() -> Result<T, ExprFault>) -> Result<T, ExprFault> {
    let work = || with_room(work);
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "the engine gave up on the expression";
        Err(ExprFault::new(FaultKind::Limit, message))
    })
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
