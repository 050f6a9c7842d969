//! Answers that need no process: echoed, replayed, or given by a person.

use std::io::{self, Write};

use super::collect::read_text;
use super::{AttemptRunner, not_begun};
use crate::disk::mailbox::{Attempt, Claim, OUT, file_name};
use crate::disk::recording::{self, Question, Recording};
use crate::run::record::{Record, Status, excerpt};
use crate::run::verdict::Verdict;
use crate::text::error::Fault;
use crate::work::commit::{Began, blank_record, stamp};
use crate::work::job::{Job, merged};
use crate::work::outcome::{Finished, Worked};

impl AttemptRunner {
    /// The result of a task whose answer is known without a process.
    pub(crate) fn answer(
        &self,
        claim: &Claim,
        job: &Job,
        attempt: u32,
        answer: Result<String, Fault>,
    ) -> Worked<Finished> {
        self.write_known(claim, job, attempt, answer)
            .map_err(|e| not_begun(claim, &e))
    }

    fn write_known(
        &self,
        claim: &Claim,
        job: &Job,
        attempt: u32,
        answer: Result<String, Fault>,
    ) -> io::Result<Finished> {
        let began = Began::now();
        let output = self.shared.mailbox.begin(claim, OUT)?.output;
        self.lend_document(claim, job)?;
        let (mut text, mut error) = match answer {
            Ok(text) => (text, None),
            Err(fault) => (String::new(), Some(fault)),
        };
        job.masker.text(&mut text);
        if let Some(fault) = &mut error {
            job.masker.fault(fault);
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
        let mut record = blank_record(claim, attempt, status, error);
        record.provider = job.setup.provider_name.clone();
        (record.output, record.truncated) = excerpt(text.as_bytes());
        if status.is_success() {
            record.exit_code = Some(0);
        }
        record.files = vec![self.file_entry(claim, OUT, &output)?];
        stamp(&mut record, began);
        let next = self.next(claim, job, &mut record, || Ok(text.clone()))?;
        Ok(Finished {
            record,
            outputs: vec![(OUT, output)],
            next,
        })
    }

    /// The recorded answer: `params: {of: PROVIDER}` says whose, else anybody's will do.
    pub(super) fn replayed(&self, job: &Job) -> Result<String, Fault> {
        let (header, agent) = (&job.task.header, &job.setup.agent);
        let mut params = merged(&agent.params, &header.params);
        let of = params.shift_remove("of");
        let question = Question {
            provider: of.as_ref().and_then(|of| of.as_str()),
            params: &params,
            model: header.model.as_deref().or(agent.model.as_deref()),
            system: agent.system.trim(),
            prompt: job.task.body(),
        };
        recording::replay(&self.shared.mailbox.root.artifacts, &question)
    }

    pub(super) fn keep_recording(
        &self,
        job: &Job,
        record: &Record,
        verdict: &Verdict,
        files: &Attempt,
    ) -> io::Result<()> {
        let answer = match &verdict.text {
            Some(text) => text.clone(),
            None => read_text(&files.output)?,
        };
        let (header, agent) = (&job.task.header, &job.setup.agent);
        let mut recording = Recording {
            provider: record.provider.clone(),
            model: header.model.as_ref().or(agent.model.as_ref()).cloned(),
            params: merged(&agent.params, &header.params),
            system: agent.system.trim().to_owned(),
            prompt: job.task.body().to_owned(),
            answer,
        };
        job.masker.text(&mut recording.prompt);
        recording::keep(&self.shared.mailbox.root.artifacts, &recording)
    }
}
