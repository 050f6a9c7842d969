//! What a user writes: tasks, agents, settings, providers, workflows and policies.
//!
//! Text goes in; typed data, or every error with its location, comes out. The expressions (`expr`) and
//! variables (`vars`) that a workflow contains belong here too, because checking a workflow means
//! parsing them. Pure: no file, process, clock or random number. Files are read by `disk::specs` and
//! `agents::catalogue`.

pub mod access;
pub mod agent;
pub mod expr;
pub mod policy;
pub mod provider;
pub mod scope;
pub mod settings;
pub mod shipped;
pub mod task;
pub mod vars;
pub mod workflow;
