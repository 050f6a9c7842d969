//! orch: a filesystem-native mailbox runner for command-line agents.

pub mod access;
pub mod agent;
pub mod error;
pub mod provider;
pub mod record;
pub mod settings;
pub mod suggest;
pub mod task;
pub mod units;
pub mod yaml;
