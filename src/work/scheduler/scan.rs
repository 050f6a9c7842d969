//! One look over the inboxes: which tasks wait for a worker, and which claims were left by the dead.

use std::time::Instant;

use super::{SCHEDULED_SCAN, Scheduler};
use crate::disk::mailbox::{
    ANSWERS, AgentListing, Answer, CLAIMED, Claim, Names, Refused, Scan, TASK, file_name, scan,
};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};
use crate::work::queue::Turn;
use crate::work::recovery::Cleared;
use crate::work::skipped::is_of_run;

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

impl Scheduler {
    pub(super) fn scan_once(&self, room: usize) -> Result<(Vec<AgentListing>, Found)> {
        self.reopen_handles_in_time();
        self.shared
            .catalogue
            .refresh(&|fault| self.shared.reporter.trouble(fault));
        let mut found = scan(&self.shared.mailbox, |agent| self.is_wanted(agent))
            .map_err(|e| Fault::io("read", self.shared.mailbox.root.inbox.path(), &e))?;
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
        self.shared.reporter.trouble(&Fault::new(kind, message).hint(format!(
            "inbox/{agent}, artifacts/{agent} and processed/{agent} must be folders of the root that you may write in; its tasks wait"
        )));
    }

    /// Handles are opened anew now and then, so that a folder that was replaced is found.
    fn reopen_handles_in_time(&self) {
        if self.handles_opened.get().elapsed() >= SCHEDULED_SCAN {
            self.handles_opened.set(Instant::now());
            self.shared.mailbox.forget_handles();
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
            if self.shared.catalogue.is_human(agent) {
                found.waiting_for_person += listing.waiting.len();
                self.take_answers(listing, &mut found);
                continue;
            }
            let names = self.only_mine(agent, std::mem::take(&mut listing.waiting));
            let names =
                self.skipped
                    .without_strays(&self.shared.mailbox, &listing.folders, names, TASK);
            let names = self.skipped.without_halted(names);
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

    fn take_answers(&self, listing: &AgentListing, found: &mut Found) {
        for (suffix, kind) in ANSWERS {
            let names: Names = listing
                .answers
                .iter()
                .filter(|(_, answer): &&(TaskName, Answer)| *answer == kind)
                .map(|(name, _)| name.as_str())
                .collect();
            let names = self.only_mine(&listing.folders.agent, names);
            let names =
                self.skipped
                    .without_strays(&self.shared.mailbox, &listing.folders, names, suffix);
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
            self.shared.reporter.stray(&stray.path, &stray.why);
        }
    }

    /// Tells the claims of the living from those of the dead, which are then locked by us.
    /// No more are taken than there are workers to do them: another watcher may be idle.
    fn sort_claims(&self, listing: &AgentListing, room: usize, found: &mut Found) {
        for name in &listing.claimed {
            let agent = &listing.folders.agent;
            if self.is_excluded(agent, name) || self.waits.holds(&(agent.clone(), name.clone())) {
                continue;
            }
            let adopted = if found.adopted.len() < room {
                self.shared.mailbox.adopt(&listing.folders, name)
            } else {
                Ok(None)
            };
            match adopted {
                Ok(Some(claim)) => found.adopted.push(claim),
                Ok(None) if self.is_ancestor(agent, name) || self.is_stray_claim(listing, name) => {
                }
                Ok(None) => found.claims_of_others += 1,
                Err(e) => {
                    // It is looked at again, and keeps nobody else waiting.
                    found.claims_of_others += 1;
                    found.again_soon = true;
                    let path = listing.folders.inbox.path().join(file_name(name, CLAIMED));
                    self.shared
                        .reporter
                        .trouble(&Fault::io("look at the claim", path, &e));
                }
            }
        }
    }

    /// A claim that is not a plain file any more can be nobody's: it is left alone.
    fn is_stray_claim(&self, listing: &AgentListing, name: &TaskName) -> bool {
        let file = file_name(name, CLAIMED);
        let Ok(Some(why)) = self.shared.mailbox.why_stray(&listing.folders, &file) else {
            return false;
        };
        self.shared
            .reporter
            .stray(&format!("inbox/{}/{file}", listing.folders.agent), why);
        true
    }

    /// Ends what is left of the owners of the adopted claims, or lets go of the claims for now.
    fn clear_the_dead(&self, found: &mut Found) -> Result<()> {
        if found.adopted.is_empty() {
            return Ok(());
        }
        match self.recovery.clear(&found.adopted)? {
            Cleared::Yes => {}
            // What the other watcher leaves over is found by the next scan.
            Cleared::ByAnother => {
                found.claims_of_others += found.adopted.len();
                found.adopted.clear();
                found.again_soon = true;
            }
        }
        Ok(())
    }

    fn is_ancestor(&self, agent: &AgentName, name: &TaskName) -> bool {
        let marker = self.shared.marker(agent, name);
        self.options.ancestors.contains(&marker)
    }

    /// With one task to work on, the claims of others are none of our business.
    fn is_excluded(&self, agent: &AgentName, name: &TaskName) -> bool {
        let other_task = self.options.only.as_ref();
        let other_run = self.options.only_run.as_ref();
        other_task.is_some_and(|only| (&only.0, &only.1) != (agent, name))
            || other_run.is_some_and(|run| !is_of_run(name.as_str(), run))
    }
}
