//! From the state of a run to its inboxes: what is pending is dropped, questions with their whole
//! text, and a person's answer is taken.
//!
//! Everything happens under the run's lock. The order of an answer is its text in `artifacts/`, the
//! log, what comes next, and then its task's record and `processed/`: whoever dies in between leaves
//! a question that is still open, or a task that the next one only has to put away.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use serde_json::Map;

use crate::disk::mailbox::{ANSWERS, AgentBox, Answer, CLAIMED, Mailbox, OUT, TASK, file_name};
use crate::disk::order::{Point, at};
use crate::disk::store::Locked;
use crate::run::flow::{self, HUMAN, Moment};
use crate::run::record::{FileEntry, Record, Status, excerpt};
use crate::run::state::{
    Asks, Changes, Effect, Event, Facts, Pending, RunState, RunStatus, StepResult, StepStatus,
    Verdict,
};
use crate::spec::task::{AgentName, Header, TaskName, render};
use crate::spec::workflow::model::StepId;
use crate::text::canonical;
use crate::text::error::{Fault, Kind, Result};
use crate::work::clock::now;
use crate::work::pinned::PinnedRun;
use crate::work::step::StepSource;
use crate::work::step::question::{is_for_person, question, reply};

/// Puts the steps and questions of a run into inboxes, and takes the answers.
#[derive(Clone, Copy)]
pub struct Dispatcher<'a> {
    /// The inboxes.
    pub mailbox: &'a Mailbox,
    /// The run.
    pub pinned: &'a PinnedRun,
}

/// What a person answered.
#[derive(Debug, Clone, Copy)]
pub struct PersonsAnswer<'w> {
    /// An approval, a rejection or a reply.
    pub kind: Answer,
    /// The note or the reply.
    pub text: &'w str,
    /// Who answered.
    pub by: &'w str,
}

/// An answer that is in the log.
#[derive(Debug)]
pub struct AnswerTaken {
    /// The run after it, and after what comes next was dropped.
    pub state: Arc<RunState>,
    /// What it brought about.
    pub effects: Vec<Effect>,
    /// The record of the question's task.
    pub record: Record,
    /// What was said.
    pub output: Arc<File>,
}

impl Dispatcher<'_> {
    /// Puts every pending step that came up after the task of this number into its inbox, unless it
    /// is there, claimed or answered: the others were dropped by whoever brought them up, or are when
    /// he is recovered. What people do is put before them first, which may turn out not to be needed,
    /// or block the run.
    ///
    /// # Errors
    /// Where the log or an inbox cannot be written.
    pub fn drop_pending(
        &self,
        locked: &Locked<'_>,
        mut state: Arc<RunState>,
        number: u64,
    ) -> Result<(Arc<RunState>, Vec<Effect>)> {
        let mut all = Vec::new();
        while let Some(event) = self.next_question(&state, number)? {
            let (next, effects) = locked.apply(&self.pinned.workflow, state, &now(), event)?;
            state = next;
            all.extend(effects);
        }
        self.take_back(&all);
        let running = state.status == RunStatus::Running;
        let wanted = |pending: &&Pending| running || pending.asks.is_some();
        for pending in state.pending_after(number).iter().filter(wanted) {
            self.drop_step(&state, pending)?;
        }
        Ok((state, all))
    }

    /// The event that puts the next pending step before a person, or fails one that cannot be asked.
    fn next_question(&self, state: &RunState, number: u64) -> Result<Option<Event>> {
        if state.status.is_final() {
            return Ok(None);
        }
        for pending in state.pending_after(number) {
            let id = self.pinned.step(&pending.step)?;
            let nothing = Facts::default();
            let name = (&AgentName::parse(HUMAN)?, &TaskName::parse(&pending.task)?);
            let source = self.source(state, id, pending, &nothing, name);
            let task = pending.task.clone();
            let running = state.status == RunStatus::Running;
            match pending.asks {
                None if running && pending.attempts == 0 && is_for_person(&source) => {
                    let wanted = flow::wanted(
                        &self.pinned.workflow,
                        state,
                        id,
                        pending.item,
                        Moment::Entering,
                    );
                    let facts = self.pinned.facts(&wanted)?;
                    return Ok(Some(Event::Asked { task, facts }));
                }
                None => {}
                Some(_) => {
                    if let Err(fault) = question(&source, pending) {
                        let result = self.not_asked(pending, fault);
                        let moment = Moment::Finishing(&result);
                        let wanted =
                            flow::wanted(&self.pinned.workflow, state, id, pending.item, moment);
                        let facts = self.pinned.facts(&wanted)?;
                        let result = Box::new(result);
                        return Ok(Some(Event::Finished {
                            task,
                            result,
                            changes: Changes::default(),
                            facts,
                        }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Takes an answer to a question that is open, and drops what comes next.
    ///
    /// # Errors
    /// `Usage` where it cannot be taken: nothing has happened then, and the question is still open.
    pub fn answer(
        &self,
        locked: &Locked<'_>,
        state: Arc<RunState>,
        pending: &Pending,
        folders: &AgentBox,
        answer: PersonsAnswer<'_>,
    ) -> Result<AnswerTaken> {
        if let Err(fault) = locked.check_snapshots(&state) {
            let stopped = Event::Stopped {
                fault: fault.clone(),
            };
            let (_, effects) = locked.apply(&self.pinned.workflow, state, &now(), stopped)?;
            self.take_back(&effects);
            return Err(fault);
        }
        let mut text = answer.text.to_owned();
        self.pinned.masker.text(&mut text);
        let answer = PersonsAnswer {
            text: &text,
            ..answer
        };
        let (mut record, reply) = self.read(&state, pending, answer)?;
        let output = write_answer(self.mailbox, folders, &pending.task, answer.text)?;
        let file = FileEntry {
            path: format!("artifacts/{HUMAN}/{}{OUT}", pending.task),
            bytes: answer.text.len() as u64,
            sha256: canonical::sha256(answer.text.as_bytes()),
        };
        record.files = vec![file.clone()];
        let wanted = flow::wanted_on_answer(&self.pinned.workflow, &state, pending, reply.as_ref());
        let facts = self.pinned.facts(&wanted)?;
        let note = Some(answer.text.to_owned()).filter(|text| !text.is_empty());
        let verdict = match (reply, answer.kind) {
            (Some(result), _) => Verdict::Replied {
                result: Box::new(StepResult {
                    artifacts: vec![file],
                    ..result
                }),
            },
            (None, Answer::Rejected) => Verdict::Rejected { note },
            (None, Answer::Approved | Answer::Reply) => Verdict::Approved { note },
        };
        let event = Event::Answered {
            task: pending.task.clone(),
            verdict,
            by: answer.by.to_owned(),
            facts,
        };
        let (state, mut effects) = locked.apply(&self.pinned.workflow, state, &now(), event)?;
        self.take_back(&effects);
        let (state, more) = self.drop_pending(locked, state, 0)?;
        effects.extend(more);
        Ok(AnswerTaken {
            state,
            effects,
            record,
            output,
        })
    }

    /// Reads what was said as the answer to a question: its record, and the result of a reply.
    ///
    /// # Errors
    /// `Usage`: it is none.
    pub fn read(
        &self,
        state: &RunState,
        pending: &Pending,
        answer: PersonsAnswer<'_>,
    ) -> Result<(Record, Option<StepResult>)> {
        let id = self.pinned.step(&pending.step)?;
        let record = self.record(pending, answer);
        let refused = |what: &str, hint: String| {
            let message = format!("step `{}` asks {what}", pending.step);
            Err(Fault::new(Kind::Usage, message).hint(hint))
        };
        let run = self.pinned.run.id();
        match (pending.asks, answer.kind) {
            (Some(Asks::Approval), Answer::Approved | Answer::Rejected) => Ok((record, None)),
            (Some(Asks::Approval), Answer::Reply) => refused(
                "for an approval, not for a reply",
                format!(
                    "`orch approve {run} {0}` or `orch reject {run} {0} --note ...`; a file ends in .approved or .rejected",
                    pending.step
                ),
            ),
            (Some(Asks::Reply), Answer::Reply) => {
                let nothing = Facts::default();
                let name = (&AgentName::parse(HUMAN)?, &TaskName::parse(&pending.task)?);
                let source = self.source(state, id, pending, &nothing, name);
                let result = reply(&source, pending, &record, answer.text)?;
                Ok((record, Some(result)))
            }
            (Some(Asks::Reply), _) => refused(
                "for a reply, not for an approval",
                format!(
                    "`orch reply {run}/{} ...`; a file ends in .reply, with the text below its last line",
                    pending.step
                ),
            ),
            (None, _) => refused("nothing of a person", "it is not done by one".to_owned()),
        }
    }

    /// The record of a question's task, for what was said.
    #[must_use]
    pub fn record(&self, pending: &Pending, answer: PersonsAnswer<'_>) -> Record {
        let now = now();
        let mut record = Record::new(HUMAN, &pending.task, 1, Status::Succeeded);
        record.run = Some(self.pinned.run.id().to_owned());
        record.step = Some(pending.step.clone());
        record.provider = HUMAN.to_owned();
        record.exit_code = Some(0);
        record.start_time.clone_from(&now);
        record.end_time = now;
        (record.output, record.truncated) = excerpt(answer.text.as_bytes());
        let word = match answer.kind {
            Answer::Reply => "reply",
            Answer::Approved => "approved",
            Answer::Rejected => "rejected",
        };
        record.answer = Some(word.to_owned());
        record
    }

    /// Questions that need no answer any more leave the inbox. Where that does not work out, an
    /// answer is told so.
    pub fn take_back(&self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Unasked(pending) = effect else {
                continue;
            };
            let taken = AgentName::parse(HUMAN)
                .map_err(|fault| std::io::Error::other(fault.message))
                .and_then(|human| self.mailbox.agent(&human))
                .and_then(|folders| {
                    let name = format!("{}{TASK}", pending.task);
                    folders.inbox.remove(&name)
                });
            if let Err(error) = taken
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(task = pending.task, %error, "a question stays in the inbox");
            }
        }
    }

    fn drop_step(&self, state: &RunState, pending: &Pending) -> Result<()> {
        let agent = AgentName::parse(&pending.agent)?;
        let name = TaskName::parse(&pending.task)?;
        let failed = |e: std::io::Error| Fault::io("drop", format!("{agent}/{name}"), &e);
        let folders = self.mailbox.agent(&agent).map_err(failed)?;
        // In this order: a file that moves on between two looks is still seen by the next.
        let answers = ANSWERS.iter().map(|(suffix, _)| *suffix);
        let answers = answers.filter(|_| pending.asks.is_some());
        for suffix in std::iter::once(TASK).chain(answers).chain([CLAIMED]) {
            let file = file_name(&name, suffix);
            if folders.inbox.has(&file).map_err(failed)? {
                return Ok(());
            }
        }
        let header = Header {
            run: Some(state.run_id.clone()),
            step: Some(pending.step.clone()),
            ..Header::default()
        };
        let body = match pending.asks {
            Some(_) => self.question(state, pending)?,
            None => {
                let item = pending.item.map(|item| format!(", item {item}"));
                let (step, run) = (&pending.step, &state.run_id);
                format!("step `{step}` of run `{run}`{}\n", item.unwrap_or_default())
            }
        };
        let dropped = self.mailbox.submit(&agent, &name, &render(&header, &body));
        match dropped {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(failed),
        }
    }

    /// What a person is asked.
    ///
    /// # Errors
    /// Where the step is not valid.
    pub fn question(&self, state: &RunState, pending: &Pending) -> Result<String> {
        let nothing = Facts::default();
        let id = self.pinned.step(&pending.step)?;
        let name = (&AgentName::parse(HUMAN)?, &TaskName::parse(&pending.task)?);
        let source = self.source(state, id, pending, &nothing, name);
        let mut text = question(&source, pending)?;
        self.pinned.masker.text(&mut text);
        Ok(text)
    }

    fn source<'s>(
        &'s self,
        state: &'s RunState,
        step: StepId,
        pending: &Pending,
        facts: &'s Facts,
        mailbox_task: (&'s AgentName, &'s TaskName),
    ) -> StepSource<'s> {
        StepSource {
            pinned: self.pinned,
            state,
            step,
            item: pending.item,
            facts,
            mailbox_task,
            again: None,
        }
    }

    /// The result of a step that is invalid before anybody can be asked: exit code 2.
    fn not_asked(&self, pending: &Pending, fault: Fault) -> StepResult {
        let now = now();
        StepResult {
            step_name: pending.step.clone(),
            status: StepStatus::Failed,
            exit_code: crate::work::step::result::INVALID,
            start_time: now.clone(),
            end_time: now,
            duration: 0.0,
            output: None,
            lines: None,
            json_data: None,
            truncated: false,
            json_parse_error: None,
            error: Some(fault),
            note: None,
            attempt: pending.attempts,
            visit: pending.visit,
            task: Some(format!("{HUMAN}/{}", pending.task)),
            artifacts: Vec::new(),
            waited: None,
            more: Map::new(),
        }
    }
}

/// Keeps what was said where the answer of any task is kept.
fn write_answer(
    mailbox: &Mailbox,
    folders: &AgentBox,
    task: &str,
    text: &str,
) -> Result<Arc<File>> {
    let name = file_name(&TaskName::parse(task)?, OUT);
    let write = || {
        at(Point::CommitAnswer)?;
        let mut file = folders.artifacts.create_anew(&name)?;
        file.write_all(text.as_bytes())?;
        mailbox.disk().sync_file(Point::CommitSyncOutput, &file)?;
        Ok(Arc::new(file))
    };
    write().map_err(|e| Fault::io("write", folders.artifacts.path().join(&name), &e))
}
