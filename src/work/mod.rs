//! The work itself: tasks and steps are claimed, run and committed here.
//!
//! A `job` is a task ready to run, `step` prepares and reads a step of a run, `engine` brings it
//! together with the mailbox, and `audit` proves what happened. Never prints: what happens goes to a listener.

pub mod actions;
pub mod audit;
pub mod cancel;
pub mod clock;
pub mod dispatch;
pub mod document;
pub mod engine;
pub mod inputs;
pub mod job;
pub mod pinned;
pub mod runtime;
pub mod start;
pub mod step;
pub mod watch;
