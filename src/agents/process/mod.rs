//! Agents as processes: start one, keep it within its limits, and leave nothing of it behind.
//!
//! The map: `spawn` starts, `run` waits and ends, `pace` knows the limits, `tree` finds what left
//! the process group, `watcher` is who we are on disk, `guard` and `sweep` clean up after one that
//! died, `signals` and `wake` are how a person stops it all.
//!
//! This room knows nothing of tasks, claims or runs. It must never read an agent's output, and
//! never report a process that it signalled as one that exited.

mod cgroup;
mod guard;
mod pace;
mod procfs;
mod run;
mod signals;
mod spawn;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod wake;
mod watcher;

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::agents::confine::Launch;

pub use crate::agents::program::SpawnError;
pub use cgroup::{Places, is_available as cgroup_is_available};
pub use guard::{GUARD, GUARD_LAUNCH, guard_launch_main, guard_main};
pub use run::Processes;
pub use signals::{Signal, Signals};
pub use sweep::{Dead, SweepLock, SweepReport, sweep_dead};
pub use tree::{Tree, become_subreaper};
pub use wake::{Wake, Woken};
pub use watcher::{Duty, Record as WatcherRecord, Watcher, is_watcher_lock, living_watchers};

/// The variable that names the watcher in an agent's environment.
pub const WATCHER_VARIABLE: &str = "ORCH_WATCHER";
/// The variable that names the task in an agent's environment.
pub const TASK_VARIABLE: &str = "ORCH_TASK";

/// Whether this process, or one above it, was started by orch as an agent. The environment alone
/// would not do: an agent can clear it.
#[must_use]
pub fn is_inside_a_task() -> bool {
    std::env::var_os(TASK_VARIABLE).is_some() || !procfs::values_above(TASK_VARIABLE).is_empty()
}

/// The tasks that this process runs under, one inside the other, as their markers say.
#[must_use]
pub fn tasks_above() -> Vec<String> {
    procfs::values_above(TASK_VARIABLE)
        .into_iter()
        .filter_map(|value| value.into_string().ok())
        .collect()
}

/// One program to be run to its end.
#[derive(Debug)]
pub struct Execution<'a> {
    /// The program's absolute path.
    pub program: &'a Path,
    /// Its arguments, without its own name.
    pub args: &'a [OsString],
    /// Its whole environment, to which only the markers are added.
    pub env: &'a [(OsString, OsString)],
    /// The folder that it runs in, from this process's own.
    pub cwd: &'a Path,
    /// What it reads.
    pub stdin: Stdin,
    /// A regular file: several agents lose output on a pipe.
    pub stdout: &'a File,
    /// A regular file.
    pub stderr: &'a File,
    /// When it is ended.
    pub limits: Limits,
    /// Whose it is.
    pub markers: Marker,
    /// How it is held in, where it is.
    pub confine: Option<&'a Launch>,
}

/// What a process reads: never something that stays open, as some agents would wait for ever.
#[derive(Debug)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// A file, from its current position.
    File(File),
}

/// When a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest that it may take.
    pub wall: Duration,
    /// The longest that it may print nothing.
    pub idle: Option<Duration>,
    /// The most that it may print, stdout and stderr together, in bytes.
    pub output: u64,
    /// How long it has between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// Whose a process is, as it stands in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The id of the watcher.
    pub watcher: String,
    /// The task, as [`Marker::task`] writes it.
    pub task: String,
}

impl Marker {
    /// The value of `ORCH_TASK`: the root is part of it, so that no other root's tasks match.
    #[must_use]
    pub fn task(root_dev: u64, root_ino: u64, agent: &str, name: &str) -> String {
        format!("{root_dev}:{root_ino}:{agent}/{name}")
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// We ended it: a limit of time ran out.
    TimedOut {
        /// Whether it was the limit on silence.
        idle: bool,
        /// The limit.
        after: Duration,
    },
    /// We ended it, or it ended having printed too much.
    OutputTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// We ended it, or did not start it: a stop was asked for.
    Stopped,
    /// We ended it: it is no longer wanted.
    Cancelled,
}

/// The seam between orch and real processes.
pub trait Runner: Sync {
    /// Runs a process to its end, on the calling thread, and leaves nothing of it behind.
    ///
    /// `still_wanted` is asked about once a second and after each [`Wake::poke`].
    ///
    /// # Errors
    /// If the program could not be started. Then nothing was run.
    fn run(
        &self,
        exec: &Execution<'_>,
        wake: &Wake,
        still_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Ending, SpawnError>;
}
