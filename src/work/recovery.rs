//! Recovery after dead watchers: what is left of them is ended before their claims are taken over.
//!
//! A lock that can be had is the only sign of death. Nothing of a dead owner is touched before the
//! sweep has found none of its processes alive, and one root-wide lock keeps two watchers from
//! doing this at once.

use std::sync::Arc;

use crate::agents::process::{Dead, SweepLock, SweepReport, sweep_dead};
use crate::disk::mailbox::{Claim, OUT, RAW, file_name};
use crate::disk::order::{Point, at};
use crate::text::error::{Fault, Kind, Result};
use crate::work::notice::Notice;
use crate::work::shared::Shared;

/// Ends what dead watchers left running.
pub(crate) struct Recovery {
    shared: Arc<Shared>,
}

/// Whether the claims of dead watchers can be worked on.
pub(crate) enum Cleared {
    /// Nothing of their owners lives any more.
    Yes,
    /// Another watcher is clearing away now.
    ByAnother,
}

impl Recovery {
    pub(crate) fn new(shared: Arc<Shared>) -> Recovery {
        Recovery { shared }
    }

    /// At the start, dead watchers are cleared away even where they left no claim. Where that does
    /// not work, it is no reason not to start: before a claim is taken over, it is done again.
    pub(crate) fn sweep_at_start(&self) {
        let swept = self.lock().and_then(|lock| match lock {
            Some(_lock) => self.sweep(&Dead::default()),
            None => Ok(()),
        });
        if let Err(fault) = swept {
            self.shared.reporter.trouble(&fault);
        }
    }

    /// Ends what is left of the owners of these claims, which are locked by us already.
    pub(crate) fn clear(&self, adopted: &[Claim]) -> Result<Cleared> {
        let Some(_lock) = self.lock()? else {
            return Ok(Cleared::ByAnother);
        };
        self.sweep(&self.traces(adopted))?;
        Ok(Cleared::Yes)
    }

    /// Says which claims were taken over, once a scan counts: one that is repeated takes them again.
    pub(crate) fn tell_taken_over(&self, adopted: &[Claim]) {
        for claim in adopted {
            self.shared.reporter.say(&Notice::TakenOver {
                target: &claim.target(),
            });
            tracing::info!(task = claim.target(), "took over a dead watcher's task");
        }
    }

    fn sweep(&self, dead: &Dead) -> Result<()> {
        let logs = &self.shared.mailbox.root.logs;
        let swept = at(Point::AdoptSweep).and_then(|()| sweep_dead(logs, dead));
        let report =
            swept.map_err(|e| Fault::io("end what a dead watcher left in", logs.path(), &e))?;
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
                .insert(self.shared.marker(&claim.folders.agent, &claim.name));
            for suffix in [OUT, RAW] {
                let file = file_name(&claim.name, suffix);
                if let Ok(Some(meta)) = claim.folders.artifacts.find(&file) {
                    dead.files.insert(meta.id);
                }
            }
        }
        dead
    }

    fn lock(&self) -> Result<Option<SweepLock>> {
        let logs = &self.shared.mailbox.root.logs;
        SweepLock::take(logs).map_err(|e| Fault::io("lock", logs.path(), &e))
    }
}
