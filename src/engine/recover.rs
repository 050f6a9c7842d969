//! The dead: claims whose owner is gone are taken over, after what is left of it was ended.
//!
//! A lock that can be had is the only sign of death. Nothing of a dead owner is touched before the
//! sweep has found none of its processes alive, and one root-wide lock keeps two watchers from
//! doing this at once.

use super::{Engine, Found, Notice};
use crate::disk::{Point, at};
use crate::error::{Fault, Kind, Result};
use crate::mailbox::{AgentListing, Claim, OUT, RAW, file_name};
use crate::process::{Dead, Marker, SweepLock, SweepReport, sweep_dead};
use crate::task::{AgentName, TaskName};

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
    pub(super) fn sort_claims(&self, listing: &AgentListing, found: &mut Found) -> Result<()> {
        for name in &listing.claimed {
            let agent = &listing.folders.agent;
            if self.is_excluded(agent, name) {
                continue;
            }
            let adopted = self
                .mailbox
                .adopt(&listing.folders, name)
                .map_err(|e| Fault::io("look at the claim", listing.folders.inbox.path(), &e))?;
            match adopted {
                Some(claim) => found.adopted.push(claim),
                None if self.is_ancestor(agent, name) => {}
                None => found.claims_of_others += 1,
            }
        }
        Ok(())
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
            found.recovery_busy = true;
            return Ok(());
        };
        self.sweep(&self.traces(&found.adopted))?;
        for claim in &found.adopted {
            (self.listener)(&Notice::TakenOver {
                target: &claim.target(),
            });
            tracing::info!(task = claim.target(), "took over a dead watcher's task");
        }
        Ok(())
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
        self.options
            .ancestor
            .as_ref()
            .is_some_and(|marker| *marker == self.marker(agent, name))
    }

    /// With one task to work on, the claims of others are none of our business.
    fn is_excluded(&self, agent: &AgentName, name: &TaskName) -> bool {
        self.options
            .only
            .as_ref()
            .is_some_and(|only| (&only.0, &only.1) != (agent, name))
    }

    fn recovery_lock(&self) -> Result<Option<SweepLock>> {
        let logs = self.mailbox.root.logs.path();
        SweepLock::take(logs).map_err(|e| Fault::io("lock", logs, &e))
    }
}
