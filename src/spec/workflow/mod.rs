//! Workflows: YAML text in, a typed workflow or all of its faults out; the proof that it ends; its
//! drawings and its schema.
//!
//! Pure: what lies on disk comes in through [`Specs`], what an expression means through [`Guards`].
//! Nothing here runs a step.

mod bounds;
mod cel;
mod check;
mod check_files;
mod check_guards;
mod check_vars;
mod conform;
pub mod edges;
pub mod fields;
pub mod graph;
mod load;
mod load_confine;
mod load_flow;
mod load_step;
pub mod model;
pub mod outline;
mod problem;
pub mod schema;
mod step_fields;
mod svg;
mod texts;
mod work;

pub use cel::Cel;
pub use check::{Checked, check};
pub use model::{StepId, Target, Work, Workflow};
pub use problem::{Problem, Report};

use crate::spec::provider::UserProviders;
use crate::text::error::Fault;

/// The longest expression, in bytes.
pub const MAX_GUARD_BYTES: usize = 1024;
/// The deepest brackets in an expression.
pub const MAX_GUARD_DEPTH: usize = 16;

/// What lies beside a workflow.
pub trait Specs {
    /// The text of a file, by its path from the root; `None` where there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    fn file(&self, path: &str) -> Result<Option<String>, Fault>;
    /// The names of all agents.
    fn agents(&self) -> Vec<String>;
    /// The user's own providers.
    fn providers(&self) -> &UserProviders;
    /// The provider of an agent that names none.
    fn default_provider(&self) -> Option<String>;
    /// The names of the directories in the settings.
    fn dirs(&self) -> Vec<String>;
}

/// What can read expressions.
pub trait Guards {
    /// Reads an expression and names what it takes from outside: paths such as `steps.a.json`, or at
    /// least their first words. The names that macros bind are not among them.
    ///
    /// # Errors
    /// Says why it cannot be read.
    fn check(&self, guard: &str) -> Result<Vec<String>, GuardFault>;
}

/// Why an expression cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardFault {
    /// What is wrong. Lower case, no final period.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The byte of the expression where it is, if it has a place.
    pub at: Option<usize>,
}

#[cfg(test)]
pub(crate) mod tests;
