//! The engine of one watcher: a scheduler, its worker threads, and one thread for steps that wait for
//! files.
//!
//! Wake → scan → claim → run → commit → retire, for as long as it is wanted. The engine never prints.
//! What happens goes to a [`Listener`].

use std::sync::Arc;

use crate::agents::catalogue::Catalogue;
use crate::agents::process::{Processes, Wake};
use crate::disk::mailbox::Mailbox;
use crate::text::error::{Fault, Result};
use crate::work::attempt::AttemptRunner;
use crate::work::notice::{Listener, Reporter};
use crate::work::scheduler::{Options, Scheduler};
use crate::work::shared::{Shared, Tally};
use crate::work::skipped::Skipped;
use crate::work::step_worker::StepWorker;
use crate::work::task_worker::TaskWorker;
use crate::work::waits::{WaitAttendant, Waits};
use crate::work::worker::Worker;

/// What was done when the engine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Tasks that succeeded.
    pub succeeded: u32,
    /// Tasks that did not.
    pub failed: u32,
    /// Tasks that only a person can move on.
    pub waiting_for_person: usize,
}

/// Who works for this watcher: the one that starts its processes, and the one that names it.
pub(crate) struct Watching {
    pub processes: Processes,
    pub watcher_id: String,
}

/// The engine of one watcher.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    worker: Worker,
    waits: Waits,
    wakes: Vec<Wake>,
    polls: bool,
}

impl Engine {
    /// An engine for this root. `wake` is its workers' alarm clock: stopping it stops the engine.
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        catalogue: Catalogue,
        watching: Watching,
        wake: &Wake,
        options: Options,
        listener: Arc<Listener>,
    ) -> Result<Engine> {
        let wakes: Vec<Wake> = (0..options.jobs.max(1))
            .map(|_| wake.worker())
            .collect::<std::io::Result<_>>()
            .map_err(|e| Fault::io("prepare the workers of", &mailbox.root.path, &e))?;
        let shared = Arc::new(Shared {
            mailbox,
            catalogue,
            reporter: Reporter::new(listener),
            queue: Arc::default(),
            tally: Tally::default(),
        });
        let Watching {
            processes,
            watcher_id,
        } = watching;
        let attempts = AttemptRunner::new(shared.clone(), processes, watcher_id, options.record);
        let attempts = Arc::new(attempts);
        let (waits, skipped) = (Waits::default(), Arc::<Skipped>::default());
        let worker = Worker {
            tasks: TaskWorker::new(shared.clone(), attempts.clone()),
            steps: StepWorker::new(shared.clone(), attempts, waits.clone(), skipped.clone()),
            shared: shared.clone(),
            skipped: skipped.clone(),
        };
        let polls = options.poll.is_some();
        let scheduler = Scheduler::new(
            shared.clone(),
            options,
            waits.clone(),
            skipped,
            wakes.clone(),
        );
        Ok(Engine {
            shared,
            scheduler,
            worker,
            waits,
            wakes,
            polls,
        })
    }

    /// How a signal handler stops the engine: nothing more is claimed, children are ended.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        self.scheduler.stopper()
    }

    /// Works until it is stopped or, with `drain` or `only`, until there is nothing left.
    pub(crate) fn run(&self) -> Result<Summary> {
        let root = &self.shared.mailbox.root.path;
        let (worker, queue) = (&self.worker, &self.shared.queue);
        let attendant = WaitAttendant {
            waits: &self.waits,
            root,
            reporter: &self.shared.reporter,
            polls: self.polls,
        };
        let attend = || {
            let left = attendant.run(|ended| queue.wait_is_over(ended));
            left.into_iter()
                .for_each(|claim| worker.steps.put_step_back(claim));
        };
        let waiting_for_person = std::thread::scope(|scope| {
            for wake in &self.wakes {
                std::thread::Builder::new()
                    .name("worker".to_owned())
                    .spawn_scoped(scope, move || worker.run(wake))
                    .map_err(|e| Fault::io("start a worker for", root, &e))?;
            }
            let attending = std::thread::Builder::new().name("waits".to_owned());
            let ended = attending
                .spawn_scoped(scope, attend)
                .map_err(|e| Fault::io("attend to the waits of", root, &e))
                .map(|_| self.scheduler.run());
            // Workers finish what they have; with a stop, their children are ended first.
            queue.stop();
            self.waits.stop();
            ended
        })?;
        for ended in queue.left_over() {
            worker.steps.put_step_back(ended.parked.claim);
        }
        Ok(Summary {
            succeeded: self.shared.tally.succeeded(),
            failed: self.shared.tally.failed(),
            waiting_for_person,
        })
    }
}
