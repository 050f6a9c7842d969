//! What the engine has to say while it works. It says it as data; a command decides how it looks.

use std::time::Duration;

use crate::run::record::Record;
use crate::run::state::RunStatus;
use crate::text::error::Fault;

/// Something that happened.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The inboxes have been scanned for the first time, and whatever comes from now on is noticed.
    /// An engine that ends by itself does not say it.
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

/// Whoever listens to the engine, from any of its threads.
pub type Listener = dyn Fn(&Notice<'_>) + Send + Sync;
