//! The scheduler: scans the inboxes, fills the queue, and decides when to scan again and when to end.
//!
//! Reads folders and takes over the claims of the dead. It works on no task and starts no process: what
//! is adopted from dead parents arrives on its thread, and must not be mixed with children of its own.

mod scan;

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agents::process::Wake;
use crate::disk::mailbox::{AgentListing, TASK};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind};
use crate::work::notice::Notice;
use crate::work::queue::Glance;
use crate::work::recovery::Recovery;
use crate::work::shared::Shared;
use crate::work::skipped::Skipped;
use crate::work::waits::Waits;
use crate::work::watch::{Wakeup, Watch};

/// Lists longer than this are worked off without a watch: events would only cost.
const BULK: usize = 256;
/// In bulk, fewer tasks than this in a second are few enough to watch again.
const BRISK: u64 = 64;
/// A list is at least this old before the next scan replaces it.
const LIST_AGE: Duration = Duration::from_secs(1);
/// A scan takes at most this part of the time.
const SCAN_SHARE: u32 = 20;
/// Without any event, a scan is made this often.
const SCHEDULED_SCAN: Duration = Duration::from_secs(30);
/// Where events cannot be had, a scan is made this often.
const POLL: Duration = Duration::from_secs(1);
/// While there are claims of others, a scan is made this often: where the end of their watcher is
/// not told by its lock file, this notices it.
const CLAIMS: Duration = Duration::from_secs(2);
/// How soon to look again for somebody else's claim to end.
const SOON: Duration = Duration::from_millis(50);

/// What an engine is to do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How many tasks at once; at least one.
    pub jobs: u16,
    /// Stop when nothing is left to do.
    pub drain: bool,
    /// Only these agents, where there are any.
    pub agents: Vec<AgentName>,
    /// Only this task.
    pub only: Option<(AgentName, TaskName)>,
    /// Only the run of this id: the task that starts it, and its steps. The engine ends when the run
    /// has ended or is blocked and nothing of it is being worked on.
    pub only_run: Option<String>,
    /// Scan this often instead of waiting for events.
    pub poll: Option<Duration>,
    /// Stop at this time, whatever is left.
    pub until: Option<Instant>,
    /// Keep every answer for the replay provider.
    pub record: bool,
    /// The tasks that this process itself runs under, as their markers say.
    pub ancestors: Vec<String>,
}

/// Decides what the workers look at next.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    options: Options,
    recovery: Recovery,
    /// Steps that wait for files: their claims are ours.
    waits: Waits,
    skipped: Arc<Skipped>,
    /// One for each worker.
    wakes: Vec<Wake>,
    handles_opened: Cell<Instant>,
}

impl Scheduler {
    pub(crate) fn new(
        shared: Arc<Shared>,
        options: Options,
        waits: Waits,
        skipped: Arc<Skipped>,
        wakes: Vec<Wake>,
    ) -> Scheduler {
        Scheduler {
            recovery: Recovery::new(shared.clone()),
            shared,
            options,
            waits,
            skipped,
            wakes,
            handles_opened: Cell::new(Instant::now()),
        }
    }

    /// How a signal handler stops everything: nothing more is claimed, children are ended.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let queue = self.shared.queue.clone();
        let waits = self.waits.clone();
        let wake = self.wakes[0].clone();
        move || {
            queue.stop();
            waits.stop();
            wake.stop();
        }
    }

    /// Scans until it is stopped or, with `drain` or `only`, until nothing is left; returns how many
    /// tasks wait for a person.
    pub(crate) fn run(&self) -> usize {
        self.recovery.sweep_at_start();
        let mut watch = None;
        let mut bulk = false;
        let mut quiet_scans = 0;
        let mut announced = self.ends();
        loop {
            if !bulk && self.options.poll.is_none() && watch.is_none() {
                watch = self.watch_on();
            }
            self.shared.queue.begin_scan();
            let started = Instant::now();
            let free = self
                .wakes
                .len()
                .saturating_sub(self.shared.queue.glance().working);
            // In bulk a worker is free again in a moment.
            let room = if bulk { free.max(1) } else { free };
            let found = match self.scan_once(room) {
                Ok((agents, found)) => {
                    if found.replaced && watch.take().is_some() {
                        // A watch belongs to the folder that it was put on, not to its name.
                        continue;
                    }
                    if self.watch_agents(&mut watch, &agents) {
                        // A new folder may have got its first task before its watch.
                        continue;
                    }
                    found
                }
                Err(fault) => {
                    self.shared.reporter.trouble(&fault);
                    self.shared.mailbox.forget_handles();
                    watch = None;
                    if self.pause(POLL) {
                        return 0;
                    }
                    continue;
                }
            };
            let cost = started.elapsed();
            let (quiet, people) = (found.is_quiet(), found.waiting_for_person);
            let soon = found.again_soon;
            let claims = found.claims_of_others > 0;
            let only_claims = claims && found.waiting == 0 && found.adopted.is_empty();
            bulk = found.waiting > BULK && !(watch.is_some() && self.is_slow());
            if bulk {
                watch = None;
            }
            if !std::mem::replace(&mut announced, true) {
                self.shared.reporter.say(&Notice::Watching);
            }
            self.recovery.tell_taken_over(&found.adopted);
            self.shared.queue.publish(found.turns, found.adopted);
            let ends = self.ends();
            quiet_scans = if quiet && self.shared.queue.glance().is_idle() {
                quiet_scans + 1
            } else {
                0
            };
            if ends && quiet_scans >= 2 {
                return people;
            }
            let until = self.options.until;
            let in_time = |at: Instant| until.map_or(at, |until| at.min(until));
            let timing = Timing {
                rescan_at: in_time(started + LIST_AGE.max(cost * SCAN_SHARE)),
                timer_at: in_time(if soon {
                    started + SOON
                } else {
                    started
                        + self
                            .timer(watch.is_some() || bulk, claims)
                            .max(cost * SCAN_SHARE)
                }),
                ends,
                only_claims,
                quiet_scans,
            };
            if self.wait(&mut bulk, &timing).stopped {
                return people;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                self.stopper()();
                return people;
            }
        }
    }

    /// Whether the engine ends when nothing is left to do.
    fn ends(&self) -> bool {
        self.options.drain || self.options.only.is_some() || self.options.only_run.is_some()
    }

    fn timer(&self, watching: bool, claims: bool) -> Duration {
        let usual = match self.options.poll {
            Some(poll) => poll,
            None if watching => SCHEDULED_SCAN,
            None => POLL,
        };
        match claims {
            true if self.ends() => usual.min(SOON * 4),
            true => usual.min(CLAIMS),
            false => usual,
        }
    }

    /// Waits for a reason to scan again.
    fn wait(&self, bulk: &mut bool, timing: &Timing) -> Glance {
        if *bulk {
            let before = self.shared.queue.glance().taken;
            let glance = self
                .shared
                .queue
                .wait_until(Some(timing.rescan_at), |g| g.left == 0);
            *bulk = glance.left > 0 && glance.taken - before >= BRISK;
            return glance;
        }
        if timing.quiet_scans == 1 && timing.ends {
            return self.shared.queue.glance();
        }
        // Where there are only claims of others, idle workers are no news.
        let awaits_workers = timing.ends && !timing.only_claims;
        let glance = self.shared.queue.wait_until(Some(timing.timer_at), |g| {
            g.woken || (awaits_workers && g.is_idle())
        });
        if glance.left > 0 && !glance.stopped {
            // A list that is being worked off is not thrown away at every event.
            return self
                .shared
                .queue
                .wait_until(Some(timing.rescan_at), |g| g.left == 0);
        }
        glance
    }

    fn is_slow(&self) -> bool {
        self.shared.queue.glance().left > BULK
    }

    /// Sleeps on the main thread; gives whether the engine was stopped meanwhile.
    fn pause(&self, pause: Duration) -> bool {
        self.shared
            .queue
            .wait_until(Some(Instant::now() + pause), |_| false)
            .stopped
    }

    fn watch_on(&self) -> Option<Watch> {
        let queue = self.shared.queue.clone();
        let wakes = self.wakes.clone();
        let ends = self.options.drain || self.options.only.is_some();
        // Whoever wants only some of the tasks leaves it to the scan to say which.
        let direct = !self.ends();
        let wake = move |why| match why {
            Wakeup::Scan => queue.wake(),
            Wakeup::Task(path) => {
                let named = direct.then(|| named(&path)).flatten();
                if !named.is_some_and(|(agent, name)| queue.name(&agent, name)) {
                    queue.wake();
                }
            }
            Wakeup::ClaimGone => {
                wakes.iter().for_each(Wake::poke);
                // Our own retired tasks come here too. Only one who waits for the last claim to
                // end has to look again.
                if ends {
                    queue.wake();
                }
            }
        };
        let root = &self.shared.mailbox.root;
        match Watch::on([root.inbox.path(), root.logs.path()], Arc::new(wake)) {
            Ok(watch) => Some(watch),
            Err(e) => {
                self.shared.reporter.trouble(
                    &Fault::new(Kind::IoError, format!("cannot watch the inbox: {e}")).hint(
                        "orch looks once a second instead; see fs.inotify.max_user_instances and max_user_watches",
                    ),
                );
                None
            }
        }
    }

    /// Keeps the watches in step with the folders; gives whether one is new.
    fn watch_agents(&self, watch: &mut Option<Watch>, agents: &[AgentListing]) -> bool {
        let Some(on) = watch else { return false };
        let mut wanted: HashSet<_> = agents
            .iter()
            .map(|listing| listing.folders.inbox.path().to_path_buf())
            .collect();
        let mut any_new = false;
        let mut failed = None;
        for folder in &wanted {
            match on.add(folder) {
                Ok(new) => any_new |= new,
                Err(e) => failed = Some(e),
            }
        }
        for folder in [
            &self.shared.mailbox.root.inbox,
            &self.shared.mailbox.root.logs,
        ] {
            wanted.insert(folder.path().to_path_buf());
        }
        on.keep_only(&wanted);
        if let Some(e) = failed {
            self.shared.reporter.trouble(
                &Fault::new(Kind::IoError, format!("cannot watch an inbox: {e}"))
                    .hint("orch looks once a second instead; see fs.inotify.max_user_watches"),
            );
            *watch = None;
        }
        any_new
    }
}

/// The task that a wake-up names.
fn named(path: &Path) -> Option<(AgentName, TaskName)> {
    let file = path.file_name()?.to_str()?;
    let name = TaskName::parse(file.strip_suffix(TASK)?).ok()?;
    let agent = AgentName::parse(path.parent()?.file_name()?.to_str()?).ok()?;
    Some((agent, name))
}

/// When to look up again.
struct Timing {
    rescan_at: Instant,
    timer_at: Instant,
    ends: bool,
    only_claims: bool,
    quiet_scans: u32,
}
