//! orch: a filesystem-native mailbox runner for command-line agents.
//!
//! A file dropped in `inbox/<agent>/` is claimed by an atomic rename, a provider works on it, the
//! answer lands in `artifacts/`, and the task moves to `processed/`. The directory tree is the
//! state; `ls` and `cat` are the dashboard.
//!
//! # Words
//!
//! - **root**: the folder with `inbox/` and `specs/orch.yaml` that everything happens in.
//! - **task**: a file `NAME.task`: front matter, and below it the prompt.
//! - **agent**: whose inbox it is; a file in `specs/agents/`, or a provider's own name.
//! - **provider**: what does the work: a program, or orch itself (`echo`, `replay`), or a person.
//! - **claim**: `NAME.claimed`, locked by the worker that it belongs to. A claim that can be locked
//!   has a dead owner.
//! - **attempt**: one run of a provider for a task; its output file is the record that there was one.
//! - **commit**: the instant at which `NAME.json`, the result record, appears.
//! - **run**: one passage through a workflow; its log is the authority, its state what that adds up to.
//! - **watcher**: a living `orch watch`, with a lock in `logs/` and a guard process.
//!
//! # The map
//!
//! Pure, with no file, process, clock or random number: [`task`], [`agent`], [`settings`],
//! [`provider`], [`record`], [`mask`], [`access`], [`units`], [`suggest`], [`canonical`], and [`yaml`], which closes the gaps
//! of the YAML reader. Of workflows: [`workflow`] reads, checks and draws them, [`expr`] and [`vars`]
//! are its expressions and variables over a [`scope`], [`output`], [`schema_check`] and [`inject`]
//! deal with what goes in and out of a step, [`plan`] reads plans, [`printed`] finds the files in an answer, and [`flow`] decides what happens next: a [`state`] and
//! an event in, the next state out.
//!
//! The shell around it: [`safety`] is the only way from a name to a file under the root; [`disk`]
//! numbers the points of the order on disk and decides about syncs; [`mailbox`] owns the states of a
//! task's files; [`registry`] reads what the user wrote in `specs/`; [`process`] starts agents and
//! leaves nothing of them behind; [`confine`] holds them to what they may touch; [`watch`] wakes; [`engine`] brings it together, and [`runtime`]
//! makes a process a watcher. [`recording`] keeps answers, [`secrets`] reads what must never be written. For runs, [`specs`] is what lies beside a
//! workflow, [`store`] keeps log and state, [`steps`] prepares a step, [`actions`] is what orch does
//! itself, [`runs`] is what commands and engine share, and [`audit`] proves what happened; [`shipped`] are the files of `specs/` that come
//! with orch. `sys` holds what neither std nor rustix
//! has, and all `unsafe` code; `lock` holds the file locks.
//!
//! Speaking: [`cli`] has the words, [`commands`] one file for each, [`report`] how it looks,
//! [`error`] what went wrong and with which exit code.
//!
//! # What always holds
//!
//! - An accepted task is in exactly one place, and is committed at most once.
//! - A file of a claim is moved only by who holds its lock, and never over another file.
//! - What was committed is not run again; what was not is run again only after a crash or a declared
//!   retry.
//! - No path is opened under the root but by a folder's handle and a name of one component.
//! - Only [`commands`] and [`report`] print.

pub mod access;
pub mod actions;
pub mod agent;
pub mod audit;
pub mod canonical;
pub mod cli;
pub mod commands;
pub mod confine;
pub mod disk;
pub mod engine;
pub mod error;
pub mod expr;
pub mod flow;
pub mod inject;
pub mod lock;
pub mod mailbox;
pub mod mask;
pub mod output;
pub mod plan;
pub mod printed;
pub mod process;
pub mod provider;
pub mod record;
pub mod recording;
pub mod registry;
pub mod report;
pub mod root;
pub mod runs;
pub mod runtime;
pub mod safety;
pub mod schema_check;
pub mod scope;
pub mod secrets;
pub mod settings;
pub mod shipped;
pub mod specs;
pub mod state;
pub mod steps;
pub mod store;
pub mod suggest;
pub mod sys;
pub mod task;
pub mod units;
pub mod vars;
pub mod watch;
pub mod workflow;
pub mod yaml;
