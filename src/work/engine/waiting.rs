//! A step that waits for files: how its wait begins, and what it ends with.
//!
//! A wait lasts from the first time that the step was entered, or from its last declared retry, as
//! the run's log says. The wall clock tells how much of that was before this engine had it, and the
//! monotonic clock the rest: the time in which no orch was there counts too.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::attempt::{Began, Desk};
use super::run::Passed;
use super::run_work::{Worked, times};
use super::waits::{How, Over, Parked};
use super::worker::Finished;
use super::{Engine, Notice};
use crate::disk::mailbox::Claim;
use crate::run::record::Status;
use crate::run::state::Pending;
use crate::text::error::Result;
use crate::work::step::prepare::Waiting;
use crate::work::step::result::{self, retryable};

/// No wait is longer: about 30 years.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// What a wait belongs to.
#[derive(Debug)]
pub(super) struct Wait {
    pub run: String,
    /// The step, in the attempt that waits.
    pub pending: Pending,
    /// How often it may be tried again after this, and how much later.
    pub retries: u64,
    pub delay: Duration,
    /// How long it had waited before this engine had it.
    pub before: Duration,
}

impl Wait {
    /// Since when it lasts.
    fn since(&self) -> Timestamp {
        let since = self.pending.since.as_deref();
        since
            .and_then(|since| since.parse().ok())
            .unwrap_or_else(Timestamp::now)
    }
}

impl Engine {
    /// The step needs no worker any more: others attend to it.
    pub(super) fn begin_to_wait(&self, claim: Claim, waiting: Waiting, wait: Wait) {
        self.park(claim, waiting, wait, Duration::ZERO);
    }

    fn park(&self, claim: Claim, waiting: Waiting, mut wait: Wait, delay: Duration) {
        // A wall clock that was set back has not waited at all.
        let before = Timestamp::now().duration_since(wait.since());
        wait.before = Duration::try_from(before).unwrap_or_default();
        let left = waiting.timeout.saturating_sub(wait.before) + delay;
        let now = Instant::now();
        let parked = Parked::new(claim, waiting, now + left.min(LONGEST), wait);
        self.queue.wait_begins();
        if let Err(parked) = self.waits.park(parked, now + delay.min(LONGEST)) {
            self.give_step_back(parked.claim);
        }
    }

    /// Commits what a wait ended with.
    pub(super) fn end_wait(&self, over: Over, desk: &mut Desk) {
        let Over { parked, how } = over;
        let Parked {
            mut claim,
            waiting,
            polls,
            began,
            wait,
            ..
        } = parked;
        if matches!(how, How::Lost) {
            return self.give_back_or_drop(claim);
        }
        let passed = self.result_of_wait(
            &mut claim,
            &waiting,
            (polls, wait.before + began.elapsed()),
            &wait,
            how,
        );
        match passed {
            Ok(Some(passed)) => self.leave_step(claim, Ok(passed), desk),
            Ok(None) => {
                let again = Wait {
                    pending: Pending {
                        attempts: wait.pending.attempts + 1,
                        since: Some(crate::work::clock::now()),
                        ..wait.pending
                    },
                    retries: wait.retries - 1,
                    ..wait
                };
                let delay = again.delay;
                self.park(claim, waiting, again, delay);
            }
            Err(fault) => self.leave_step(claim, Err(fault), desk),
        }
    }

    /// What the wait comes to; `None` where it is to be tried again, which is in the log then.
    fn result_of_wait(
        &self,
        claim: &mut Claim,
        waiting: &Waiting,
        (polls, waited): (u64, Duration),
        wait: &Wait,
        how: How,
    ) -> Result<Option<Passed>> {
        let host = self.host(&wait.run)?;
        let pending = &wait.pending;
        let name = claim.name.to_string();
        let files = match how {
            How::Looked(files) => files,
            How::Lost => return Ok(Some(Passed::Abandoned)),
            How::Broken(fault) => {
                let attempt = pending.attempts;
                let began = Began::now();
                return match self.invalid(claim, &host, pending, attempt, fault, began) {
                    Worked::Result(result, finished) => self
                        .commit_or_again(&host, &name, *result, finished)
                        .map(Some),
                    _ => Ok(Some(Passed::Abandoned)),
                };
            }
        };
        let step = host.workflow.step(host.step(&pending.step)?);
        let mut record = self.step_record(claim, &wait.run, &pending.step, Status::Succeeded, None);
        let end = wait.since().saturating_add(waited).unwrap_or_default();
        record.attempt = pending.attempts;
        record.start_time = format!("{:.3}", wait.since());
        record.end_time = format!("{end:.3}");
        record.duration = (waited.as_secs_f64() * 1000.0).round() / 1000.0;
        let visit = (pending.visit, pending.attempts);
        let mut result = result::wait_result(
            step,
            visit,
            &times(&record),
            &files,
            polls,
            waiting.min_count,
        );
        result.task = Some(claim.target());
        record.exit_code = Some(result.exit_code);
        if let Some(fault) = &result.error {
            record.status = Status::TimedOut;
            record.error = Some(fault.clone());
            if wait.retries > 0 && retryable(&result, &record) {
                (self.listener)(&Notice::Retrying {
                    target: &claim.target(),
                    after: wait.delay,
                    fault,
                });
                self.retried(&host, &name, pending.attempts + 1).map(drop)?;
                return Ok(None);
            }
        }
        let finished = Box::new(Finished::without_output(record));
        self.commit_or_again(&host, &name, result, finished)
            .map(Some)
    }
}
