//! A worker thread: takes a name from the queue, finds out whose work it is, and hands it to the task
//! worker or the step worker, which see it through.
//!
//! Decides nothing about a task but who works on it.

use std::io;
use std::sync::Arc;

use crate::agents::process::Wake;
use crate::disk::mailbox::{ANSWERS, Adoption, Answer, Claim, Held, Look, TASK};
use crate::run::record::Status;
use crate::spec::task::Task;
use crate::text::error::{Fault, Kind};
use crate::work::attempt::WorkerState;
use crate::work::commit::Committer;
use crate::work::queue::{Item, Queue, QueuedWork};
use crate::work::shared::{PAUSE, Shared};
use crate::work::skipped::Skipped;
use crate::work::step::question::ANSWER;
use crate::work::step_worker::{StepWorker, step_task};
use crate::work::task_key::TaskKey;
use crate::work::task_worker::TaskWorker;

/// What every worker thread does.
pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    pub tasks: TaskWorker,
    pub steps: StepWorker,
    pub skipped: Arc<Skipped>,
}

impl Worker {
    /// Works until the queue hands out nothing more.
    pub(crate) fn run(&self, wake: &Wake) {
        let mut worker = WorkerState::new(wake.clone());
        while let Some(work) = self.shared.queue.take() {
            let key = match &work {
                QueuedWork::Look(item) | QueuedWork::Named(item) => {
                    Some((item.folders.agent.clone(), item.name.clone()))
                }
                QueuedWork::Adopted(_) | QueuedWork::WaitEnded(_) => None,
            };
            let _done = Done(&self.shared.queue, key);
            match work {
                QueuedWork::Look(item) => self.look(item, &mut worker),
                QueuedWork::Named(item) => self.look_at_once(item, &mut worker),
                QueuedWork::Adopted(claim) => self.take_over(claim, &mut worker),
                QueuedWork::WaitEnded(ended) => self.steps.end_wait(*ended, &worker),
            }
        }
    }

    /// Looks at a task before a scan has found it: with the settings as they are now, and in
    /// folders that are still in their places, as after a scan.
    fn look_at_once(&self, item: Item, worker: &mut WorkerState) {
        let reporter = &self.shared.reporter;
        self.shared
            .catalogue
            .refresh(&|fault| reporter.trouble(fault));
        let human = self.shared.catalogue.is_human(&item.folders.agent);
        if human || !self.shared.mailbox.is_in_place(&item.folders) {
            return self.shared.queue.wake();
        }
        self.look(item, worker);
    }

    fn look(&self, item: Item, worker: &mut WorkerState) {
        let looked = self
            .shared
            .mailbox
            .look(&item.folders, &item.name, item.suffix);
        match looked {
            Ok(Look::Gone) => {}
            Ok(Look::Busy) => self.shared.look_again(item),
            Ok(Look::Stray(why)) => {
                let path = format!("inbox/{}/{}{}", item.folders.agent, item.name, item.suffix);
                self.shared.reporter.stray(&path, why);
                self.skipped
                    .add_stray(&item.folders, &item.name, item.suffix);
            }
            Ok(Look::Ready(held)) if item.suffix != TASK => self.answered(held, item, worker),
            Ok(Look::Ready(held)) => self.start(held, item, worker),
            Err(e) => self.shared.short_of("look at", item, &e),
        }
    }

    fn start(&self, held: Held, item: Item, worker: &mut WorkerState) {
        if let Ok(task) = Task::parse(&held.bytes)
            && self
                .steps
                .is_of_a_workflow(&held.folders().agent, &task.header)
        {
            return self.shared.claim_and(held, item, |claim| {
                self.steps.work_on_run(claim, &task, worker);
            });
        }
        self.tasks.start(held, item, worker);
    }

    /// A person renamed a task to say what they decided.
    fn answered(&self, held: Held, item: Item, worker: &WorkerState) {
        let text = String::from_utf8_lossy(&held.bytes).into_owned();
        let kind = ANSWERS
            .iter()
            .find(|(suffix, _)| *suffix == item.suffix)
            .map_or(Answer::Reply, |(_, kind)| *kind);
        let (request, note) = split_answer(&text);
        if let Ok(task) = Task::parse(request.as_bytes())
            && task.header.step.is_some()
        {
            return self
                .steps
                .question_answered(held, item, &task, (kind, note), worker);
        }
        self.tasks
            .answered(held, item, request, (kind, note), worker);
    }

    fn take_over(&self, claim: Claim, worker: &mut WorkerState) {
        let target = claim.target();
        if let Err(e) = self.try_take_over(claim, worker) {
            self.shared
                .reporter
                .trouble(&Fault::io("take over", target, &e));
            self.shared.queue.pause(PAUSE);
        }
    }

    fn try_take_over(&self, mut claim: Claim, worker: &mut WorkerState) -> io::Result<()> {
        match self.shared.mailbox.look_at_adopted(&claim) {
            Ok(Adoption::Committed(record)) if record.status == Status::Started => {
                match Task::parse(&claim.bytes) {
                    Ok(task) => self.steps.start_run(claim, &task, Some(&record), worker),
                    Err(fault) => self.reject(claim, fault, worker),
                }
                return Ok(());
            }
            Ok(Adoption::Committed(record)) => {
                self.steps.wrap_up(&mut claim, &record, &worker.wake);
                return Ok(());
            }
            Ok(Adoption::Unfinished) => {}
            // Something else has the record's name: it is set aside with the rest below.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {}
            Err(e) => return Err(e),
        }
        if self.shared.catalogue.is_human(&claim.folders.agent) {
            if let Some(task) = step_task(&claim) {
                self.steps.take_over_question(claim, &task, worker);
                return Ok(());
            }
            // The person's words are in the file; only the renaming has to be done again.
            return self.shared.mailbox.put_back(claim);
        }
        if let Some(task) = step_task(&claim)
            && self.steps.is_in_the_log(&claim, &task)
        {
            // Its files are the run's, and stay where they are; only the rest is to be done.
            self.steps.work_on_step(claim, &task, None, worker);
            return Ok(());
        }
        self.run_again(claim, worker)
    }

    /// Runs what a dead watcher had begun, unless crashes have interrupted it too often.
    fn run_again(&self, claim: Claim, worker: &mut WorkerState) -> io::Result<()> {
        self.shared.mailbox.set_aside_leftovers(&claim)?;
        let setback = self.shared.mailbox.setbacks(&claim.folders, &claim.name)?;
        let attempt = setback.attempts + 1;
        let most = self.shared.catalogue.limits().interrupted;
        if setback.interrupted >= most {
            let message = format!("interrupted {} times by a crash", setback.interrupted);
            let fault = Fault::new(Kind::Interrupted, message).hint(format!(
                "see what ends orch or the agent, then `orch retry {}`",
                claim.target()
            ));
            match step_task(&claim) {
                Some(task) => self.steps.work_on_step(claim, &task, Some(fault), worker),
                None => self.tasks.give_up(claim, attempt, fault, worker),
            }
            return Ok(());
        }
        if let Ok(task) = Task::parse(&claim.bytes)
            && self
                .steps
                .is_of_a_workflow(&claim.folders.agent, &task.header)
        {
            self.steps.work_on_run(claim, &task, worker);
            return Ok(());
        }
        self.tasks.take_over(claim, attempt, worker)
    }

    fn reject(&self, claim: Claim, fault: Fault, worker: &WorkerState) {
        Committer::new(self.shared.clone()).reject(claim, fault, &worker.wake);
    }
}

/// The request, and what a person wrote below the line `--- answer`.
fn split_answer(text: &str) -> (&str, &str) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == ANSWER {
            return (&text[..start], text[start + line.len()..].trim());
        }
        start += line.len();
    }
    (text, "")
}

/// Tells the queue that a worker is free again, whatever happened.
struct Done<'a>(&'a Queue, Option<TaskKey>);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done(self.1.as_ref());
    }
}
