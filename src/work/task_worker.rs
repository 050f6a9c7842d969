//! The worker for bare tasks: a job is made of the task, attempted until it has a result, and
//! committed.
//!
//! Touches the task's own files and its agent's folders. Knows nothing of runs: a task that belongs to
//! one never gets here.

use std::sync::Arc;

use crate::agents::process::Woken;
use crate::disk::mailbox::{Answer, Claim, Held};
use crate::run::record::Status;
use crate::text::error::{Fault, Kind};
use crate::work::attempt::{AttemptRunner, FolderLock, WorkerState};
use crate::work::commit::{Committer, blank_record, wait_for_retry};
use crate::work::job::{Job, Planner};
use crate::work::notice::Notice;
use crate::work::outcome::{Finished, Unfinished};
use crate::work::queue::Item;
use crate::work::shared::{PAUSE, Shared};

/// Works on bare tasks.
pub(crate) struct TaskWorker {
    shared: Arc<Shared>,
    committer: Committer,
    attempts: Arc<AttemptRunner>,
}

impl TaskWorker {
    pub(crate) fn new(shared: Arc<Shared>, attempts: Arc<AttemptRunner>) -> TaskWorker {
        TaskWorker {
            committer: Committer::new(shared.clone()),
            shared,
            attempts,
        }
    }

    /// Claims a waiting task and works on it, unless another one works in its folder.
    pub(crate) fn start(&self, held: Held, item: Item, worker: &mut WorkerState) {
        let job = self
            .planner()
            .job(&held.folders().agent, held.name(), &held.bytes);
        let folder = match job.as_ref().map(|job| self.attempts.lock_folder(job)) {
            Ok(Ok(lock)) => lock,
            Ok(Err(fault)) => {
                // The folder cannot be had at all: that is the task's answer.
                return self.shared.claim_and(held, item, |claim| {
                    self.committer.reject(claim, fault, &worker.wake);
                });
            }
            Err(_) => FolderLock::NotNeeded,
        };
        if matches!(folder, FolderLock::Busy) {
            return self.shared.look_again(item);
        }
        self.shared.claim_and(held, item, |claim| match job {
            Ok(job) => self.see_through(claim, &job, 1, worker),
            Err(fault) => self.committer.reject(claim, fault, &worker.wake),
        });
    }

    /// Works on a claim of a dead watcher, as this attempt.
    pub(crate) fn take_over(
        &self,
        claim: Claim,
        attempt: u32,
        worker: &mut WorkerState,
    ) -> std::io::Result<()> {
        let job = self
            .planner()
            .job(&claim.folders.agent, &claim.name, &claim.bytes);
        let locked = job.and_then(|job| Ok((self.attempts.lock_folder(&job)?, job)));
        match locked {
            Ok((FolderLock::Busy, _)) => self.shared.mailbox.put_back(claim)?,
            Ok((_lock, job)) => self.see_through(claim, &job, attempt, worker),
            Err(fault) => self.committer.reject(claim, fault, &worker.wake),
        }
        Ok(())
    }

    /// Fails a task that crashes have interrupted too often.
    pub(crate) fn give_up(&self, claim: Claim, attempt: u32, fault: Fault, worker: &WorkerState) {
        let record = blank_record(&claim, attempt, Status::Failed, Some(fault));
        let finished = Finished::without_output(record);
        self.committer.finish(claim, &finished, &worker.wake);
    }

    fn planner(&self) -> Planner<'_> {
        Planner {
            catalogue: &self.shared.catalogue,
            mailbox: &self.shared.mailbox,
        }
    }

    /// Runs a claimed task until it has a result, is cancelled, or orch stops.
    fn see_through(
        &self,
        mut claim: Claim,
        job: &Job,
        first_attempt: u32,
        worker: &mut WorkerState,
    ) {
        let target = claim.target();
        let mut attempt = first_attempt;
        let mut retries = 0;
        loop {
            self.shared.reporter.say(&Notice::Started {
                target: &target,
                provider: &job.setup.provider_name,
                attempt,
            });
            let attempted = self
                .attempts
                .attempt(&mut claim, job, attempt, retries, worker);
            match attempted {
                Ok(finished) => return self.committer.finish(claim, &finished, &worker.wake),
                Err(Unfinished::Again { record, after }) => {
                    if let Some(fault) = &record.error {
                        self.shared.reporter.say(&Notice::Retrying {
                            target: &target,
                            after,
                            fault,
                        });
                    }
                    self.committer.keep(&claim, &record);
                    attempt += 1;
                    retries += 1;
                    if !wait_for_retry(&claim, after, &worker.wake) {
                        return self.committer.put_back_or_drop(claim);
                    }
                }
                Err(Unfinished::Failed(fault)) => {
                    // Nothing was run: the files of the attempt could not be made.
                    let hint = "the task stays where it is and is tried again";
                    self.shared.reporter.trouble(&fault.hint(hint));
                    self.shared.queue.pause(PAUSE);
                    let stopped = worker.wake.sleep(PAUSE) == Woken::Stopped;
                    if stopped || !claim.is_ours().unwrap_or(true) {
                        return self.committer.put_back_or_drop(claim);
                    }
                    // Its folders may be what is missing. Where not, the next try says so.
                    let _ = self.shared.mailbox.renew(&mut claim);
                }
                Err(Unfinished::Stopped(record)) => {
                    self.committer.keep(&claim, &record);
                    return self.committer.put_back_or_drop(claim);
                }
                Err(Unfinished::Lost(finished)) => {
                    return self.committer.finish_lost(&claim, &finished);
                }
                Err(Unfinished::Abandoned) => return,
                // Only steps of runs end so; a bare task waits in its inbox again.
                Err(Unfinished::Withdrawn | Unfinished::Waits(..)) => {
                    return self.committer.put_back_or_drop(claim);
                }
            }
        }
    }

    /// A person's answer becomes the result of the task that asked for it.
    pub(crate) fn answered(
        &self,
        held: Held,
        item: Item,
        request: &str,
        (kind, note): (Answer, &str),
        worker: &WorkerState,
    ) {
        let job = self
            .planner()
            .job(&held.folders().agent, held.name(), request.as_bytes());
        self.shared.claim_and(held, item, |claim| {
            let answer = match (kind, note) {
                (Answer::Reply, "") => return self.ask_again(claim),
                (Answer::Rejected, "") => Err(Fault::new(Kind::Rejected, "rejected by a person")),
                (Answer::Rejected, note) => {
                    let message = format!("rejected by a person: {note}");
                    Err(Fault::new(Kind::Rejected, message))
                }
                _ => Ok(note.to_owned()),
            };
            let finished = match job {
                Ok(job) => self.attempts.answer(&claim, &job, 1, answer),
                Err(fault) => {
                    let record = blank_record(&claim, 1, Status::Rejected, Some(fault));
                    Ok(Finished::without_output(record))
                }
            };
            match finished {
                Ok(finished) => self.committer.finish(claim, &finished, &worker.wake),
                Err(Unfinished::Failed(fault)) => self.shared.reporter.trouble(&fault),
                Err(_) => {}
            }
        });
    }

    /// A reply without text: the task waits for the person again.
    fn ask_again(&self, claim: Claim) {
        let message = format!(
            "`{}.reply` has no text below a line `--- answer`",
            claim.target()
        );
        let fault = Fault::new(Kind::InvalidTask, message)
            .hint("write the answer there, and rename the task to .reply again");
        self.shared.reporter.trouble(&fault);
        if let Err(e) = self.shared.mailbox.put_back(claim) {
            self.shared
                .reporter
                .trouble(&Fault::io("put back", "the task", &e));
        }
    }
}
