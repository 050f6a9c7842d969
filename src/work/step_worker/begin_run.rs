//! The start of a run: its id is written down first, then its folder is made, then its first steps
//! are dropped. Whatever dies in between is gone on with under the same id.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::StepWorker;
use crate::agents::process::Woken;
use crate::agents::secrets;
use crate::disk::lock::Locked;
use crate::disk::mailbox::{Claim, Commit};
use crate::disk::specs::is_inside_specs;
use crate::disk::store::{PATIENCE, RunDir, Spec};
use crate::run::flow;
use crate::run::record::{Record, Status};
use crate::run::state::Event;
use crate::spec::task::{AgentName, Header, Task, TaskName};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};
use crate::work::attempt::WorkerState;
use crate::work::commit::blank_record;
use crate::work::notice::Notice;
use crate::work::{clock::now, inputs, pinned, start};

impl StepWorker {
    /// Starts the run that a task asks for. With `begun`, goes on with the id that its record names.
    pub(crate) fn start_run(
        &self,
        claim: Claim,
        task: &Task,
        begun: Option<&Record>,
        worker: &mut WorkerState,
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
                Err(fault) => return self.committer.reject(claim, fault, &worker.wake),
            },
        };
        let (run_id, _alone) = match begun {
            Some(_) => (run_id, None),
            None => match self.would_start(&agent, &word, &task.header, run_id) {
                Ok(start) => start,
                Err(fault) => return self.committer.reject(claim, fault, &worker.wake),
            },
        };
        let mut record = blank_record(&claim, 1, Status::Started, None);
        record.run = Some(run_id.clone());
        let started = || -> Result<()> {
            self.create_run(&run_id, &word, task)?;
            self.drop_pending(&run_id, None)
        };
        // The id is written down before anything is made, so that a crash makes no second run.
        let committed = begun.is_some();
        self.finish_start(claim, &record, committed, started, worker);
    }

    /// Whether a run can be made of this task, before anything is made. Of a singleton it is the one
    /// that is not finished; until that can be seen, nobody else starts one.
    fn would_start(
        &self,
        agent: &AgentName,
        word: &str,
        header: &Header,
        run_id: String,
    ) -> Result<(String, Option<Locked>)> {
        if agent.is_reserved() && !self.shared.catalogue.is_human(agent) {
            let message = format!("`inbox/{agent}/` takes steps of runs and nothing else");
            return Err(Fault::new(Kind::InvalidTask, message)
                .hint(format!("drop it into `inbox/{word}/`")));
        }
        let (workflow, spec) = start::load_runnable(&self.shared.mailbox.root.path, word)?;
        inputs::context(&workflow, &header.context)?;
        inputs::check_input(&workflow, &spec, header.input.as_ref())?;
        if !workflow.singleton {
            return Ok((run_id, None));
        }
        let folder = &self.shared.mailbox.root.workspace;
        let alone = folder.reopen().and_then(Locked::wait);
        let alone = alone.map_err(|e| Fault::io("lock", folder.path(), &e))?;
        let run_id = match start::unfinished(self.runs.all(), &workflow, header.input.as_ref())? {
            Some(earlier) if header.run.as_ref().is_some_and(|id| *id != earlier) => {
                let message = format!(
                    "workflow `{word}` has one run at a time, and `{earlier}` has just begun"
                );
                let hint = format!(
                    "`orch resume {earlier}` goes on with it, `orch cancel {earlier}` ends it"
                );
                return Err(Fault::new(Kind::Busy, message).hint(hint));
            }
            Some(earlier) => earlier,
            None => run_id,
        };
        Ok((run_id, Some(alone)))
    }

    fn finish_start(
        &self,
        mut claim: Claim,
        record: &Record,
        committed: bool,
        started: impl Fn() -> Result<()>,
        worker: &WorkerState,
    ) {
        if !committed {
            let done = self.committer.persist(&mut claim, &worker.wake, |claim| {
                self.shared.mailbox.commit(claim, record, &[], None)
            });
            match done {
                Some(Commit::Done) => {}
                Some(Commit::Lost) => return self.committer.put_back_or_drop(claim),
                None => return,
            }
        }
        let outcome = loop {
            match started() {
                Err(fault) if fault.is_worth_retrying() => {
                    self.shared.reporter.trouble(&fault);
                    if worker.wake.sleep(Duration::from_secs(1)) == Woken::Stopped {
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
        let retired = self.committer.persist(&mut claim, &worker.wake, |claim| {
            if record.status != Status::Started {
                self.shared.mailbox.replace_record(claim, &record)?;
            }
            let status = match record.status {
                Status::Started => Status::Succeeded,
                other => other,
            };
            self.shared.mailbox.retire(claim, status)
        });
        if retired.is_some() {
            match record.status {
                Status::Started => self.shared.tally.one_succeeded(),
                _ => self.shared.tally.one_failed(),
            }
            self.shared
                .reporter
                .say(&Notice::Finished { record: &record });
        }
    }

    fn wanted_id(&self, word: &str, header: &Header) -> Result<String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        // A task names what the user put in `specs/`, never a file of its own choice.
        if !word.bytes().all(plain) && !is_inside_specs(word) {
            let message = "`workflow` is neither the name of a workflow nor a path below `specs/`";
            return Err(Fault::new(Kind::UnknownWorkflow, message)
                .hint("put the workflow in `specs/` and give its name"));
        }
        match &header.run {
            Some(id) => TaskName::parse(id).map(|_| id.clone()),
            None => Ok(start::fresh_id(
                word,
                Timestamp::now(),
                &uuid::Uuid::now_v7(),
            )),
        }
    }

    /// Makes the run's folder and its first event, unless that was done before a crash.
    fn create_run(&self, run_id: &str, word: &str, task: &Task) -> Result<()> {
        // What a crash left is gone on with; what it left half made is made again.
        if let Ok(run) = self.runs.folder(run_id)
            && let Ok(workflow) = pinned::workflow(&run)
            && run.lock(PATIENCE)?.load(&workflow)?.seq > 0
        {
            return Ok(());
        }
        let (workflow, spec) = start::load_runnable(&self.shared.mailbox.root.path, word)?;
        let run = self.runs.all().create(run_id, &spec)?;
        let locked = run.lock(PATIENCE)?;
        let state = locked.load(&workflow)?;
        if state.seq > 0 {
            return Ok(());
        }
        let event = created(&run, &workflow, &spec, task)?;
        let (state, effects) = locked.apply(&workflow, state, &now(), event)?;
        self.report(run_id, &effects);
        for warning in flow::clamped(&workflow, &state.variables) {
            let fault = Fault::new(Kind::LimitExceeded, format!("{run_id}: {warning}"));
            self.shared.reporter.say(&Notice::Trouble { fault: &fault });
        }
        Ok(())
    }
}

/// The first event of a run: what its task gave it.
fn created(run: &RunDir, workflow: &Workflow, spec: &Spec, task: &Task) -> Result<Event> {
    let context = inputs::context(workflow, &task.header.context)?;
    let input = task.header.input.clone();
    inputs::check_input(workflow, spec, input.as_ref())?;
    let request = task.body().trim_end();
    secrets::refuse_order(workflow, request, input.as_ref(), &task.header.context)?;
    let input = input.unwrap_or_else(|| json!({}));
    let root = &run.root().path;
    let files = run.files_path();
    let mut variables = Map::new();
    variables.insert("request".to_owned(), json!(request));
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
