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
//! Seven rooms. A lower room never imports a higher one, and the test `it::house` holds that. Each
//! room opens with a page that says what it is for.
//!
//! - [`text`]: errors and exit codes, units, suggestions, canonical JSON, YAML, cleaning of text.
//! - [`spec`]: what a user writes: tasks, agents, settings, providers, workflows, policies.
//! - [`run`]: the pure core: a state and an event in, the next state and its effects out.
//! - [`disk`]: files by handle, the order on disk, the mailbox and the store of runs.
//! - [`agents`]: programs started, confined and ended; the catalogue of what `specs/` describes.
//! - [`work`]: tasks and steps claimed, run and committed.
//! - [`ui`]: the command line, the commands and how everything looks.
//!
//! The first three have no file, process, clock or random number.
//!
//! # What always holds
//!
//! - An accepted task is in exactly one place, and is committed at most once.
//! - A file of a claim is moved only by who holds its lock, and never over another file.
//! - What was committed is not run again; what was not is run again only after a crash or a declared
//!   retry.
//! - No path is opened under the root but by a folder's handle and a name of one component.
//! - Only [`ui`] prints.

pub mod agents;
pub mod disk;
pub mod run;
pub mod spec;
pub mod text;
pub mod ui;
pub mod work;
