//! A run under test: it makes events out of a few words and checks each step of the way.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::run::flow::{
    Illegal, Moment, nothing, step, wanted, wanted_on_answer, wanted_on_resume,
};
use crate::run::state::{
    Changes, Effect, Event, Facts, Pending, RunState, StepResult, StepStatus, Verdict,
};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::tests::support::Disk;
use crate::text::error::{Fault, Kind};

/// Reads a workflow of which only the head is missing.
pub fn workflow(text: &str) -> Result<Workflow, String> {
    let text = format!("version: \"1\"\nname: w\n{text}");
    let disk = Disk {
        everything: true,
        ..Disk::usual()
    };
    let checked = crate::spec::workflow::check("w.yaml", &text, &disk);
    let report = checked.report.render();
    checked.workflow.ok_or(report)
}

/// A run, its log, and the files that exist.
pub struct Player {
    pub workflow: Workflow,
    pub state: RunState,
    pub files: BTreeSet<String>,
    pub log: Vec<(String, Event)>,
}

impl Player {
    pub fn new(workflow: Workflow) -> Self {
        Player {
            workflow,
            state: nothing(),
            files: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    /// Applies an event. An illegal one changes nothing; a legal one is counted and kept.
    pub fn apply(&mut self, event: Event) -> Result<Vec<Effect>, Illegal> {
        let at = format!("2026-01-01T00:00:{:02}Z", self.log.len() % 60);
        let (state, effects) = step(&self.workflow, self.state.clone(), &at, &event)?;
        assert_eq!(state.seq, self.state.seq + 1);
        self.state = state;
        self.log.push((at, event));
        Ok(effects)
    }

    /// The log, played again from a state that went through JSON after each event.
    pub fn replay(&self) -> RunState {
        let mut state = nothing();
        for (at, event) in &self.log {
            let event = serde_json::from_value(json!(event)).expect("an event reads back");
            state = step(&self.workflow, state, at, &event)
                .expect("it was legal")
                .0;
            state = serde_json::from_value(json!(state)).expect("a state reads back");
        }
        state
    }

    pub fn create(&mut self, variables: Map<String, Value>) -> Result<Vec<Effect>, Illegal> {
        self.apply(Event::Created {
            run_id: "r-1".to_owned(),
            workflow_name: "w".to_owned(),
            workflow_sha256: "0".repeat(64),
            variables,
        })
    }

    pub fn enter(&mut self, pending: &Pending) -> Result<Vec<Effect>, Illegal> {
        let facts = self.facts(pending, Moment::Entering);
        self.apply(Event::Entered {
            task: pending.task.clone(),
            attempt: pending.attempts + 1,
            facts,
        })
    }

    pub fn finish(
        &mut self,
        pending: &Pending,
        result: StepResult,
    ) -> Result<Vec<Effect>, Illegal> {
        self.finish_with(pending, result, Changes::default())
    }

    pub fn finish_with(
        &mut self,
        pending: &Pending,
        result: StepResult,
        changes: Changes,
    ) -> Result<Vec<Effect>, Illegal> {
        let facts = self.facts(pending, Moment::Finishing(&result));
        self.apply(Event::Finished {
            task: pending.task.clone(),
            result: Box::new(result),
            changes,
            facts,
        })
    }

    pub fn ask(&mut self, pending: &Pending) -> Result<Vec<Effect>, Illegal> {
        let facts = self.facts(pending, Moment::Entering);
        let task = pending.task.clone();
        self.apply(Event::Asked { task, facts })
    }

    pub fn answer(&mut self, pending: &Pending, verdict: Verdict) -> Result<Vec<Effect>, Illegal> {
        let reply = match &verdict {
            Verdict::Replied { result } => Some(&**result),
            _ => None,
        };
        let facts = self.look(wanted_on_answer(
            &self.workflow,
            &self.state,
            pending,
            reply,
        ));
        self.apply(Event::Answered {
            task: pending.task.clone(),
            verdict,
            by: "ana".to_owned(),
            facts,
        })
    }

    pub fn resume(&mut self) -> Result<Vec<Effect>, Illegal> {
        let facts = self.look(wanted_on_resume(&self.workflow, &self.state));
        self.apply(Event::Resumed { facts })
    }

    /// Only what is asked for is looked up: what `wanted` leaves out is missing here.
    fn facts(&self, pending: &Pending, moment: Moment<'_>) -> Facts {
        let id = self
            .workflow
            .find(&pending.step)
            .expect("a pending step exists");
        self.look(wanted(
            &self.workflow,
            &self.state,
            id,
            pending.item,
            moment,
        ))
    }

    fn look(&self, globs: BTreeSet<String>) -> Facts {
        let look = |glob: String| {
            let found = self.files.contains(&glob);
            (glob, found)
        };
        Facts {
            exists: globs.into_iter().map(look).collect(),
        }
    }
}

/// `A`, or `A[0]` for an item of a loop.
pub fn label(pending: &Pending) -> String {
    match pending.item {
        Some(item) => format!("{}[{item}]", pending.step),
        None => pending.step.clone(),
    }
}

/// What a process left behind.
pub fn result(pending: &Pending, exit_code: i32) -> StepResult {
    let failed = exit_code != 0;
    StepResult {
        step_name: pending.step.clone(),
        status: if failed {
            StepStatus::Failed
        } else {
            StepStatus::Succeeded
        },
        exit_code,
        start_time: "2026-01-01T00:00:00Z".to_owned(),
        end_time: "2026-01-01T00:00:01Z".to_owned(),
        duration: 1.0,
        output: None,
        lines: None,
        json_data: None,
        truncated: false,
        json_parse_error: None,
        error: failed.then(|| Fault::new(Kind::StepFailed, "boom")),
        note: None,
        attempt: pending.attempts,
        visit: 0,
        task: None,
        artifacts: Vec::new(),
        waited: None,
        more: Map::new(),
    }
}
