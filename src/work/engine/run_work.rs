//! The work of one step: prepared, done, tried again where that is declared, and captured.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Began, Desk, Tried, stamp};
use super::dirs::DirLock;
use super::waiting::Wait;
use super::worker::Finished;
use super::{Engine, Notice};
use crate::agents::process::Woken;
use crate::disk::mailbox::{Claim, OUT};
use crate::disk::store::PATIENCE;
use crate::run::flow;
use crate::run::record::{Record, Status};
use crate::run::schema::Schema;
use crate::run::state::{Event, Facts, Pending, RunState, StepResult, StepStatus};
use crate::spec::workflow::model::{StepId, Work};
use crate::text::error::{Fault, Kind, Result};
use crate::work::actions::Looked;
use crate::work::clock::now;
use crate::work::job::Job;
use crate::work::pinned::PinnedRun;
use crate::work::step::prepare::{
    Ready, StepSource, Waiting, missing_secrets, output_file, prepare, printed_into, schema,
};
use crate::work::step::result::{self, Outcome, Times};
use crate::work::step::stderr_of;

/// How much of an answer is read to be captured.
const MOST_CAPTURED: u64 = 16 << 20;

/// What came of the work of a step.
pub(super) enum Worked {
    Result(Box<StepResult>, Box<Finished>),
    Stopped(Box<Record>),
    Lost(Box<Record>),
    Abandoned,
    /// It waits for files, and needs no worker meanwhile.
    Waits(Waiting, Box<Wait>),
}

impl Engine {
    pub(super) fn do_work(
        &self,
        claim: &mut Claim,
        host: &PinnedRun,
        mut state: Arc<RunState>,
        pending: &Pending,
        facts: &Facts,
        desk: &mut Desk,
    ) -> Result<Worked> {
        let id = host.step(&pending.step)?;
        let step = host.workflow.step(id);
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
                pinned: host,
                state: &state,
                step: id,
                item: pending.item,
                facts,
                mailbox_task: (&claim.folders.agent.clone(), &claim.name.clone()),
                again: again.as_deref(),
            };
            let began = Began::now();
            let before = before.get_or_insert_with(|| self.looked(printed_into(&source)));
            let worked = match prepare(&source) {
                Err(mut fault) => {
                    host.masker.fault(&mut fault);
                    let kind = fault.kind;
                    let mut worked = self.invalid(claim, host, pending, attempt, fault, began);
                    if let (Worked::Result(result, _), Kind::MissingSecret) = (&mut worked, kind) {
                        let missing = missing_secrets(&source);
                        result.more.insert("missing_secrets".into(), missing.into());
                    }
                    worked
                }
                Ok(Ready::Wait(waiting)) => {
                    let wait = Wait {
                        run: host.run.id().to_owned(),
                        pending: Pending {
                            attempts: attempt,
                            ..pending.clone()
                        },
                        retries: most,
                        delay,
                        before: Duration::ZERO,
                    };
                    return Ok(Worked::Waits(waiting, Box::new(wait)));
                }
                Ok(Ready::Act(act)) => self.act(claim, host, &state, pending, attempt, &act),
                Ok(Ready::Run(plan)) => {
                    let schema = schema(&source)?;
                    match self.run_plan(
                        claim,
                        host,
                        id,
                        pending,
                        attempt,
                        &plan,
                        schema.as_ref(),
                        desk,
                    )? {
                        Worked::Result(mut result, finished) => {
                            self.note_changed_files(before, &mut result);
                            Worked::Result(result, finished)
                        }
                        other => return Ok(other),
                    }
                }
            };
            let Worked::Result(result, finished) = worked else {
                return Ok(worked);
            };
            if tries >= most || !result::retryable(&result, &finished.record) {
                return Ok(match self.write_output_file(&source, &finished) {
                    Ok(()) => Worked::Result(result, finished),
                    Err(fault) => self.invalid(claim, host, pending, attempt, fault, Began::now()),
                });
            }
            tries += 1;
            attempt += 1;
            again = result::complaint(&result);
            if let Some(fault) = &result.error {
                let target = claim.target();
                (self.listener)(&Notice::Retrying {
                    target: &target,
                    after: delay,
                    fault,
                });
            }
            self.keep(claim, &finished.record);
            if !self.wait_for_retry(claim, delay, desk) {
                return Ok(Worked::Stopped(Box::new(finished.record)));
            }
            state = self.retried(host, claim.name.as_str(), attempt)?;
        }
    }

    /// What the folders look like that the files of a step's answer go to.
    fn looked(&self, folders: Vec<String>) -> Vec<(String, Looked)> {
        let look = |folder: String| {
            let looked = Looked::at(&self.mailbox.root, &folder);
            (folder, looked)
        };
        folders.into_iter().map(look).collect()
    }

    /// A step that wrote its files itself need not print them.
    fn note_changed_files(&self, before: &[(String, Looked)], result: &mut StepResult) {
        let changed = |(folder, before): &(String, Looked)| {
            Looked::at(&self.mailbox.root, folder).changed_since(before)
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
            Some(path) => result::write_output_file(&self.mailbox.root, &path, &answer(finished)?),
            None => Ok(()),
        }
    }

    pub(super) fn retried(
        &self,
        host: &PinnedRun,
        task: &str,
        attempt: u32,
    ) -> Result<Arc<RunState>> {
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let event = Event::Retried {
            task: task.to_owned(),
            attempt,
        };
        locked
            .apply(&host.workflow, state, &now(), event)
            .map(|(state, _)| state)
    }

    /// Runs a process for a step; what passes by itself is tried again as for any task.
    #[expect(clippy::too_many_arguments, reason = "an attempt is these things")]
    pub(super) fn run_plan(
        &self,
        claim: &mut Claim,
        host: &PinnedRun,
        id: StepId,
        pending: &Pending,
        attempt: u32,
        plan: &Job,
        schema: Option<&Schema>,
        desk: &mut Desk,
    ) -> Result<Worked> {
        let Some(_dir) = self.wait_for_dir(claim, plan, desk)? else {
            let record = self.step_record(
                claim,
                host.run.id(),
                &pending.step,
                Status::Interrupted,
                None,
            );
            return Ok(Worked::Stopped(Box::new(record)));
        };
        let target = claim.target();
        (self.listener)(&Notice::Started {
            target: &target,
            provider: &plan.setup.provider_name,
            attempt,
        });
        let mut retries = 0;
        loop {
            match self.attempt(claim, plan, attempt, retries, desk) {
                Ok(Tried::Finished(mut finished)) => {
                    self.mark(host, pending, &mut finished.record);
                    let answer = answer(&finished)?;
                    let mut result = result::step_result(&Outcome {
                        step: host.workflow.step(id),
                        visit: pending.visit,
                        attempt,
                        record: &finished.record,
                        answer: &answer,
                        schema,
                    });
                    result.task = Some(target);
                    if matches!(host.workflow.step(id).work, Work::Command(_)) {
                        let said = stderr_of(&claim.folders.artifacts, &claim.name);
                        let said = said.map_err(|e| Fault::io("read", claim.target(), &e))?;
                        result.more.insert("stderr".to_owned(), said.into());
                    }
                    if let Some(document) = &plan.document {
                        let dir = &claim.folders.artifacts;
                        document.hide(dir, &claim.name, &plan.masker);
                        finished.changes = document.settle(dir, &claim.name, &mut result);
                    }
                    plan.masker.result(&mut result);
                    if result.status == StepStatus::Failed && finished.record.status.is_success() {
                        finished.record.status = Status::Failed;
                        finished.record.error.clone_from(&result.error);
                    }
                    return Ok(Worked::Result(Box::new(result), finished));
                }
                Ok(Tried::Again { record, after }) => {
                    self.keep(claim, &record);
                    retries += 1;
                    if !self.wait_for_retry(claim, after, desk) {
                        return Ok(Worked::Stopped(record));
                    }
                }
                Ok(Tried::Stopped(record)) => return Ok(Worked::Stopped(record)),
                Ok(Tried::Cancelled(finished)) => {
                    return Ok(Worked::Lost(Box::new(finished.record)));
                }
                Ok(Tried::Abandoned) => return Ok(Worked::Abandoned),
                Err(e) => return Err(Fault::io("prepare the output of", &target, &e)),
            }
        }
    }

    /// One task at a time works in a folder, or the steps of one run: the others wait for it, until
    /// orch stops.
    pub(super) fn wait_for_dir(
        &self,
        claim: &Claim,
        plan: &Job,
        desk: &Desk,
    ) -> Result<Option<DirLock>> {
        loop {
            match self.dirs.lock(plan)? {
                DirLock::Busy => {}
                lock => return Ok(Some(lock)),
            }
            let woken = desk.wake.sleep(Duration::from_millis(100));
            if woken == Woken::Stopped || !claim.is_ours().unwrap_or(true) {
                return Ok(None);
            }
        }
    }

    /// What was invalid before anything could be run: exit code 2.
    pub(super) fn invalid(
        &self,
        claim: &Claim,
        host: &PinnedRun,
        pending: &Pending,
        attempt: u32,
        fault: Fault,
        began: Began,
    ) -> Worked {
        let mut record = self.step_record(
            claim,
            host.run.id(),
            &pending.step,
            Status::Failed,
            Some(fault),
        );
        record.exit_code = Some(2);
        record.attempt = attempt;
        stamp(&mut record, began);
        let Some(id) = host.workflow.find(&pending.step) else {
            return Worked::Abandoned;
        };
        let step = host.workflow.step(id);
        let fault = record
            .error
            .clone()
            .unwrap_or_else(|| Fault::new(Kind::StepFailed, "invalid"));
        let result = result::invalid(step, fault, pending.visit, attempt, &times(&record));
        Worked::Result(Box::new(result), Box::new(Finished::without_output(record)))
    }

    fn mark(&self, host: &PinnedRun, pending: &Pending, record: &mut Record) {
        record.run = Some(host.run.id().to_owned());
        record.step = Some(pending.step.clone());
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
