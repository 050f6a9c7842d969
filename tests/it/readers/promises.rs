//! What every reader promises about any bytes at all: one file for each, with one function `holds`.
//!
//! Two call them: `cargo test`, with the seeds and with what once broke a promise, and the fuzz
//! targets in `fuzz/`, with whatever a fuzzer makes of the seeds. A broken promise is a panic.

pub mod agent_file;
pub mod diff;
pub mod guard;
pub mod log;
pub mod mask;
pub mod place;
pub mod plan;
pub mod result;
pub mod shown;
pub mod task;
pub mod variables;
pub mod workflow;

/// What a reader promises about these bytes; it panics where that does not hold.
pub type Promise = fn(&[u8]);

/// Every reader by the name of its seeds and of its fuzz target.
pub const ALL: &[(&str, Promise)] = &[
    ("agent_file", agent_file::holds),
    ("diff", diff::holds),
    ("guard", guard::holds),
    ("log", log::holds),
    ("mask", mask::holds),
    ("plan", plan::holds),
    ("result", result::holds),
    ("shown", shown::holds),
    ("task", task::holds),
    ("variables", variables::holds),
    ("workflow", workflow::holds),
];
