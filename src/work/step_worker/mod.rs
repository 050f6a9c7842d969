//! The worker for runs: it starts them, and works on their steps.
//!
//! A step is a task like any other, except that the run's log says what it is. Touches the logs and
//! states of runs, always under the run's lock, and the tasks of their steps.
//!
//! A task that names a run is taken only if that run's `pending` names it. The run's lock is held
//! to enter a step and to commit its result, never while an agent runs. The order is the log, then
//! the task's own record, then the tasks that come next, then `processed/`: whatever dies in
//! between is finished by whoever takes the claim over.

mod begin_run;
mod hard_stop;
mod open_runs;
mod orch_steps;
mod perform;
mod person_answers;
mod step_commit;
mod wait_end;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::agents::process::Wake;
use crate::disk::mailbox::Claim;
use crate::disk::store::{PATIENCE, Runs};
use crate::run::flow::{self, Moment};
use crate::run::record::{Record, Status};
use crate::run::state::{
    Effect, Event, Facts, Pending, RunState, RunStatus, StepResult, StepStatus,
};
use crate::spec::task::{AgentName, Header, Task};
use crate::spec::workflow::model::StepId;
use crate::text::error::{self, Fault, Kind};
use crate::work::attempt::{AttemptRunner, WorkerState};
use crate::work::cancel::stop_run;
use crate::work::clock::now;
use crate::work::commit::{Began, Committer, blank_record};
use crate::work::dispatch::Dispatcher;
use crate::work::notice::Notice;
use crate::work::outcome::{Finished, Unfinished, Worked};
use crate::work::pinned::{self, PinnedRun};
use crate::work::shared::Shared;
use crate::work::skipped::Skipped;
use crate::work::waits::Waits;
use open_runs::OpenRuns;
use step_commit::CommittedStep;

/// Works on the tasks of runs.
pub(crate) struct StepWorker {
    shared: Arc<Shared>,
    committer: Committer,
    attempts: Arc<AttemptRunner>,
    runs: OpenRuns,
    waits: Waits,
    skipped: Arc<Skipped>,
}

impl StepWorker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        attempts: Arc<AttemptRunner>,
        waits: Waits,
        skipped: Arc<Skipped>,
    ) -> StepWorker {
        let runs = Runs::new(shared.mailbox.root.clone(), shared.mailbox.disk());
        StepWorker {
            committer: Committer::new(shared.clone()),
            shared,
            attempts,
            runs: OpenRuns::new(runs),
            waits,
            skipped,
        }
    }

    /// Whether a task belongs to a workflow: it starts one, or is a step of one.
    pub(crate) fn is_of_a_workflow(&self, agent: &AgentName, header: &Header) -> bool {
        let is_step = header.run.is_some() && header.step.is_some();
        header.workflow.is_some() || is_step || self.shared.catalogue.is_workflow(agent)
    }

    /// Starts a run, or works on a step of one.
    pub(crate) fn work_on_run(&self, claim: Claim, task: &Task, worker: &mut WorkerState) {
        if task.header.step.is_some() {
            self.work_on_step(claim, task, None, worker);
        } else {
            self.start_run(claim, task, None, worker);
        }
    }

    /// Puts every pending step of a run into its inbox that came up after the task of this number,
    /// unless it is there or claimed; without a number, every one.
    fn drop_pending(&self, run_id: &str, after: Option<u64>) -> error::Result<()> {
        let pinned = self.open(run_id)?;
        let locked = pinned.run.lock(PATIENCE)?;
        if self.runs.has_a_new_spec(&pinned)? {
            drop(locked);
            return self.drop_pending(run_id, after);
        }
        let state = locked.load(&pinned.workflow)?;
        let (_, effects) =
            self.dispatcher(&pinned)
                .drop_pending(&locked, state, after.unwrap_or(0))?;
        drop(locked);
        self.report(run_id, &effects);
        Ok(())
    }

    /// The same once a step is committed: what does not pass by itself stops the run, and is no
    /// reason to commit the step again.
    fn drop_or_stop(&self, run_id: &str, after: Option<u64>) -> io::Result<()> {
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
    fn stop_run(&self, run_id: &str, fault: &Fault, own: Option<&str>) -> error::Result<()> {
        let mut fault = fault.clone();
        if fault.kind == Kind::Usage {
            // An event of our own that does not fit: the state is not what it was taken for.
            fault.kind = Kind::StateCorrupted;
        }
        let at_hand = self.runs.at_hand(run_id);
        let stopped = match &at_hand {
            Some(pinned) => stop_run(
                &self.shared.mailbox,
                &pinned.run,
                Some(&pinned.workflow),
                &fault,
                own,
            ),
            None => {
                let run = self.runs.folder(run_id)?;
                let workflow = pinned::workflow(&run).ok();
                stop_run(&self.shared.mailbox, &run, workflow.as_ref(), &fault, own)
            }
        };
        self.runs.forget(run_id);
        if stopped? {
            tracing::error!(run = run_id, %fault, "the run is stopped");
            self.report(run_id, &[Effect::Ended(RunStatus::Failed)]);
        }
        Ok(())
    }

    /// Whether the result of a step is in its run's log already.
    pub(crate) fn is_in_the_log(&self, claim: &Claim, task: &Task) -> bool {
        let look = || -> error::Result<bool> {
            let pinned = self.open(task.header.run.as_deref().unwrap_or_default())?;
            let state = pinned.run.lock(PATIENCE)?.load(&pinned.workflow)?;
            let name = claim.name.as_str();
            Ok(state.pending(name).is_none() && step_of(name, &state).is_some())
        };
        look().unwrap_or(false)
    }

    /// Works on a step; with `exhausted`, it is not run any more, and fails with that.
    pub(crate) fn work_on_step(
        &self,
        mut claim: Claim,
        task: &Task,
        exhausted: Option<Fault>,
        worker: &mut WorkerState,
    ) {
        let done = self.do_step(&mut claim, task, exhausted, worker);
        self.end_step(claim, done, worker);
    }

    /// Commits a step's task whose result is in the log, or does with it what its work says.
    fn end_step(&self, claim: Claim, done: Worked<CommittedStep>, worker: &WorkerState) {
        match done {
            Ok(done) => self.finish(claim, &done.finished, done.brought_up_after, &worker.wake),
            Err(Unfinished::Withdrawn) => {
                if let Err(e) = self.shared.mailbox.withdraw(&claim) {
                    let fault = Fault::io("withdraw", claim.target(), &e);
                    self.shared.reporter.trouble(&fault);
                }
            }
            Err(Unfinished::Stopped(record) | Unfinished::Again { record, .. }) => {
                self.committer.keep(&claim, &record);
                self.put_step_back(claim);
            }
            Err(Unfinished::Lost(finished)) => {
                // Whoever took the claim away has left a record of that.
                if claim.is_ours().unwrap_or(true) {
                    self.committer.keep(&claim, &finished.record);
                }
                self.committer.put_back_or_drop(claim);
            }
            Err(Unfinished::Abandoned) => {}
            Err(Unfinished::Waits(files, step)) => self.begin_to_wait(claim, files, *step),
            Err(Unfinished::Failed(fault)) => self.handle_fault(claim, fault, worker),
        }
    }

    /// Commits and retires a task of a run, and drops what came up after the task of this number in
    /// between; without a number, everything that the run waits for.
    fn finish(&self, claim: Claim, finished: &Finished, after: Option<u64>, wake: &Wake) {
        let run = finished.record.run.as_deref();
        let drop_next = || run.map_or(Ok(()), |run| self.drop_or_stop(run, after));
        self.committer
            .finish_then(claim, finished, wake, &drop_next);
    }

    /// Does what is left to do of a committed task of a run.
    pub(crate) fn wrap_up(&self, claim: &mut Claim, record: &Record, wake: &Wake) {
        let run = record.run.as_deref();
        let drop_next = || run.map_or(Ok(()), |run| self.drop_or_stop(run, None));
        self.committer.wrap_up(claim, record, wake, &drop_next);
    }

    /// A step goes back to its inbox in good order. The run's log says so first, or it would look
    /// like the victim of a crash to whoever takes it next.
    pub(crate) fn put_step_back(&self, claim: Claim) {
        if claim.is_ours().unwrap_or(true)
            && let Some(run) = step_task(&claim).and_then(|task| task.header.run)
            && let Err(fault) = self.note_put_back(&run, claim.name.as_str())
        {
            self.shared.reporter.trouble(&fault);
        }
        self.committer.put_back_or_drop(claim);
    }

    fn note_put_back(&self, run_id: &str, task: &str) -> error::Result<()> {
        let pinned = self.open(run_id)?;
        let locked = pinned.run.lock(PATIENCE)?;
        let state = locked.load(&pinned.workflow)?;
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
        locked
            .apply(&pinned.workflow, state, &now(), event)
            .map(drop)
    }

    /// A step that could not be done: it is tried later, rejected, or its run is stopped.
    fn handle_fault(&self, claim: Claim, fault: Fault, worker: &WorkerState) {
        let run_id = step_task(&claim).and_then(|task| task.header.run);
        let run_id = run_id.unwrap_or_default();
        let passing = match Severity::of(&fault) {
            Severity::Passing => Some(fault.clone()),
            Severity::OfTheTask => None,
            Severity::OfTheRun => self
                .stop_run(&run_id, &fault, Some(claim.name.as_str()))
                .err(),
        };
        match passing {
            None => self.committer.reject(claim, fault, &worker.wake),
            Some(fault) => {
                self.shared.reporter.trouble(&fault);
                self.halt_if_unsynced(&run_id);
                self.shared.queue.pause(Duration::from_secs(1));
                let _ = worker.wake.sleep(Duration::from_secs(1));
                self.put_step_back(claim);
            }
        }
    }

    /// A run whose log could not be made durable is left to the next process: what this one knows
    /// of it may not be what is on the disk.
    fn halt_if_unsynced(&self, run: &str) {
        let is_unsynced = |pinned: Arc<PinnedRun>| pinned.run.is_unsynced();
        if self.open(run).is_ok_and(is_unsynced) && self.skipped.halt_run(run) {
            self.shared.tally.one_failed();
        }
    }

    /// Enters the step, does its work, and commits what came of it to the run's log.
    fn do_step(
        &self,
        claim: &mut Claim,
        task: &Task,
        exhausted: Option<Fault>,
        worker: &mut WorkerState,
    ) -> Worked<CommittedStep> {
        let run_id = task.header.run.clone().unwrap_or_default();
        let pinned = self.open_of(task)?;
        let name = claim.name.to_string();
        let locked = pinned.run.lock(PATIENCE)?;
        if self.runs.has_a_new_spec(&pinned)? {
            drop(locked);
            return self.do_step(claim, task, exhausted, worker);
        }
        let state = locked.load(&pinned.workflow)?;
        let Some(pending) = state.pending(&name).cloned() else {
            let given = step_of(&name, &state).and_then(|step| pinned.workflow.find(&step));
            if given.is_none() {
                return Err(self.intrusion(claim, &pinned, &locked, state).into());
            }
            return self.not_pending(claim, &pinned, &state);
        };
        if pending.agent != claim.folders.agent.as_str() {
            return Err(self.intrusion(claim, &pinned, &locked, state).into());
        }
        if state.status != RunStatus::Running {
            return Err(Unfinished::Withdrawn);
        }
        if pending.attempts > 0 {
            locked.clear_uncommitted_snapshots(&state)?;
        }
        if let Err(fault) = locked.check_snapshots(&state) {
            return Err(self.stop(&pinned, &locked, state, &name, fault).into());
        }
        let id = pinned.step(&pending.step)?;
        let facts = self.facts(&pinned, &state, id, pending.item, Moment::Entering)?;
        let entered = Event::Entered {
            task: name.clone(),
            attempt: pending.attempts + 1,
            facts: facts.clone(),
        };
        let before = state.tasks;
        let (state, effects) = locked.apply(&pinned.workflow, state, &now(), entered)?;
        drop(locked);
        self.report(&run_id, &effects);
        self.end_others_if_stopped(&state, &effects, &name);
        let Some(pending) = to_run(&effects) else {
            // Skipped, expanded or blocked: the log says so, and there is nothing to run.
            let record = step_record(claim, &run_id, &pending.step, Status::Succeeded, None);
            return Ok(CommittedStep {
                finished: Finished::without_output(record),
                brought_up_after: Some(before),
            });
        };
        let work = match exhausted {
            Some(fault) => self.invalid(
                claim,
                &pinned,
                &pending,
                pending.attempts,
                fault,
                Began::now(),
            ),
            None => self.perform(claim, &pinned, state, &pending, &facts, worker),
        };
        self.commit_when_possible(claim, &pinned, &name, work?, worker)
    }

    /// A task that its run does not wait for: committed before a crash, or nobody's.
    fn not_pending(
        &self,
        claim: &Claim,
        pinned: &PinnedRun,
        state: &RunState,
    ) -> Worked<CommittedStep> {
        let Some(step) = step_of(claim.name.as_str(), state) else {
            return Err(forged(pinned.run.id()).into());
        };
        let mut record = step_record(claim, pinned.run.id(), &step, Status::Succeeded, None);
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
                pinned.run.id(),
                state.status.as_str()
            );
            record.status = Status::Cancelled;
            record.error = Some(Fault::new(Kind::Cancelled, message));
        }
        Ok(CommittedStep {
            finished: Finished::without_output(record),
            brought_up_after: None,
        })
    }

    fn facts(
        &self,
        pinned: &PinnedRun,
        state: &RunState,
        id: StepId,
        item: Option<usize>,
        moment: Moment<'_>,
    ) -> error::Result<Facts> {
        let wanted = flow::wanted(&pinned.workflow, state, id, item, moment);
        pinned.facts(&wanted)
    }

    fn report(&self, run: &str, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Checkpoint(checkpoint) => {
                    let line = checkpoint.to_string();
                    self.shared
                        .reporter
                        .say(&Notice::Checkpoint { run, line: &line });
                }
                Effect::Ended(status) => self.shared.reporter.say(&Notice::RunEnded {
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

    fn open(&self, run_id: &str) -> error::Result<Arc<PinnedRun>> {
        self.runs.open(run_id)
    }

    /// The run that a step's task names. A task that names none is forged.
    fn open_of(&self, task: &Task) -> error::Result<Arc<PinnedRun>> {
        let run_id = task.header.run.clone().unwrap_or_default();
        self.open(&run_id).map_err(|fault| match fault.kind {
            Kind::StateNotFound | Kind::Usage => forged(&run_id),
            _ => fault,
        })
    }

    fn dispatcher<'a>(&'a self, pinned: &'a PinnedRun) -> Dispatcher<'a> {
        Dispatcher {
            mailbox: &self.shared.mailbox,
            pinned,
        }
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

fn forged(run: &str) -> Fault {
    Fault::new(
        Kind::InvalidTask,
        format!("run `{run}` does not wait for this task"),
    )
    .hint("`run` and `step` are orch's own keys, and grant nothing by themselves")
}

/// The step that a task of this run was for, if its number has been given out.
fn step_of(task: &str, state: &RunState) -> Option<String> {
    let rest = task.strip_prefix(&state.run_id)?.strip_prefix('.')?;
    let (text, step) = rest.split_once('-')?;
    let number: u64 = text.parse().ok()?;
    let given_out = (1..=state.tasks).contains(&number) && format!("{number:04}") == text;
    given_out.then(|| step.to_owned())
}

/// A record of a step's task.
fn step_record(
    claim: &Claim,
    run: &str,
    step: &str,
    status: Status,
    error: Option<Fault>,
) -> Record {
    let mut record = blank_record(claim, 1, status, error);
    record.run = Some(run.to_owned());
    record.step = Some(step.to_owned());
    record
}

/// The task of a claim, if it is a step of a run.
pub(crate) fn step_task(claim: &Claim) -> Option<Task> {
    let task = Task::parse(&claim.bytes).ok()?;
    task.header.step.is_some().then_some(task)
}
