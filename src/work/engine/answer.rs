//! Answers that need no process: echoed, replayed, or given by a person.

use std::io::{self, Write};

use super::Engine;
use super::attempt::{Began, Desk, Tried, stamp};
use super::collect::read_text;
use super::queue::Item;
use super::worker::Finished;
use crate::disk::mailbox::{Answer, Attempt, Claim, Held, OUT, file_name};
use crate::disk::recording::{self, Question, Recording};
use crate::run::record::{Record, Status, excerpt};
use crate::run::state::Changes;
use crate::run::verdict::Verdict;
use crate::spec::task::Task;
use crate::text::error::{Fault, Kind};
use crate::work::job::{Job, merged};
use crate::work::step::question::ANSWER;

impl Engine {
    /// An answer that needs no process.
    pub(super) fn answer(
        &self,
        claim: &Claim,
        plan: &Job,
        attempt: u32,
        answer: Result<String, Fault>,
    ) -> io::Result<Tried> {
        let began = Began::now();
        let output = self.mailbox.begin(claim, OUT)?.output;
        self.lend_document(claim, plan)?;
        let (mut text, mut error) = match answer {
            Ok(text) => (text, None),
            Err(fault) => (String::new(), Some(fault)),
        };
        plan.masker.text(&mut text);
        if let Some(fault) = &mut error {
            plan.masker.fault(fault);
        }
        if let Err(e) = (&*output).write_all(text.as_bytes()) {
            let _ = claim.folders.artifacts.remove(&file_name(&claim.name, OUT));
            return Err(e);
        }
        let status = if error.is_none() {
            Status::Succeeded
        } else {
            Status::Failed
        };
        let mut record = self.blank_record(claim, attempt, status, error);
        record.provider = plan.setup.provider_name.clone();
        (record.output, record.truncated) = excerpt(text.as_bytes());
        if status.is_success() {
            record.exit_code = Some(0);
        }
        record.files = vec![self.file_entry(claim, OUT, &output)?];
        stamp(&mut record, began);
        let next = self.next(claim, plan, &mut record, || Ok(text.clone()))?;
        Ok(Tried::Finished(Box::new(Finished {
            record,
            outputs: vec![(OUT, output)],
            next,
            changes: Changes::default(),
            brought_up_after: None,
        })))
    }

    /// The recorded answer: `params: {of: PROVIDER}` says whose, else anybody's will do.
    pub(super) fn replayed(&self, plan: &Job) -> Result<String, Fault> {
        let (header, agent) = (&plan.task.header, &plan.setup.agent);
        let mut params = merged(&agent.params, &header.params);
        let of = params.shift_remove("of");
        let question = Question {
            provider: of.as_ref().and_then(|of| of.as_str()),
            params: &params,
            model: header.model.as_deref().or(agent.model.as_deref()),
            system: agent.system.trim(),
            prompt: plan.task.body(),
        };
        recording::replay(&self.mailbox.root.artifacts, &question)
    }

    pub(super) fn keep_recording(
        &self,
        plan: &Job,
        record: &Record,
        verdict: &Verdict,
        files: &Attempt,
    ) -> io::Result<()> {
        let answer = match &verdict.text {
            Some(text) => text.clone(),
            None => read_text(&files.output)?,
        };
        let (header, agent) = (&plan.task.header, &plan.setup.agent);
        let mut recording = Recording {
            provider: record.provider.clone(),
            model: header.model.as_ref().or(agent.model.as_ref()).cloned(),
            params: merged(&agent.params, &header.params),
            system: agent.system.trim().to_owned(),
            prompt: plan.task.body().to_owned(),
            answer,
        };
        plan.masker.text(&mut recording.prompt);
        recording::keep(&self.mailbox.root.artifacts, &recording)
    }

    /// A person's answer becomes the result of the task that asked for it.
    pub(super) fn answered(&self, held: Held, item: Item, desk: &mut Desk) {
        let text = String::from_utf8_lossy(&held.bytes).into_owned();
        let kind = crate::disk::mailbox::ANSWERS
            .iter()
            .find(|(suffix, _)| *suffix == item.suffix)
            .map_or(Answer::Reply, |(_, kind)| *kind);
        let (request, note) = split_answer(&text);
        if let Ok(task) = Task::parse(request.as_bytes())
            && task.header.step.is_some()
        {
            return self.question_answered(held, item, &task, (kind, note), desk);
        }
        let plan = self
            .planner()
            .job(&held.folders().agent, held.name(), request.as_bytes());
        self.claim_and(held, item, |claim| {
            let fault = match (kind, note.is_empty()) {
                (Answer::Reply, true) => {
                    let fault = Fault::new(
                        Kind::InvalidTask,
                        format!(
                            "`{}.reply` has no text below a line `--- answer`",
                            claim.target()
                        ),
                    )
                    .hint("write the answer there, and rename the task to .reply again");
                    self.trouble(&fault);
                    if let Err(e) = self.mailbox.put_back(claim) {
                        self.trouble(&Fault::io("put back", "the task", &e));
                    }
                    return;
                }
                (Answer::Rejected, _) => Some(Fault::new(
                    Kind::Rejected,
                    if note.is_empty() {
                        "rejected by a person".to_owned()
                    } else {
                        format!("rejected by a person: {note}")
                    },
                )),
                _ => None,
            };
            let answer = match fault {
                Some(fault) => Err(fault),
                None => Ok(note.to_owned()),
            };
            let finished = match &plan {
                Ok(plan) => self.answer(&claim, plan, 1, answer),
                Err(fault) => {
                    let record =
                        self.blank_record(&claim, 1, Status::Rejected, Some(fault.clone()));
                    Ok(Tried::Finished(Box::new(Finished::without_output(record))))
                }
            };
            match finished {
                Ok(Tried::Finished(finished)) => self.finish(claim, *finished, desk),
                Ok(_) => {}
                Err(e) => self.trouble(&Fault::io("write the answer of", claim.target(), &e)),
            }
        });
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
