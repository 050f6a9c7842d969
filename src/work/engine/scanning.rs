//! One look over the inboxes: which tasks wait for a worker, and which claims were left by the dead.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::queue::Turn;
use super::{Engine, TIMER};
use crate::disk::mailbox::{
    ANSWERS, AgentBox, AgentListing, Answer, Claim, Names, Refused, Scan, TASK, scan,
};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};

/// What one scan means for the engine.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) turns: Vec<Turn>,
    pub(super) adopted: Vec<Claim>,
    pub(super) waiting: usize,
    pub(super) waiting_for_person: usize,
    pub(super) claims_of_others: usize,
    /// Something could not be looked at just now, or somebody else is clearing away after the
    /// dead.
    pub(super) again_soon: bool,
    /// Folders were moved or made anew.
    pub(super) replaced: bool,
}

impl Found {
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting == 0 && self.adopted.is_empty() && self.claims_of_others == 0
    }
}

impl Engine {
    pub(super) fn scan_once(&self, room: usize) -> Result<(Vec<AgentListing>, Found)> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.reopen_handles_in_time();
        self.catalogue.refresh(&|fault| self.trouble(fault));
        let mut found = scan(&self.mailbox, |agent| self.is_wanted(agent))
            .map_err(|e| Fault::io("read", self.mailbox.root.inbox.path(), &e))?;
        self.report_strays(&found);
        for Refused { agent, error } in &found.refused {
            self.refuse(Kind::SafetyViolation, agent, &error.to_string());
        }
        found.agents.retain(|listing| {
            let read_only = listing.folders.read_only();
            if let Some(dir) = read_only {
                let why = format!("`{}` may not be written in", dir.path().display());
                self.refuse(Kind::PermissionDenied, &listing.folders.agent, &why);
            }
            read_only.is_none()
        });
        self.sort(found, room)
    }

    /// An agent whose folders cannot be used keeps its tasks, and stops nobody else.
    fn refuse(&self, kind: Kind, agent: &AgentName, why: &str) {
        let message = format!("cannot use the folders of `{agent}`: {why}");
        self.trouble(&Fault::new(kind, message).hint(format!(
            "inbox/{agent}, artifacts/{agent} and processed/{agent} must be folders of the root that you may write in; its tasks wait"
        )));
    }

    /// Handles are opened anew now and then, so that a folder that was replaced is found.
    fn reopen_handles_in_time(&self) {
        let mut opened = self
            .handles_opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if opened.elapsed() >= TIMER {
            *opened = Instant::now();
            self.mailbox.forget_handles();
        }
    }

    fn is_wanted(&self, agent: &AgentName) -> bool {
        if let Some((only, _)) = &self.options.only {
            return only == agent;
        }
        if self.options.only_run.is_some() {
            return true;
        }
        self.options.agents.is_empty() || self.options.agents.contains(agent)
    }

    fn sort(&self, scan: Scan, room: usize) -> Result<(Vec<AgentListing>, Found)> {
        let mut found = Found {
            replaced: scan.replaced,
            ..Found::default()
        };
        let mut listings = scan.agents;
        for listing in &mut listings {
            let agent = &listing.folders.agent;
            self.sort_claims(listing, room, &mut found);
            if self.catalogue.is_human(agent) {
                found.waiting_for_person += listing.waiting.len();
                self.take_answers(listing, &mut found);
                continue;
            }
            let names = self.only_mine(agent, std::mem::take(&mut listing.waiting));
            let names = self.without_strays(&listing.folders, names, TASK);
            let names = self.without_halted(names);
            found.waiting += names.len();
            found.turns.push(Turn {
                folders: listing.folders.clone(),
                names,
                suffix: TASK,
            });
        }
        self.clear_the_dead(&mut found)?;
        Ok((listings, found))
    }

    fn only_mine(&self, agent: &AgentName, names: Names) -> Names {
        match &self.options.only {
            Some((only, name)) if only == agent => names.only(name.as_str()),
            _ => match &self.options.only_run {
                Some(run) => names.iter().filter(|name| is_of_run(name, run)).collect(),
                None => names,
            },
        }
    }

    /// Leaves out what a worker found not to be a task, for as long as it is none: there is nothing
    /// to wait for.
    fn without_strays(&self, folders: &AgentBox, names: Names, suffix: &str) -> Names {
        let mut all = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(strays) = all.get_mut(&folders.agent) else {
            return names;
        };
        strays.retain(|file| {
            self.mailbox
                .why_stray(folders, file)
                .is_ok_and(|why| why.is_some())
        });
        let is_stray = |name: &str| strays.contains(&format!("{name}{suffix}"));
        names.iter().filter(|name| !is_stray(name)).collect()
    }

    /// Leaves out the tasks of runs that this engine cannot move on.
    fn without_halted(&self, names: Names) -> Names {
        let halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
        if halted.is_empty() {
            return names;
        }
        let is_halted = |name: &str| halted.iter().any(|run| is_of_run(name, run));
        names.iter().filter(|name| !is_halted(name)).collect()
    }

    fn take_answers(&self, listing: &AgentListing, found: &mut Found) {
        for (suffix, kind) in ANSWERS {
            let names: Names = listing
                .answers
                .iter()
                .filter(|(_, answer): &&(TaskName, Answer)| *answer == kind)
                .map(|(name, _)| name.as_str())
                .collect();
            let names = self.only_mine(&listing.folders.agent, names);
            let names = self.without_strays(&listing.folders, names, suffix);
            if !names.is_empty() {
                found.waiting += names.len();
                found.turns.push(Turn {
                    folders: listing.folders.clone(),
                    names,
                    suffix,
                });
            }
        }
    }

    fn report_strays(&self, scan: &Scan) {
        for stray in &scan.strays {
            self.report_stray(&stray.path, &stray.why);
        }
    }
}

/// Whether a task starts this run or is a step of it.
pub(super) fn is_of_run(task: &str, run: &str) -> bool {
    task.strip_prefix(run)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
