//! The pure core: what happens next in a run, and what a result means.
//!
//! A state and an event go in; the next state and its effects come out (`flow`). Around it: reading a
//! process's output, plans and printed files, building injected prompts, masking secrets, and the
//! result record. Pure: no file, process, clock or random number; all of these come in with the event.

pub mod flow;
pub mod inject;
pub mod json_answer;
pub mod mask;
pub mod output;
pub mod plan;
pub mod printed;
pub mod record;
pub mod schema;
pub mod state;
pub mod verdict;
