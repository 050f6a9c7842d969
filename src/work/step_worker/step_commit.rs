//! The commit of a step: its result goes to the run's log, before anything else tells of it.

use super::StepWorker;
use crate::agents::process::Woken;
use crate::disk::mailbox::Claim;
use crate::disk::store::PATIENCE;
use crate::run::flow::{self, Moment};
use crate::run::record::Status;
use crate::run::state::Event;
use crate::spec::workflow::model::Work;
use crate::text::error::{Fault, Result};
use crate::work::actions;
use crate::work::attempt::WorkerState;
use crate::work::clock::now;
use crate::work::outcome::{Finished, FinishedStep, Unfinished, Worked};
use crate::work::pinned::PinnedRun;
use crate::work::shared::PAUSE;

/// A step whose result is in its run's log.
pub(super) struct CommittedStep {
    pub finished: Finished,
    /// What the step brought up has a higher number than this. Where nobody knows, everything that
    /// the run waits for is looked at.
    pub brought_up_after: Option<u64>,
}

/// What the log made of a result.
enum Logged {
    /// The run goes on from it.
    Taken { brought_up_after: u64 },
    /// The run was stopped instead, with this.
    Stopped(Fault),
    /// The step is not ours to finish any more.
    Lost,
}

impl Logged {
    fn step(self, mut finished: Finished) -> Worked<CommittedStep> {
        let brought_up_after = match self {
            Logged::Taken { brought_up_after } => Some(brought_up_after),
            Logged::Stopped(fault) => {
                finished.record.status = Status::Failed;
                finished.record.error = Some(fault);
                None
            }
            Logged::Lost => return Err(Unfinished::Lost(Box::new(finished))),
        };
        Ok(CommittedStep {
            finished,
            brought_up_after,
        })
    }
}

impl StepWorker {
    /// Commits a result as soon as the disk takes it: what was done is not done again for that.
    pub(super) fn commit_when_possible(
        &self,
        claim: &Claim,
        pinned: &PinnedRun,
        name: &str,
        step: FinishedStep,
        worker: &WorkerState,
    ) -> Worked<CommittedStep> {
        loop {
            // The log names the outputs by their hashes: they are there when it does.
            let synced = self
                .shared
                .mailbox
                .sync_outputs(claim, &step.finished.outputs);
            let logged = synced
                .map_err(|e| Fault::io("make durable the output of", claim.target(), &e))
                .and_then(|()| self.log_result(pinned, name, &step));
            let fault = match logged {
                Ok(logged) => return logged.step(step.finished),
                Err(fault) => fault,
            };
            if !fault.is_worth_retrying() || pinned.run.is_unsynced() {
                return Err(fault.into());
            }
            let hint = "the result is kept and the commit is tried again; nothing new is started meanwhile";
            self.shared.reporter.trouble(&fault.hint(hint));
            self.shared.mailbox.forget_handles();
            self.shared.queue.pause(PAUSE * 2);
            if worker.wake.sleep(PAUSE) == Woken::Stopped {
                return Err(Unfinished::Abandoned);
            }
        }
    }

    /// Commits the result of work that can be done again: on an error it is.
    pub(super) fn commit_once(
        &self,
        pinned: &PinnedRun,
        name: &str,
        step: FinishedStep,
    ) -> Worked<CommittedStep> {
        self.log_result(pinned, name, &step)?.step(step.finished)
    }

    /// Writes the result to the log, if the step is still ours to finish.
    fn log_result(&self, pinned: &PinnedRun, name: &str, step: &FinishedStep) -> Result<Logged> {
        let mut result = step.result.clone();
        pinned.masker.result(&mut result);
        let locked = pinned.run.lock(PATIENCE)?;
        let state = locked.load(&pinned.workflow)?;
        let ours = state
            .pending(name)
            .is_some_and(|pending| pending.attempts == result.attempt);
        if !ours || state.status.is_final() {
            return Ok(Logged::Lost);
        }
        if let Err(fault) = locked.check_snapshots(&state) {
            let fault = self.stop(pinned, &locked, state, name, fault);
            return Ok(Logged::Stopped(fault));
        }
        let id = pinned.step(&result.step_name)?;
        let item = state.pending(name).and_then(|pending| pending.item);
        // Guards are asked when the document has changed already.
        let merged = flow::document::merged(&state, &step.changes);
        let seen = merged.as_ref().unwrap_or(&state);
        let facts = self.facts(pinned, seen, id, item, Moment::Finishing(&result))?;
        let event = Event::Finished {
            task: name.to_owned(),
            result: Box::new(result),
            changes: step.changes.clone(),
            facts,
        };
        let brought_up_after = state.tasks;
        let (state, effects) = locked.apply(&pinned.workflow, state, &now(), event)?;
        drop(locked);
        if matches!(pinned.workflow.step(id).work, Work::Action(_)) {
            actions::forget(&pinned.run, name);
        }
        self.report(pinned.run.id(), &effects);
        self.end_others_if_stopped(&state, &effects, name);
        Ok(Logged::Taken { brought_up_after })
    }
}
