//! Logs: what was written adds up to the state that it was written of, a torn end changes nothing,
//! and a changed byte does not go unnoticed.
//!
//! The first line says which workflow it is, and where the log is torn and changed; every other line
//! is an event, in which `@0` stands for the first task that is pending.

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use orch::disk::order::{Disk, Durability};
use orch::disk::root::Root;
use orch::disk::store::log::{Line, NO_LINE};
use orch::disk::store::{PATIENCE, Runs, Spec, sha256};
use orch::run::flow;
use orch::run::state::{Event, RunState};
use orch::spec::workflow::Workflow;
use orch::text::error::{Kind, Result};
use serde_json::json;

use super::workflow;

const RUN: &str = "20260101T000000Z-w-0001";
const NOW: &str = "2026-01-01T00:00:00Z";
const WORKFLOWS: [&str; 3] = [
    include_str!("workflows/line.yaml"),
    include_str!("workflows/loop.yaml"),
    include_str!("workflows/people.yaml"),
];

pub fn holds(bytes: &[u8]) {
    thread_local! {
        static BED: OnceCell<Bed> = const { OnceCell::new() };
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Some((head, events)) = text.split_once('\n') else {
        return;
    };
    let mut numbers = head
        .split(' ')
        .map(|word| word.parse::<usize>().unwrap_or(0));
    let mut number = || numbers.next().unwrap_or(0);
    let (which, torn, changed) = (number(), number(), number());
    BED.with(|bed| {
        let bed = bed.get_or_init(Bed::new);
        bed.play(
            &bed.workflows[which % WORKFLOWS.len()],
            events,
            torn,
            changed,
        );
    });
}

/// A root with one run, whose log is written anew each time.
struct Bed {
    temp: tempfile::TempDir,
    runs: Runs,
    workflows: Vec<Workflow>,
}

impl Bed {
    fn new() -> Bed {
        let temp = tempfile::tempdir().expect("a temporary folder");
        for folder in ["inbox", "specs"] {
            fs::create_dir(temp.path().join(folder)).expect("a folder");
        }
        fs::write(temp.path().join("specs/orch.yaml"), "").expect("a file");
        let root = Arc::new(Root::open(temp.path()).expect("a root"));
        let runs = Runs::new(root, Disk::new(Durability::Process));
        let spec = Spec {
            workflow: "specs/w.yaml".to_owned(),
            files: [("specs/w.yaml".to_owned(), Vec::new())].into(),
        };
        runs.create(RUN, &spec).expect("a run");
        let read = |text: &&str| {
            let checked = workflow::checked(text);
            let report = checked.report.render();
            checked.workflow.unwrap_or_else(|| panic!("{report}"))
        };
        Bed {
            temp,
            runs,
            workflows: WORKFLOWS.iter().map(read).collect(),
        }
    }

    fn play(&self, workflow: &Workflow, events: &str, torn: usize, changed: usize) {
        let (state, log) = written(workflow, events);
        let as_json = serde_json::to_string(&state).expect("a state is JSON");
        let read = serde_json::from_str::<RunState>(&as_json).expect("and is read");
        assert!(read == state, "{as_json}");
        self.put(&log);
        assert!(self.load(workflow).expect("what was written") == state);
        // A write that did not get through, beside the state that was kept just now.
        let whole = log.len();
        let part = &log[..torn % whole];
        let part = &part[part
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1)..];
        fs::write(self.log(), [log.as_slice(), part].concat()).expect("a log");
        assert!(self.load(workflow).expect("a torn end is no harm") == state);
        assert_eq!(fs::read(self.log()).expect("a log").len(), whole);
        // The kept state knows the last line, and every line the one before it.
        let mut other = log.clone();
        other[changed % whole] ^= 1 << (changed % 7);
        fs::write(self.log(), &other).expect("a log");
        let fault = self.load(workflow).expect_err("a changed log");
        let kinds = [Kind::StateCorrupted, Kind::SafetyViolation];
        assert!(
            kinds.contains(&fault.kind) && fault.hint.is_some(),
            "{fault}"
        );
    }

    fn log(&self) -> PathBuf {
        self.temp.path().join("logs").join(format!("{RUN}.jsonl"))
    }

    /// The log alone, as after a crash that left no state behind.
    fn put(&self, log: &[u8]) {
        fs::write(self.log(), log).expect("a log");
        let state = self
            .temp
            .path()
            .join("workspace")
            .join(RUN)
            .join("state.json");
        let _ = fs::remove_file(state);
    }

    fn load(&self, workflow: &Workflow) -> Result<RunState> {
        // A handle of its own: nothing is remembered.
        let run = self.runs.open(RUN)?;
        let locked = run.lock(PATIENCE)?;
        locked.load(workflow).map(Arc::unwrap_or_clone)
    }
}

/// The log of all events that fit, and the state that they lead to.
fn written(workflow: &Workflow, events: &str) -> (RunState, Vec<u8>) {
    let created = json!({
        "event": "created", "run_id": RUN, "workflow_name": "w", "workflow_sha256": "",
        "variables": {"request": "please", "context": {"n": 1}},
    });
    let first = created.to_string();
    let mut state = flow::nothing();
    let mut log = Vec::new();
    for text in [first.as_str()].into_iter().chain(events.lines()) {
        let task = state.pending.first().map_or("", |pending| &pending.task);
        let Some(line) = line(&state, &text.replace("@0", task)) else {
            continue;
        };
        let stepped = flow::step(workflow, state.clone(), NOW, &line.event);
        assert_eq!(
            stepped,
            flow::step(workflow, state.clone(), NOW, &line.event)
        );
        let Ok((next, _)) = stepped else { continue };
        assert_eq!(next.seq, state.seq + 1);
        assert!(next.transitions >= state.transitions || matches!(line.event, Event::Reset));
        let mut bytes = serde_json::to_vec(&line).expect("a line is JSON");
        bytes.push(b'\n');
        state = next;
        state.log_head = sha256(&bytes);
        log.extend(bytes);
    }
    (state, log)
}

/// The line of an event, as it is read back. Which spec a run goes by is for the disk to say.
fn line(state: &RunState, event: &str) -> Option<Line> {
    let event: Event = serde_json::from_str(event).ok()?;
    if matches!(event, Event::SpecUpdated { .. }) {
        return None;
    }
    let prev = match state.seq {
        0 => NO_LINE,
        _ => &state.log_head,
    };
    let line = Line {
        seq: state.seq + 1,
        at: NOW.to_owned(),
        prev: prev.to_owned(),
        event,
        checkpoints: Vec::new(),
        checks: Vec::new(),
    };
    let text = serde_json::to_string(&line).expect("an event is JSON");
    let read: Line = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(read, line, "{text}");
    Some(read)
}
