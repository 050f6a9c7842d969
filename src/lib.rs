//! orch: a filesystem-native mailbox runner for command-line agents.

pub mod error;
