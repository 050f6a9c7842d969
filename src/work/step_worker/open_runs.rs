//! The runs that this process works on now, each opened with its pinned spec.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::store::{RunDir, Runs};
use crate::text::error::Result;
use crate::work::pinned::PinnedRun;

/// No more runs than this are kept open; the others are opened again when they are needed.
const MOST_OPEN: usize = 128;

/// Opens runs, and keeps those that were used last.
pub(super) struct OpenRuns {
    runs: Runs,
    cache: Mutex<Cache>,
}

/// Open runs, each with the turn in which it was last asked for.
#[derive(Default)]
struct Cache {
    turn: u64,
    all: HashMap<String, (u64, Arc<PinnedRun>)>,
}

impl OpenRuns {
    pub(super) fn new(runs: Runs) -> OpenRuns {
        OpenRuns {
            runs,
            cache: Mutex::default(),
        }
    }

    /// All runs of the root.
    pub(super) fn all(&self) -> &Runs {
        &self.runs
    }

    /// The folder of a run, without its spec.
    pub(super) fn folder(&self, run_id: &str) -> Result<RunDir> {
        self.runs.open(run_id)
    }

    /// The run with its pinned spec, which is checked against its hashes when it is opened.
    pub(super) fn open(&self, run_id: &str) -> Result<Arc<PinnedRun>> {
        let at_hand = self.at_hand(run_id);
        if let Some(pinned) = at_hand
            && !self.has_a_new_spec(&pinned)?
        {
            return Ok(pinned);
        }
        let mut cache = self.cache();
        let pinned = Arc::new(PinnedRun::open(self.folder(run_id)?)?);
        cache.add(run_id, pinned.clone());
        Ok(pinned)
    }

    pub(super) fn at_hand(&self, run_id: &str) -> Option<Arc<PinnedRun>> {
        self.cache().get(run_id)
    }

    pub(super) fn forget(&self, run_id: &str) {
        self.cache().all.remove(run_id);
    }

    /// Whether the run has gone on to another spec since it was opened. It is forgotten then.
    pub(super) fn has_a_new_spec(&self, pinned: &PinnedRun) -> Result<bool> {
        let is_outdated = pinned.run.is_outdated()?;
        if is_outdated {
            self.forget(pinned.run.id());
        }
        Ok(is_outdated)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn get(&mut self, run_id: &str) -> Option<Arc<PinnedRun>> {
        self.turn += 1;
        let (turn, pinned) = self.all.get_mut(run_id)?;
        *turn = self.turn;
        Some(pinned.clone())
    }

    /// Adds one; the one that was not asked for the longest goes.
    fn add(&mut self, run_id: &str, pinned: Arc<PinnedRun>) {
        let oldest = self.all.iter().min_by_key(|(_, (turn, _))| *turn);
        if self.all.len() >= MOST_OPEN
            && let Some(oldest) = oldest.map(|(id, _)| id.clone())
        {
            self.all.remove(&oldest);
        }
        self.all.insert(run_id.to_owned(), (self.turn, pinned));
    }
}
