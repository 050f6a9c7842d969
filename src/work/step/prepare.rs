//! From a step of a run to what is to be done now: a process with its prompt, or files to wait for.
//!
//! A fault here means that something was invalid before a process ran: the step's exit code is 2,
//! and it is not tried again.

use std::time::Duration;

use serde_json::Value;

use super::{outputs::Artifacts, process, prompt};
use crate::agents::secrets;
use crate::disk::mailbox::{STATE, file_name};
use crate::disk::paths;
use crate::disk::root::Root;
use crate::run::flow;
use crate::run::schema::Schema;
use crate::run::state::{Facts, RunState};
use crate::spec::scope::Scope;
use crate::spec::task::{AgentName, TaskName};
use crate::spec::vars;
use crate::spec::workflow::model::{Action, Step, StepId, Text, Wait, Work};
use crate::text::error::{Fault, Kind, Result};
use crate::work::actions::Act;
use crate::work::document;
use crate::work::job::Job;
use crate::work::pinned::PinnedRun;

/// The step of a run that is to be prepared, and all that it can see.
#[derive(Clone, Copy)]
pub struct StepSource<'a> {
    /// The run.
    pub pinned: &'a PinnedRun,
    /// The latest state of the run.
    pub state: &'a RunState,
    /// The step.
    pub step: StepId,
    /// The item of the loop that it belongs to.
    pub item: Option<usize>,
    /// What the disk looked like.
    pub facts: &'a Facts,
    /// The agent whose inbox the step's task went through, and the name of that task.
    pub mailbox_task: (&'a AgentName, &'a TaskName),
    /// What was wrong with the previous answer, for the agent to read.
    pub again: Option<&'a str>,
}

impl StepSource<'_> {
    pub(super) fn root(&self) -> &Root {
        self.pinned.run.root()
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Ready {
    /// Run this.
    Run(Box<Job>),
    /// Wait for these.
    Wait(WantedFiles),
    /// Do this, without a process.
    Act(Act),
}

/// Files that are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFiles {
    /// Which.
    pub glob: String,
    /// How long.
    pub timeout: Duration,
    /// How often it is looked for them.
    pub poll: Duration,
    /// How many there must be.
    pub min_count: u64,
}

/// Fills the texts of a step, finds its files, and says what is to be done. Nothing is started and
/// nothing written.
///
/// # Errors
/// Whatever is invalid before a process runs.
pub fn prepare(source: &StepSource<'_>) -> Result<Ready> {
    let view = View::new(source);
    // Both are used only afterwards, but nothing may run for an answer that cannot be taken.
    schema(source)?;
    output_file(source)?;
    match &view.step.work {
        Work::Agent(work) => process::agent(&view, work).map(|plan| Ready::Run(Box::new(plan))),
        Work::Command(command) => {
            process::command(&view, command).map(|plan| Ready::Run(Box::new(plan)))
        }
        Work::Wait(wait) => waiting(&view, wait).map(Ready::Wait),
        Work::Action(action) => act(&view, action).map(Ready::Act),
        other => {
            let name = &view.step.name.value;
            let message = format!("step `{name}` ({}) has no work of its own", other.kind());
            Err(Fault::new(Kind::WorkflowValidationError, message))
        }
    }
}

/// The secrets that a step or its agent declares, and that are not set.
#[must_use]
pub fn missing_secrets(source: &StepSource<'_>) -> Vec<String> {
    let view = View::new(source);
    let mut all = secrets::missing_of(view.step);
    if let Work::Agent(work) = &view.step.work
        && let Ok(setup) = source
            .pinned
            .catalogue
            .step_setup(&work.who, &source.pinned.workflow.providers)
    {
        let own = setup.agent.secrets.iter().map(String::as_str);
        all.extend(secrets::missing(own, |name| {
            setup.agent.env.contains_key(name)
        }));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The schema of a step's output, from the specs that the run is pinned to.
///
/// # Errors
/// It is not there, not JSON, or not a schema.
pub fn schema(source: &StepSource<'_>) -> Result<Option<Schema>> {
    let view = View::new(source);
    let Some(path) = &view.step.output_schema else {
        return Ok(None);
    };
    let path = view.fill(path)?;
    let text = view.spec_or_file(&path)?;
    let bad = |why: String| {
        let message = format!("`{path}` is not a JSON Schema: {why}");
        Fault::new(Kind::WorkflowValidationError, message)
    };
    let document: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    Schema::compile(&document).map(Some).map_err(|fault| Fault {
        message: format!("`{path}`: {}", fault.message),
        ..fault
    })
}

/// The file that gets a step's whole answer, relative to the root.
///
/// # Errors
/// An undefined variable, or a path that leads out of the root.
pub fn output_file(source: &StepSource<'_>) -> Result<Option<String>> {
    let view = View::new(source);
    let Some(path) = &view.step.output_file else {
        return Ok(None);
    };
    let path = paths::relative(&source.root().path, &view.fill(path)?)?;
    if path.is_empty() {
        let message = "`output_file` names the root itself";
        return Err(Fault::new(Kind::WorkflowValidationError, message).hint("name a file"));
    }
    Ok(Some(path))
}

/// An action with its folders, which stay inside the root.
fn act(view: &View<'_>, action: &Action) -> Result<Act> {
    prompt::dependencies(view)?;
    let root = &view.source.root().path;
    let dir = |text: &Text| paths::relative(root, &view.fill(text)?);
    match action {
        Action::LoadPlan { dir: text, ticks } => Ok(Act::LoadPlan {
            dir: dir(text)?,
            ticks: *ticks,
        }),
        Action::MarkPlan { dir: text, mark } => Ok(Act::MarkPlan {
            dir: dir(text)?,
            mark: *mark,
        }),
        Action::ApplyFiles { from, into } => {
            let into = dir(into)?;
            let from = view.source.pinned.workflow.step(*from).name.value.clone();
            let (text, wrote) = view.outputs(true).to_apply(&from)?;
            Ok(Act::ApplyFiles {
                from,
                into,
                text,
                wrote,
            })
        }
    }
}

/// The folders, relative to the root, that the files which this step prints will go to.
pub fn printed_into(source: &StepSource<'_>) -> Vec<String> {
    let view = View::new(source);
    let into = source
        .pinned
        .workflow
        .steps
        .iter()
        .filter_map(|step| match &step.work {
            Work::Action(Action::ApplyFiles { from, into }) if *from == source.step => Some(into),
            _ => None,
        });
    // What cannot be told yet is told when the files are applied.
    let filled = into.filter_map(|into| view.fill(into).ok());
    let inside = filled.filter_map(|into| paths::relative(&source.root().path, &into).ok());
    inside.collect()
}

fn waiting(view: &View<'_>, wait: &Wait) -> Result<WantedFiles> {
    prompt::dependencies(view)?;
    let glob = view.fill(&wait.glob)?;
    paths::relative(&view.source.root().path, &glob)?;
    Ok(WantedFiles {
        glob,
        timeout: Duration::from_secs(wait.timeout_sec),
        poll: Duration::from_millis(wait.poll_ms.max(1)),
        min_count: wait.min_count,
    })
}

/// A step with the names that its texts can use.
pub(super) struct View<'a> {
    pub(super) source: &'a StepSource<'a>,
    pub(super) step: &'a Step,
    pub(super) scope: Scope<'a>,
}

impl<'a> View<'a> {
    pub(super) fn new(source: &'a StepSource<'a>) -> Self {
        let (workflow, state) = (&source.pinned.workflow, source.state);
        let mut view = View {
            source,
            step: workflow.step(source.step),
            scope: flow::scope(workflow, state, source.step, source.item, source.facts),
        };
        view.scope.set(document::ASKED_BY, view.state_file());
        view
    }

    /// Where the step's copy of the canonical document lies, if it gets one.
    pub(super) fn state_file(&self) -> String {
        let (owner, name) = self.source.mailbox_task;
        let folder = self.source.root().artifacts.path().join(owner.as_str());
        folder.join(file_name(name, STATE)).display().to_string()
    }

    fn outputs(&self, whole: bool) -> Artifacts<'_> {
        Artifacts {
            root: self.source.root(),
            steps: self.scope.root("steps").unwrap_or(&Value::Null),
            whole,
        }
    }

    /// A text with its variables filled in.
    pub(super) fn fill(&self, text: &Text) -> Result<String> {
        let text = vars::Text::parse(&text.value)?;
        Ok(text.fill(&self.scope, &self.outputs(false))?)
    }

    /// The same for a prompt, in which outputs stand whole.
    pub(super) fn fill_prompt(&self, text: &Text) -> Result<String> {
        let text = vars::Text::parse(&text.value)?;
        Ok(text.fill(&self.scope, &self.outputs(true))?)
    }

    /// What a text stands for in a command line.
    pub(super) fn arguments(&self, text: &str) -> Result<Vec<String>> {
        let text = vars::Text::parse(text)?;
        Ok(text.arguments(&self.scope, &self.outputs(false))?)
    }

    /// A file that the run is pinned to, else one inside the root as it is now.
    pub(super) fn spec_or_file(&self, path: &str) -> Result<String> {
        match self.pinned(path)? {
            Some(bytes) => String::from_utf8(bytes).map_err(|_| {
                let message = format!("`{path}` is not UTF-8");
                Fault::new(Kind::InvalidTask, message).hint("save it as UTF-8")
            }),
            None => paths::text(self.source.root(), path, vars::MAX_TEXT_BYTES),
        }
    }

    fn pinned(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let inside = paths::relative(&self.source.root().path, path)?;
        if !crate::disk::specs::is_inside_specs(&inside) {
            return Ok(None);
        }
        let (manifest, top) = crate::disk::store::manifest(self.source.pinned.run.dir())?;
        let Some(expected) = manifest.files.get(&inside) else {
            return Ok(None);
        };
        match crate::disk::store::verified(&top, &inside, expected) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) => {
                let shown = top.path().join(&inside);
                let message = format!("`{}` {why}", shown.display());
                Err(Fault::new(Kind::SafetyViolation, message)
                    .hint("a run is pinned to its copy of the spec; put the file back as it was"))
            }
        }
    }

    /// Where a file that the step names can be read: absolute, the pinned copy if there is one.
    pub(super) fn readable_path(&self, path: &str) -> Result<String> {
        let inside = paths::relative(&self.source.root().path, path)?;
        let base = match self.pinned(path)? {
            Some(_) => self.source.pinned.run.dir().path().join("spec"),
            None => self.source.root().path.clone(),
        };
        Ok(base.join(inside).display().to_string())
    }
}
