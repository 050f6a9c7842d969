//! A root with one run, whose specs are pinned.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::specs::Pinned;
use crate::disk::store::{Runs, Spec};
use crate::run::flow;
use crate::run::state::{Event, Facts, RunState};
use crate::spec::task::{AgentName, TaskName};
use crate::spec::workflow::{Workflow, check};
use crate::text::error::{Fault, Kind, Result};
use crate::work::job::Job;
use crate::work::pinned::PinnedRun;
use crate::work::step::{Ready, StepSource, prepare};

pub const RUN: &str = "20260101T000000Z-w-0001";

pub struct Bed {
    /// Removed with it.
    _temp: tempfile::TempDir,
    pub root: Arc<Root>,
    pub pinned: PinnedRun,
    pub state: RunState,
}

/// A workflow of these steps, one on each line; the variables that they name have no values.
pub fn bed(steps: &str) -> Bed {
    let names = ["files", "none", "long", "nul", "gone", "up", "g", "d"];
    let declared = names.map(|name| format!("{name}: x")).join(", ");
    let mut bed = bed_with(steps, &format!("context: {{{declared}}}\n"));
    bed.state.variables["context"] = json!({});
    bed
}

/// The same with further lines at the top of the workflow.
pub fn bed_with(steps: &str, top: &str) -> Bed {
    let temp = tempfile::tempdir().unwrap();
    let path = std::fs::canonicalize(temp.path()).unwrap();
    let listed: String = steps.lines().map(|step| format!("  - {step}\n")).collect();
    let text = format!("version: \"1\"\nname: w\n{top}steps:\n{listed}");
    let files = [
        (
            "specs/orch.yaml",
            "provider: echo\ndirs: {app: {path: app}}\nlimits: {timeout: 90s}\n",
        ),
        ("specs/w.yaml", text.as_str()),
        ("specs/agents/coder.md", "---\nprovider: echo\n---\nWork.\n"),
        ("specs/prompts/p.md", "Pinned ${request}."),
        ("specs/schemas/s.json", "{\"required\": [\"a\"]}"),
    ];
    std::fs::create_dir_all(path.join("inbox")).unwrap();
    std::fs::create_dir_all(path.join("app")).unwrap();
    write(&path, "specs/orch.yaml", "");
    let root = Arc::new(Root::open(&path).unwrap());
    let spec = Spec {
        workflow: "specs/w.yaml".to_owned(),
        files: files
            .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
            .into(),
    };
    let runs = Runs::new(root.clone(), Disk::new(Durability::Power));
    let run = runs.create(RUN, &spec).unwrap();
    let pinned = Pinned::new(spec.files.clone()).unwrap();
    let checked = check("specs/w.yaml", &text, &pinned);
    let report = checked.report.render();
    let workflow = checked.workflow.unwrap_or_else(|| panic!("{report}"));
    let state = begun(&workflow, &path);
    Bed {
        pinned: PinnedRun::with(run, workflow).unwrap(),
        _temp: temp,
        root,
        state,
    }
}

fn begun(workflow: &Workflow, root: &Path) -> RunState {
    let variables = json!({
        "request": "please", "input": {}, "context": workflow.context,
        "run": {"id": RUN, "root": root, "files": root.join("workspace").join(RUN).join("files"),
                "timestamp_utc": "20260101T000000Z"},
    });
    let Value::Object(variables) = variables else {
        unreachable!()
    };
    let created = Event::Created {
        run_id: RUN.to_owned(),
        workflow_name: "w".to_owned(),
        workflow_sha256: String::new(),
        variables,
    };
    flow::step(workflow, flow::nothing(), "2026-01-01T00:00:00Z", &created)
        .unwrap()
        .0
}

pub fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

impl Bed {
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        write(&self.root.path, path, text);
        self
    }

    /// An earlier step with a result whose answer lies in its artifacts.
    pub fn printed(&mut self, step: &str, text: &str) {
        let task = format!("shell/{step}");
        self.file(&format!("artifacts/{task}.out"), text);
        let shown: String = text.chars().take(10).collect();
        let result = json!({"step_name": step, "output": shown, "task": task,
                            "truncated": text.len() > 10, "exit_code": 0});
        self.state.step_results.insert(step.to_owned(), result);
    }

    pub fn ask(&self, step: &str, again: Option<&str>) -> Result<Ready> {
        let agent = AgentName::parse("coder").unwrap();
        let name = TaskName::parse("t").unwrap();
        prepare(&StepSource {
            pinned: &self.pinned,
            state: &self.state,
            step: self.pinned.workflow.find(step).unwrap(),
            item: None,
            facts: &Facts::default(),
            mailbox_task: (&agent, &name),
            again,
        })
    }

    pub fn plan(&self, step: &str) -> Job {
        match self.ask(step, None).unwrap() {
            Ready::Run(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }

    pub fn prompt(&self, step: &str) -> String {
        self.plan(step).task.body().to_owned()
    }

    pub fn argv(&self, step: &str) -> Vec<String> {
        self.plan(step).invocation.unwrap().argv
    }

    pub fn fault(&self, step: &str) -> Fault {
        self.ask(step, None).unwrap_err()
    }

    pub fn refused(&self, step: &str, kind: Kind, part: &str) {
        let fault = self.fault(step);
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(fault.message.contains(part), "{fault}");
    }
}
