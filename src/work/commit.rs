//! The end of a claimed task: its result is committed, its file retired, or it goes back.
//!
//! A finished result is never given up. Where it cannot be committed (a full disk), the claim is
//! kept, nothing more is claimed, and the commit is tried again; the provider is not run a second
//! time for that.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::agents::process::{Wake, Woken};
use crate::disk::mailbox::{Claim, Commit, RECORD, file_name};
use crate::run::record::{Record, Status};
use crate::text::error::Fault;
use crate::work::notice::Notice;
use crate::work::outcome::Finished;
use crate::work::shared::{LATEST, PAUSE, Shared};

/// When something began, by both clocks: the wall clock for people, the monotonic one for durations.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    wall: Timestamp,
    clock: Instant,
}

impl Began {
    pub(crate) fn now() -> Began {
        Began {
            wall: Timestamp::now(),
            clock: Instant::now(),
        }
    }
}

/// Commits, retires and puts back claimed tasks.
#[derive(Clone)]
pub(crate) struct Committer {
    shared: Arc<Shared>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>) -> Committer {
        Committer { shared }
    }

    /// Tries until it succeeds; `None` where orch was stopped first.
    pub(crate) fn persist<T>(
        &self,
        claim: &mut Claim,
        wake: &Wake,
        mut step: impl FnMut(&Claim) -> io::Result<T>,
    ) -> Option<T> {
        loop {
            let error = match step(claim) {
                Ok(done) => return Some(done),
                Err(e) => e,
            };
            let fault = Fault::io("commit", claim.target(), &error)
                .hint("the result is kept and the commit is tried again; nothing new is started meanwhile");
            self.shared.reporter.trouble(&fault);
            self.shared.mailbox.forget_handles();
            self.shared.queue.pause(PAUSE * 2);
            let stopped = wake.sleep(PAUSE) == Woken::Stopped;
            // Its folders may be what is missing. Where not, the next try says so.
            let _ = self.shared.mailbox.renew(claim);
            if stopped {
                return match step(claim) {
                    Ok(done) => Some(done),
                    Err(e) => {
                        self.shared.reporter.trouble(
                            &Fault::io("commit", claim.target(), &e)
                                .hint("its output is in artifacts/; the task will be run again"),
                        );
                        None
                    }
                };
            }
        }
    }

    /// Commits and retires a task, however long that takes.
    pub(crate) fn finish(&self, claim: Claim, finished: &Finished, wake: &Wake) {
        self.finish_then(claim, finished, wake, &|| Ok(()));
    }

    /// The same for a task with something to be done between its commit and its retirement.
    pub(crate) fn finish_then(
        &self,
        mut claim: Claim,
        finished: &Finished,
        wake: &Wake,
        then: &dyn Fn() -> io::Result<()>,
    ) {
        let next = finished.next.as_ref();
        let record = &finished.record;
        let committed = self.persist(&mut claim, wake, |claim| {
            self.shared
                .mailbox
                .commit(claim, record, &finished.outputs, next)
        });
        match committed {
            Some(Commit::Done) => self.wrap_up(&mut claim, record, wake, then),
            Some(Commit::Lost) => self.finish_lost(&claim, finished),
            None => {}
        }
    }

    /// Does what is left to do of a committed task.
    pub(crate) fn wrap_up(
        &self,
        claim: &mut Claim,
        record: &Record,
        wake: &Wake,
        then: &dyn Fn() -> io::Result<()>,
    ) {
        let retired = self.persist(claim, wake, |claim| {
            if let Some(agent) = record.next_agent() {
                self.shared.mailbox.drop_next(claim, &agent)?;
            }
            then()?;
            self.shared.mailbox.retire(claim, record.status)
        });
        if retired.is_some() {
            match record.status.is_success() {
                true => self.shared.tally.one_succeeded(),
                false => self.shared.tally.one_failed(),
            }
            self.shared.reporter.say(&Notice::Finished { record });
        }
    }

    /// Keeps the record of an attempt that is not the result.
    pub(crate) fn keep(&self, claim: &Claim, record: &Record) {
        if let Err(e) = self.shared.mailbox.keep_attempt(claim, record) {
            self.shared
                .reporter
                .trouble(&Fault::io("keep the attempt of", claim.target(), &e));
        }
    }

    /// Puts a claimed task back, or says that it was taken away.
    pub(crate) fn put_back_or_drop(&self, claim: Claim) {
        let target = claim.target();
        if !claim.is_ours().unwrap_or(true) {
            return self
                .shared
                .reporter
                .say(&Notice::Cancelled { target: &target });
        }
        match self.shared.mailbox.put_back(claim) {
            Ok(()) => self
                .shared
                .reporter
                .say(&Notice::PutBack { target: &target }),
            Err(e) => self
                .shared
                .reporter
                .trouble(&Fault::io("put back", &target, &e)),
        }
    }

    /// Ends a task without running it, with the reason.
    pub(crate) fn reject(&self, claim: Claim, fault: Fault, wake: &Wake) {
        let record = blank_record(&claim, 1, Status::Rejected, Some(fault));
        self.finish(claim, &Finished::without_output(record), wake);
    }

    /// The claim was taken from us. A canceller that died before its last step is helped out.
    /// Where it left a record, what the agent printed stays beside that; else it is kept as an
    /// attempt, unless a later task of the name has begun and has set it aside already.
    pub(crate) fn finish_lost(&self, claim: &Claim, finished: &Finished) {
        self.shared.reporter.say(&Notice::Cancelled {
            target: &claim.target(),
        });
        if claim.is_ours().unwrap_or(false) {
            let retired = self.shared.mailbox.retire(claim, Status::Cancelled);
            if let Err(e) = retired {
                self.shared
                    .reporter
                    .trouble(&Fault::io("retire", claim.target(), &e));
            }
            return;
        }
        let has_own_record = claim
            .folders
            .artifacts
            .has(&file_name(&claim.name, RECORD))
            .unwrap_or(true);
        let is_ours = |(_, output): &(&str, Arc<File>)| {
            self.shared
                .mailbox
                .is_output(claim, output)
                .unwrap_or(false)
        };
        if !has_own_record && finished.outputs.first().is_some_and(is_ours) {
            self.keep(claim, &finished.record);
        }
    }
}

/// Waits before another attempt; `false` where there will be none.
pub(crate) fn wait_for_retry(claim: &Claim, after: Duration, wake: &Wake) -> bool {
    let until = Instant::now() + after;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        match wake.sleep(left.min(LATEST)) {
            Woken::Stopped => return false,
            Woken::Poked | Woken::Elapsed if !claim.is_ours().unwrap_or(true) => return false,
            Woken::Poked | Woken::Elapsed => {}
        }
    }
}

/// A record with its names and the present moment.
pub(crate) fn blank_record(
    claim: &Claim,
    attempt: u32,
    status: Status,
    error: Option<Fault>,
) -> Record {
    let mut record = Record::new(
        claim.folders.agent.as_str(),
        claim.name.as_str(),
        attempt,
        status,
    );
    record.error = error;
    stamp(&mut record, Began::now());
    record
}

/// Writes the times of something that ends now into its record.
pub(crate) fn stamp(record: &mut Record, began: Began) {
    let duration = began.clock.elapsed();
    record.start_time = show_time(began.wall);
    // The end is reckoned from the start by the monotonic clock: a clock that jumps does not make
    // a task end before it began.
    record.end_time = show_time(began.wall.saturating_add(duration).unwrap_or(began.wall));
    record.duration = (duration.as_secs_f64() * 1000.0).round() / 1000.0;
}

fn show_time(time: Timestamp) -> String {
    format!("{time:.3}")
}
