//! Steps of workflows: tasks like any other, except that the run's log says what they are.
//!
//! A task that names a run is taken only if that run's `pending` names it. The run's lock is held
//! to enter a step and to commit its result, never while an agent runs. The order is the log, then
//! the task's own record, then the tasks that come next, then `processed/`: whatever dies in
//! between is finished by whoever takes the claim over.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::attempt::{Began, Desk};
use super::run_work::Worked;
use super::waiting::Wait;
use super::worker::Finished;
use super::{Engine, Notice};
use crate::disk::mailbox::Claim;
use crate::disk::store::PATIENCE;
use crate::run::flow::{self, Moment};
use crate::run::record::{Record, Status};
use crate::run::state::{
    Effect, Event, Facts, Pending, RunState, RunStatus, StepResult, StepStatus,
};
use crate::spec::task::{AgentName, Header, Task};
use crate::spec::workflow::model::StepId;
use crate::text::error::{Fault, Kind, Result};
use crate::work::cancel::stop_run;
use crate::work::clock::now;
use crate::work::pinned::{self, PinnedRun};
use crate::work::step::prepare::Waiting;

/// No more runs than this are kept at hand; the others are opened again when they are needed.
const AT_HAND: usize = 128;

/// The runs at hand, each with the turn in which it was last asked for.
#[derive(Default)]
pub(super) struct Hosts {
    turn: u64,
    all: HashMap<String, (u64, Arc<PinnedRun>)>,
}

impl Hosts {
    fn get(&mut self, run_id: &str) -> Option<Arc<PinnedRun>> {
        self.turn += 1;
        let (turn, host) = self.all.get_mut(run_id)?;
        *turn = self.turn;
        Some(host.clone())
    }

    /// One more, and the one that was not asked for the longest goes.
    fn add(&mut self, run_id: &str, host: Arc<PinnedRun>) {
        let oldest = self.all.iter().min_by_key(|(_, (turn, _))| *turn);
        if self.all.len() >= AT_HAND
            && let Some(oldest) = oldest.map(|(id, _)| id.clone())
        {
            self.all.remove(&oldest);
        }
        self.all.insert(run_id.to_owned(), (self.turn, host));
    }
}

/// What became of a step's task.
pub(super) enum Passed {
    /// It has a record: commit it, drop what comes next, retire it.
    Recorded(Box<Finished>),
    /// It is not to be done now: its file goes, and is dropped again when it is.
    Withdrawn,
    /// Orch stops: it goes back.
    Stopped(Box<Record>),
    /// It was taken from us.
    Lost(Box<Record>),
    /// Orch stops, and what came of it cannot be written down.
    Abandoned,
    /// It waits for files, and needs no worker meanwhile.
    Waits(Waiting, Box<Wait>),
}

impl Engine {
    /// Whether a task belongs to a workflow: it starts one, or is a step of one.
    pub(super) fn is_of_a_workflow(&self, agent: &AgentName, header: &Header) -> bool {
        let is_step = header.run.is_some() && header.step.is_some();
        header.workflow.is_some() || is_step || self.catalogue.is_workflow(agent)
    }

    /// Starts a run, or works on a step of one.
    pub(super) fn work_on_run(&self, claim: Claim, task: &Task, desk: &mut Desk) {
        if task.header.step.is_some() {
            self.work_on_step(claim, task, None, desk);
        } else {
            self.start_run(claim, task, None, desk);
        }
    }

    /// Puts every pending step of a run into its inbox that came up after the task of this number,
    /// unless it is there or claimed; without a number, every one.
    pub(super) fn drop_pending(&self, run_id: &str, after: Option<u64>) -> Result<()> {
        let host = self.host(run_id)?;
        let locked = host.run.lock(PATIENCE)?;
        if self.has_a_new_spec(&host)? {
            drop(locked);
            return self.drop_pending(run_id, after);
        }
        let state = locked.load(&host.workflow)?;
        let (_, effects) =
            self.dispatcher(&host)
                .drop_pending(&locked, state, after.unwrap_or(0))?;
        drop(locked);
        self.tell(run_id, &effects);
        Ok(())
    }

    /// The same once a step is committed: what does not pass by itself stops the run, and is no
    /// reason to commit the step again.
    pub(super) fn drop_or_stop(&self, run_id: &str, after: Option<u64>) -> io::Result<()> {
        let fault = match self.drop_pending(run_id, after) {
            Ok(()) => return Ok(()),
            Err(fault) => fault,
        };
        let stopped = match Severity::of(&fault) {
            Severity::Passing => Err(fault),
            Severity::OfTheTask => Ok(()),
            Severity::OfTheRun => self.stop_run(run_id, &fault, None),
        };
        stopped.map_err(|fault| io::Error::other(fault.message))
    }

    /// Ends a run for good, with the reason; `own` is the task that found out.
    fn stop_run(&self, run_id: &str, fault: &Fault, own: Option<&str>) -> Result<()> {
        let mut fault = fault.clone();
        if fault.kind == Kind::Usage {
            // An event of our own that does not fit: the state is not what it was taken for.
            fault.kind = Kind::StateCorrupted;
        }
        let at_hand = self.hosts().get(run_id);
        let stopped = match &at_hand {
            Some(host) => stop_run(&self.mailbox, &host.run, Some(&host.workflow), &fault, own),
            None => {
                let run = self.runs.open(run_id)?;
                let workflow = pinned::workflow(&run).ok();
                stop_run(&self.mailbox, &run, workflow.as_ref(), &fault, own)
            }
        };
        self.hosts().all.remove(run_id);
        if stopped? {
            tracing::error!(run = run_id, %fault, "the run is stopped");
            self.tell(run_id, &[Effect::Ended(RunStatus::Failed)]);
        }
        Ok(())
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the result of a step is in its run's log already.
    pub(super) fn is_in_the_log(&self, claim: &Claim, task: &Task) -> bool {
        let look = || -> Result<bool> {
            let host = self.host(task.header.run.as_deref().unwrap_or_default())?;
            let state = host.run.lock(PATIENCE)?.load(&host.workflow)?;
            let name = claim.name.as_str();
            Ok(state.pending(name).is_none() && step_of(name, &state).is_some())
        };
        look().unwrap_or(false)
    }

    /// The task of a claim, if it is a step of a run.
    pub(super) fn step_task(&self, claim: &Claim) -> Option<Task> {
        let task = Task::parse(&claim.bytes).ok()?;
        task.header.step.is_some().then_some(task)
    }

    /// Works on a step; with `exhausted`, it is not run any more, and fails with that.
    pub(super) fn work_on_step(
        &self,
        mut claim: Claim,
        task: &Task,
        exhausted: Option<Fault>,
        desk: &mut Desk,
    ) {
        let passed = self.pass_step(&mut claim, task, exhausted, desk);
        self.leave_step(claim, passed, desk);
    }

    /// Does with a step's task what became of it.
    pub(super) fn leave_step(&self, claim: Claim, passed: Result<Passed>, desk: &mut Desk) {
        let target = claim.target();
        match passed {
            Ok(Passed::Recorded(finished)) => self.finish(claim, *finished, desk),
            Ok(Passed::Withdrawn) => {
                if let Err(e) = self.mailbox.withdraw(&claim) {
                    self.trouble(&Fault::io("withdraw", &target, &e));
                }
            }
            Ok(Passed::Stopped(record)) => {
                self.keep(&claim, &record);
                self.give_step_back(claim);
            }
            Ok(Passed::Lost(record)) => {
                // Whoever took the claim away has left a record of that.
                if claim.is_ours().unwrap_or(true) {
                    self.keep(&claim, &record);
                }
                self.give_back_or_drop(claim);
            }
            Ok(Passed::Abandoned) => {}
            Ok(Passed::Waits(waiting, wait)) => self.begin_to_wait(claim, waiting, *wait),
            Err(fault) => self.see_to_fault(claim, fault, desk),
        }
    }

    /// A step goes back to its inbox in good order. The run's log says so first, or it would look
    /// like the victim of a crash to whoever takes it next.
    pub(super) fn give_step_back(&self, claim: Claim) {
        if claim.is_ours().unwrap_or(true)
            && let Some(run) = self.step_task(&claim).and_then(|task| task.header.run)
            && let Err(fault) = self.note_put_back(&run, claim.name.as_str())
        {
            self.trouble(&fault);
        }
        self.give_back_or_drop(claim);
    }

    fn note_put_back(&self, run_id: &str, task: &str) -> Result<()> {
        let host = self.host(run_id)?;
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let under_way = |pending: &&Pending| {
            pending.attempts > 0 && !pending.put_back && pending.asks.is_none()
        };
        // Taken away meanwhile, or never begun: there is nothing to give up.
        let Some(pending) = state.pending(task).filter(under_way) else {
            return Ok(());
        };
        let event = Event::PutBack {
            task: task.to_owned(),
            attempt: pending.attempts,
        };
        locked.apply(&host.workflow, state, &now(), event).map(drop)
    }

    /// A step that could not be passed: later, never, or not in a run that has to be stopped.
    fn see_to_fault(&self, claim: Claim, fault: Fault, desk: &mut Desk) {
        let run_id = self.step_task(&claim).and_then(|task| task.header.run);
        let run_id = run_id.unwrap_or_default();
        let passing = match Severity::of(&fault) {
            Severity::Passing => Some(fault.clone()),
            Severity::OfTheTask => None,
            Severity::OfTheRun => self
                .stop_run(&run_id, &fault, Some(claim.name.as_str()))
                .err(),
        };
        match passing {
            None => self.reject(claim, fault, desk),
            Some(fault) => {
                self.trouble(&fault);
                self.halt_if_unsynced(&run_id);
                self.queue.pause(Duration::from_secs(1));
                let _ = desk.wake.sleep(Duration::from_secs(1));
                self.give_step_back(claim);
            }
        }
    }

    /// A run whose log could not be made durable is left to the next engine: what this one knows of
    /// it may not be what is on the disk.
    fn halt_if_unsynced(&self, run: &str) {
        if self.host(run).is_ok_and(|host| host.run.is_unsynced()) {
            let mut halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
            if halted.insert(run.to_owned()) {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Enters the step, does its work, and commits what came of it to the run's log.
    fn pass_step(
        &self,
        claim: &mut Claim,
        task: &Task,
        exhausted: Option<Fault>,
        desk: &mut Desk,
    ) -> Result<Passed> {
        let run_id = task.header.run.clone().unwrap_or_default();
        let host = self.host(&run_id).map_err(|fault| match fault.kind {
            Kind::StateNotFound | Kind::Usage => forged(&run_id),
            _ => fault,
        })?;
        let name = claim.name.to_string();
        let locked = host.run.lock(PATIENCE)?;
        if self.has_a_new_spec(&host)? {
            drop(locked);
            return self.pass_step(claim, task, exhausted, desk);
        }
        let state = locked.load(&host.workflow)?;
        let Some(pending) = state.pending(&name).cloned() else {
            let given = step_of(&name, &state).and_then(|step| host.workflow.find(&step));
            if given.is_none() {
                return Err(self.intrusion(claim, &host, &locked, state));
            }
            return self.not_pending(claim, &host, &state);
        };
        if pending.agent != claim.folders.agent.as_str() {
            return Err(self.intrusion(claim, &host, &locked, state));
        }
        if state.status != RunStatus::Running {
            return Ok(Passed::Withdrawn);
        }
        if pending.attempts > 0 {
            locked.clear_uncommitted_snapshots(&state)?;
        }
        if let Err(fault) = locked.check_snapshots(&state) {
            return Err(self.stop(&host, &locked, state, &name, fault));
        }
        let id = host.step(&pending.step)?;
        let facts = self.facts(&host, &state, id, pending.item, Moment::Entering)?;
        let entered = Event::Entered {
            task: name.clone(),
            attempt: pending.attempts + 1,
            facts: facts.clone(),
        };
        let before = state.tasks;
        let (state, effects) = locked.apply(&host.workflow, state, &now(), entered)?;
        drop(locked);
        self.tell(&run_id, &effects);
        self.end_others_if_stopped(&state, &effects, &name);
        let Some(pending) = to_run(&effects) else {
            // Skipped, expanded or blocked: the log says so, and there is nothing to run.
            let record = self.step_record(claim, &run_id, &pending.step, Status::Succeeded, None);
            let mut finished = Finished::without_output(record);
            finished.brought_up_after = Some(before);
            return Ok(Passed::Recorded(Box::new(finished)));
        };
        let worked = match exhausted {
            Some(fault) => self.invalid(
                claim,
                &host,
                &pending,
                pending.attempts,
                fault,
                Began::now(),
            ),
            None => self.do_work(claim, &host, state, &pending, &facts, desk)?,
        };
        match worked {
            Worked::Result(result, finished) => {
                self.commit_in_time(claim, &host, &name, *result, finished, desk)
            }
            Worked::Stopped(record) => Ok(Passed::Stopped(record)),
            Worked::Lost(record) => Ok(Passed::Lost(record)),
            Worked::Abandoned => Ok(Passed::Abandoned),
            Worked::Waits(waiting, wait) => Ok(Passed::Waits(waiting, wait)),
        }
    }

    /// A task that its run does not wait for: committed before a crash, or nobody's.
    fn not_pending(&self, claim: &Claim, host: &PinnedRun, state: &RunState) -> Result<Passed> {
        let Some(step) = step_of(claim.name.as_str(), state) else {
            return Err(forged(host.run.id()));
        };
        let mut record = self.step_record(claim, host.run.id(), &step, Status::Succeeded, None);
        let stored = state.step_results.get(&step);
        let stored =
            stored.and_then(|value| serde_json::from_value::<StepResult>(value.clone()).ok());
        if let Some(result) =
            stored.filter(|result| result.task.as_deref() == Some(&claim.target()))
        {
            record.exit_code = Some(result.exit_code);
            record.files = result.artifacts;
            if result.status == StepStatus::Failed {
                record.status = Status::Failed;
            }
            record.error = result.error;
        } else if state.status.is_final() && state.status != RunStatus::Succeeded {
            // The run ended before its turn came.
            let message = format!(
                "run `{}` has ended: {}",
                host.run.id(),
                state.status.as_str()
            );
            record.status = Status::Cancelled;
            record.error = Some(Fault::new(Kind::Cancelled, message));
        }
        Ok(Passed::Recorded(Box::new(Finished::without_output(record))))
    }

    pub(super) fn facts(
        &self,
        host: &PinnedRun,
        state: &RunState,
        id: StepId,
        item: Option<usize>,
        moment: Moment<'_>,
    ) -> Result<Facts> {
        let wanted = flow::wanted(&host.workflow, state, id, item, moment);
        host.facts(&wanted)
    }

    pub(super) fn tell(&self, run: &str, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Checkpoint(checkpoint) => {
                    let line = checkpoint.to_string();
                    (self.listener)(&Notice::Checkpoint { run, line: &line });
                }
                Effect::Ended(status) => (self.listener)(&Notice::RunEnded {
                    run,
                    status: *status,
                }),
                Effect::Run(_)
                | Effect::Lock { .. }
                | Effect::Unasked(_)
                | Effect::Checked(_)
                | Effect::Left(_) => {}
            }
        }
    }

    pub(super) fn step_record(
        &self,
        claim: &Claim,
        run: &str,
        step: &str,
        status: Status,
        error: Option<Fault>,
    ) -> Record {
        let mut record = self.blank_record(claim, 1, status, error);
        record.run = Some(run.to_owned());
        record.step = Some(step.to_owned());
        record
    }

    /// Whether the run has gone on to another spec since it was opened; it is not at hand then.
    fn has_a_new_spec(&self, host: &PinnedRun) -> Result<bool> {
        let is_outdated = host.run.is_outdated()?;
        if is_outdated {
            self.hosts().all.remove(host.run.id());
        }
        Ok(is_outdated)
    }

    /// The run at hand, opened where it is not yet. Its spec is checked against its hashes then.
    pub(super) fn host(&self, run_id: &str) -> Result<Arc<PinnedRun>> {
        let at_hand = self.hosts().get(run_id);
        if let Some(host) = at_hand
            && !self.has_a_new_spec(&host)?
        {
            return Ok(host);
        }
        let mut hosts = self.hosts();
        let run = self.runs.open(run_id)?;
        let host = Arc::new(PinnedRun::open(run)?);
        hosts.add(run_id, host.clone());
        Ok(host)
    }
}

/// Whom a fault of a step's task concerns.
enum Severity {
    /// Nobody for long: the disk, or whoever holds the run.
    Passing,
    /// The task alone: no run waits for it, or none that this orch can read.
    OfTheTask,
    /// The run: it cannot go on, and would stand still for ever.
    OfTheRun,
}

impl Severity {
    fn of(fault: &Fault) -> Severity {
        match fault.kind {
            _ if fault.is_worth_retrying() => Severity::Passing,
            Kind::InvalidTask | Kind::StateNotFound | Kind::NewerVersion => Severity::OfTheTask,
            _ => Severity::OfTheRun,
        }
    }
}

fn to_run(effects: &[Effect]) -> Option<Pending> {
    effects.iter().find_map(|effect| match effect {
        Effect::Run(pending) => Some(pending.clone()),
        _ => None,
    })
}

pub(super) fn forged(run: &str) -> Fault {
    Fault::new(
        Kind::InvalidTask,
        format!("run `{run}` does not wait for this task"),
    )
    .hint("`run` and `step` are orch's own keys, and grant nothing by themselves")
}

/// The step that a task of this run was for, if its number has been given out.
pub(super) fn step_of(task: &str, state: &RunState) -> Option<String> {
    let rest = task.strip_prefix(&state.run_id)?.strip_prefix('.')?;
    let (text, step) = rest.split_once('-')?;
    let number: u64 = text.parse().ok()?;
    let given_out = (1..=state.tasks).contains(&number) && format!("{number:04}") == text;
    given_out.then(|| step.to_owned())
}
