//! What is to be done next: the list of the last scan, shared by the workers.
//!
//! Agents take turns by name; within an agent tasks go by name, bytewise. The queue holds names,
//! not promises: whether a task is still there shows when a worker looks at it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::mailbox::{AgentBox, Claim, Names, TASK};
use crate::spec::task::{AgentName, TaskName};
use crate::work::task_key::TaskKey;
use crate::work::waits::EndedWait;

/// Up to this much work, workers are woken one by one.
const FEW: usize = 8;

/// A scan after a worker was told of a task comes so much later.
const AFTER_NAMED: Duration = Duration::from_millis(20);

/// A name to look at.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// The agent's folders.
    pub folders: Arc<AgentBox>,
    /// The task's name.
    pub name: TaskName,
    /// Its suffix: a waiting task, or a person's answer.
    pub suffix: &'static str,
    /// How often it was busy.
    pub looks: u32,
}

impl Item {
    fn key(&self) -> TaskKey {
        (self.folders.agent.clone(), self.name.clone())
    }
}

/// Something for a worker to do.
#[derive(Debug)]
pub(crate) enum QueuedWork {
    /// Look at this name, and claim it if it can be claimed.
    Look(Item),
    /// The same, of a name that no scan has found yet.
    Named(Item),
    /// Finish or run what a dead owner left.
    Adopted(Claim),
    /// Finish a step that has waited for files.
    WaitEnded(Box<EndedWait>),
}

/// One agent's part of a list.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The agent's folders.
    pub folders: Arc<AgentBox>,
    /// What waits there.
    pub names: Names,
    /// The suffix of those names.
    pub suffix: &'static str,
}

#[derive(Debug, Default)]
struct QueueState {
    turns: Vec<(Turn, usize)>,
    turn: usize,
    left: usize,
    adopted: VecDeque<Claim>,
    over: VecDeque<Box<EndedWait>>,
    parked: usize,
    later: Later,
    working: usize,
    taken: u64,
    stopped: bool,
    paused_until: Option<Instant>,
    woken: bool,
    /// Names that a wake-up has told, for workers that are idle.
    named: VecDeque<Item>,
    /// Workers that have nothing to do.
    idle: usize,
    /// A scan that is not needed at once is made then.
    scan_at: Option<Instant>,
    /// The names that are looked at or worked on.
    in_work: Vec<TaskKey>,
    /// While a list is made: what it may have although it was handed out already. A second look
    /// would find nothing, and cost its agent a turn.
    handed_out: Option<Vec<TaskKey>>,
    /// A name was left out of the list for that, and may be that of a new task.
    left_out: bool,
}

/// What the scheduler sees when it looks up from waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Glance {
    /// Names of the list that nobody has looked at yet.
    pub left: usize,
    /// Names to be looked at again soon.
    pub later: usize,
    /// Workers that are busy.
    pub working: usize,
    /// Steps that wait for files.
    pub parked: usize,
    /// How many pieces of work have been handed out so far.
    pub taken: u64,
    /// There was a wake-up.
    pub woken: bool,
    /// No more work is handed out.
    pub stopped: bool,
}

impl Glance {
    /// Nothing is left to hand out, and nobody works.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.left == 0 && self.later == 0 && self.working == 0 && self.parked == 0
    }
}

/// The queue between the scheduler and its workers.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    for_workers: Condvar,
    for_scheduler: Condvar,
}

impl Queue {
    /// Replaces the list. Names that wait for a second look are found again by the scan, so they
    /// are dropped, except that their time is kept.
    pub(crate) fn publish(&self, mut turns: Vec<Turn>, adopted: Vec<Claim>) {
        let mut state = self.lock();
        let handed_out = state.handed_out.take().unwrap_or_default();
        for turn in &mut turns {
            state.left_out |= turn.leave_out(&handed_out);
        }
        let resume_after = state
            .turns
            .get(state.turn)
            .map(|(turn, _)| turn.folders.agent.clone());
        state.left = turns.iter().map(|turn| turn.names.len()).sum();
        state.turns = turns.into_iter().map(|turn| (turn, 0)).collect();
        // The agent whose turn it was has it again: a new list must not start over with the first.
        state.turn = resume_after
            .and_then(|agent| {
                state
                    .turns
                    .iter()
                    .position(|(turn, _)| turn.folders.agent >= agent)
            })
            .unwrap_or(0);
        state.adopted.extend(adopted);
        // The list has them, if they are there.
        state.named.clear();
        let work = state.left + state.adopted.len();
        drop(state);
        // No more of them than there is work for: one dropped task wakes one worker.
        if work > FEW {
            self.for_workers.notify_all();
        } else {
            (0..work).for_each(|_| self.for_workers.notify_one());
        }
    }

    /// Waits for something to do; `None` when the scheduler stops.
    pub(crate) fn take(&self) -> Option<QueuedWork> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = Instant::now();
            let paused = state.paused_until.filter(|until| *until > now);
            if paused.is_none()
                && let Some(work) = state.next(now)
            {
                state.working += 1;
                state.taken += 1;
                let last = state.left == 0 && !matches!(work, QueuedWork::Named(_));
                // The scheduler must not be woken only to wait for the lock.
                drop(state);
                if last {
                    self.for_scheduler.notify_one();
                }
                return Some(work);
            }
            let due = state.later.first_due().into_iter().chain(paused).min();
            state.idle += 1;
            state = match due {
                Some(due) => {
                    let wait = due
                        .saturating_duration_since(now)
                        .max(Duration::from_millis(1));
                    self.for_workers
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .for_workers
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            state.idle -= 1;
        }
    }

    /// A worker is done with what it took: with this name, if it was a name.
    pub(crate) fn done(&self, name: Option<&TaskKey>) {
        let mut state = self.lock();
        state.working -= 1;
        if let Some(place) = state.in_work.iter().position(|other| Some(other) == name) {
            state.in_work.swap_remove(place);
        }
        let left_out = std::mem::take(&mut state.left_out);
        state.woken |= left_out;
        let idle = state.working == 0 && state.left == 0;
        drop(state);
        if idle || left_out {
            self.for_scheduler.notify_one();
        }
    }

    /// This name is to be looked at again after a while.
    pub(crate) fn look_again(&self, item: Item, after: Duration) {
        let mut state = self.lock();
        if state.later.add(Instant::now() + after, item) {
            drop(state);
            // An idle worker has to learn the new time.
            self.for_workers.notify_one();
        }
    }

    /// A worker leaves a step to wait for files.
    pub(crate) fn wait_begins(&self) {
        self.lock().parked += 1;
    }

    /// The wait of such a step is over: a worker is to finish it.
    pub(crate) fn wait_is_over(&self, over: EndedWait) {
        let mut state = self.lock();
        state.parked -= 1;
        state.over.push_back(Box::new(over));
        drop(state);
        self.for_workers.notify_one();
    }

    /// The steps whose wait is over, and that no worker took before the end.
    pub(crate) fn left_over(&self) -> Vec<EndedWait> {
        let mut state = self.lock();
        state.over.drain(..).map(|over| *over).collect()
    }

    /// Nothing is handed out for a while: the disk is full, or the system short of something.
    pub(crate) fn pause(&self, pause: Duration) {
        self.lock().paused_until = Some(Instant::now() + pause);
    }

    /// A task may be there. Where a worker has nothing else to do, it looks at once, and the scan
    /// that would have found the task is made a little later, once for all that come meanwhile.
    /// Gives whether that is so.
    pub(crate) fn name(&self, agent: &AgentName, name: TaskName) -> bool {
        let mut state = self.lock();
        let paused = state
            .paused_until
            .is_some_and(|until| until > Instant::now());
        let scan_first = state.woken || state.handed_out.is_some() || paused;
        let busy = state.left > 0 || state.named.len() >= state.idle;
        // Agents that the last scan found fit to be worked for.
        let turn = state
            .turns
            .iter()
            .find(|(turn, _)| turn.folders.agent == *agent && turn.suffix == TASK);
        let Some(folders) = turn.map(|(turn, _)| turn.folders.clone()) else {
            return false;
        };
        let item = Item {
            folders,
            name,
            suffix: TASK,
            looks: 0,
        };
        let key = item.key();
        if state.stopped || scan_first {
            return false;
        }
        // Told twice, or another task of a name that is worked on: the scan will show.
        let known = state.in_work.contains(&key)
            || state.later.names.contains(&key)
            || state.named.iter().any(|other| other.key() == key);
        if busy && !known {
            return false;
        }
        let first = state.scan_at.is_none();
        state.scan_at.get_or_insert(Instant::now() + AFTER_NAMED);
        if !known {
            state.named.push_back(item);
        }
        drop(state);
        if !known {
            self.for_workers.notify_one();
        }
        if first {
            // The scheduler has to learn the time; it is in no hurry.
            self.for_scheduler.notify_one();
        }
        true
    }

    /// Something may have changed.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        if !state.woken {
            state.woken = true;
            drop(state);
            self.for_scheduler.notify_one();
        }
    }

    /// Hands out nothing more.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.for_workers.notify_all();
        self.for_scheduler.notify_all();
    }

    /// A scan begins: what wakes the scheduler from now on asks for another one.
    pub(crate) fn begin_scan(&self) {
        let mut state = self.lock();
        state.woken = false;
        state.scan_at = None;
        state.handed_out = Some(state.in_work.clone());
    }

    /// How things stand.
    #[must_use]
    pub(crate) fn glance(&self) -> Glance {
        self.lock().glance()
    }

    /// Waits until `enough` holds or the time is over.
    pub(crate) fn wait_until(
        &self,
        until: Option<Instant>,
        enough: impl Fn(&Glance) -> bool,
    ) -> Glance {
        let mut state = self.lock();
        loop {
            let glance = state.glance();
            if glance.stopped || enough(&glance) {
                return glance;
            }
            let now = Instant::now();
            if state.scan_at.is_some_and(|at| at <= now) {
                state.scan_at = None;
                state.woken = true;
                continue;
            }
            let until = until.into_iter().chain(state.scan_at).min();
            state = match until {
                Some(until) if until <= now => return glance,
                Some(until) => {
                    self.for_scheduler
                        .wait_timeout(state, until - now)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .for_scheduler
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Every operation leaves the state whole, so a worker's panic has not spoilt it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Leaves out the names of this agent that were handed out; gives whether there were any.
    fn leave_out(&mut self, handed_out: &[TaskKey]) -> bool {
        let out: HashSet<&str> = handed_out
            .iter()
            .filter(|(agent, _)| *agent == self.folders.agent)
            .map(|(_, name)| name.as_str())
            .collect();
        let before = self.names.len();
        if !out.is_empty() {
            self.names = self
                .names
                .iter()
                .filter(|name| !out.contains(name))
                .collect();
        }
        self.names.len() < before
    }
}

/// Names that were busy, by when they are to be looked at again, each of them once.
#[derive(Debug, Default)]
struct Later {
    items: BTreeMap<(Instant, u64), Item>,
    names: HashSet<TaskKey>,
    added: u64,
}

impl Later {
    /// Gives whether the name is new here.
    fn add(&mut self, due: Instant, item: Item) -> bool {
        let new = self.names.insert(item.key());
        if new {
            self.added += 1;
            self.items.insert((due, self.added), item);
        }
        new
    }

    fn first_due(&self) -> Option<Instant> {
        self.items.keys().next().map(|(due, _)| *due)
    }

    fn take_due(&mut self, now: Instant) -> Option<Item> {
        let first = self
            .items
            .first_entry()
            .filter(|entry| entry.key().0 <= now)?;
        let item = first.remove();
        self.names.remove(&item.key());
        Some(item)
    }
}

impl QueueState {
    fn glance(&self) -> Glance {
        Glance {
            left: self.left + self.adopted.len() + self.over.len(),
            later: self.later.items.len(),
            // Those that are told of a task are about to work.
            working: self.working + self.named.len(),
            parked: self.parked,
            taken: self.taken,
            woken: self.woken,
            stopped: self.stopped,
        }
    }

    fn next(&mut self, now: Instant) -> Option<QueuedWork> {
        if let Some(over) = self.over.pop_front() {
            return Some(QueuedWork::WaitEnded(over));
        }
        if let Some(claim) = self.adopted.pop_front() {
            return Some(QueuedWork::Adopted(claim));
        }
        if let Some(item) = self.named.pop_front() {
            self.hand_out(&item);
            return Some(QueuedWork::Named(item));
        }
        let item = match self.later.take_due(now) {
            Some(item) => item,
            None => self.next_in_turn()?,
        };
        self.hand_out(&item);
        Some(QueuedWork::Look(item))
    }

    fn hand_out(&mut self, item: &Item) {
        let name = item.key();
        if let Some(handed_out) = &mut self.handed_out {
            handed_out.push(name.clone());
        }
        self.in_work.push(name);
    }

    fn next_in_turn(&mut self) -> Option<Item> {
        for _ in 0..self.turns.len() {
            let place = self.turn;
            self.turn = (self.turn + 1) % self.turns.len();
            let (turn, next) = &mut self.turns[place];
            if let Some(name) = turn.names.get(*next) {
                *next += 1;
                self.left -= 1;
                let name = TaskName::parse(name).expect("the scan lists only names");
                return Some(Item {
                    folders: turn.folders.clone(),
                    name,
                    suffix: turn.suffix,
                    looks: 0,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
