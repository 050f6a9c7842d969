//! The lowest room: text and errors. Everything else may use it; it uses nothing of orch.
//!
//! Errors with their exit codes, units, suggestions, canonical JSON, YAML with locations,
//! cleaning of untrusted text, and cutting of long text. Pure: no file, process, clock or random number.

pub mod canonical;
pub mod clean;
pub(crate) mod cut;
pub mod error;
pub mod suggest;
pub mod units;
pub mod yaml;
