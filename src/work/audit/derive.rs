//! The log, line by line from the first: numbers, chain, sense, and what the results tell.
//!
//! A fault in a line does not end it: the chain is followed to the end, and the state for as long
//! as every line could be applied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::told::entries;
use super::{Audit, Fix, Issue, Transition};
use crate::disk::store::log::{Line, Log, NO_LINE, Note, Raw};
use crate::disk::store::{Course, RunDir, adopted};
use crate::run::flow;
use crate::run::record::FileEntry;
use crate::run::state::{Effect, Event, RunState, Verdict};
use crate::spec::workflow::Workflow;
use crate::text::error::{Kind, Result};

/// What a log adds up to.
pub(super) struct Derived {
    /// The state after the last line that could be applied.
    pub(super) state: RunState,
    /// The state at the event that was asked for, if it came to that.
    pub(super) wanted: Option<RunState>,
    /// The hash of the line with that number.
    pub(super) wanted_head: Option<String>,
    /// Whether every line was applied.
    pub(super) whole: bool,
    /// Every artifact, with the last hash recorded for it.
    pub(super) files: BTreeMap<String, FileEntry>,
    /// The hash of every spec that the run ever had.
    pub(super) specs: BTreeSet<String>,
}

/// Replays a log; `wanted` is the number of the event that `state.json` is at.
pub(super) fn derive(
    run: &RunDir,
    workflow: Option<&Workflow>,
    log: Option<Log>,
    wanted: Option<u64>,
    audit: &mut Audit,
) -> Result<Derived> {
    let course = match workflow.map(|workflow| Course::new(run, workflow)) {
        Some(Err(fault)) if fault.kind != Kind::SafetyViolation => return Err(fault),
        // What was changed about an earlier spec is found where the specs are verified.
        course => course.and_then(Result::ok),
    };
    let mut walk = Walk {
        place: format!("logs/{}.jsonl", run.id()),
        course: course.as_ref(),
        audit,
        prev: NO_LINE.to_owned(),
        asked: wanted,
        derived: Derived {
            state: flow::nothing(),
            wanted: None,
            wanted_head: None,
            whole: true,
            files: BTreeMap::new(),
            specs: BTreeSet::new(),
        },
    };
    match log {
        Some(log) => log.each_line(|number, raw| {
            walk.line(number, &raw);
            Ok(())
        })?,
        None => {
            let place = walk.place.clone();
            walk.audit.find(place, "it is missing");
        }
    }
    let derived = walk.derived;
    if derived.state.seq > 0 && derived.state.run_id != run.id() {
        let other = format!("it is of run `{}`", derived.state.run_id);
        audit.find(format!("logs/{}.jsonl", run.id()), other);
    }
    Ok(derived)
}

struct Walk<'a> {
    place: String,
    course: Option<&'a Course<'a>>,
    audit: &'a mut Audit,
    /// The hash of the line before.
    prev: String,
    asked: Option<u64>,
    derived: Derived,
}

impl Walk<'_> {
    fn line(&mut self, number: u64, raw: &Raw) {
        if raw.is_torn() {
            self.derived.whole = false;
            return self.find(
                number,
                "it is torn: a crash left it so, and the next event cuts it, or it was cut short",
            );
        }
        self.audit.events = number;
        let hash = raw.hash();
        match raw.read(number) {
            Ok(line) => {
                self.chain(number, &line);
                self.spelling(number, raw);
                self.tell(&line);
                self.apply(number, &line, &hash);
            }
            Err(why) => {
                self.derived.whole = false;
                self.find(number, &why);
            }
        }
        if self.asked == Some(number) {
            self.derived.wanted_head = Some(hash.clone());
        }
        self.prev = hash;
    }

    fn chain(&mut self, number: u64, line: &Line) {
        self.audit.hashes += 1;
        if line.prev == self.prev {
            return;
        }
        match number {
            1 => self.find(1, "it names a line before it, and it is the first"),
            _ => self.find(
                number - 1,
                &format!(
                    "its hash is not the one that line {number} names: one of the two was changed"
                ),
            ),
        }
    }

    /// A line is written in one way only, so that no byte of it is free.
    fn spelling(&mut self, number: u64, raw: &Raw) {
        let again = serde_json::from_slice::<Value>(&raw.bytes).map(|line| format!("{line}\n"));
        if !again.is_ok_and(|again| again.as_bytes() == raw.bytes) {
            self.find(number, "it is not written as orch writes it");
        }
    }

    fn apply(&mut self, number: u64, line: &Line, hash: &str) {
        let Some(course) = self.course.filter(|_| self.derived.whole) else {
            self.derived.whole = false;
            return;
        };
        let workflow = match course.at(&self.derived.state, &line.event) {
            Ok(workflow) => workflow,
            Err(fault) => {
                self.derived.whole = false;
                return self.find(number, &fault.message);
            }
        };
        let before = std::mem::replace(&mut self.derived.state, flow::nothing());
        match flow::step(workflow, before.clone(), &line.at, &line.event) {
            Ok((mut state, effects)) => {
                state.log_head = hash.to_owned();
                self.derived.state = state;
                self.transitions(number, line, &effects);
            }
            Err(illegal) => {
                self.derived.state = before;
                self.derived.whole = false;
                self.find(
                    number,
                    &format!("it does not follow from what is before it: {illegal}"),
                );
            }
        }
        if self.derived.whole && self.asked == Some(number) {
            self.derived.wanted = Some(self.derived.state.clone());
        }
    }

    fn transitions(&mut self, number: u64, line: &Line, effects: &[Effect]) {
        let (mut notes, mut checks) = (Vec::new(), Vec::new());
        for effect in effects {
            if let Effect::Checked(checked) = effect {
                checks.push(checked.clone());
            }
            let Effect::Checkpoint(made) = effect else {
                continue;
            };
            notes.push(Note::from(made));
            self.audit.transitions.push(Transition {
                at: line.at.clone(),
                seq: number,
                phase: made.phase.clone(),
                step: made.step.clone(),
                status: made.status.clone(),
                next: made.next.clone(),
                reason: made.reason.clone(),
                guards: made.guards.clone(),
            });
        }
        if notes != line.checkpoints {
            self.find(number, "its `checkpoints` are not what the event leads to");
        }
        if checks != line.checks {
            self.find(number, "its `checks` are not what the event leads to");
        }
    }

    /// What a result tells: its artifacts, its issues and its fixes.
    fn tell(&mut self, line: &Line) {
        let adopted = adopted(&line.event).map(str::to_owned);
        self.derived.specs.extend(adopted);
        let (Event::Finished { result, .. }
        | Event::Answered {
            verdict: Verdict::Replied { result },
            ..
        }) = &line.event
        else {
            return;
        };
        for file in &result.artifacts {
            self.derived.files.insert(file.path.clone(), file.clone());
        }
        let Some(document) = &result.json_data else {
            return;
        };
        let (at, step, visit) = (&line.at, &result.step_name, result.visit);
        let issues = entries(document, "issues").into_iter();
        self.audit.issues.extend(issues.map(|issue| Issue {
            at: at.clone(),
            step: step.clone(),
            visit,
            issue,
        }));
        let fixes = entries(document, "fixes").into_iter();
        self.audit.fixes.extend(fixes.map(|fix| Fix {
            at: at.clone(),
            step: step.clone(),
            visit,
            fix,
        }));
    }

    fn find(&mut self, number: u64, what: &str) {
        let place = format!("{} line {number}", self.place);
        self.audit.find(place, what);
    }
}
