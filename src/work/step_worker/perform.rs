//! The work of one step: prepared, done, tried again where that is declared, and captured.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::{StepWorker, step_record};
use crate::disk::mailbox::{Claim, OUT};
use crate::disk::store::PATIENCE;
use crate::run::flow;
use crate::run::record::{Record, Status};
use crate::run::schema::Schema;
use crate::run::state::{Changes, Event, Facts, Pending, RunState, StepResult, StepStatus};
use crate::spec::workflow::model::{StepId, Work};
use crate::text::error::{Fault, Kind, Result};
use crate::work::actions::Looked;
use crate::work::attempt::WorkerState;
use crate::work::clock::now;
use crate::work::commit::{Began, stamp, wait_for_retry};
use crate::work::job::Job;
use crate::work::notice::Notice;
use crate::work::outcome::{Finished, FinishedStep, Unfinished, Worked};
use crate::work::pinned::PinnedRun;
use crate::work::step::prepare::{
    Ready, StepSource, missing_secrets, output_file, prepare, printed_into, schema,
};
use crate::work::step::result::{self, Outcome, Times};
use crate::work::step::stderr_of;
use crate::work::waits::WaitingStep;

/// How much of an answer is read to be captured.
const MOST_CAPTURED: u64 = 16 << 20;

impl StepWorker {
    /// Prepares a step, does its work, and tries again as it declares.
    pub(super) fn perform(
        &self,
        claim: &mut Claim,
        pinned: &PinnedRun,
        mut state: Arc<RunState>,
        pending: &Pending,
        facts: &Facts,
        worker: &mut WorkerState,
    ) -> Worked<FinishedStep> {
        let id = pinned.step(&pending.step)?;
        let step = pinned.workflow.step(id);
        let (most, delay) = match &step.retries {
            Some(retries) => {
                let (most, _) = flow::number(&retries.max, &state.variables);
                (most, Duration::from_millis(retries.delay_ms))
            }
            None => (0, Duration::ZERO),
        };
        let mut attempt = pending.attempts;
        let mut tries = 0;
        let mut again: Option<String> = None;
        let mut before: Option<Vec<(String, Looked)>> = None;
        loop {
            let source = StepSource {
                pinned,
                state: &state,
                step: id,
                item: pending.item,
                facts,
                mailbox_task: (&claim.folders.agent.clone(), &claim.name.clone()),
                again: again.as_deref(),
            };
            let began = Began::now();
            let before = before.get_or_insert_with(|| self.looked(printed_into(&source)));
            let work = match prepare(&source) {
                Err(mut fault) => {
                    pinned.masker.fault(&mut fault);
                    let kind = fault.kind;
                    let mut work = self.invalid(claim, pinned, pending, attempt, fault, began)?;
                    if kind == Kind::MissingSecret {
                        let missing = missing_secrets(&source);
                        let more = &mut work.result.more;
                        more.insert("missing_secrets".into(), missing.into());
                    }
                    work
                }
                Ok(Ready::Wait(files)) => {
                    let step = WaitingStep {
                        run: pinned.run.id().to_owned(),
                        pending: Pending {
                            attempts: attempt,
                            ..pending.clone()
                        },
                        retries: most,
                        delay,
                        before: Duration::ZERO,
                    };
                    return Err(Unfinished::Waits(files, Box::new(step)));
                }
                Ok(Ready::Act(act)) => {
                    self.do_action(claim, pinned, &state, pending, attempt, &act)?
                }
                Ok(Ready::Run(job)) => {
                    let schema = schema(&source)?;
                    let mut work = self.run_job(
                        claim,
                        pinned,
                        (id, pending, attempt),
                        &job,
                        schema.as_ref(),
                        worker,
                    )?;
                    self.note_changed_files(before, &mut work.result);
                    work
                }
            };
            if tries >= most || !result::retryable(&work.result, &work.finished.record) {
                return match self.write_output_file(&source, &work.finished) {
                    Ok(()) => Ok(work),
                    Err(fault) => {
                        self.invalid(claim, pinned, pending, attempt, fault, Began::now())
                    }
                };
            }
            tries += 1;
            attempt += 1;
            again = result::complaint(&work.result);
            if let Some(fault) = &work.result.error {
                let target = claim.target();
                self.shared.reporter.say(&Notice::Retrying {
                    target: &target,
                    after: delay,
                    fault,
                });
            }
            self.committer.keep(claim, &work.finished.record);
            if !wait_for_retry(claim, delay, &worker.wake) {
                return Err(Unfinished::Stopped(Box::new(work.finished.record)));
            }
            state = self.retried(pinned, claim.name.as_str(), attempt)?;
        }
    }

    /// What the folders look like that the files of a step's answer go to.
    fn looked(&self, folders: Vec<String>) -> Vec<(String, Looked)> {
        let look = |folder: String| {
            let looked = Looked::at(&self.shared.mailbox.root, &folder);
            (folder, looked)
        };
        folders.into_iter().map(look).collect()
    }

    /// A step that wrote its files itself need not print them.
    fn note_changed_files(&self, before: &[(String, Looked)], result: &mut StepResult) {
        let changed = |(folder, before): &(String, Looked)| {
            Looked::at(&self.shared.mailbox.root, folder).changed_since(before)
        };
        if !before.is_empty() {
            let count: usize = before.iter().map(changed).sum();
            result.more.insert("files_changed".to_owned(), count.into());
        }
    }

    /// Where nothing ran there is no answer, and an older file stays as it is.
    fn write_output_file(&self, source: &StepSource<'_>, finished: &Finished) -> Result<()> {
        if finished.outputs.is_empty() {
            return Ok(());
        }
        match output_file(source)? {
            Some(path) => {
                result::write_output_file(&self.shared.mailbox.root, &path, &answer(finished)?)
            }
            None => Ok(()),
        }
    }

    pub(super) fn retried(
        &self,
        pinned: &PinnedRun,
        task: &str,
        attempt: u32,
    ) -> Result<Arc<RunState>> {
        let locked = pinned.run.lock(PATIENCE)?;
        let state = locked.load(&pinned.workflow)?;
        let event = Event::Retried {
            task: task.to_owned(),
            attempt,
        };
        locked
            .apply(&pinned.workflow, state, &now(), event)
            .map(|(state, _)| state)
    }

    /// Runs the job of a step. A failure that may pass is tried again as for any task.
    fn run_job(
        &self,
        claim: &mut Claim,
        pinned: &PinnedRun,
        (id, pending, attempt): (StepId, &Pending, u32),
        job: &Job,
        schema: Option<&Schema>,
        worker: &mut WorkerState,
    ) -> Worked<FinishedStep> {
        let run = pinned.run.id();
        let folder = self.attempts.wait_for_folder(claim, job, &worker.wake)?;
        let Some(_folder) = folder else {
            let record = step_record(claim, run, &pending.step, Status::Interrupted, None);
            return Err(Unfinished::Stopped(Box::new(record)));
        };
        let target = claim.target();
        self.shared.reporter.say(&Notice::Started {
            target: &target,
            provider: &job.setup.provider_name,
            attempt,
        });
        let mut retries = 0;
        let mut finished = loop {
            match self.attempts.attempt(claim, job, attempt, retries, worker) {
                Err(Unfinished::Again { record, after }) => {
                    self.committer.keep(claim, &record);
                    retries += 1;
                    if !wait_for_retry(claim, after, &worker.wake) {
                        return Err(Unfinished::Stopped(record));
                    }
                }
                other => break other?,
            }
        };
        finished.record.run = Some(run.to_owned());
        finished.record.step = Some(pending.step.clone());
        self.read_result(claim, pinned, (id, pending, attempt), job, schema, finished)
    }

    /// Reads what an attempt left behind into the result of its step.
    fn read_result(
        &self,
        claim: &Claim,
        pinned: &PinnedRun,
        (id, pending, attempt): (StepId, &Pending, u32),
        job: &Job,
        schema: Option<&Schema>,
        mut finished: Finished,
    ) -> Worked<FinishedStep> {
        let step = pinned.workflow.step(id);
        let answer = answer(&finished)?;
        let mut result = result::step_result(&Outcome {
            step,
            visit: pending.visit,
            attempt,
            record: &finished.record,
            answer: &answer,
            schema,
        });
        result.task = Some(claim.target());
        if matches!(step.work, Work::Command(_)) {
            let said = stderr_of(&claim.folders.artifacts, &claim.name);
            let said = said.map_err(|e| Fault::io("read", claim.target(), &e))?;
            result.more.insert("stderr".to_owned(), said.into());
        }
        let mut changes = Changes::default();
        if let Some(document) = &job.document {
            let dir = &claim.folders.artifacts;
            document.hide(dir, &claim.name, &job.masker);
            changes = document.settle(dir, &claim.name, &mut result);
        }
        job.masker.result(&mut result);
        if result.status == StepStatus::Failed && finished.record.status.is_success() {
            finished.record.status = Status::Failed;
            finished.record.error.clone_from(&result.error);
        }
        Ok(FinishedStep {
            result,
            changes,
            finished,
        })
    }

    /// What was invalid before anything could be run: exit code 2.
    pub(super) fn invalid(
        &self,
        claim: &Claim,
        pinned: &PinnedRun,
        pending: &Pending,
        attempt: u32,
        fault: Fault,
        began: Began,
    ) -> Worked<FinishedStep> {
        let mut record = step_record(
            claim,
            pinned.run.id(),
            &pending.step,
            Status::Failed,
            Some(fault),
        );
        record.exit_code = Some(2);
        record.attempt = attempt;
        stamp(&mut record, began);
        let Some(id) = pinned.workflow.find(&pending.step) else {
            return Err(Unfinished::Abandoned);
        };
        let step = pinned.workflow.step(id);
        let fault = record
            .error
            .clone()
            .unwrap_or_else(|| Fault::new(Kind::StepFailed, "invalid"));
        let result = result::invalid(step, fault, pending.visit, attempt, &times(&record));
        Ok(FinishedStep {
            result,
            changes: Changes::default(),
            finished: Finished::without_output(record),
        })
    }
}

pub(super) fn times(record: &Record) -> Times<'_> {
    Times {
        start: &record.start_time,
        end: &record.end_time,
        duration: Duration::try_from_secs_f64(record.duration).unwrap_or_default(),
    }
}

/// The whole answer, as far as it can be captured.
fn answer(finished: &Finished) -> Result<Vec<u8>> {
    let outputs = &finished.outputs;
    let found = outputs
        .iter()
        .find(|(suffix, _)| *suffix == OUT)
        .or(outputs.first());
    match found {
        Some((_, file)) => {
            read_start(file).map_err(|e| Fault::io("read", "the answer of a step", &e))
        }
        None => Ok(Vec::new()),
    }
}

fn read_start(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len().min(MOST_CAPTURED);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
