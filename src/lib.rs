//! orch: a filesystem-native mailbox runner for command-line agents.

pub mod access;
pub mod error;
pub mod record;
pub mod suggest;
pub mod task;
pub mod units;
pub mod yaml;
