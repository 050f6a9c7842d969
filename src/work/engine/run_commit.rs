//! The commit of a step: its result goes to the run's log, before anything else tells of it.

use std::time::Duration;

use super::Engine;
use super::attempt::Desk;
use super::run::Passed;
use super::worker::Finished;
use crate::agents::process::Woken;
use crate::disk::mailbox::Claim;
use crate::disk::store::PATIENCE;
use crate::run::flow::{self, Moment};
use crate::run::record::Status;
use crate::run::state::{Event, StepResult};
use crate::spec::workflow::model::Work;
use crate::text::error::{Fault, Result};
use crate::work::actions;
use crate::work::clock::now;
use crate::work::pinned::PinnedRun;

/// What became of a result.
enum Committed {
    Done,
    /// The step is not ours to finish any more.
    Lost,
}

impl Committed {
    fn passed(self, finished: Box<Finished>) -> Passed {
        match self {
            Committed::Done => Passed::Recorded(finished),
            Committed::Lost => Passed::Lost(Box::new(finished.record)),
        }
    }
}

impl Engine {
    /// Commits a result as soon as the disk takes it: what was done is not done again for that.
    pub(super) fn commit_in_time(
        &self,
        claim: &Claim,
        host: &PinnedRun,
        name: &str,
        result: StepResult,
        mut finished: Box<Finished>,
        desk: &Desk,
    ) -> Result<Passed> {
        loop {
            // The log names the outputs by their hashes: they are there when it does.
            let synced = self.mailbox.sync_outputs(claim, &finished.outputs);
            let changes = finished.changes.clone();
            let done = synced
                .map_err(|e| Fault::io("make durable the output of", claim.target(), &e))
                .and_then(|()| self.commit_step(host, name, result.clone(), &mut finished));
            let fault = match done {
                Ok(committed) => return Ok(committed.passed(finished)),
                Err(fault) => fault,
            };
            if !fault.is_worth_retrying() || host.run.is_unsynced() {
                return Err(fault);
            }
            finished.changes = changes;
            let hint = "the result is kept and the commit is tried again; nothing new is started meanwhile";
            self.trouble(&fault.hint(hint));
            self.mailbox.forget_handles();
            self.queue.pause(Duration::from_secs(2));
            if desk.wake.sleep(Duration::from_secs(1)) == Woken::Stopped {
                return Ok(Passed::Abandoned);
            }
        }
    }

    /// The same for what can be done again: on an error it is.
    pub(super) fn commit_or_again(
        &self,
        host: &PinnedRun,
        name: &str,
        result: StepResult,
        mut finished: Box<Finished>,
    ) -> Result<Passed> {
        let committed = self.commit_step(host, name, result, &mut finished)?;
        Ok(committed.passed(finished))
    }

    /// The result goes to the log, if the step is still ours to finish.
    fn commit_step(
        &self,
        host: &PinnedRun,
        name: &str,
        mut result: StepResult,
        finished: &mut Finished,
    ) -> Result<Committed> {
        host.masker.result(&mut result);
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let ours = state
            .pending(name)
            .is_some_and(|pending| pending.attempts == result.attempt);
        if !ours || state.status.is_final() {
            return Ok(Committed::Lost);
        }
        if let Err(fault) = locked.check_snapshots(&state) {
            let fault = self.stop(host, &locked, state, name, fault);
            finished.record.status = Status::Failed;
            finished.record.error = Some(fault);
            return Ok(Committed::Done);
        }
        let id = host.step(&result.step_name)?;
        let item = state.pending(name).and_then(|pending| pending.item);
        // Guards are asked when the document has changed already.
        let merged = flow::document::merged(&state, &finished.changes);
        let seen = merged.as_ref().unwrap_or(&state);
        let facts = self.facts(host, seen, id, item, Moment::Finishing(&result))?;
        let event = Event::Finished {
            task: name.to_owned(),
            result: Box::new(result),
            changes: std::mem::take(&mut finished.changes),
            facts,
        };
        finished.brought_up_after = Some(state.tasks);
        let (state, effects) = locked.apply(&host.workflow, state, &now(), event)?;
        drop(locked);
        if matches!(host.workflow.step(id).work, Work::Action(_)) {
            actions::forget(&host.run, name);
        }
        self.tell(host.run.id(), &effects);
        self.end_others_if_stopped(&state, &effects, name);
        Ok(Committed::Done)
    }
}
