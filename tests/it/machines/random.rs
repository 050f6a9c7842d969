//! Runs of a shipped workflow in the hands of chance: no file and no process, so that thousands of
//! them take seconds.
//!
//! [`Ground::drive`] does to `flow::step` what the engine and people do: it enters what is pending,
//! crashes and enters it again, reads what was printed as the step says, schema and scope of updates
//! included, and answers for a person. A [`Play`] says what is printed, which files are there, what
//! people do, and what must hold after each event. What holds for every workflow is checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use orch::disk::specs::{Files, Pinned};
use orch::run::flow::document::{document, outside, told};
use orch::run::flow::{
    HUMAN, Illegal, Moment, nothing, step, wanted, wanted_on_answer, wanted_on_resume,
};
use orch::run::output::{self, Mode, OnBadJson};
use orch::run::schema::Schema;
use orch::run::state::{
    Asks, Changes, Effect, Event, Facts, Pending, RunState, RunStatus, StepResult, StepStatus,
    Verdict,
};
use orch::spec::workflow::model::{Capture, Step};
use orch::spec::workflow::{Work, Workflow, check};
use orch::text::error::{Fault, Kind};
use serde_json::{Map, Value, json};

/// How often a person does more than answer, at most.
const PATIENCE: usize = 6;
/// How often a crash ends an attempt at the same task, at most.
const CRASHES: u32 = 3;
/// Large enough for guards, so that not each event makes a stack of its own for them.
const STACK: usize = 128 << 20;

/// Numbers from a seed: the same on every machine.
pub struct Dice(u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.roll(all.len() as u64)).unwrap()]
    }
}

/// How the work of a step went.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// What the process printed.
    pub text: String,
    /// As it said.
    pub exit_code: i32,
    /// Why it failed, where that is not the exit code: a timeout, a write out of its scope.
    pub error: Option<Fault>,
    /// What it did to the document.
    pub changes: Changes,
}

impl Done {
    pub fn prints(text: impl Into<String>) -> Done {
        Done {
            text: text.into(),
            ..Done::default()
        }
    }

    pub fn json(document: &Value) -> Done {
        Done::prints(document.to_string())
    }

    pub fn exits(exit_code: i32) -> Done {
        Done {
            exit_code,
            ..Done::default()
        }
    }

    pub fn fails(kind: Kind, exit_code: i32) -> Done {
        Done {
            exit_code,
            error: Some(Fault::new(kind, "it went wrong")),
            ..Done::default()
        }
    }
}

/// What a person does with a run that waits for one. Where there is more than one question, one of
/// them is answered. A reply to a gate is a rejection, and a word on a gate where a reply is asked
/// for is a reply.
#[derive(Debug, Clone)]
pub enum Person {
    Approves,
    /// With this note.
    Rejects(String),
    /// This is read as the step's output.
    Replies(String),
    Resumes,
    Corrects(Map<String, Value>),
    Cancels,
    Resets,
    /// Never comes back.
    Leaves,
}

/// The other side of a run.
pub trait Play {
    /// What comes of a step whose work has begun. Of one in a loop, `pending.item` is the item.
    fn work(&mut self, step: &Step, pending: &Pending, state: &RunState, dice: &mut Dice) -> Done;

    /// Whether a glob matches something at this moment.
    fn exists(&mut self, _glob: &str, _state: &RunState, dice: &mut Dice) -> bool {
        dice.chance(80)
    }

    /// What a person does with a blocked run; `asked` is what they are asked, if anything.
    fn person(&mut self, asked: Option<&Pending>, _state: &RunState, dice: &mut Dice) -> Person {
        match (dice.roll(12), asked.and_then(|pending| pending.asks)) {
            (0, _) => Person::Cancels,
            (1, _) => Person::Resets,
            (2, _) => Person::Leaves,
            (3.., Some(Asks::Approval)) if dice.chance(75) => Person::Approves,
            (3.., Some(Asks::Approval)) => Person::Rejects("not like this".to_owned()),
            (3.., Some(Asks::Reply)) => Person::Replies("go on".to_owned()),
            (3.., None) => Person::Resumes,
        }
    }

    /// What must hold after an event.
    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, effects: &[Effect]);
}

/// A shipped workflow with what lies beside it.
pub struct Ground {
    pub workflow: Workflow,
    /// A run makes at most so many transitions, say `orch check` and its own ceiling.
    pub proven: u64,
    schemas: BTreeMap<String, Schema>,
}

impl Ground {
    pub fn shipped(name: &str) -> Ground {
        Ground::changed(name, str::to_owned)
    }

    /// The workflow with a change to its text: what a test must notice.
    pub fn changed(name: &str, change: impl Fn(&str) -> String) -> Ground {
        let all = orch::spec::shipped::WORKFLOWS
            .iter()
            .chain(orch::spec::shipped::PARTS);
        let mut files: Files = all
            .map(|(path, text)| (format!("specs/{path}"), text.as_bytes().to_vec()))
            .collect();
        files.insert("specs/orch.yaml".to_owned(), b"provider: echo\n".to_vec());
        let path = format!("specs/{name}.yaml");
        let text = change(std::str::from_utf8(&files[&path]).unwrap());
        let checked = check(&path, &text, &Pinned::new(files.clone()).unwrap());
        let report = checked.report.render();
        let workflow = checked.workflow.unwrap_or_else(|| panic!("{report}"));
        let schema = |step: &Step| {
            let text = &files[&step.output_schema.as_ref()?.value];
            let schema = Schema::compile(&serde_json::from_slice(text).unwrap()).unwrap();
            Some((step.name.value.clone(), schema))
        };
        Ground {
            schemas: workflow.steps.iter().filter_map(schema).collect(),
            proven: checked
                .report
                .proven
                .expect("a shipped workflow ends")
                .min(workflow.max_transitions),
            workflow,
        }
    }

    /// One run: to its end, or until nobody is there who could move it on.
    pub fn drive(&self, seed: u64, given: Map<String, Value>, play: &mut dyn Play) -> RunState {
        let mut run = Run {
            ground: self,
            play,
            dice: Dice(seed),
            state: nothing(),
            log: Vec::new(),
            seen: BTreeSet::new(),
            resumed: false,
        };
        run.create(given);
        run.until_the_end();
        if seed.is_multiple_of(64) {
            assert_eq!(run.replay(), run.state, "replayed");
        }
        run.state
    }

    /// Many runs, and how many ended how; the seed of one that breaks a promise is told.
    /// `ORCH_TEST_SEEDS=50000` looks further than an ordinary run of the tests does.
    pub fn drive_many<P: Play>(
        &self,
        usual: u64,
        play: impl Fn(u64) -> (Map<String, Value>, P) + Sync,
    ) -> BTreeMap<&'static str, usize> {
        let seeds = std::env::var("ORCH_TEST_SEEDS").ok();
        let seeds = seeds.map_or(usual, |seeds| seeds.parse().unwrap());
        let next = AtomicU64::new(0);
        let work = || {
            let mut ends = BTreeMap::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return Ok(ends);
                }
                let (given, mut play) = play(seed);
                let run = std::panic::AssertUnwindSafe(|| self.drive(seed, given, &mut play));
                let Ok(ended) = std::panic::catch_unwind(run) else {
                    next.store(seeds, Ordering::Relaxed);
                    return Err(seed);
                };
                *ends.entry(ended.status.as_str()).or_insert(0) += 1;
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let all: Vec<Result<BTreeMap<_, _>, u64>> = std::thread::scope(|scope| {
            let start = |_| {
                let thread = std::thread::Builder::new().stack_size(STACK);
                thread.spawn_scoped(scope, work).unwrap()
            };
            let workers: Vec<_> = (0..workers).map(start).collect();
            let done = workers.into_iter().map(|worker| worker.join().unwrap());
            done.collect()
        });
        if let Some(seed) = all.iter().filter_map(|ends| ends.as_ref().err()).min() {
            panic!("with seed {seed}");
        }
        let mut ends = BTreeMap::new();
        for (end, count) in all.into_iter().flatten().flatten() {
            *ends.entry(end).or_insert(0) += count;
        }
        ends
    }
}

struct Run<'r> {
    ground: &'r Ground,
    play: &'r mut dyn Play,
    dice: Dice,
    state: RunState,
    log: Vec<(String, Event)>,
    /// Every task that there ever was.
    seen: BTreeSet<String>,
    /// A resume may take a transition anew.
    resumed: bool,
}

impl Run<'_> {
    fn create(&mut self, given: Map<String, Value>) {
        let mut context = self.ground.workflow.context.clone();
        let mut variables = Map::new();
        variables.insert("request".to_owned(), json!("do it"));
        for (name, value) in given {
            match (name.as_str(), value) {
                ("context", Value::Object(own)) => context.extend(own),
                (_, value) => drop(variables.insert(name, value)),
            }
        }
        variables.insert("context".to_owned(), Value::Object(context));
        let run = json!({"id": "r-1", "root": "/r", "files": "/r/workspace/r-1/files", "timestamp_utc": "20260101T000000Z"});
        variables.insert("run".to_owned(), run);
        self.happens(Event::Created {
            run_id: "r-1".to_owned(),
            workflow_name: self.ground.workflow.name.value.clone(),
            workflow_sha256: "0".repeat(64),
            variables,
        });
    }

    fn until_the_end(&mut self) {
        let mut patience = PATIENCE;
        // Each transition has at most so many attempts, each of them two events.
        let most = (self.ground.proven + 8) * 8 * self.ground.workflow.steps.len() as u64;
        let mut events = 0;
        while !self.state.status.is_final() {
            events += 1;
            assert!(events < most, "it goes on and on: {:?}", self.log.last());
            if self.dice.chance(2) {
                self.what_must_be_refused();
            }
            if let Some(pending) = self.workable() {
                self.work(&pending);
                continue;
            }
            assert_eq!(
                self.state.status,
                RunStatus::Blocked,
                "nothing is to be done"
            );
            if patience == 0 || !self.person() {
                break;
            }
            if !matches!(self.log.last(), Some((_, Event::Answered { .. }))) {
                patience -= 1;
                events = 0;
            }
        }
        self.what_must_be_refused();
    }

    /// What the engine could work on: of a blocked run only what had begun, and never what waits for
    /// a person.
    fn workable(&mut self) -> Option<Pending> {
        let blocked = self.state.status == RunStatus::Blocked;
        let can = |p: &&Pending| p.asks.is_none() && (!blocked || p.attempts > 0);
        let open: Vec<Pending> = self.state.pending.iter().filter(can).cloned().collect();
        (!open.is_empty()).then(|| self.dice.pick(&open).clone())
    }

    fn work(&mut self, pending: &Pending) {
        let crashes = pending.attempts < CRASHES && self.dice.chance(10);
        let running = self.state.status == RunStatus::Running;
        if pending.agent == HUMAN {
            let facts = self.facts(pending, Moment::Entering);
            let task = pending.task.clone();
            return self.happens(Event::Asked { task, facts });
        }
        if pending.attempts == 0 || running && crashes {
            let facts = self.facts(pending, Moment::Entering);
            return self.happens(Event::Entered {
                task: pending.task.clone(),
                attempt: pending.attempts + 1,
                facts,
            });
        }
        let id = self.ground.workflow.find(&pending.step).unwrap();
        let work = self.ground.workflow.step(id);
        let done = self.play.work(work, pending, &self.state, &mut self.dice);
        let (result, changes) = self.result(work, pending, done);
        let again = work.retries.is_some() && result.status == StepStatus::Failed;
        if again && running && pending.attempts < 5 && self.dice.chance(70) {
            return self.happens(Event::Retried {
                task: pending.task.clone(),
                attempt: pending.attempts + 1,
            });
        }
        let facts = self.facts(pending, Moment::Finishing(&result));
        self.happens(Event::Finished {
            task: pending.task.clone(),
            result: Box::new(result),
            changes,
            facts,
        });
    }

    /// What was printed, read as the step says.
    fn result(&self, work: &Step, pending: &Pending, done: Done) -> (StepResult, Changes) {
        let mode = match work.capture {
            Capture::Text => Mode::Text,
            Capture::Lines => Mode::Lines,
            Capture::Json => Mode::Json,
        };
        let on_bad = match work.allow_parse_error {
            true => OnBadJson::KeepText,
            false => OnBadJson::Fail,
        };
        let schema = self.ground.schemas.get(&work.name.value);
        let captured = output::capture(mode, done.text.as_bytes(), on_bad, schema);
        let well = done.exit_code == 0 && done.error.is_none();
        let mut result = plain_result(pending, captured.exit_code(done.exit_code));
        result.error = done.error.or(result.error);
        if well {
            result.error = captured.fault.or(result.error);
        } else if result.exit_code == 0 {
            result.exit_code = 1;
        }
        let well = result.exit_code == 0;
        if !well {
            result.status = StepStatus::Failed;
        }
        result.output = captured.output;
        result.lines = captured.lines;
        result.json_data = captured.json_data;
        result.json_parse_error = captured.json_parse_error;
        if matches!(work.work, Work::Command(_)) {
            result.more.insert("stderr".to_owned(), json!(done.text));
        }
        // What orch itself puts into the document is its own.
        if matches!(work.work, Work::Action(_)) {
            return (
                result,
                if well {
                    done.changes
                } else {
                    Changes::default()
                },
            );
        }
        let mut changes = done.changes;
        if changes.is_empty()
            && let Some(json) = &result.json_data
        {
            changes = told(&document(&self.state), json, &work.updates);
        }
        if let Some(fault) = outside(&work.name.value, &changes, &work.updates) {
            result.status = StepStatus::Failed;
            result.exit_code = 2;
            result.error = Some(fault);
        }
        let taken = result.status == StepStatus::Succeeded;
        (result, if taken { changes } else { Changes::default() })
    }

    /// Whether somebody did something.
    fn person(&mut self) -> bool {
        let asked: Vec<Pending> = self
            .state
            .pending
            .iter()
            .filter(|p| p.asks.is_some())
            .cloned()
            .collect();
        let asked = (!asked.is_empty()).then(|| self.dice.pick(&asked).clone());
        let does = self
            .play
            .person(asked.as_ref(), &self.state, &mut self.dice);
        match (does, asked) {
            (Person::Leaves, _) => return false,
            (Person::Cancels, _) => self.happens(Event::Cancelled),
            (Person::Resets, _) => self.happens(Event::Reset),
            (Person::Corrects(set), _) => {
                let note = "as agreed".to_owned();
                // What a person may not set is refused, and nothing happened.
                if self.apply(Event::Corrected { set, note }).is_ok() {
                    self.resume();
                }
            }
            (does, Some(asked)) if !matches!(does, Person::Resumes) => self.answer(&asked, does),
            _ => self.resume(),
        }
        true
    }

    fn answer(&mut self, asked: &Pending, does: Person) {
        let (said, yes) = match does {
            Person::Approves => ("yes".to_owned(), true),
            Person::Rejects(note) | Person::Replies(note) => (note, false),
            _ => return,
        };
        let verdict = match (asked.asks, yes) {
            (Some(Asks::Approval), true) => Verdict::Approved { note: None },
            (Some(Asks::Approval), false) => Verdict::Rejected { note: Some(said) },
            _ => {
                let id = self.ground.workflow.find(&asked.step).unwrap();
                let work = self.ground.workflow.step(id);
                let (result, _) = self.result(work, asked, Done::prints(said));
                let result = Box::new(result);
                Verdict::Replied { result }
            }
        };
        let reply = match &verdict {
            Verdict::Replied { result } => Some(&**result),
            _ => None,
        };
        let globs = wanted_on_answer(&self.ground.workflow, &self.state, asked, reply);
        let facts = self.look(globs);
        self.happens(Event::Answered {
            task: asked.task.clone(),
            verdict,
            by: "ana".to_owned(),
            facts,
        });
    }

    fn resume(&mut self) {
        self.resumed = true;
        let globs = wanted_on_resume(&self.ground.workflow, &self.state);
        let facts = self.look(globs);
        self.happens(Event::Resumed { facts });
    }

    fn facts(&mut self, pending: &Pending, moment: Moment<'_>) -> Facts {
        let workflow = &self.ground.workflow;
        let id = workflow.find(&pending.step).unwrap();
        self.look(wanted(workflow, &self.state, id, pending.item, moment))
    }

    fn look(&mut self, globs: BTreeSet<String>) -> Facts {
        let mut facts = Facts::default();
        for glob in globs {
            let found = self.play.exists(&glob, &self.state, &mut self.dice);
            facts.exists.insert(glob, found);
        }
        facts
    }

    fn happens(&mut self, event: Event) {
        if let Err((why, event)) = self.apply(event) {
            panic!("{why}: {event:?}");
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), (Illegal, Box<Event>)> {
        let at = format!("2026-01-01T00:00:{:02}Z", self.log.len() % 60);
        let (now, effects) = match step(&self.ground.workflow, self.state.clone(), &at, &event) {
            Ok(next) => next,
            Err(why) => return Err((why, Box::new(event))),
        };
        let before = std::mem::replace(&mut self.state, now);
        if matches!(event, Event::Reset) {
            self.resumed = false;
        }
        self.always(&before, &event, &effects);
        self.play.check(&before, &self.state, &event, &effects);
        self.log.push((at, event));
        Ok(())
    }

    /// What holds for every workflow.
    fn always(&mut self, before: &RunState, event: &Event, effects: &[Effect]) {
        let now = &self.state;
        assert_eq!(now.seq, before.seq + 1);
        assert_eq!(now.metadata.status, now.status.governed());
        let blocked = now.status == RunStatus::Blocked;
        assert_eq!(
            blocked,
            now.governance.blocked_reason.is_some(),
            "{event:?}"
        );
        assert!(!blocked || !now.blocks.is_empty(), "{event:?}");
        if now.status.is_final() {
            assert!(
                now.pending.is_empty() && now.end_timestamp.is_some(),
                "{event:?}"
            );
        } else {
            assert!(blocked || !now.pending.is_empty(), "{event:?}");
        }
        let ends = effects.iter().filter(|e| matches!(e, Effect::Ended(_)));
        assert!(ends.count() <= 1, "{effects:?}");
        if !matches!(event, Event::Reset) {
            for (name, locked) in &before.snapshots {
                assert_eq!(now.snapshots.get(name), Some(locked), "{name}");
            }
        }
        if !self.resumed {
            // The one too many fails it.
            let over = u64::from(now.status == RunStatus::Failed);
            let most = self.ground.proven + over;
            assert!(now.transitions <= most, "{} transitions", now.transitions);
        }
        let before: BTreeSet<&str> = before.pending.iter().map(|p| p.task.as_str()).collect();
        for pending in &now.pending {
            let new = !before.contains(pending.task.as_str());
            assert!(
                !new || self.seen.insert(pending.task.clone()),
                "{} came back",
                pending.task
            );
        }
    }

    /// Events that fit no state, or not this one.
    fn what_must_be_refused(&mut self) {
        let forged = Pending {
            task: format!(
                "r-1.{:04}-{}",
                self.state.tasks + 1,
                self.ground.workflow.steps[0].name.value
            ),
            ..some_pending()
        };
        let gone = self
            .seen
            .iter()
            .find(|task| self.state.pending(task).is_none());
        let gone = gone.map(|task| Pending {
            task: task.clone(),
            ..some_pending()
        });
        let mut events: Vec<Event> = [Some(forged), gone]
            .into_iter()
            .flatten()
            .map(|p| finished(&p, 1))
            .collect();
        for pending in &self.state.pending {
            events.push(finished(pending, pending.attempts + 1));
            events.push(Event::Entered {
                task: pending.task.clone(),
                attempt: pending.attempts,
                facts: Facts::default(),
            });
        }
        if self.state.status != RunStatus::Blocked {
            events.push(Event::Resumed {
                facts: Facts::default(),
            });
            let (set, note) = (Map::new(), "a note".to_owned());
            events.push(Event::Corrected { set, note });
        }
        if self.state.status.is_final() {
            let fault = Fault::new(Kind::SafetyViolation, "late");
            events.extend([Event::Cancelled, Event::Stopped { fault }]);
        }
        let answer = |task: &str| Event::Answered {
            task: task.to_owned(),
            verdict: Verdict::Approved { note: None },
            by: "ana".to_owned(),
            facts: Facts::default(),
        };
        let unasked = |p: &&Pending| p.asks != Some(Asks::Approval);
        events.extend(
            self.state
                .pending
                .iter()
                .filter(unasked)
                .map(|p| answer(&p.task)),
        );
        events.push(answer("r-1.9999-nobody"));
        for event in events {
            let refused = step(&self.ground.workflow, self.state.clone(), "now", &event).is_err();
            assert!(refused, "{event:?} in {:?}", self.state.status);
        }
    }

    /// The log, played again from states that went through JSON.
    fn replay(&self) -> RunState {
        let mut state = nothing();
        for (at, event) in &self.log {
            let event = serde_json::from_value(json!(event)).unwrap();
            state = step(&self.ground.workflow, state, at, &event).unwrap().0;
            state = serde_json::from_value(json!(state)).unwrap();
        }
        state
    }
}

fn some_pending() -> Pending {
    serde_json::from_value(json!({"task": "", "agent": "shell", "step": "", "visit": 1})).unwrap()
}

fn finished(pending: &Pending, attempt: u32) -> Event {
    let mut result = plain_result(pending, 0);
    result.attempt = attempt;
    Event::Finished {
        task: pending.task.clone(),
        result: Box::new(result),
        changes: Changes::default(),
        facts: Facts::default(),
    }
}

fn plain_result(pending: &Pending, exit_code: i32) -> StepResult {
    let failed = exit_code != 0;
    StepResult {
        step_name: pending.step.clone(),
        status: match failed {
            true => StepStatus::Failed,
            false => StepStatus::Succeeded,
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
        visit: pending.visit,
        task: None,
        artifacts: Vec::new(),
        waited: None,
        more: Map::new(),
    }
}
