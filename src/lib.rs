//! orch: a filesystem-native mailbox runner for command-line agents.

pub mod error;
pub mod lock;
pub mod process;
pub mod sys;
