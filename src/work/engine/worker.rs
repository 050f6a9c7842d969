//! A worker: takes a task, sees it through to `processed/`, takes the next.
//!
//! A worker never gives up a finished result. Where it cannot be committed (a full disk), the
//! claim is kept, nothing more is claimed, and the commit is tried again; the provider is not run
//! a second time for that.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::attempt::{Desk, Tried};
use super::dirs::DirLock;
use super::queue::{Item, Name, Queue, Work};
use super::{Engine, Notice};
use crate::agents::process::{Wake, Woken};
use crate::disk::mailbox::{Adoption, Claim, Commit, Look, Next, TASK, file_name};
use crate::run::record::{Record, Status};
use crate::run::state::Changes;
use crate::spec::task::Task;
use crate::text::error::{Fault, Kind};
use crate::work::job::Job;

/// How soon a task that was busy is looked at again; doubled each time, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);
/// How long nothing is claimed after the disk or the system refused something.
const PAUSE: Duration = Duration::from_secs(1);

/// A result, ready to be committed.
pub(super) struct Finished {
    pub record: Record,
    pub outputs: Vec<(&'static str, Arc<File>)>,
    pub next: Option<Next>,
    /// What a step of a run changed in the canonical document.
    pub changes: Changes,
    /// For a step of a run: what it brought up has a higher number than this. Where nobody knows,
    /// everything that the run waits for is looked at.
    pub brought_up_after: Option<u64>,
}

impl Engine {
    pub(super) fn work(&self, wake: &Wake) {
        let mut desk = Desk::new(wake.clone());
        while let Some(work) = self.queue.take() {
            let name = match &work {
                Work::Look(item) | Work::Told(item) => {
                    Some((item.folders.agent.clone(), item.name.clone()))
                }
                Work::Adopted(_) | Work::Over(_) => None,
            };
            let _done = Done(&self.queue, name);
            match work {
                Work::Look(item) => self.look(item, &mut desk),
                Work::Told(item) => self.look_at_once(item, &mut desk),
                Work::Adopted(claim) => self.take_over(claim, &mut desk),
                Work::Over(over) => self.end_wait(*over, &mut desk),
            }
        }
    }

    /// Looks at a task before a scan has found it: with the settings as they are now, and in
    /// folders that are still in their places, as after a scan.
    fn look_at_once(&self, item: Item, desk: &mut Desk) {
        self.catalogue.refresh(&|fault| self.trouble(fault));
        let human = self.catalogue.is_human(&item.folders.agent);
        if human || !self.mailbox.is_in_place(&item.folders) {
            return self.queue.wake();
        }
        self.look(item, desk);
    }

    fn look(&self, item: Item, desk: &mut Desk) {
        match self.mailbox.look(&item.folders, &item.name, item.suffix) {
            Ok(Look::Gone) => {}
            Ok(Look::Busy) => self.look_again(item),
            Ok(Look::Stray(why)) => {
                let path = format!("inbox/{}/{}{}", item.folders.agent, item.name, item.suffix);
                self.report_stray(&path, why);
                self.leave_alone(item);
            }
            Ok(Look::Ready(held)) if item.suffix != TASK => self.answered(held, item, desk),
            Ok(Look::Ready(held)) => {
                if let Ok(task) = Task::parse(&held.bytes)
                    && self.is_of_a_workflow(&held.folders().agent, &task.header)
                {
                    return self
                        .claim_and(held, item, |claim| self.work_on_run(claim, &task, desk));
                }
                let plan = self
                    .planner()
                    .job(&held.folders().agent, held.name(), &held.bytes);
                let dir_lock = match plan.as_ref().map(|plan| self.dirs.lock(plan)) {
                    Ok(Ok(lock)) => lock,
                    Ok(Err(fault)) => {
                        // The folder cannot be had at all: that is the task's answer.
                        return self.claim_and(held, item, |claim| self.reject(claim, fault, desk));
                    }
                    Err(_) => DirLock::NotNeeded,
                };
                if matches!(dir_lock, DirLock::Busy) {
                    return self.look_again(item);
                }
                self.claim_and(held, item, |claim| match plan {
                    Ok(plan) => self.see_through(claim, &plan, 1, desk),
                    Err(fault) => self.reject(claim, fault, desk),
                });
            }
            Err(e) => self.short_of("look at", item, &e),
        }
    }

    /// Nothing is to be done about this name until it is something else.
    fn leave_alone(&self, item: Item) {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        strays
            .entry(item.folders.agent.clone())
            .or_default()
            .insert(file_name(&item.name, item.suffix));
    }

    /// Claims a task and does something with it, or looks again later.
    pub(super) fn claim_and(
        &self,
        held: crate::disk::mailbox::Held,
        item: Item,
        then: impl FnOnce(Claim),
    ) {
        match self.mailbox.claim(held) {
            Ok(Some(claim)) => then(claim),
            Ok(None) => self.look_again(item),
            Err(e) => self.short_of("claim", item, &e),
        }
    }

    fn look_again(&self, mut item: Item) {
        let after = AGAIN.saturating_mul(1 << item.looks.min(8)).min(LATEST);
        item.looks += 1;
        self.queue.look_again(item, after);
    }

    /// The system refused something before the task was ours: it waits, and so do we.
    fn short_of(&self, verb: &str, item: Item, error: &io::Error) {
        let path = item.folders.inbox.path().join(item.name.as_str());
        let fault = Fault::io(verb, path, error);
        self.trouble(&match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => {
                fault.hint("too many open files: raise `ulimit -n` or lower --jobs")
            }
            Some(Errno::NOSPC | Errno::DQUOT) => {
                fault.hint("the disk is full: make room; nothing is lost")
            }
            _ => fault,
        });
        self.mailbox.forget_handles();
        self.queue.pause(PAUSE);
        self.queue.look_again(item, PAUSE);
    }

    fn take_over(&self, claim: Claim, desk: &mut Desk) {
        let target = claim.target();
        if let Err(e) = self.try_take_over(claim, desk) {
            self.trouble(&Fault::io("take over", target, &e));
            self.queue.pause(PAUSE);
        }
    }

    fn try_take_over(&self, mut claim: Claim, desk: &mut Desk) -> io::Result<()> {
        match self.mailbox.look_at_adopted(&claim) {
            Ok(Adoption::Committed(record)) if record.status == Status::Started => {
                match Task::parse(&claim.bytes) {
                    Ok(task) => self.start_run(claim, &task, Some(&record), desk),
                    Err(fault) => self.reject(claim, fault, desk),
                }
                return Ok(());
            }
            Ok(Adoption::Committed(record)) => {
                self.wrap_up(&mut claim, &record, None, desk);
                return Ok(());
            }
            Ok(Adoption::Unfinished) => {}
            // Something else has the record's name: it is set aside with the rest below.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {}
            Err(e) => return Err(e),
        }
        let agent = &claim.folders.agent;
        if self.catalogue.is_human(agent) {
            if let Some(task) = self.step_task(&claim) {
                self.take_over_question(claim, &task, desk);
                return Ok(());
            }
            // The person's words are in the file; only the renaming has to be done again.
            return self.mailbox.put_back(claim);
        }
        if let Some(task) = self.step_task(&claim)
            && self.is_in_the_log(&claim, &task)
        {
            // Its files are the run's, and stay where they are; only the rest is to be done.
            self.work_on_step(claim, &task, None, desk);
            return Ok(());
        }
        self.mailbox.set_aside_leftovers(&claim)?;
        let setback = self.mailbox.setbacks(&claim.folders, &claim.name)?;
        let attempt = setback.attempts + 1;
        let most = self.catalogue.limits().interrupted;
        if setback.interrupted >= most {
            let fault = Fault::new(
                Kind::Interrupted,
                format!("interrupted {} times by a crash", setback.interrupted),
            )
            .hint(format!(
                "see what ends orch or the agent, then `orch retry {}`",
                claim.target()
            ));
            if let Some(task) = self.step_task(&claim) {
                self.work_on_step(claim, &task, Some(fault), desk);
                return Ok(());
            }
            let record = self.blank_record(&claim, attempt, Status::Failed, Some(fault));
            self.finish(claim, Finished::without_output(record), desk);
            return Ok(());
        }
        if let Ok(task) = Task::parse(&claim.bytes)
            && self.is_of_a_workflow(agent, &task.header)
        {
            self.work_on_run(claim, &task, desk);
            return Ok(());
        }
        match self.planner().job(agent, &claim.name, &claim.bytes) {
            Ok(plan) => match self.dirs.lock(&plan) {
                Ok(DirLock::Busy) => self.mailbox.put_back(claim)?,
                Ok(_lock) => self.see_through(claim, &plan, attempt, desk),
                Err(fault) => self.reject(claim, fault, desk),
            },
            Err(fault) => self.reject(claim, fault, desk),
        }
        Ok(())
    }

    pub(super) fn reject(&self, claim: Claim, fault: Fault, desk: &mut Desk) {
        let record = self.blank_record(&claim, 1, Status::Rejected, Some(fault));
        self.finish(claim, Finished::without_output(record), desk);
    }

    /// Runs a claimed task until it has a result, is cancelled, or orch stops.
    fn see_through(&self, mut claim: Claim, plan: &Job, first_attempt: u32, desk: &mut Desk) {
        let target = claim.target();
        let mut attempt = first_attempt;
        let mut retries = 0;
        loop {
            (self.listener)(&Notice::Started {
                target: &target,
                provider: &plan.setup.provider_name,
                attempt,
            });
            match self.attempt(&mut claim, plan, attempt, retries, desk) {
                Ok(Tried::Finished(finished)) => return self.finish(claim, *finished, desk),
                Ok(Tried::Again { record, after }) => {
                    if let Some(fault) = &record.error {
                        (self.listener)(&Notice::Retrying {
                            target: &target,
                            after,
                            fault,
                        });
                    }
                    self.keep(&claim, &record);
                    attempt += 1;
                    retries += 1;
                    if !self.wait_for_retry(&claim, after, desk) {
                        return self.give_back_or_drop(claim);
                    }
                }
                Ok(Tried::Stopped(record)) => {
                    self.keep(&claim, &record);
                    return self.give_back_or_drop(claim);
                }
                Ok(Tried::Cancelled(finished)) => return self.finish_cancelled(&claim, &finished),
                Ok(Tried::Abandoned) => return,
                Err(e) => {
                    // Nothing was run: the files of the attempt could not be made.
                    self.trouble(
                        &Fault::io("prepare the output of", &target, &e)
                            .hint("the task stays where it is and is tried again"),
                    );
                    self.queue.pause(PAUSE);
                    if desk.wake.sleep(PAUSE) == Woken::Stopped || !claim.is_ours().unwrap_or(true)
                    {
                        return self.give_back_or_drop(claim);
                    }
                    // Its folders may be what is missing. Where not, the next try says so.
                    let _ = self.mailbox.renew(&mut claim);
                }
            }
        }
    }

    /// Waits before another attempt; `false` where there will be none.
    pub(super) fn wait_for_retry(&self, claim: &Claim, after: Duration, desk: &Desk) -> bool {
        let until = std::time::Instant::now() + after;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return true;
            }
            match desk.wake.sleep(left.min(LATEST)) {
                Woken::Stopped => return false,
                Woken::Poked | Woken::Elapsed if !claim.is_ours().unwrap_or(true) => return false,
                Woken::Poked | Woken::Elapsed => {}
            }
        }
    }

    pub(super) fn keep(&self, claim: &Claim, record: &Record) {
        if let Err(e) = self.mailbox.keep_attempt(claim, record) {
            self.trouble(&Fault::io("keep the attempt of", claim.target(), &e));
        }
    }

    pub(super) fn give_back_or_drop(&self, claim: Claim) {
        let target = claim.target();
        if !claim.is_ours().unwrap_or(true) {
            return (self.listener)(&Notice::Cancelled { target: &target });
        }
        match self.mailbox.put_back(claim) {
            Ok(()) => (self.listener)(&Notice::PutBack { target: &target }),
            Err(e) => self.trouble(&Fault::io("put back", &target, &e)),
        }
    }

    /// Commits and retires, however long that takes.
    pub(super) fn finish(&self, mut claim: Claim, finished: Finished, desk: &Desk) {
        let next = finished.next.as_ref();
        let record = &finished.record;
        let committed = self.persist(&mut claim, desk, |claim| {
            self.mailbox.commit(claim, record, &finished.outputs, next)
        });
        match committed {
            Some(Commit::Done) => {
                self.wrap_up(&mut claim, record, finished.brought_up_after, desk);
            }
            Some(Commit::Lost) => self.finish_cancelled(&claim, &finished),
            None => {}
        }
    }

    /// What is left to do of a committed task.
    fn wrap_up(&self, claim: &mut Claim, record: &Record, after: Option<u64>, desk: &Desk) {
        let retired = self.persist(claim, desk, |claim| {
            if let Some(agent) = record.next_agent() {
                self.mailbox.drop_next(claim, &agent)?;
            }
            if let Some(run) = &record.run {
                self.drop_or_stop(run, after)?;
            }
            self.mailbox.retire(claim, record.status)
        });
        if retired.is_some() {
            let counter = if record.status.is_success() {
                &self.succeeded
            } else {
                &self.failed
            };
            counter.fetch_add(1, Ordering::Relaxed);
            (self.listener)(&Notice::Finished { record });
        }
    }

    /// The claim was taken from us. A canceller that died before its last step is helped out.
    /// Where it left a record, what the agent printed stays beside that; else it is kept as an
    /// attempt, unless a later task of the name has begun and has set it aside already.
    fn finish_cancelled(&self, claim: &Claim, finished: &Finished) {
        (self.listener)(&Notice::Cancelled {
            target: &claim.target(),
        });
        if claim.is_ours().unwrap_or(false) {
            let retired = self.mailbox.retire(claim, Status::Cancelled);
            if let Err(e) = retired {
                self.trouble(&Fault::io("retire", claim.target(), &e));
            }
            return;
        }
        let has_own_record = claim
            .folders
            .artifacts
            .has(&file_name(&claim.name, crate::disk::mailbox::RECORD))
            .unwrap_or(true);
        let is_ours = |(_, output): &(&str, Arc<File>)| {
            self.mailbox.is_output(claim, output).unwrap_or(false)
        };
        if !has_own_record && finished.outputs.first().is_some_and(is_ours) {
            self.keep(claim, &finished.record);
        }
    }

    /// Tries until it succeeds; `None` where orch was stopped first.
    pub(super) fn persist<T>(
        &self,
        claim: &mut Claim,
        desk: &Desk,
        mut step: impl FnMut(&Claim) -> io::Result<T>,
    ) -> Option<T> {
        loop {
            let error = match step(claim) {
                Ok(done) => return Some(done),
                Err(e) => e,
            };
            let fault = Fault::io("commit", claim.target(), &error)
                .hint("the result is kept and the commit is tried again; nothing new is started meanwhile");
            self.trouble(&fault);
            self.mailbox.forget_handles();
            self.queue.pause(PAUSE * 2);
            let stopped = desk.wake.sleep(PAUSE) == Woken::Stopped;
            // Its folders may be what is missing. Where not, the next try says so.
            let _ = self.mailbox.renew(claim);
            if stopped {
                return match step(claim) {
                    Ok(done) => Some(done),
                    Err(e) => {
                        self.trouble(
                            &Fault::io("commit", claim.target(), &e)
                                .hint("its output is in artifacts/; the task will be run again"),
                        );
                        None
                    }
                };
            }
        }
    }
}

impl Finished {
    pub(super) fn without_output(record: Record) -> Finished {
        Finished {
            record,
            outputs: Vec::new(),
            next: None,
            changes: Changes::default(),
            brought_up_after: None,
        }
    }
}

/// Tells the queue that a worker is free again, whatever happened.
struct Done<'a>(&'a Queue, Option<Name>);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done(self.1.as_ref());
    }
}
