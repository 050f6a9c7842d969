//! What a step of a run needs before it runs, and what it leaves behind afterwards.
//!
//! The texts of a step are filled, its files found and read, and its process described; later its
//! answer is read into a result. Nothing here starts a process or changes a run: the only file that
//! is ever written is a step's `output_file`.

mod outputs;
pub mod prepare;
mod process;
mod prompt;
pub mod question;
pub mod result;

#[cfg(test)]
mod tests;

pub use outputs::stderr_of;
pub use prepare::{Ready, StepSource, WantedFiles, output_file, prepare, schema};
pub use result::{Outcome, invalid, retryable, step_result, wait_result};
