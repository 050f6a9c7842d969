//! People's answers to the questions of runs, given by renaming the question's file.
//!
//! The answer is in the log before the file is claimed, so that a claim never has to say what the
//! answer was: whoever dies before that leaves the file as the person named it, and whoever dies
//! after it leaves a task that its run does not wait for any more.

use std::time::Duration;

use super::Engine;
use super::attempt::Desk;
use super::queue::Item;
use super::run::{forged, step_of};
use super::worker::Finished;
use crate::disk::mailbox::{Answer, Claim, Held, OUT};
use crate::disk::store::PATIENCE;
use crate::run::flow::HUMAN;
use crate::run::record::{Record, Status};
use crate::run::state::{Changes, Pending, RunState};
use crate::spec::task::Task;
use crate::text::error::{Fault, Kind, Result};
use crate::work::dispatch::{Dispatcher, PersonsAnswer};
use crate::work::pinned::PinnedRun;

/// Who answered, where a renamed file is all that there is.
const BY_FILE: &str = "file";

/// What became of an answer.
enum Given {
    /// It is in the log, or was already.
    Counted(Box<Finished>),
    /// Its run does not wait for it.
    Late(Box<Record>),
}

impl Engine {
    pub(super) fn dispatcher<'a>(&'a self, pinned: &'a PinnedRun) -> Dispatcher<'a> {
        Dispatcher {
            mailbox: &self.mailbox,
            pinned,
        }
    }

    /// A person renamed the task of a question.
    pub(super) fn question_answered(
        &self,
        held: Held,
        item: Item,
        task: &Task,
        (kind, text): (Answer, &str),
        desk: &mut Desk,
    ) {
        let answer = PersonsAnswer {
            kind,
            text,
            by: BY_FILE,
        };
        match self.give(&held, task, answer) {
            Ok(Given::Counted(finished)) => {
                self.claim_and(held, item, |claim| self.finish(claim, *finished, desk));
            }
            Ok(Given::Late(record)) => self.claim_and(held, item, |claim| {
                self.finish(claim, Finished::without_output(*record), desk);
            }),
            Err(fault) if fault.is_worth_retrying() => {
                self.trouble(&fault);
                drop(held);
                self.queue.look_again(item, Duration::from_secs(1));
            }
            // It cannot be taken: the question is open again, with the person's words in it.
            Err(fault) if fault.kind == Kind::Usage => {
                self.trouble(&fault);
                self.claim_and(held, item, |claim| {
                    if let Err(e) = self.mailbox.put_back(claim) {
                        self.trouble(&Fault::io("put back", "the question", &e));
                    }
                });
            }
            Err(fault) => self.claim_and(held, item, |claim| self.reject(claim, fault, desk)),
        }
    }

    fn give(&self, held: &Held, task: &Task, answer: PersonsAnswer<'_>) -> Result<Given> {
        let name = held.name().to_string();
        let host = self.host_of(task)?;
        let dispatcher = self.dispatcher(&host);
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let Some(pending) = open_question(&state, &name) else {
            let record = late(&dispatcher, &state, &name, Some(answer))?;
            return Ok(Given::Late(Box::new(record)));
        };
        let taken = dispatcher.answer(&locked, state, &pending, held.folders(), answer)?;
        drop(locked);
        self.tell(host.run.id(), &taken.effects);
        Ok(Given::Counted(Box::new(Finished {
            record: taken.record,
            outputs: vec![(OUT, taken.output)],
            next: None,
            changes: Changes::default(),
            brought_up_after: None,
        })))
    }

    /// Somebody died with a question in hand: it is still open, or only has to be put away.
    pub(super) fn take_over_question(&self, claim: Claim, task: &Task, desk: &mut Desk) {
        let record = self.host_of(task).and_then(|host| {
            let locked = host.run.lock(PATIENCE)?;
            let state = locked.load(&host.workflow)?;
            match open_question(&state, claim.name.as_str()) {
                Some(_) => Ok(None),
                None => late(&self.dispatcher(&host), &state, claim.name.as_str(), None).map(Some),
            }
        });
        match record {
            Ok(None) => self.give_back_or_drop(claim),
            Ok(Some(record)) => self.finish(claim, Finished::without_output(record), desk),
            Err(fault) if fault.is_worth_retrying() => {
                self.trouble(&fault);
                self.give_back_or_drop(claim);
            }
            Err(fault) => self.reject(claim, fault, desk),
        }
    }

    fn host_of(&self, task: &Task) -> Result<std::sync::Arc<PinnedRun>> {
        let run_id = task.header.run.clone().unwrap_or_default();
        self.host(&run_id).map_err(|fault| match fault.kind {
            Kind::StateNotFound | Kind::Usage => forged(&run_id),
            _ => fault,
        })
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
