//! The dead: claims whose owner is gone are taken over, after what is left of it was ended.
//!
//! A lock that can be had is the only sign of death. Nothing of a dead owner is touched before the
//! sweep has found none of its processes alive, and one root-wide lock keeps two watchers from
//! doing this at once.

use super::scanning::{Found, is_of_run};
use super::{Engine, Notice};
use crate::agents::process::{Dead, Marker, SweepLock, SweepReport, sweep_dead};
use crate::disk::mailbox::{AgentListing, CLAIMED, Claim, OUT, RAW, file_name};
use crate::disk::order::{Point, at};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};

impl Engine {
    /// At the start, dead watchers are cleared away even where they left no claim. Where that does
    /// not work, it is no reason not to start: before a claim is taken over, it is done again.
    pub(super) fn sweep_at_start(&self) {
        let swept = self.recovery_lock().and_then(|lock| match lock {
            Some(_lock) => self.sweep(&Dead::default()),
            None => Ok(()),
        });
        if let Err(fault) = swept {
            self.trouble(&fault);
        }
    }

    /// Tells the claims of the living from those of the dead, which are then locked by us.
    /// No more are taken than there are workers to do them: another watcher may be idle.
    pub(super) fn sort_claims(&self, listing: &AgentListing, room: usize, found: &mut Found) {
        for name in &listing.claimed {
            let agent = &listing.folders.agent;
            if self.is_excluded(agent, name) || self.waits.holds(&(agent.clone(), name.clone())) {
                continue;
            }
            let adopted = if found.adopted.len() < room {
                self.mailbox.adopt(&listing.folders, name)
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
                    self.trouble(&Fault::io("look at the claim", path, &e));
                }
            }
        }
    }

    /// A claim that is not a plain file any more can be nobody's: it is left alone.
    fn is_stray_claim(&self, listing: &AgentListing, name: &TaskName) -> bool {
        let file = file_name(name, CLAIMED);
        let Ok(Some(why)) = self.mailbox.why_stray(&listing.folders, &file) else {
            return false;
        };
        self.report_stray(&format!("inbox/{}/{file}", listing.folders.agent), why);
        true
    }

    /// Ends what is left of the owners of the adopted claims, or lets go of the claims for now.
    pub(super) fn clear_the_dead(&self, found: &mut Found) -> Result<()> {
        if found.adopted.is_empty() {
            return Ok(());
        }
        let Some(_lock) = self.recovery_lock()? else {
            // Another watcher is at it; what it leaves over is found by the next scan.
            found.claims_of_others += found.adopted.len();
            found.adopted.clear();
            found.again_soon = true;
            return Ok(());
        };
        self.sweep(&self.traces(&found.adopted))
    }

    /// Says which claims were taken over, once a scan counts: one that is made again takes them anew.
    pub(super) fn tell_taken_over(&self, adopted: &[Claim]) {
        for claim in adopted {
            (self.listener)(&Notice::TakenOver {
                target: &claim.target(),
            });
            tracing::info!(task = claim.target(), "took over a dead watcher's task");
        }
    }

    fn sweep(&self, dead: &Dead) -> Result<()> {
        let logs = self.mailbox.root.logs.path();
        let swept = at(Point::AdoptSweep).and_then(|()| sweep_dead(logs, dead));
        let report = swept.map_err(|e| Fault::io("end what a dead watcher left in", logs, &e))?;
        if report != SweepReport::default() {
            tracing::info!(?report, "cleared away after a dead watcher");
        }
        if !report.stuck.is_empty() {
            return Err(Fault::new(
                Kind::Busy,
                format!("processes of a dead watcher do not end: {:?}", report.stuck),
            )
            .hint("their tasks are not taken over while they live"));
        }
        Ok(())
    }

    /// By what the processes of these claims can be known: their marker, and the output they hold.
    fn traces(&self, claims: &[Claim]) -> Dead {
        let mut dead = Dead::default();
        for claim in claims {
            dead.tasks
                .insert(self.marker(&claim.folders.agent, &claim.name));
            for suffix in [OUT, RAW] {
                let file = file_name(&claim.name, suffix);
                if let Ok(Some(meta)) = claim.folders.artifacts.find(&file) {
                    dead.files.insert((meta.id.dev, meta.id.ino));
                }
            }
        }
        dead
    }

    pub(super) fn marker(&self, agent: &AgentName, name: &TaskName) -> String {
        let root = self.mailbox.root.id;
        Marker::task(root.dev, root.ino, agent.as_str(), name.as_str())
    }

    fn is_ancestor(&self, agent: &AgentName, name: &TaskName) -> bool {
        let marker = self.marker(agent, name);
        self.options.ancestors.contains(&marker)
    }

    /// With one task to work on, the claims of others are none of our business.
    fn is_excluded(&self, agent: &AgentName, name: &TaskName) -> bool {
        let other_task = self.options.only.as_ref();
        let other_run = self.options.only_run.as_ref();
        other_task.is_some_and(|only| (&only.0, &only.1) != (agent, name))
            || other_run.is_some_and(|run| !is_of_run(name.as_str(), run))
    }

    fn recovery_lock(&self) -> Result<Option<SweepLock>> {
        let logs = self.mailbox.root.logs.path();
        SweepLock::take(logs).map_err(|e| Fault::io("lock", logs, &e))
    }
}
