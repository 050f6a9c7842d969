//! A root of its own with one run on it, and the small workflow that the run is of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, json};

use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::store::{PATIENCE, RunDir, Runs, Spec};
use crate::run::flow;
use crate::run::state::{Effect, Event, Facts, RunState, StepResult, StepStatus};
use crate::spec::provider::UserProviders;
use crate::spec::workflow::{Specs, Workflow, check};
use crate::text::error::{Kind, Result};

pub(crate) const RUN: &str = "20260101T000000Z-w-0001";
pub(crate) const NOW: &str = "2026-01-01T00:00:00Z";
pub(crate) const TEXT: &str = "version: \"1\"\nname: w\nsteps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, command: [\"true\"]}\n";

struct Nothing(UserProviders);

impl Specs for Nothing {
    fn file(&self, _: &str) -> Result<Option<String>> {
        Ok(None)
    }
    fn agents(&self) -> Vec<String> {
        Vec::new()
    }
    fn providers(&self) -> &UserProviders {
        &self.0
    }
    fn default_provider(&self) -> Option<String> {
        Some("echo".to_owned())
    }
    fn dirs(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) fn workflow(text: &str) -> Workflow {
    let nothing = Nothing(UserProviders::default());
    let checked = check("w.yaml", text, &nothing);
    let report = checked.report.render();
    checked.workflow.unwrap_or_else(|| panic!("{report}"))
}

/// A root with one run.
pub(crate) struct Bed {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) runs: Runs,
    pub(crate) run: RunDir,
    pub(crate) workflow: Workflow,
}

pub(crate) fn runs_at(path: &Path) -> Runs {
    std::fs::create_dir_all(path.join("inbox")).unwrap();
    std::fs::create_dir_all(path.join("specs")).unwrap();
    std::fs::write(path.join("specs/orch.yaml"), "").unwrap();
    let root = Arc::new(Root::open(path).unwrap());
    Runs::new(root, Disk::new(Durability::Power))
}

pub(crate) fn a_spec() -> Spec {
    let files = [("specs/w.yaml", TEXT), ("specs/prompts/deep/p.md", "do it")];
    Spec {
        workflow: "specs/w.yaml".to_owned(),
        files: files
            .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
            .into(),
    }
}

pub(crate) fn created(request: &str) -> Event {
    let mut variables = Map::new();
    variables.insert("request".to_owned(), json!(request));
    Event::Created {
        run_id: RUN.to_owned(),
        workflow_name: "w".to_owned(),
        workflow_sha256: a_spec().workflow_sha256(),
        variables,
    }
}

pub(crate) fn result(step: &str) -> StepResult {
    StepResult {
        step_name: step.to_owned(),
        status: StepStatus::Succeeded,
        exit_code: 0,
        start_time: NOW.to_owned(),
        end_time: NOW.to_owned(),
        duration: 0.1 + 0.2,
        output: Some("done".to_owned()),
        lines: None,
        json_data: None,
        truncated: false,
        json_parse_error: None,
        error: None,
        note: None,
        attempt: 1,
        visit: 1,
        task: None,
        artifacts: Vec::new(),
        waited: None,
        more: Map::new(),
    }
}

impl Bed {
    pub(crate) fn new() -> Bed {
        Bed::with(TEXT)
    }

    pub(crate) fn with(text: &str) -> Bed {
        let temp = tempfile::tempdir().unwrap();
        let runs = runs_at(temp.path());
        let run = runs.create(RUN, &a_spec()).unwrap();
        Bed {
            temp,
            runs,
            run,
            workflow: workflow(text),
        }
    }

    pub(crate) fn apply(&self, state: RunState, event: Event) -> (RunState, Vec<Effect>) {
        let locked = self.run.lock(PATIENCE).unwrap();
        let applied = locked.apply(&self.workflow, state, NOW, event);
        let (state, effects) = applied.unwrap();
        (RunState::clone(&state), effects)
    }

    pub(crate) fn load(&self) -> Result<RunState> {
        // A handle of its own: nothing is remembered.
        let run = self.runs.open(RUN)?;
        let locked = run.lock(PATIENCE)?;
        locked.load(&self.workflow).map(Arc::unwrap_or_clone)
    }

    pub(crate) fn enter(&self, state: RunState) -> RunState {
        let task = state.pending[0].task.clone();
        let entered = Event::Entered {
            task,
            attempt: 1,
            facts: Facts::default(),
        };
        self.apply(state, entered).0
    }

    pub(crate) fn finish(&self, state: RunState, result: StepResult) -> RunState {
        let task = state.pending[0].task.clone();
        let result = Box::new(result);
        self.apply(
            state,
            Event::Finished {
                task,
                result,
                changes: Default::default(),
                facts: Facts::default(),
            },
        )
        .0
    }

    /// The run, begun and with its first step done: three events.
    pub(crate) fn three(&self) -> RunState {
        let (state, _) = self.apply(flow::nothing(), created("please"));
        let state = self.enter(state);
        self.finish(state, result("one"))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.temp.path().join("logs").join(format!("{RUN}.jsonl"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.temp.path().join("workspace").join(RUN).join(name)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn write_lines(&self, lines: &[String]) {
        std::fs::write(self.log(), lines.join("\n") + "\n").unwrap();
    }

    pub(crate) fn add_to_log(&self, bytes: &[u8]) {
        let mut log = std::fs::read(self.log()).unwrap();
        log.extend_from_slice(bytes);
        std::fs::write(self.log(), log).unwrap();
    }

    pub(crate) fn corrupted(&self, part: &str) {
        let fault = self.load().unwrap_err();
        assert_eq!(fault.kind, Kind::StateCorrupted, "{fault}");
        assert!(fault.message.contains(part), "{fault}");
        assert!(fault.hint.is_some());
        assert_eq!(fault.exit_code(), 3);
    }
}
