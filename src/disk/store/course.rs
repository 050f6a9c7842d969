//! Which workflow each event of a log goes by: the one that the run was pinned to at the time.
//!
//! A run that was never updated has one. The others are read from `spec~1/`, `spec~2/`, each only
//! where the log names it by its hash.

use std::cell::OnceCell;

use serde_json::{Map, Value};

use super::{RunDir, Spec, spec};
use crate::disk::specs::Pinned;
use crate::run::state::{Event, RunState};
use crate::spec::workflow::{self, Workflow};
use crate::text::error::{Fault, Kind, Result};

/// The workflows of a run, from its first to its latest.
pub(crate) struct Course<'w> {
    run: &'w RunDir,
    latest: &'w Workflow,
    past: Vec<Past>,
}

struct Past {
    folder: String,
    sha256: String,
    spec: Spec,
    workflow: OnceCell<Workflow>,
}

impl<'w> Course<'w> {
    /// Reads the specs that the run had before; `latest` is what it goes by now.
    ///
    /// # Errors
    /// One of them was changed: a safety violation.
    pub(crate) fn new(run: &'w RunDir, latest: &'w Workflow) -> Result<Course<'w>> {
        let mut past = Vec::new();
        for folder in run.past_specs()? {
            let (spec, _) = spec::read_sealed(&run.dir, &folder)?;
            past.push(Past {
                folder,
                sha256: spec.sha256(),
                spec,
                workflow: OnceCell::new(),
            });
        }
        Ok(Course { run, latest, past })
    }

    /// The workflow by which this event follows from this state.
    ///
    /// # Errors
    /// The spec that the run had then is gone, or its workflow cannot be read by this orch.
    pub(crate) fn at(&self, state: &RunState, event: &Event) -> Result<&Workflow> {
        let before = named(&state.variables);
        if matches!(event, Event::SpecUpdated { .. })
            && before.is_some_and(|hash| self.find(hash).is_none())
        {
            let why = "is not among the specs of the run, which has gone on to another";
            let place = format!("the spec of event {}", state.seq);
            return Err(spec::changed(&self.run.dir, &place, why));
        }
        match adopted(event).or(before).and_then(|hash| self.find(hash)) {
            Some(past) => self.read(past),
            None => Ok(self.latest),
        }
    }

    fn find(&self, sha256: &str) -> Option<&Past> {
        self.past.iter().find(|past| past.sha256 == sha256)
    }

    fn read<'s>(&'s self, past: &'s Past) -> Result<&'s Workflow> {
        if let Some(workflow) = past.workflow.get() {
            return Ok(workflow);
        }
        let workflow = workflow_of(&past.spec).map_err(|why| {
            let message = format!(
                "run `{}` cannot be followed by the workflow in `{}`: {why}",
                self.run.id, past.folder
            );
            Fault::new(Kind::WorkflowValidationError, message)
                .hint("another version of orch began it, perhaps")
        })?;
        Ok(past.workflow.get_or_init(|| workflow))
    }
}

/// The hash of the spec that an event makes the run's own.
pub(crate) fn adopted(event: &Event) -> Option<&str> {
    match event {
        Event::Created { variables, .. } => named(variables),
        Event::SpecUpdated { spec_sha256, .. } => Some(spec_sha256),
        _ => None,
    }
}

/// The hash of the spec that a run goes by, from its variables.
pub(super) fn named(variables: &Map<String, Value>) -> Option<&str> {
    variables.get("run")?["spec_sha256"].as_str()
}

/// The workflow of a spec, or what is wrong with it.
pub(crate) fn workflow_of(spec: &Spec) -> std::result::Result<Workflow, String> {
    let text = String::from_utf8_lossy(spec.workflow_bytes());
    let pinned = Pinned::new(spec.files.clone()).map_err(|fault| fault.message)?;
    let checked = workflow::check(&spec.workflow, &text, &pinned);
    let fault = checked.report.fault();
    match (checked.workflow, fault) {
        (Some(workflow), None) => Ok(workflow),
        (_, Some(fault)) => Err(fault.message),
        (None, None) => Err("it cannot be read".to_owned()),
    }
}
