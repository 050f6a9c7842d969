//! What the scan leaves out: files that a worker found not to be tasks, and the tasks of runs that
//! this process cannot move on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::disk::mailbox::{AgentBox, Mailbox, Names, file_name};
use crate::spec::task::{AgentName, TaskName};

/// Names that the scan leaves out. Workers add to it, the scheduler asks it.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    strays: Mutex<HashMap<AgentName, HashSet<String>>>,
    /// Runs that take no more events from this process: their tasks wait for the next one.
    halted_runs: Mutex<BTreeSet<String>>,
}

impl Skipped {
    /// Leaves this name alone until it is something else.
    pub(crate) fn add_stray(&self, folders: &AgentBox, name: &TaskName, suffix: &str) {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        strays
            .entry(folders.agent.clone())
            .or_default()
            .insert(file_name(name, suffix));
    }

    /// Leaves the tasks of this run alone. Returns whether that is new.
    pub(crate) fn halt_run(&self, run: &str) -> bool {
        let mut halted = self
            .halted_runs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        halted.insert(run.to_owned())
    }

    /// The names without strays. A stray that has become a task meanwhile is kept.
    pub(crate) fn without_strays(
        &self,
        mailbox: &Mailbox,
        folders: &AgentBox,
        names: Names,
        suffix: &str,
    ) -> Names {
        let mut all = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(strays) = all.get_mut(&folders.agent) else {
            return names;
        };
        strays.retain(|file| {
            mailbox
                .why_stray(folders, file)
                .is_ok_and(|why| why.is_some())
        });
        let is_stray = |name: &str| strays.contains(&format!("{name}{suffix}"));
        names.iter().filter(|name| !is_stray(name)).collect()
    }

    /// The names without tasks of halted runs.
    pub(crate) fn without_halted(&self, names: Names) -> Names {
        let halted = self
            .halted_runs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if halted.is_empty() {
            return names;
        }
        let is_halted = |name: &str| halted.iter().any(|run| is_of_run(name, run));
        names.iter().filter(|name| !is_halted(name)).collect()
    }
}

/// Whether a task starts this run or is a step of it.
pub(crate) fn is_of_run(task: &str, run: &str) -> bool {
    task.strip_prefix(run)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
