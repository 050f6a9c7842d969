//! orch: a filesystem-native mailbox runner for command-line agents.

pub mod access;
pub mod agent;
pub mod cli;
pub mod commands;
pub mod disk;
pub mod engine;
pub mod error;
pub mod lock;
pub mod mailbox;
pub mod process;
pub mod provider;
pub mod record;
pub mod recording;
pub mod registry;
pub mod report;
pub mod root;
pub mod runtime;
pub mod safety;
pub mod settings;
pub mod suggest;
pub mod sys;
pub mod task;
pub mod units;
pub mod watch;
pub mod workflow;
pub mod yaml;
