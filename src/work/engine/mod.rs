//! The engine: wake → scan → claim → run → commit → retire, for as long as it is wanted.
//!
//! The main thread scans and decides when to scan again; each worker thread takes a task from the
//! queue and sees it through to the end, its process included. The main thread starts no agent:
//! what is adopted from dead parents arrives there, and must not be mixed with children of its own.
//!
//! Steps that wait for files need no worker: one more thread attends to all of them.
//!
//! The engine never prints. What happens goes to a [`Listener`].

mod actions;
mod answer;
mod attempt;
mod collect;
mod dirs;
mod fence;
mod masked;
mod notice;
mod people;
mod queue;
mod recover;
mod run;
mod run_commit;
mod run_start;
mod run_stop;
mod run_work;
mod scanning;
mod waiting;
mod waits;
mod worker;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::agents::catalogue::Catalogue;
use crate::agents::confine::Together;
use crate::agents::process::{Processes, Wake};
use crate::disk::mailbox::{AgentListing, Mailbox, TASK};
use crate::disk::store::Runs;
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};
use crate::work::job::Planner;
use crate::work::watch::{self, Watch};

pub use notice::{Listener, Notice};
use queue::{Glance, Queue};
use waits::Waits;

/// Lists longer than this are worked off without a watch: events would only cost.
const BULK: usize = 256;
/// In bulk, fewer tasks than this in a second are few enough to watch again.
const BRISK: u64 = 64;
/// A list is at least this old before the next scan replaces it.
const LIST_AGE: Duration = Duration::from_secs(1);
/// A scan takes at most this part of the time.
const SCAN_SHARE: u32 = 20;
/// Without any event, a scan is made this often.
const TIMER: Duration = Duration::from_secs(30);
/// Where events cannot be had, a scan is made this often.
const POLL: Duration = Duration::from_secs(1);
/// While there are claims of others, a scan is made this often: where the end of their watcher is
/// not told by its lock file, this notices it.
const CLAIMS: Duration = Duration::from_secs(2);
/// The same trouble is told only this often.
const TOLD: Duration = Duration::from_secs(60);
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

/// What an engine has done when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Tasks that succeeded.
    pub succeeded: u32,
    /// Tasks that did not.
    pub failed: u32,
    /// Tasks that only a person can move on.
    pub waiting_for_person: usize,
}

/// The engine of one watcher.
pub struct Engine {
    mailbox: Arc<Mailbox>,
    catalogue: Catalogue,
    runs: Runs,
    hosts: Mutex<run::Hosts>,
    processes: Processes,
    together: Together,
    dirs: dirs::Dirs,
    watcher_id: String,
    options: Options,
    listener: Arc<Listener>,
    queue: Arc<Queue>,
    waits: Waits,
    wakes: Vec<Wake>,
    reported: Mutex<BTreeSet<String>>,
    strays: Mutex<HashMap<AgentName, HashSet<String>>>,
    succeeded: AtomicU32,
    failed: AtomicU32,
    handles_opened: Mutex<Instant>,
    trouble: Mutex<HashMap<String, Instant>>,
    /// Runs that take no more events from this engine: their tasks wait for the next one.
    halted: Mutex<BTreeSet<String>>,
    scans: AtomicU64,
}

impl Engine {
    /// An engine for this root. `wake` is its workers' alarm clock: stopping it stops the engine.
    pub fn new(
        mailbox: Arc<Mailbox>,
        catalogue: Catalogue,
        processes: Processes,
        watcher_id: String,
        wake: &Wake,
        options: Options,
        listener: Arc<Listener>,
    ) -> Result<Engine> {
        let wakes = (0..options.jobs.max(1))
            .map(|_| wake.worker())
            .collect::<std::io::Result<_>>()
            .map_err(|e| Fault::io("prepare the workers of", &mailbox.root.path, &e))?;
        Ok(Engine {
            runs: Runs::new(mailbox.root.clone(), mailbox.disk()),
            hosts: Mutex::default(),
            mailbox,
            catalogue,
            processes,
            together: Together::default(),
            dirs: dirs::Dirs::default(),
            watcher_id,
            options,
            listener,
            queue: Arc::default(),
            waits: Waits::default(),
            wakes,
            reported: Mutex::default(),
            strays: Mutex::default(),
            succeeded: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            handles_opened: Mutex::new(Instant::now()),
            trouble: Mutex::default(),
            halted: Mutex::default(),
            scans: AtomicU64::new(0),
        })
    }

    /// What jobs are made from.
    fn planner(&self) -> Planner<'_> {
        Planner {
            catalogue: &self.catalogue,
            mailbox: &self.mailbox,
        }
    }

    /// How a signal handler stops the engine: nothing more is claimed, children are ended.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let queue = self.queue.clone();
        let waits = self.waits.clone();
        let wake = self.wakes[0].clone();
        move || {
            queue.stop();
            waits.stop();
            wake.stop();
        }
    }

    /// Works until it is stopped or, with `drain` or `only`, until there is nothing left.
    pub fn run(&self) -> Result<Summary> {
        let waiting_for_person = std::thread::scope(|scope| {
            for wake in &self.wakes {
                std::thread::Builder::new()
                    .name("worker".to_owned())
                    .spawn_scoped(scope, move || self.work(wake))
                    .map_err(|e| Fault::io("start a worker for", &self.mailbox.root.path, &e))?;
            }
            let attending = std::thread::Builder::new().name("waits".to_owned());
            let ended = attending
                .spawn_scoped(scope, || self.attend_to_waits())
                .map_err(|e| Fault::io("attend to the waits of", &self.mailbox.root.path, &e))
                .and_then(|_| self.main_loop());
            // Workers finish what they have; with a stop, their children are ended first.
            self.queue.stop();
            self.waits.stop();
            ended
        })?;
        for over in self.queue.left_over() {
            self.give_step_back(over.parked.claim);
        }
        Ok(Summary {
            succeeded: self.succeeded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            waiting_for_person,
        })
    }

    fn main_loop(&self) -> Result<usize> {
        self.sweep_at_start();
        let mut watch = None;
        let mut bulk = false;
        let mut quiet_scans = 0;
        let mut announced = self.ends();
        loop {
            if !bulk && self.options.poll.is_none() && watch.is_none() {
                watch = self.watch_on();
            }
            self.queue.begin_scan();
            let started = Instant::now();
            let free = self.wakes.len().saturating_sub(self.queue.glance().working);
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
                    self.trouble(&fault);
                    self.mailbox.forget_handles();
                    watch = None;
                    if self.pause_main(POLL) {
                        return Ok(0);
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
                (self.listener)(&Notice::Watching);
            }
            self.tell_taken_over(&found.adopted);
            self.queue.publish(found.turns, found.adopted);
            let ends = self.ends();
            quiet_scans = if quiet && self.queue.glance().is_idle() {
                quiet_scans + 1
            } else {
                0
            };
            if ends && quiet_scans >= 2 {
                return Ok(people);
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
                return Ok(people);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                self.stopper()();
                return Ok(people);
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
            None if watching => TIMER,
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
            let before = self.queue.glance().taken;
            let glance = self
                .queue
                .wait_until(Some(timing.rescan_at), |g| g.left == 0);
            *bulk = glance.left > 0 && glance.taken - before >= BRISK;
            return glance;
        }
        if timing.quiet_scans == 1 && timing.ends {
            return self.queue.glance();
        }
        // Where there are only claims of others, idle workers are no news.
        let awaits_workers = timing.ends && !timing.only_claims;
        let glance = self.queue.wait_until(Some(timing.timer_at), |g| {
            g.woken || (awaits_workers && g.is_idle())
        });
        if glance.left > 0 && !glance.stopped {
            // A list that is being worked off is not thrown away at every event.
            return self
                .queue
                .wait_until(Some(timing.rescan_at), |g| g.left == 0);
        }
        glance
    }

    fn is_slow(&self) -> bool {
        self.queue.glance().left > BULK
    }

    /// Sleeps on the main thread; gives whether the engine was stopped meanwhile.
    fn pause_main(&self, pause: Duration) -> bool {
        self.queue
            .wait_until(Some(Instant::now() + pause), |_| false)
            .stopped
    }

    fn watch_on(&self) -> Option<Watch> {
        let queue = self.queue.clone();
        let wakes = self.wakes.clone();
        let ends = self.options.drain || self.options.only.is_some();
        // Whoever wants only some of the tasks leaves it to the scan to say which.
        let direct = !self.ends();
        let wake = move |why| match why {
            watch::Wake::Scan => queue.wake(),
            watch::Wake::Task(path) => {
                let named = direct.then(|| told(&path)).flatten();
                if !named.is_some_and(|(agent, name)| queue.tell(&agent, name)) {
                    queue.wake();
                }
            }
            watch::Wake::ClaimGone => {
                wakes.iter().for_each(Wake::poke);
                // Our own retired tasks come here too. Only one who waits for the last claim to
                // end has to look again.
                if ends {
                    queue.wake();
                }
            }
        };
        let root = &self.mailbox.root;
        match Watch::on([root.inbox.path(), root.logs.path()], Arc::new(wake)) {
            Ok(watch) => Some(watch),
            Err(e) => {
                self.trouble(
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
        for folder in [&self.mailbox.root.inbox, &self.mailbox.root.logs] {
            wanted.insert(folder.path().to_path_buf());
        }
        on.keep_only(&wanted);
        if let Some(e) = failed {
            self.trouble(
                &Fault::new(Kind::IoError, format!("cannot watch an inbox: {e}"))
                    .hint("orch looks once a second instead; see fs.inotify.max_user_watches"),
            );
            *watch = None;
        }
        any_new
    }

    /// Says once that something is not a task.
    fn report_stray(&self, path: &str, why: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded: a folder full of rubbish must not fill the memory of a watcher.
        if reported.len() < 10_000 && reported.insert(path.to_owned()) {
            (self.listener)(&Notice::Stray { path, why });
        }
    }

    /// Says what is wrong, once a minute at the most while it stays the same.
    fn trouble(&self, fault: &Fault) {
        let mut told = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| at.elapsed() < TOLD);
        if !told.contains_key(&fault.message) {
            told.insert(fault.message.clone(), Instant::now());
            drop(told);
            tracing::warn!(kind = ?fault.kind, hint = fault.hint, "{}", fault.message);
            (self.listener)(&Notice::Trouble { fault });
        }
    }
}

/// The task that a wake-up names.
fn told(path: &Path) -> Option<(AgentName, TaskName)> {
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
