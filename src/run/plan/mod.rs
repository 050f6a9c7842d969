//! A plan: `MASTER_PLAN.md` and its task files, read into data and marked as phases are done.
//!
//! Pure: texts in, a [`Plan`] or all errors out; and new texts out where a phase is marked. The grammar is
//! liberal in how things are written and strict in what they mean. `specs/prompts/plan-grammar.md`
//! describes it with an example, for use in a planner's prompt.

mod ids;
mod link;
mod mark;
mod markdown;
mod master;
mod order;
mod task_file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

pub use mark::mark;

/// The name of the master plan in its folder.
pub const MASTER: &str = "MASTER_PLAN.md";
/// The longest file of a plan.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// The most tasks of a plan.
pub const MAX_TASKS: usize = 1000;

/// The files of a plan: the master plan and everything beside it that ends in `.md`, by name.
#[derive(Debug, Clone, Default)]
pub struct Folder {
    /// `MASTER_PLAN.md`.
    pub master: String,
    /// The others.
    pub files: BTreeMap<String, String>,
}

/// An error in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFault {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 if it concerns the whole file.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl PlanFault {
    fn new(file: &str, line: usize, message: impl Into<String>, hint: impl Into<String>) -> Self {
        PlanFault {
            file: file.to_owned(),
            line,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"file": self.file, "line": self.line, "message": self.message, "hint": self.hint})
    }
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}: {}", self.file, self.message)?,
        }
        write!(f, " ({})", self.hint)
    }
}

/// The state of a task or a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Not yet.
    Open,
    /// Done.
    Done,
    /// Left out on purpose.
    Skipped,
}

impl Tick {
    /// The word in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Tick::Open => "open",
            Tick::Done => "done",
            Tick::Skipped => "skipped",
        }
    }
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// As the master plan writes it.
    pub id: String,
    /// The name of its file.
    pub file: String,
    /// Its title.
    pub title: String,
    /// The ids of the tasks that must be done before.
    pub depends_on: Vec<String>,
    /// The ids of the tasks that may be done at the same time.
    pub parallel_with: Vec<String>,
    /// The files that it changes.
    pub files: Vec<String>,
    /// Whether it needs a review of its user and developer experience.
    pub requires_ux_dx_review: bool,
    /// Its state.
    pub tick: Tick,
}

/// A phase of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its number.
    pub number: u32,
    /// Its title.
    pub title: String,
    /// Its state.
    pub status: Tick,
    /// Its tasks, as indexes into [`Plan::tasks`].
    pub tasks: Vec<usize>,
}

/// A valid plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In the order in which they are worked on.
    pub phases: Vec<Phase>,
    /// In the order of the master plan.
    pub tasks: Vec<Task>,
}

/// Reads a plan.
///
/// # Errors
/// All errors of the plan.
pub fn read(folder: &Folder) -> Result<Plan, Vec<PlanFault>> {
    link::plan(folder)
}

impl Plan {
    /// The first phase that is open.
    #[must_use]
    pub fn current(&self) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.status == Tick::Open)
    }

    /// How many tasks are done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.tasks
            .iter()
            .filter(|task| task.tick == Tick::Done)
            .count()
    }

    /// Tasks that were done in an earlier reading of this plan and are not any more.
    #[must_use]
    pub fn undone(&self, before: &Value) -> Vec<PlanFault> {
        let tasks = before["tasks"].as_array().map_or(&[][..], Vec::as_slice);
        let done = tasks.iter().filter(|task| task["done"] == true);
        let again = done.filter_map(|task| {
            let id = task["id"].as_str()?;
            let now = self
                .tasks
                .iter()
                .find(|now| ids::key(&now.id) == ids::key(id))?;
            (now.tick != Tick::Done).then_some(id)
        });
        again
            .map(|id| {
                let message = format!("task `{id}` was done before and is open now");
                let hint = "put its `[x]` back; if more is to be done, add a task with a new id";
                PlanFault::new(MASTER, 0, message, hint)
            })
            .collect()
    }

    /// Tasks and phases that are closed now and were not in an earlier reading, except what orch itself
    /// marks: `own` is the phase and its new state.
    #[must_use]
    pub fn forged(&self, before: &Value, own: Option<(u32, Tick)>) -> Vec<PlanFault> {
        let list = |key: &str| before[key].as_array().map_or(&[][..], Vec::as_slice);
        let closed = |number: u32| {
            let mut phases = list("phases").iter();
            phases.any(|phase| phase["number"] == number && phase["status"] != "open")
        };
        let ended = |id: &str| {
            let is = |task: &&Value| {
                let before = task["id"].as_str().map(ids::key);
                before == Some(ids::key(id))
            };
            let before = list("tasks").iter().find(is);
            before.is_some_and(|task| task["done"] == true || task["skipped"] == true)
        };
        let mut faults = Vec::new();
        let mut fault = |message: String, hint: &str| {
            faults.push(PlanFault::new(MASTER, 0, message, hint));
        };
        for phase in self.phases.iter().filter(|phase| !closed(phase.number)) {
            let tasks = phase.tasks.iter().map(|place| &self.tasks[*place]);
            let forged = |task: &&Task| {
                let may = task.tick == Tick::Open || own == Some((phase.number, task.tick));
                !may && !ended(&task.id)
            };
            let forged: Vec<&str> = tasks.filter(forged).map(|task| task.id.as_str()).collect();
            for id in &forged {
                let message = format!("task `{id}` was ticked, and only orch may do that");
                fault(message, "change it back to `[ ]`, and resume");
            }
            let may = phase.status == Tick::Open || own == Some((phase.number, phase.status));
            if forged.is_empty() && !may {
                let message = format!(
                    "phase {} was closed, and only orch may do that",
                    phase.number
                );
                fault(
                    message,
                    "change it back to `**Status**: Pending`, and resume",
                );
            }
        }
        faults
    }

    /// The document `state.plan`; `dir` is the folder, relative to the root.
    #[must_use]
    pub fn to_value(&self, dir: &str) -> Value {
        let id = |place: &usize| json!(self.tasks[*place].id);
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|phase| {
                json!({
                    "number": phase.number,
                    "title": phase.title,
                    "status": phase.status.as_str(),
                    "tasks": phase.tasks.iter().map(id).collect::<Vec<_>>(),
                })
            })
            .collect();
        let tasks = self
            .tasks
            .iter()
            .map(|task| task.to_value(dir, &task.depends_on));
        json!({
            "dir": dir,
            "done": self.done(),
            "total": self.tasks.len(),
            "phases": phases,
            "tasks": tasks.collect::<Vec<_>>(),
            "current": self.current().map(|phase| self.current_value(phase, dir)),
        })
    }

    /// The current phase with its open tasks, each with those among them that must be done before it: a
    /// loop can go over them.
    fn current_value(&self, phase: &Phase, dir: &str) -> Value {
        let open: Vec<usize> = phase
            .tasks
            .iter()
            .copied()
            .filter(|place| self.tasks[*place].tick == Tick::Open)
            .collect();
        let needs = order::needs(&self.tasks, &open);
        let tasks: Vec<Value> = open
            .iter()
            .zip(&needs)
            .map(|(place, needs)| self.tasks[*place].to_value(dir, needs))
            .collect();
        json!({
            "number": phase.number,
            "title": phase.title,
            "status": phase.status.as_str(),
            "tasks": tasks,
        })
    }
}

impl Task {
    fn to_value(&self, dir: &str, depends_on: &[String]) -> Value {
        json!({
            "id": self.id,
            "file": format!("{dir}/{}", self.file).trim_start_matches('/'),
            "title": self.title,
            "depends_on": depends_on,
            "parallel_with": self.parallel_with,
            "files": self.files,
            "requires_ux_dx_review": self.requires_ux_dx_review,
            "done": self.tick == Tick::Done,
            "skipped": self.tick == Tick::Skipped,
        })
    }
}
