//! Small random workflows, and events thrown at them: what must be true of every run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::player::{Player, label, result, workflow};
use crate::run::state::{Changes, Effect, Event, Pending, RunStatus, StepResult};
use crate::spec::workflow::model::{Capture, Number, Workflow};
use crate::text::error::{Fault, Kind};

/// Numbers from a seed: the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[usize::try_from(self.roll(all.len() as u64)).expect("a small number")]
    }
}

/// A workflow that is read without a fault.
fn any_workflow(dice: &mut Dice) -> Workflow {
    loop {
        let text = any_text(dice);
        if let Ok(workflow) = workflow(&text) {
            return workflow;
        }
    }
}

fn any_text(dice: &mut Dice) -> String {
    let count = 2 + dice.roll(4);
    let names: Vec<String> = (0..count).map(|n| format!("S{n}")).collect();
    let mut targets: Vec<&str> = names.iter().chain(&names).map(String::as_str).collect();
    targets.extend(["_end", "_fail", "_block", "_stop"]);
    let strict = dice.chance(50);
    let on_violation = dice.pick(&["reject", "block", "stop"]);
    let most = 4 + dice.roll(90);
    let mut text = format!(
        "strict_flow: {strict}\nmax_transitions: {most}\non_violation: {on_violation}\nstate: {{n: 0, u: {{a: 0}}, v: {{a: 0}}}}\nsteps:\n"
    );
    for name in &names {
        text += &any_step(dice, name, &targets);
    }
    text
}

fn any_step(dice: &mut Dice, name: &str, targets: &[&str]) -> String {
    let work = match dice.roll(10) {
        0 | 1 => format!(
            "parallel: [{}, {}]",
            sub(dice, name, 'p'),
            sub(dice, name, 'q')
        ),
        2..5 => any_loop(dice, name),
        _ => "command: [x]".to_owned(),
    };
    let on_limit = dice.pick(&["_end", "_fail", "_block"]);
    let limit = 1 + dice.roll(5);
    let flow = match work == "command: [x]" && dice.chance(40) {
        true => any_lock(dice, targets),
        false => any_flow(dice, targets),
    };
    let updates = match work == "command: [x]" && dice.chance(50) {
        true => ", updates: [u]",
        false => "",
    };
    let gates = any_gates(dice);
    let once = if dice.chance(15) { ", once: true" } else { "" };
    format!(
        "- {{name: {name}, {work}, max_visits: {limit}, on_limit: {on_limit}{flow}{gates}{once}{updates}}}\n"
    )
}

fn sub(dice: &mut Dice, name: &str, suffix: char) -> String {
    let gates = any_gates(dice);
    let part = if suffix == 'p' { "u.p" } else { "u.q" };
    format!("{{name: {name}{suffix}, command: [x], updates: [{part}]{gates}}}")
}

fn any_loop(dice: &mut Dice, name: &str) -> String {
    let mut items = Vec::new();
    for n in 0..dice.roll(7) {
        let needs = if dice.chance(30) {
            format!(", needs: [{}]", dice.roll(8))
        } else {
            String::new()
        };
        items.push(format!("{{id: {n}, files: [{}]{needs}}}", dice.roll(3)));
    }
    let (first, second) = (format!("{name}a"), format!("{name}b"));
    let targets = [first.as_str(), &second, "_next", "_fail", "_block", "_end"];
    let flow = any_flow(dice, &targets);
    let gates = any_gates(dice);
    let group = match dice.chance(30) {
        true => format!(
            "parallel: [{}, {}]",
            sub(dice, &second, 'p'),
            sub(dice, &second, 'q')
        ),
        false => "command: [x]".to_owned(),
    };
    let on_error = dice.pick(&["fail", "continue"]);
    let parallel = 1 + dice.roll(3);
    format!(
        "for_each: {{items: [{}], key: id, needs: needs, conflicts: files, max_parallel: {parallel}, on_error: {on_error}, \
         steps: [{{name: {first}, command: [x], max_visits: 2, on_limit: _next{flow}{gates}}}, {{name: {second}, max_visits: 2, on_limit: _fail, {group}}}]}}",
        items.join(", ")
    )
}

fn any_flow(dice: &mut Dice, targets: &[&str]) -> String {
    match dice.roll(4) {
        0 => {
            let (good, bad) = (dice.pick(targets), dice.pick(targets));
            format!(", on: {{success: {{goto: {good}}}, failure: {{goto: {bad}}}}}")
        }
        1 => format!(", on: {{interrupted: {{goto: {}}}}}", dice.pick(targets)),
        2 => {
            let guard = dice.pick(&[
                "exit_code == 0",
                "exists('f')",
                "state.n < 3",
                "state.gone == 1",
            ]);
            let (first, last) = (dice.pick(targets), dice.pick(targets));
            format!(
                ", next: [{{if: \"{guard}\", goto: {first}, set: {{state.n: state.n + 1}}}}, {{if: \"exit_code != 7\", goto: {last}}}]"
            )
        }
        _ => String::new(),
    }
}

/// Rows that lock: one name twice as often as the other, so that content clashes.
fn any_lock(dice: &mut Dice, targets: &[&str]) -> String {
    let name = dice.pick(&["d", "d", "e"]);
    let (first, last) = (dice.pick(targets), dice.pick(targets));
    format!(
        ", output_capture: json, next: [{{if: \"exit_code == 0\", goto: {first}, lock: {name}}}, {{if: \"true\", goto: {last}}}]"
    )
}

fn any_gates(dice: &mut Dice) -> String {
    let mut gates = String::new();
    if dice.chance(20) {
        gates += ", when: {if: \"exists('w')\"}";
    }
    if dice.chance(20) {
        let stop = dice.chance(10);
        gates += &format!(", requires: [{{check: \"exists('r')\", stop: {stop}}}]");
    }
    if dice.chance(20) {
        gates += ", ensures: [{check: \"exists('e')\", reason: \"no e\"}]";
    }
    gates
}

/// What the run has shown so far.
#[derive(Default)]
struct Seen {
    tasks: BTreeSet<String>,
    pending: BTreeSet<String>,
    steps: BTreeMap<String, String>,
    snapshots: Map<String, Value>,
    document: Map<String, Value>,
}

/// An event that fits the state, if there is one.
fn legal(player: &mut Player, dice: &mut Dice) -> Option<Vec<Effect>> {
    let state = &player.state;
    let under_way = |p: &&Pending| p.attempts > 0 && !p.put_back;
    let begun: Vec<&Pending> = state.pending.iter().filter(under_way).collect();
    let open: Vec<&Pending> = match state.status {
        RunStatus::Running => state.pending.iter().collect(),
        _ => begun.clone(),
    };
    if open.is_empty() || state.status == RunStatus::Blocked && dice.chance(30) {
        return (state.status == RunStatus::Blocked)
            .then(|| player.resume().expect("a blocked run resumes"));
    }
    let pending = dice.pick(&open).clone();
    let running = state.status == RunStatus::Running;
    let effects = match (pending.attempts, dice.roll(11)) {
        _ if pending.put_back => player.enter(&pending),
        (0, _) => player.enter(&pending),
        (1 | 2, 0) if running => player.enter(&pending),
        (1..=3, 1) => player.apply(Event::Retried {
            task: pending.task.clone(),
            attempt: pending.attempts + 1,
        }),
        (1..=3, 10) => {
            let given_up = Event::PutBack {
                task: pending.task.clone(),
                attempt: pending.attempts,
            };
            player.apply(given_up)
        }
        (_, 2 | 3) => {
            let code = dice.pick(&[&1, &2, &7]);
            let mut failed = result(&pending, *code);
            if *code == 2 {
                failed.error = Some(Fault::new(Kind::ScopeViolation, "beyond"));
            }
            player.finish(&pending, failed)
        }
        _ => {
            let (good, changes) = good(player, dice, &pending);
            player.finish_with(&pending, good, changes)
        }
    };
    Some(effects.unwrap_or_else(|why| panic!("{why} at {}", label(&pending))))
}

/// A result with its JSON, and what it changed of what it may.
fn good(player: &Player, dice: &mut Dice, pending: &Pending) -> (StepResult, Changes) {
    let id = player.workflow.find(&pending.step).expect("it exists");
    let step = player.workflow.step(id);
    let mut good = result(pending, 0);
    if step.capture == Capture::Json {
        good.json_data = Some(json!({"z": dice.roll(2), "a": [1]}));
    }
    let mut changes = Changes::default();
    for part in &step.updates {
        let path = format!("/{}/x", part.value.replace('.', "/"));
        match dice.roll(3) {
            0 => drop(changes.set.insert(path, json!(dice.roll(9)))),
            1 => drop(changes.removed.insert(path)),
            _ => {}
        }
    }
    (good, changes)
}

/// Events that fit no state, or not this one.
fn illegal(player: &mut Player, seen: &Seen) {
    let before = player.state.clone();
    let ghost = |task: &str| Event::Retried {
        task: task.to_owned(),
        attempt: 1,
    };
    let mut events = vec![ghost("r-1.9999-S0"), ghost("nonsense")];
    events.extend(seen.tasks.difference(&seen.pending).map(|task| ghost(task)));
    for pending in &before.pending {
        let mut late = result(pending, 0);
        late.attempt = pending.attempts + 1;
        events.push(Event::Finished {
            task: pending.task.clone(),
            result: Box::new(late),
            changes: Default::default(),
            facts: Default::default(),
        });
        for path in ["/n", "/v/a", "/u.x", "/metadata/status", "/governance"] {
            let mut changes = Changes::default();
            changes.set.insert(path.to_owned(), json!(99));
            events.push(Event::Finished {
                task: pending.task.clone(),
                result: Box::new(result(pending, 0)),
                changes,
                facts: Default::default(),
            });
        }
        events.push(Event::Entered {
            task: pending.task.clone(),
            attempt: pending.attempts,
            facts: Default::default(),
        });
    }
    if before.status != RunStatus::Blocked {
        events.push(Event::Resumed {
            facts: Default::default(),
        });
    }
    if before.status.is_final() {
        let fault = Fault::new(Kind::SafetyViolation, "late");
        events.extend([Event::Cancelled, Event::Stopped { fault }]);
    }
    for event in events {
        assert!(player.apply(event.clone()).is_err(), "{event:?}");
    }
    assert!(player.create(Map::new()).is_err());
    assert_eq!(player.state, before);
}

fn must_hold(player: &Player, seen: &mut Seen, effects: &[Effect]) {
    let state = &player.state;
    let place = format!("after {:?}", player.log.last());
    assert_eq!(state.metadata.status, state.status.governed());
    assert_eq!(
        state.status == RunStatus::Blocked,
        !state.blocks.is_empty(),
        "{place}"
    );
    assert_eq!(
        state.governance.blocked_reason.is_some(),
        !state.blocks.is_empty(),
        "{place}"
    );
    if state.status.is_final() {
        assert!(
            state.pending.is_empty() && state.loops.is_empty() && state.groups.is_empty(),
            "{place}"
        );
        assert!(state.end_timestamp.is_some());
    }
    if state.status == RunStatus::Running {
        assert!(!state.pending.is_empty(), "{place}");
    }
    let ends = effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Ended(_)))
        .count();
    assert!(ends <= 1, "{place}: {effects:?}");
    snapshots_stay(player, seen, effects);
    only_parts_change(player, seen);
    let over = state.transitions > player.workflow.max_transitions;
    assert!(!over || state.status == RunStatus::Failed, "{place}");
    tasks_are_new(player, seen);
    counts_are_within(player);
}

/// What is locked is never changed and never goes, but by a reset; and what is new is written.
fn snapshots_stay(player: &Player, seen: &mut Seen, effects: &[Effect]) {
    if matches!(player.log.last(), Some((_, Event::Reset))) {
        seen.snapshots.clear();
    }
    let state = &player.state;
    for (name, before) in &seen.snapshots {
        assert_eq!(state.snapshots.get(name), Some(before), "{name}");
    }
    let written = effects.iter().filter_map(|effect| match effect {
        Effect::Lock { name, text } => Some((
            name.as_str(),
            crate::text::canonical::sha256(text.as_bytes()),
        )),
        _ => None,
    });
    let written: BTreeMap<&str, String> = written.collect();
    for (name, snapshot) in state
        .snapshots
        .iter()
        .filter(|(name, _)| !seen.snapshots.contains_key(*name))
    {
        assert_eq!(
            written.get(name.as_str()).map(String::as_str),
            snapshot["sha256"].as_str()
        );
    }
    assert_eq!(written.len(), state.snapshots.len() - seen.snapshots.len());
    seen.snapshots.clone_from(&state.snapshots);
}

/// Beside what rows set, only the step that finished changes the document, and only its parts.
fn only_parts_change(player: &Player, seen: &mut Seen) {
    let now = &player.state.state;
    let mut allowed = vec!["/n".to_owned()];
    match player.log.last() {
        Some((_, Event::Finished { task, .. })) => {
            let step = &seen.steps[task];
            let id = player.workflow.find(step).expect("it exists");
            let parts = player.workflow.step(id).updates.iter();
            allowed.extend(parts.map(|part| format!("/{}/", part.value.replace('.', "/"))));
        }
        Some((_, Event::Reset | Event::Created { .. })) => {
            assert_eq!(now, &player.workflow.state);
            allowed.push(String::new());
        }
        _ => {}
    }
    let changes = crate::run::flow::document::compare(&seen.document, now);
    for path in changes.set.keys().chain(&changes.removed) {
        let may = allowed.iter().any(|part| path.starts_with(part.as_str()));
        assert!(may, "{path} after {:?}", player.log.last());
    }
    seen.document.clone_from(now);
    let pending = player.state.pending.iter();
    seen.steps
        .extend(pending.map(|p| (p.task.clone(), p.step.clone())));
}

/// A task that has gone never comes back, and its result was the only one.
fn tasks_are_new(player: &Player, seen: &mut Seen) {
    let now: BTreeSet<String> = player
        .state
        .pending
        .iter()
        .map(|p| p.task.clone())
        .collect();
    assert_eq!(now.len(), player.state.pending.len());
    for task in now.difference(&seen.pending) {
        assert!(seen.tasks.insert(task.clone()), "{task} came back");
    }
    seen.pending = now;
}

fn counts_are_within(player: &Player) {
    let items = player
        .state
        .loops
        .values()
        .flat_map(|running| &running.progress);
    for counts in items.map(|item| &item.counts).chain([&player.state.counts]) {
        for (step, count) in counts {
            let id = player.workflow.find(step).expect("a counted step exists");
            let limit = player
                .workflow
                .step(id)
                .limit
                .as_ref()
                .expect("it has a limit");
            let Number::Fixed(most) = limit.max else {
                unreachable!("all are fixed here")
            };
            assert!(*count <= most, "{step}: {count}");
        }
    }
}

/// Everything succeeds and every file is there: it ends, or is blocked for good.
fn drain(player: &mut Player, seen: &mut Seen) {
    player.files = ["f", "w", "r", "e"].map(str::to_owned).into();
    let most = 20 * (player.workflow.max_transitions + 20);
    for _ in 0..most {
        let Some(pending) = player.state.pending.first().cloned() else {
            return;
        };
        let effects = match (player.state.status, pending.attempts) {
            (RunStatus::Blocked, _) => player.resume(),
            (_, 0) => player.enter(&pending),
            _ => player.finish(&pending, result(&pending, 0)),
        };
        must_hold(player, seen, &effects.expect("it is legal"));
        if player.state.status == RunStatus::Blocked {
            return;
        }
    }
    panic!("it goes on and on");
}

fn one_run(seed: u64) {
    let mut dice = Dice(seed);
    let mut player = Player::new(any_workflow(&mut dice));
    let mut seen = Seen::default();
    let effects = player.create(Map::new()).expect("a run begins");
    must_hold(&player, &mut seen, &effects);
    for _ in 0..100 {
        let all = ["f", "w", "r", "e"];
        player.files = all
            .iter()
            .filter(|_| dice.chance(70))
            .map(|f| (*f).to_owned())
            .collect();
        if dice.chance(10) {
            illegal(&mut player, &seen);
        }
        let rare = match dice.roll(100) {
            0 => Some(Event::Cancelled),
            1 => Some(Event::Reset),
            _ => None,
        };
        let effects = match rare {
            Some(event) if !player.state.status.is_final() => {
                Some(player.apply(event).expect("it is legal"))
            }
            _ => legal(&mut player, &mut dice),
        };
        let Some(effects) = effects else { break };
        must_hold(&player, &mut seen, &effects);
    }
    illegal(&mut player, &seen);
    if !player.state.status.is_final() {
        drain(&mut player, &mut seen);
    }
    assert_eq!(json!(player.replay()), json!(player.state), "replayed");
    assert_eq!(player.replay(), player.state, "replayed");
}

/// `ORCH_TEST_SEEDS=5000` looks further than an ordinary run of the tests does.
#[test]
fn every_run_keeps_its_promises() {
    let seeds = std::env::var("ORCH_TEST_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        let outcome = std::panic::catch_unwind(|| one_run(seed));
        assert!(outcome.is_ok(), "with seed {seed}");
    }
}
