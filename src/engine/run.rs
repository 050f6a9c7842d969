//! Steps of workflows: tasks like any other, except that the run's log says what they are.
//!
//! A task that names a run is taken only if that run's `pending` names it. The run's lock is held
//! to enter a step and to commit its result, never while an agent runs. The order is the log, then
//! the task's own record, then the tasks that come next, then `processed/`: whatever dies in
//! between is finished by whoever takes the claim over.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::attempt::{Began, Desk, Tried, stamp};
use super::plan::Plan;
use super::worker::{DirLock, Finished};
use super::{Engine, Notice};
use crate::error::{Fault, Kind, Result};
use crate::flow::{self, Moment};
use crate::mailbox::{Claim, Commit, OUT};
use crate::process::Woken;
use crate::record::{Record, Status};
use crate::registry::Registry;
use crate::runs::{self, now, values};
use crate::schema_check::Schema;
use crate::state::{Effect, Event, Facts, Pending, RunState, RunStatus, StepResult, StepStatus};
use crate::steps::globs;
use crate::steps::prepare::{Ready, Scene, Waiting, output_file, prepare, schema};
use crate::steps::result::{self, Outcome, Times};
use crate::store::{PATIENCE, RunDir, Spec};
use crate::task::{AgentName, Header, Task, TaskName};
use crate::workflow::Workflow;
use crate::workflow::model::StepId;

/// No more runs than this are kept at hand; the others are opened again when they are needed.
const AT_HAND: usize = 64;
/// How much of an answer is read to be captured.
const MOST_CAPTURED: u64 = 16 << 20;

/// A run that this engine works on: its folder, and the workflow that it is pinned to.
pub(super) struct Host {
    run: RunDir,
    workflow: Workflow,
    registry: Registry,
}

/// The runs at hand.
pub(super) type Hosts = Mutex<HashMap<String, Arc<Host>>>;

/// What became of a step's task.
enum Passed {
    /// It has a record: commit it, drop what comes next, retire it.
    Recorded(Box<Finished>),
    /// It is not to be done now: its file goes, and is dropped again when it is.
    Withdrawn,
    /// Orch stops: it goes back.
    Stopped(Box<Record>),
    /// It was taken from us.
    Lost(Box<Record>),
    /// Orch stops, and what came of it cannot be written down.
    Abandoned,
}

/// What came of the work of a step.
enum Worked {
    Result(Box<StepResult>, Box<Finished>),
    Stopped(Box<Record>),
    Lost(Box<Record>),
    Abandoned,
}

impl Engine {
    /// Whether a task belongs to a workflow: it starts one, or is a step of one.
    pub(super) fn is_of_a_workflow(&self, agent: &AgentName, header: &Header) -> bool {
        header.workflow.is_some() || header.step.is_some() || self.registry.is_workflow(agent)
    }

    /// Starts a run, or works on a step of one.
    pub(super) fn work_on_run(&self, claim: Claim, task: &Task, desk: &mut Desk) {
        if task.header.step.is_some() {
            self.work_on_step(claim, task, None, desk);
        } else {
            self.start_run(claim, task, None, desk);
        }
    }

    /// Starts the run that a task asks for. With `begun`, goes on with the id that its record names.
    pub(super) fn start_run(
        &self,
        claim: Claim,
        task: &Task,
        begun: Option<&Record>,
        desk: &mut Desk,
    ) {
        let agent = claim.folders.agent.clone();
        let word = task
            .header
            .workflow
            .clone()
            .unwrap_or_else(|| agent.to_string());
        let run_id = match begun.and_then(|record| record.run.clone()) {
            Some(id) => id,
            None => match self.wanted_id(&word, &task.header) {
                Ok(id) => id,
                Err(fault) => return self.reject(claim, fault, desk),
            },
        };
        if begun.is_none() {
            let loaded = runs::load_workflow(&self.mailbox.root.path, &word);
            let fit = loaded.and_then(|(workflow, _)| runs::refuse_unsupported(&workflow));
            if let Err(fault) = fit {
                return self.reject(claim, fault, desk);
            }
        }
        let mut record = self.blank_record(&claim, 1, Status::Started, None);
        record.run = Some(run_id.clone());
        let started = || -> Result<()> {
            self.create_run(&run_id, &word, task)?;
            self.drop_pending(&run_id)
        };
        // The id is written down before anything is made, so that a crash makes no second run.
        let committed = begun.is_some();
        self.finish_start(claim, &record, committed, started, desk);
    }

    fn finish_start(
        &self,
        mut claim: Claim,
        record: &Record,
        committed: bool,
        started: impl Fn() -> Result<()>,
        desk: &Desk,
    ) {
        if !committed {
            let done = self.persist(&mut claim, desk, |claim| {
                self.mailbox.commit(claim, record, &[], None)
            });
            match done {
                Some(Commit::Done) => {}
                Some(Commit::Lost) => return self.give_back_or_drop(claim),
                None => return,
            }
        }
        let outcome = loop {
            match started() {
                Err(fault) if matches!(fault.kind, Kind::IoError | Kind::Busy) => {
                    self.trouble(&fault);
                    if desk.wake.sleep(Duration::from_secs(1)) == Woken::Stopped {
                        // The record names the run: whoever takes the claim over goes on with it.
                        return;
                    }
                }
                other => break other,
            }
        };
        let mut record = record.clone();
        if let Err(fault) = outcome {
            record.status = Status::Rejected;
            record.error = Some(fault);
        }
        let retired = self.persist(&mut claim, desk, |claim| {
            if record.status != Status::Started {
                self.mailbox.replace_record(claim, &record)?;
            }
            let status = match record.status {
                Status::Started => Status::Succeeded,
                other => other,
            };
            self.mailbox.retire(claim, status)
        });
        if retired.is_some() {
            let counter = match record.status {
                Status::Started => &self.succeeded,
                _ => &self.failed,
            };
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (self.listener)(&Notice::Finished { record: &record });
        }
    }

    fn wanted_id(&self, word: &str, header: &Header) -> Result<String> {
        match &header.run {
            Some(id) => TaskName::parse(id).map(|_| id.clone()),
            None => Ok(runs::fresh_id(
                word,
                Timestamp::now(),
                &uuid::Uuid::now_v7(),
            )),
        }
    }

    /// Makes the run's folder and its first event, unless that was done before a crash.
    fn create_run(&self, run_id: &str, word: &str, task: &Task) -> Result<()> {
        // What a crash left is gone on with; what it left half made is made again.
        if let Ok(run) = self.runs.open(run_id)
            && let Ok(workflow) = runs::pinned(&run)
            && run.lock(PATIENCE)?.load(&workflow)?.seq > 0
        {
            return Ok(());
        }
        let (workflow, spec) = runs::load_workflow(&self.mailbox.root.path, word)?;
        let run = self.runs.create(run_id, &spec)?;
        let locked = run.lock(PATIENCE)?;
        let state = locked.load(&workflow)?;
        if state.seq > 0 {
            return Ok(());
        }
        let event = created(&run, &workflow, &spec, task)?;
        let (_, effects) = locked.apply(&workflow, state, &now(), event)?;
        self.tell(run_id, &effects);
        Ok(())
    }

    /// Puts every pending step of a run into its inbox, unless it is there, claimed or done.
    pub(super) fn drop_pending(&self, run_id: &str) -> Result<()> {
        let host = self.host(run_id)?;
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        runs::drop_pending(&self.mailbox, &state)
    }

    /// The task of a claim, if it is a step of a run.
    pub(super) fn step_task(&self, claim: &Claim) -> Option<Task> {
        let task = Task::parse(&claim.bytes).ok()?;
        task.header.step.is_some().then_some(task)
    }

    /// Works on a step; with `exhausted`, it is not run any more, and fails with that.
    pub(super) fn work_on_step(
        &self,
        mut claim: Claim,
        task: &Task,
        exhausted: Option<Fault>,
        desk: &mut Desk,
    ) {
        let target = claim.target();
        match self.pass_step(&mut claim, task, exhausted, desk) {
            Ok(Passed::Recorded(finished)) => self.finish(claim, *finished, desk),
            Ok(Passed::Withdrawn) => {
                if let Err(e) = self.mailbox.withdraw(&claim) {
                    self.trouble(&Fault::io("withdraw", &target, &e));
                }
            }
            Ok(Passed::Stopped(record) | Passed::Lost(record)) => {
                self.keep(&claim, &record);
                self.give_back_or_drop(claim);
            }
            Ok(Passed::Abandoned) => {}
            Err(fault) if matches!(fault.kind, Kind::IoError | Kind::Busy) => {
                self.trouble(&fault);
                self.queue.pause(Duration::from_secs(1));
                let _ = desk.wake.sleep(Duration::from_secs(1));
                self.give_back_or_drop(claim);
            }
            Err(fault) => self.reject(claim, fault, desk),
        }
    }

    /// Enters the step, does its work, and commits what came of it to the run's log.
    fn pass_step(
        &self,
        claim: &mut Claim,
        task: &Task,
        exhausted: Option<Fault>,
        desk: &mut Desk,
    ) -> Result<Passed> {
        let run_id = task.header.run.clone().unwrap_or_default();
        let host = self.host(&run_id)?;
        let name = claim.name.to_string();
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let Some(pending) = state.pending(&name).cloned() else {
            return self.not_pending(claim, &host, &state);
        };
        if pending.agent != claim.folders.agent.as_str() {
            return Err(forged(&run_id));
        }
        if state.status != RunStatus::Running {
            return Ok(Passed::Withdrawn);
        }
        let id = host.step(&pending.step)?;
        let facts = self.facts(&host, &state, id, pending.item, Moment::Entering)?;
        let entered = Event::Entered {
            task: name.clone(),
            attempt: pending.attempts + 1,
            facts: facts.clone(),
        };
        let (state, effects) = locked.apply(&host.workflow, state, &now(), entered)?;
        drop(locked);
        self.tell(&run_id, &effects);
        let Some(pending) = to_run(&effects) else {
            // Skipped, expanded or blocked: the log says so, and there is nothing to run.
            let record = self.step_record(claim, &run_id, &pending.step, Status::Succeeded, None);
            return Ok(Passed::Recorded(Box::new(Finished::without_output(record))));
        };
        let worked = match exhausted {
            Some(fault) => self.invalid(
                claim,
                &host,
                &pending,
                pending.attempts,
                fault,
                Began::now(),
            ),
            None => self.do_work(claim, &host, &state, &pending, &facts, desk)?,
        };
        match worked {
            Worked::Result(result, finished) => self.commit_step(&host, &name, *result, finished),
            Worked::Stopped(record) => Ok(Passed::Stopped(record)),
            Worked::Lost(record) => Ok(Passed::Lost(record)),
            Worked::Abandoned => Ok(Passed::Abandoned),
        }
    }

    /// The result goes to the log, if the step is still ours to finish.
    fn commit_step(
        &self,
        host: &Host,
        name: &str,
        result: StepResult,
        finished: Box<Finished>,
    ) -> Result<Passed> {
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let ours = state
            .pending(name)
            .is_some_and(|pending| pending.attempts == result.attempt);
        if !ours || state.status.is_final() {
            return Ok(Passed::Lost(Box::new(finished.record)));
        }
        let id = host.step(&result.step_name)?;
        let item = state.pending(name).and_then(|pending| pending.item);
        let facts = self.facts(host, &state, id, item, Moment::Finishing(&result))?;
        let event = Event::Finished {
            task: name.to_owned(),
            result: Box::new(result),
            facts,
        };
        let (_, effects) = locked.apply(&host.workflow, state, &now(), event)?;
        drop(locked);
        self.tell(host.run.id(), &effects);
        Ok(Passed::Recorded(finished))
    }

    /// A task that its run does not wait for: committed before a crash, or nobody's.
    fn not_pending(&self, claim: &Claim, host: &Host, state: &RunState) -> Result<Passed> {
        let step = step_of(claim.name.as_str(), state);
        let Some(step) = step else {
            return Err(forged(host.run.id()));
        };
        let mut record = self.step_record(claim, host.run.id(), &step, Status::Succeeded, None);
        let stored = state.step_results.get(&step);
        let stored =
            stored.and_then(|value| serde_json::from_value::<StepResult>(value.clone()).ok());
        if let Some(result) =
            stored.filter(|result| result.task.as_deref() == Some(&claim.target()))
        {
            record.exit_code = Some(result.exit_code);
            record.files = result.files;
            if result.status == StepStatus::Failed {
                record.status = Status::Failed;
            }
            record.error = result.error;
        }
        Ok(Passed::Recorded(Box::new(Finished::without_output(record))))
    }

    #[expect(clippy::too_many_arguments, reason = "a step is these things")]
    fn do_work(
        &self,
        claim: &mut Claim,
        host: &Host,
        state: &RunState,
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
        loop {
            let scene = Scene {
                root: &self.mailbox.root,
                run: &host.run,
                registry: &host.registry,
                workflow: &host.workflow,
                state,
                step: id,
                item: pending.item,
                facts,
                mailbox_task: (&claim.folders.agent.clone(), &claim.name.clone()),
                again: again.as_deref(),
            };
            let began = Began::now();
            let worked = match prepare(&scene) {
                Err(fault) => self.invalid(claim, host, pending, attempt, fault, began),
                Ok(Ready::Wait(waiting)) => {
                    self.wait_for_files(claim, host, pending, attempt, &waiting, desk)
                }
                Ok(Ready::Run(plan)) => {
                    let schema = schema(&scene)?;
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
                        Worked::Result(result, finished) => Worked::Result(result, finished),
                        other => return Ok(other),
                    }
                }
            };
            let Worked::Result(result, finished) = worked else {
                return Ok(worked);
            };
            if tries >= most || !result::retryable(&result, &finished.record) {
                return Ok(match self.write_output_file(&scene, &finished) {
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
            self.retried(host, claim.name.as_str(), attempt)?;
        }
    }

    /// Where nothing ran there is no answer, and an older file stays as it is.
    fn write_output_file(&self, scene: &Scene<'_>, finished: &Finished) -> Result<()> {
        if finished.outputs.is_empty() {
            return Ok(());
        }
        match output_file(scene)? {
            Some(path) => result::write_output_file(&self.mailbox.root, &path, &answer(finished)?),
            None => Ok(()),
        }
    }

    fn retried(&self, host: &Host, task: &str, attempt: u32) -> Result<()> {
        let locked = host.run.lock(PATIENCE)?;
        let state = locked.load(&host.workflow)?;
        let event = Event::Retried {
            task: task.to_owned(),
            attempt,
        };
        locked
            .apply(&host.workflow, state, &now(), event)
            .map(|_| ())
    }

    /// Runs a process for a step; what passes by itself is tried again as for any task.
    #[expect(clippy::too_many_arguments, reason = "an attempt is these things")]
    fn run_plan(
        &self,
        claim: &mut Claim,
        host: &Host,
        id: StepId,
        pending: &Pending,
        attempt: u32,
        plan: &Plan,
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

    /// One task at a time works in a folder: the others wait for it, until orch stops.
    fn wait_for_dir(&self, claim: &Claim, plan: &Plan, desk: &Desk) -> Result<Option<DirLock>> {
        loop {
            match plan.lock_dir()? {
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
    fn invalid(
        &self,
        claim: &Claim,
        host: &Host,
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

    /// Waits for files: woken by the clock, and by whatever wakes a worker.
    fn wait_for_files(
        &self,
        claim: &Claim,
        host: &Host,
        pending: &Pending,
        attempt: u32,
        waiting: &Waiting,
        desk: &Desk,
    ) -> Worked {
        let began = Began::now();
        let deadline = Instant::now() + waiting.timeout;
        let mut polls = 0_u64;
        let mut record =
            self.step_record(claim, host.run.id(), &pending.step, Status::Succeeded, None);
        record.attempt = attempt;
        let files = loop {
            polls += 1;
            let found = globs::matches(&self.mailbox.root.path, &waiting.glob).unwrap_or_default();
            if found.len() as u64 >= waiting.min_count || Instant::now() >= deadline {
                break found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if desk.wake.sleep(waiting.poll.min(left)) == Woken::Stopped
                || !claim.is_ours().unwrap_or(true)
            {
                record.status = Status::Interrupted;
                return Worked::Stopped(Box::new(record));
            }
        };
        stamp(&mut record, began);
        let Some(id) = host.workflow.find(&pending.step) else {
            return Worked::Abandoned;
        };
        let step = host.workflow.step(id);
        let visit = (pending.visit, attempt);
        let result = result::wait_result(
            step,
            visit,
            &times(&record),
            &files,
            polls,
            waiting.min_count,
        );
        record.exit_code = Some(result.exit_code);
        if let Some(fault) = &result.error {
            record.status = Status::TimedOut;
            record.error = Some(fault.clone());
        }
        Worked::Result(Box::new(result), Box::new(Finished::without_output(record)))
    }

    fn facts(
        &self,
        host: &Host,
        state: &RunState,
        id: StepId,
        item: Option<usize>,
        moment: Moment<'_>,
    ) -> Result<Facts> {
        let wanted = flow::wanted(&host.workflow, state, id, item, moment);
        let root = &self.mailbox.root.path;
        globs::facts(root, &wanted).map_err(|e| Fault::io("look for files in", root, &e))
    }

    fn tell(&self, run: &str, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Checkpoint(checkpoint) => {
                    let line = checkpoint.to_string();
                    (self.listener)(&Notice::Checkpoint { run, line: &line });
                }
                Effect::Ended(status) => (self.listener)(&Notice::RunEnded {
                    run,
                    status: *status,
                }),
                Effect::Run(_) => {}
            }
        }
    }

    fn step_record(
        &self,
        claim: &Claim,
        run: &str,
        step: &str,
        status: Status,
        error: Option<Fault>,
    ) -> Record {
        let mut record = self.blank_record(claim, 1, status, error);
        record.run = Some(run.to_owned());
        record.step = Some(step.to_owned());
        record
    }

    fn mark(&self, host: &Host, pending: &Pending, record: &mut Record) {
        record.run = Some(host.run.id().to_owned());
        record.step = Some(pending.step.clone());
    }

    /// The run at hand, opened where it is not yet. Its spec is checked against its hashes then.
    fn host(&self, run_id: &str) -> Result<Arc<Host>> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(run_id) {
            return Ok(host.clone());
        }
        let run = self.runs.open(run_id)?;
        let workflow = runs::pinned(&run)?;
        let registry = Registry::pinned(&run.dir().path().join("spec"), &self.mailbox.root.path)?;
        let host = Arc::new(Host {
            run,
            workflow,
            registry,
        });
        if hosts.len() >= AT_HAND {
            hosts.clear();
        }
        hosts.insert(run_id.to_owned(), host.clone());
        Ok(host)
    }
}

impl Host {
    fn step(&self, name: &str) -> Result<StepId> {
        self.workflow.find(name).ok_or_else(|| {
            Fault::new(
                Kind::StateCorrupted,
                format!(
                    "run `{}` waits for step `{name}`, which its workflow does not have",
                    self.run.id()
                ),
            )
        })
    }
}

/// The first event of a run: what its task gave it.
fn created(run: &RunDir, workflow: &Workflow, spec: &Spec, task: &Task) -> Result<Event> {
    let context = values::context(workflow, &task.header.context)?;
    let input = task.header.input.clone();
    values::check_input(workflow, spec, input.as_ref())?;
    let input = input.unwrap_or_else(|| json!({}));
    let root = &run.root().path;
    let files = run.files_path();
    let mut variables = Map::new();
    variables.insert("request".to_owned(), json!(task.body().trim_end()));
    variables.insert("input".to_owned(), input);
    variables.insert("context".to_owned(), Value::Object(context));
    variables.insert(
        "run".to_owned(),
        json!({
            "id": run.id(),
            "root": root,
            "files": files,
            "timestamp_utc": run.id().split('-').next().unwrap_or_default(),
            "spec_sha256": spec.sha256(),
        }),
    );
    Ok(Event::Created {
        run_id: run.id().to_owned(),
        workflow_name: workflow.name.value.clone(),
        workflow_sha256: spec.workflow_sha256(),
        variables,
    })
}

fn times(record: &Record) -> Times<'_> {
    Times {
        start: &record.start_time,
        end: &record.end_time,
        duration: Duration::try_from_secs_f64(record.duration).unwrap_or_default(),
    }
}

fn to_run(effects: &[Effect]) -> Option<Pending> {
    effects.iter().find_map(|effect| match effect {
        Effect::Run(pending) => Some(pending.clone()),
        _ => None,
    })
}

fn forged(run: &str) -> Fault {
    Fault::new(
        Kind::InvalidTask,
        format!("run `{run}` does not wait for this task"),
    )
    .hint("`run` and `step` are orch's own keys, and grant nothing by themselves")
}

/// The step that a task of this run was for, if its number has been given out.
fn step_of(task: &str, state: &RunState) -> Option<String> {
    let rest = task.strip_prefix(&state.run_id)?.strip_prefix('.')?;
    let (number, step) = rest.split_once('-')?;
    (number.parse::<u64>().ok()? <= state.tasks).then(|| step.to_owned())
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
