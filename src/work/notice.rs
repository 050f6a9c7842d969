//! What happens while tasks are worked on, as data. A command decides how it is shown.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::run::record::Record;
use crate::run::state::RunStatus;
use crate::text::error::Fault;

/// Something that happened.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The inboxes have been scanned for the first time, and whatever comes from now on is noticed.
    /// A watcher that ends by itself does not say it.
    Watching,
    /// A task was claimed and its provider is started.
    Started {
        /// `AGENT/NAME`.
        target: &'a str,
        /// The provider.
        provider: &'a str,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// A task was committed.
    Finished {
        /// How.
        record: &'a Record,
    },
    /// An attempt failed in a way that passes, and will be made again.
    Retrying {
        /// `AGENT/NAME`.
        target: &'a str,
        /// When.
        after: Duration,
        /// What went wrong.
        fault: &'a Fault,
    },
    /// A task was given up because its claim was taken away.
    Cancelled {
        /// `AGENT/NAME`.
        target: &'a str,
    },
    /// A task went back to its inbox because orch stops.
    PutBack {
        /// `AGENT/NAME`.
        target: &'a str,
    },
    /// A task of a watcher that died was taken over.
    TakenOver {
        /// `AGENT/NAME`.
        target: &'a str,
    },
    /// Something in an inbox is not a task and is left alone.
    Stray {
        /// Where.
        path: &'a str,
        /// Why.
        why: &'a str,
    },
    /// A run made a transition.
    Checkpoint {
        /// The run.
        run: &'a str,
        /// `[phase] step OK|FAIL -> next | reason`.
        line: &'a str,
    },
    /// A run has come to a halt or an end.
    RunEnded {
        /// The run.
        run: &'a str,
        /// How.
        status: RunStatus,
    },
    /// Something is wrong that does not end the watch.
    Trouble {
        /// What.
        fault: &'a Fault,
    },
}

/// Gets every notice, from any thread.
pub type Listener = dyn Fn(&Notice<'_>) + Send + Sync;

/// The same trouble is reported only this often.
const REPEAT: Duration = Duration::from_secs(60);
/// No more strays are remembered: a folder full of rubbish must not fill the memory of a watcher.
const MOST_STRAYS: usize = 10_000;

/// Passes notices on, each stray once and the same trouble once a minute.
pub(crate) struct Reporter {
    listener: Arc<Listener>,
    strays: Mutex<BTreeSet<String>>,
    troubles: Mutex<HashMap<String, Instant>>,
}

impl Reporter {
    pub(crate) fn new(listener: Arc<Listener>) -> Reporter {
        Reporter {
            listener,
            strays: Mutex::default(),
            troubles: Mutex::default(),
        }
    }

    pub(crate) fn say(&self, notice: &Notice<'_>) {
        (self.listener)(notice);
    }

    /// Says once that something is not a task.
    pub(crate) fn stray(&self, path: &str, why: &str) {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if strays.len() < MOST_STRAYS && strays.insert(path.to_owned()) {
            self.say(&Notice::Stray { path, why });
        }
    }

    /// Says what is wrong, once a minute at most while it stays the same.
    pub(crate) fn trouble(&self, fault: &Fault) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.retain(|_, at| at.elapsed() < REPEAT);
        if !troubles.contains_key(&fault.message) {
            troubles.insert(fault.message.clone(), Instant::now());
            drop(troubles);
            tracing::warn!(kind = ?fault.kind, hint = fault.hint, "{}", fault.message);
            self.say(&Notice::Trouble { fault });
        }
    }
}
