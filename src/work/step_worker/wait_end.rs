//! A step that waits for files: how its wait begins, and what it ends with.
//!
//! A wait lasts from the first time that the step was entered, or from its last declared retry, as
//! the run's log says. The wall clock tells how much of that was before this process had it, and the
//! monotonic clock the rest: the time in which no orch was there counts too.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::perform::times;
use super::step_commit::CommittedStep;
use super::{StepWorker, step_record};
use crate::disk::mailbox::Claim;
use crate::run::record::Status;
use crate::run::state::{Changes, Pending};
use crate::text::error;
use crate::work::attempt::WorkerState;
use crate::work::clock::now;
use crate::work::commit::Began;
use crate::work::notice::Notice;
use crate::work::outcome::{Finished, FinishedStep, Worked};
use crate::work::step::prepare::WantedFiles;
use crate::work::step::result::{self, retryable};
use crate::work::waits::{EndedWait, ParkedStep, WaitEnd, WaitingStep};

/// No wait is longer: about 30 years.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

impl StepWorker {
    /// The step needs no worker any more: others attend to it.
    pub(super) fn begin_to_wait(&self, claim: Claim, files: WantedFiles, step: WaitingStep) {
        self.park(claim, files, step, Duration::ZERO);
    }

    fn park(&self, claim: Claim, files: WantedFiles, mut step: WaitingStep, delay: Duration) {
        // A wall clock that was set back has not waited at all.
        let before = Timestamp::now().duration_since(step.since());
        step.before = Duration::try_from(before).unwrap_or_default();
        let left = files.timeout.saturating_sub(step.before) + delay;
        let now = Instant::now();
        let parked = ParkedStep::new(claim, files, now + left.min(LONGEST), step);
        self.shared.queue.wait_begins();
        if let Err(parked) = self.waits.park(parked, now + delay.min(LONGEST)) {
            self.put_step_back(parked.claim);
        }
    }

    /// Commits what a wait ended with.
    pub(crate) fn end_wait(&self, ended: EndedWait, worker: &WorkerState) {
        let EndedWait { parked, how } = ended;
        let ParkedStep {
            claim,
            files,
            polls,
            began,
            step,
            ..
        } = parked;
        let waited = step.before + began.elapsed();
        let found = match how {
            WaitEnd::Lost => return self.committer.put_back_or_drop(claim),
            WaitEnd::Broken(fault) => Err(fault),
            WaitEnd::Looked(found) => Ok(found),
        };
        match self.result_of_wait(&claim, &files, (polls, waited), &step, found) {
            Ok(Some(done)) => self.end_step(claim, Ok(done), worker),
            Ok(None) => {
                let again = WaitingStep {
                    pending: Pending {
                        attempts: step.pending.attempts + 1,
                        since: Some(now()),
                        ..step.pending
                    },
                    retries: step.retries - 1,
                    ..step
                };
                let delay = again.delay;
                self.park(claim, files, again, delay);
            }
            Err(unfinished) => self.end_step(claim, Err(unfinished), worker),
        }
    }

    /// What the wait comes to; `None` where it is to be tried again, which is in the log then.
    fn result_of_wait(
        &self,
        claim: &Claim,
        files: &WantedFiles,
        (polls, waited): (u64, Duration),
        wait: &WaitingStep,
        found: error::Result<Vec<String>>,
    ) -> Worked<Option<CommittedStep>> {
        let pinned = self.open(&wait.run)?;
        let pending = &wait.pending;
        let name = claim.name.to_string();
        let found = match found {
            Ok(found) => found,
            Err(fault) => {
                let (attempt, began) = (pending.attempts, Began::now());
                let work = self.invalid(claim, &pinned, pending, attempt, fault, began)?;
                return self.commit_once(&pinned, &name, work).map(Some);
            }
        };
        let step = pinned.workflow.step(pinned.step(&pending.step)?);
        let mut record = step_record(claim, &wait.run, &pending.step, Status::Succeeded, None);
        let end = wait.since().saturating_add(waited).unwrap_or_default();
        record.attempt = pending.attempts;
        record.start_time = format!("{:.3}", wait.since());
        record.end_time = format!("{end:.3}");
        record.duration = (waited.as_secs_f64() * 1000.0).round() / 1000.0;
        let visit = (pending.visit, pending.attempts);
        let mut result =
            result::wait_result(step, visit, &times(&record), &found, polls, files.min_count);
        result.task = Some(claim.target());
        record.exit_code = Some(result.exit_code);
        if let Some(fault) = &result.error {
            record.status = Status::TimedOut;
            record.error = Some(fault.clone());
            if wait.retries > 0 && retryable(&result, &record) {
                self.shared.reporter.say(&Notice::Retrying {
                    target: &claim.target(),
                    after: wait.delay,
                    fault,
                });
                self.retried(&pinned, &name, pending.attempts + 1)
                    .map(drop)?;
                return Ok(None);
            }
        }
        let work = FinishedStep {
            result,
            changes: Changes::default(),
            finished: Finished::without_output(record),
        };
        self.commit_once(&pinned, &name, work).map(Some)
    }
}
