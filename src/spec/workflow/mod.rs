//! Workflows: YAML text in, a typed workflow or all of its faults out; the proof that it ends; its
//! drawings and its schema.
//!
//! Pure: what lies on disk comes in through [`Specs`]. Nothing here runs a step.

mod bounds;
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

pub use check::{Checked, check};
pub use model::{StepId, Target, Work, Workflow};
pub use problem::{Problem, Report};

use crate::spec::provider::UserProviders;
use crate::text::error::Fault;

/// The files and settings beside a workflow.
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

#[cfg(test)]
pub(crate) mod tests;
