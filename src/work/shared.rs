//! What the scheduler and all workers share: the mailbox, the catalogue, the queue and the reporter.
//!
//! Nothing here decides what is done with a task. A name is claimed here, or looked at again later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::agents::catalogue::Catalogue;
use crate::agents::process::Marker;
use crate::disk::mailbox::{Claim, Held, Mailbox};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::Fault;
use crate::work::notice::Reporter;
use crate::work::queue::{Item, Queue};

/// How soon a task that was busy is looked at again; doubled each time, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(50);
pub(crate) const LATEST: Duration = Duration::from_secs(1);
/// How long nothing is claimed after the disk or the system refused something.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What the scheduler and all workers share.
pub(crate) struct Shared {
    pub mailbox: Arc<Mailbox>,
    pub catalogue: Catalogue,
    pub reporter: Reporter,
    pub queue: Arc<Queue>,
    pub tally: Tally,
}

/// How many tasks have been finished.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    succeeded: AtomicU32,
    failed: AtomicU32,
}

impl Tally {
    pub(crate) fn one_succeeded(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn one_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn succeeded(&self) -> u32 {
        self.succeeded.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Claims a task and does something with it, or looks again later.
    pub(crate) fn claim_and(&self, held: Held, item: Item, then: impl FnOnce(Claim)) {
        match self.mailbox.claim(held) {
            Ok(Some(claim)) => then(claim),
            Ok(None) => self.look_again(item),
            Err(e) => self.short_of("claim", item, &e),
        }
    }

    pub(crate) fn look_again(&self, mut item: Item) {
        let after = AGAIN.saturating_mul(1 << item.looks.min(8)).min(LATEST);
        item.looks += 1;
        self.queue.look_again(item, after);
    }

    /// The system refused something before the task was claimed. Nothing is claimed for a while.
    pub(crate) fn short_of(&self, verb: &str, item: Item, error: &io::Error) {
        let path = item.folders.inbox.path().join(item.name.as_str());
        let fault = Fault::io(verb, path, error);
        self.reporter.trouble(&match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => {
                fault.hint("too many open files: raise `ulimit -n` or lower --jobs")
            }
            Some(Errno::NOSPC | Errno::DQUOT) => {
                fault.hint("the disk is full: make room; nothing is lost")
            }
            _ => fault,
        });
        self.mailbox.forget_handles();
        self.queue.pause(PAUSE);
        self.queue.look_again(item, PAUSE);
    }

    /// The marker that the processes of a task carry in their environment.
    pub(crate) fn marker(&self, agent: &AgentName, name: &TaskName) -> String {
        let root = self.mailbox.root.id;
        Marker::task(root.dev, root.ino, agent.as_str(), name.as_str())
    }
}
