//! People's answers to the questions of runs, given by renaming the question's file.
//!
//! The answer is in the log before the file is claimed, so that a claim never has to say what the
//! answer was: whoever dies before that leaves the file as the person named it, and whoever dies
//! after it leaves a task that its run does not wait for any more.

use std::time::Duration;

use super::{StepWorker, forged, step_of};
use crate::disk::mailbox::{Answer, Claim, Held, OUT};
use crate::disk::store::PATIENCE;
use crate::run::flow::HUMAN;
use crate::run::record::{Record, Status};
use crate::run::state::{Pending, RunState};
use crate::spec::task::Task;
use crate::text::error::{Fault, Kind, Result};
use crate::work::attempt::WorkerState;
use crate::work::dispatch::{Dispatcher, PersonsAnswer};
use crate::work::outcome::Finished;
use crate::work::queue::Item;

/// Who answered, where a renamed file is all that there is.
const BY_FILE: &str = "file";

impl StepWorker {
    /// A person renamed the task of a question.
    pub(crate) fn question_answered(
        &self,
        held: Held,
        item: Item,
        task: &Task,
        (kind, text): (Answer, &str),
        worker: &WorkerState,
    ) {
        let answer = PersonsAnswer {
            kind,
            text,
            by: BY_FILE,
        };
        match self.take_answer(&held, task, answer) {
            Ok(finished) => self.shared.claim_and(held, item, |claim| {
                self.finish(claim, &finished, None, &worker.wake);
            }),
            Err(fault) if fault.is_worth_retrying() => {
                self.shared.reporter.trouble(&fault);
                drop(held);
                self.shared.queue.look_again(item, Duration::from_secs(1));
            }
            // It cannot be taken: the question is open again, with the person's words in it.
            Err(fault) if fault.kind == Kind::Usage => {
                self.shared.reporter.trouble(&fault);
                self.shared.claim_and(held, item, |claim| {
                    if let Err(e) = self.shared.mailbox.put_back(claim) {
                        self.shared
                            .reporter
                            .trouble(&Fault::io("put back", "the question", &e));
                    }
                });
            }
            Err(fault) => self.shared.claim_and(held, item, |claim| {
                self.committer.reject(claim, fault, &worker.wake)
            }),
        }
    }

    /// Writes an answer to the log, unless its run does not wait for it any more.
    fn take_answer(&self, held: &Held, task: &Task, answer: PersonsAnswer<'_>) -> Result<Finished> {
        let name = held.name().to_string();
        let pinned = self.open_of(task)?;
        let dispatcher = self.dispatcher(&pinned);
        let locked = pinned.run.lock(PATIENCE)?;
        let state = locked.load(&pinned.workflow)?;
        let Some(pending) = open_question(&state, &name) else {
            let record = late(&dispatcher, &state, &name, Some(answer))?;
            return Ok(Finished::without_output(record));
        };
        let taken = dispatcher.answer(&locked, state, &pending, held.folders(), answer)?;
        drop(locked);
        self.report(pinned.run.id(), &taken.effects);
        Ok(Finished {
            record: taken.record,
            outputs: vec![(OUT, taken.output)],
            next: None,
        })
    }

    /// Somebody died with a question in hand: it is still open, or only has to be put away.
    pub(crate) fn take_over_question(&self, claim: Claim, task: &Task, worker: &WorkerState) {
        let record = self.open_of(task).and_then(|pinned| {
            let locked = pinned.run.lock(PATIENCE)?;
            let state = locked.load(&pinned.workflow)?;
            match open_question(&state, claim.name.as_str()) {
                Some(_) => Ok(None),
                None => {
                    late(&self.dispatcher(&pinned), &state, claim.name.as_str(), None).map(Some)
                }
            }
        });
        match record {
            Ok(None) => self.committer.put_back_or_drop(claim),
            Ok(Some(record)) => {
                let finished = Finished::without_output(record);
                self.finish(claim, &finished, None, &worker.wake);
            }
            Err(fault) if fault.is_worth_retrying() => {
                self.shared.reporter.trouble(&fault);
                self.committer.put_back_or_drop(claim);
            }
            Err(fault) => self.committer.reject(claim, fault, &worker.wake),
        }
    }
}

/// The question of this task, if its run waits for the answer.
fn open_question(state: &RunState, task: &str) -> Option<Pending> {
    let pending = state.pending(task)?;
    (pending.asks.is_some() && !state.status.is_final()).then(|| pending.clone())
}

/// The record of a task that asks nothing any more: answered before a crash, or not needed.
fn late(
    dispatcher: &Dispatcher<'_>,
    state: &RunState,
    task: &str,
    answer: Option<PersonsAnswer<'_>>,
) -> Result<Record> {
    let Some(step) = step_of(task, state) else {
        return Err(forged(&state.run_id));
    };
    let counted = state.governance.decisions.values().any(|d| d.step == step)
        || is_result_of(state, &step, task);
    let pending = Pending {
        task: task.to_owned(),
        agent: HUMAN.to_owned(),
        step,
        item: None,
        visit: 0,
        attempts: 1,
        since: None,
        asks: None,
        put_back: false,
    };
    let nothing = PersonsAnswer {
        kind: Answer::Reply,
        text: "",
        by: BY_FILE,
    };
    let mut record = dispatcher.record(&pending, answer.unwrap_or(nothing));
    if answer.is_none() {
        record.answer = None;
    }
    if !counted {
        let message = format!(
            "run `{}` does not wait for this answer any more",
            state.run_id
        );
        record.status = Status::Rejected;
        record.exit_code = None;
        record.error = Some(Fault::new(Kind::Rejected, message));
    }
    Ok(record)
}

fn is_result_of(state: &RunState, step: &str, task: &str) -> bool {
    let task = format!("{HUMAN}/{task}");
    let of = |result: &serde_json::Value| result["task"] == task.as_str();
    let in_loop = |items: &serde_json::Value| {
        let mut items = items.as_array().into_iter().flatten();
        items.any(|item| of(&item[step]))
    };
    state.step_results.get(step).is_some_and(of) || state.step_results.values().any(in_loop)
}
