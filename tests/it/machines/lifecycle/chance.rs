//! Runs whose agents do anything, honest, wrong or hostile, and people who do anything.

use std::panic::catch_unwind;

use orch::run::state::{Asks, Effect, Event, Facts, Pending, RunStatus, Stage as At, Verdict};
use orch::run::state::{RunState, StepStatus};
use orch::spec::workflow::model::Step;
use orch::text::error::Kind;
use serde_json::Map;

use super::*;
use crate::machines::random::{Dice, Done, Person, Play};

struct Anything;

impl Play for Anything {
    fn work(&mut self, step: &Step, _: &Pending, _: &RunState, dice: &mut Dice) -> Done {
        let own = phase(&step.name.value);
        match dice.roll(20) {
            0 => Done::exits(1),
            1 => Done::exits(2),
            2 => Done::fails(Kind::TimeoutExpired, 124),
            3 => Done::fails(Kind::ScopeViolation, 2),
            4 => Done::prints("Everything is approved, trust me."),
            5 => Done::prints(own.answer.replace("true", "false")),
            6 => Done::prints(own.answer.replace("approved", "APPROVED")),
            7 => Done::prints(own.answer.replace('}', "")),
            8 => Done::json(&json!({own.part: null, "metadata": {"status": "completed"}})),
            9 | 10 => {
                let path = *dice.pick(&[
                    "/metadata/currentPhase",
                    "/governance/approvals/tests",
                    "/tests/status",
                    "/code/status",
                    "/architecture/blueprint/approved",
                    "/more",
                ]);
                let mut done = Done::prints(own.answer);
                done.changes.set.insert(path.to_owned(), json!("passed"));
                done
            }
            11 => {
                let mut done = Done::default();
                done.changes.removed.insert(format!("/{}", own.part));
                done
            }
            _ => Done::prints(own.answer),
        }
    }

    fn exists(&mut self, _: &str, _: &RunState, dice: &mut Dice) -> bool {
        dice.chance(93)
    }

    fn person(&mut self, asked: Option<&Pending>, _: &RunState, dice: &mut Dice) -> Person {
        let corrections = [
            ("design.status", json!("approved")),
            ("design.status", json!("draft")),
            ("code.status", json!("completed")),
            ("tests.status", json!("passed")),
            ("tests.status", json!("failed")),
            ("deployment.status", json!("completed")),
            ("architecture.blueprint.approved", json!(true)),
            ("architecture.diagrams", json!({"approved": true})),
            ("metadata.currentPhase", json!("deploy")),
            ("governance.approvals.deployment", json!(true)),
        ];
        match dice.roll(40) {
            0 => Person::Cancels,
            1 => Person::Resets,
            2 => Person::Leaves,
            3..9 => {
                let (path, value) = dice.pick(&corrections).clone();
                Person::Corrects(Map::from_iter([(path.to_owned(), value)]))
            }
            9..12 => Person::Resumes,
            12..16 => Person::Rejects("not like this".to_owned()),
            _ if asked.is_some() => Person::Approves,
            _ => Person::Resumes,
        }
    }

    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, effects: &[Effect]) {
        assert_ne!(now.status, RunStatus::Failed, "what goes wrong blocks it");
        let (from, to) = (index(before), index(now));
        match (event, from == to) {
            (Event::Created { .. } | Event::Reset, _) => assert_eq!(to, 0),
            (_, true) => {}
            (_, false) => {
                assert_eq!(to, from + 1, "no phase is skipped, and none comes again");
                may_leave(from, before, now, event);
            }
        }
        if now.status == RunStatus::Succeeded {
            may_leave(4, before, now, event);
            assert_eq!(now.metadata.current_phase, "deploy");
        }
        only_its_own_part(before, now, event);
        one_agent_at_most(now, effects);
        if before.status == RunStatus::Blocked && now.status != RunStatus::Blocked {
            let explicit = matches!(
                event,
                Event::Answered { .. } | Event::Resumed { .. } | Event::Reset | Event::Cancelled
            );
            assert!(explicit, "nothing moves by itself: {event:?}");
        }
        if let Event::Resumed { facts } = event {
            runs_again_only_where_it_must(before, now, facts);
        }
        let approved = |state: &RunState| {
            let approvals = state.governance.approvals.values();
            approvals.filter(|value| **value == json!(true)).count()
        };
        if approved(now) > approved(before) {
            let word = matches!(
                event,
                Event::Answered {
                    verdict: Verdict::Approved { .. },
                    ..
                }
            );
            assert!(word, "only a person approves: {event:?}");
        }
    }
}

/// Which phase a run is in.
fn index(state: &RunState) -> usize {
    let phase = state.metadata.current_phase.as_str();
    PHASES.iter().position(|p| p.step == phase).unwrap_or(0)
}

/// The conditions on the document, said once more.
fn holds(index: usize, state: &RunState) -> bool {
    let part = &state.state.get(PHASES[index].part);
    let Some(part) = part else { return false };
    match index {
        0 => {
            let diagrams = part["diagrams"].as_array();
            part["blueprint"]["approved"] == true
                && diagrams.is_some_and(|all| {
                    !all.is_empty() && all.iter().all(|one| one["approved"] == true)
                })
        }
        1 => part["status"] == "approved",
        3 => part["status"] == "passed",
        _ => part["status"] == "completed",
    }
}

/// Whether the files of a phase were there at an event.
fn found(index: usize, facts: &Facts) -> bool {
    let folder = format!("/files/{}/", PHASES[index].part);
    let mut looked = facts
        .exists
        .iter()
        .filter(|(glob, _)| glob.contains(&folder));
    looked.all(|(_, found)| *found)
}

fn may_leave(index: usize, before: &RunState, now: &RunState, event: &Event) {
    assert!(holds(index, before), "{event:?}");
    assert_eq!(now.governance.approvals[PHASES[index].part], true);
    let facts = match event {
        Event::Answered { facts, .. } | Event::Resumed { facts } => facts,
        other => panic!("{other:?} leads on"),
    };
    let folder = format!("/files/{}/", PHASES[index].part);
    assert!(facts.exists.keys().any(|glob| glob.contains(&folder)));
    assert!(found(index, facts), "without its files: {event:?}");
}

fn only_its_own_part(before: &RunState, now: &RunState, event: &Event) {
    if matches!(
        event,
        Event::Created { .. } | Event::Reset | Event::Corrected { .. }
    ) {
        return;
    }
    let own = PHASES[index(before)].part;
    let finished = matches!(event, Event::Finished { .. });
    let mut parts: Vec<&String> = before.state.keys().chain(now.state.keys()).collect();
    parts.dedup();
    for part in parts {
        let same = before.state.get(part) == now.state.get(part);
        assert!(same || finished && part == own, "{part} by {event:?}");
    }
}

fn one_agent_at_most(now: &RunState, effects: &[Effect]) {
    assert!(now.pending.len() <= 1);
    for pending in &now.pending {
        assert_eq!(pending.step, now.metadata.current_phase);
        let blocked = now.status == RunStatus::Blocked;
        assert_eq!(pending.asks, blocked.then_some(Asks::Approval));
    }
    for effect in effects {
        let Effect::Run(pending) = effect else {
            continue;
        };
        assert_eq!(now.status, RunStatus::Running, "no agent while blocked");
        assert_eq!(pending.step, now.metadata.current_phase);
        assert_eq!(pending.agent, phase(&pending.step).agent);
        let before = &PHASES[..index(now)];
        let approved = |p: &Phase| now.governance.approvals[p.part] == true;
        assert!(before.iter().all(approved));
        assert!(before.is_empty() || holds(before.len() - 1, now));
    }
}

/// An agent whose outputs are there and valid works again only if a person rejected them.
fn runs_again_only_where_it_must(before: &RunState, now: &RunState, facts: &Facts) {
    let at = index(before);
    let block = &before.blocks[0];
    let succeeded = before
        .step_results
        .get(PHASES[at].step)
        .is_some_and(|result| result["status"] == json!(StepStatus::Succeeded));
    let decision = before.governance.decisions.get(PHASES[at].part);
    let rejected = decision.is_some_and(|decision| !decision.approved);
    if block.stage == At::Requires
        || !succeeded
        || rejected
        || !holds(at, before)
        || !found(at, facts)
    {
        return;
    }
    let again = now
        .pending
        .iter()
        .any(|p| p.step == PHASES[at].step && p.asks.is_none());
    assert!(!again, "its outputs were there and valid");
}

#[test]
fn whatever_agents_and_people_do_the_rules_hold() {
    let ground = Ground::shipped("lifecycle");
    let ends = ground.drive_many(2000, |_| (Map::new(), Anything));
    for end in ["succeeded", "blocked", "cancelled"] {
        let count = ends.get(end).copied().unwrap_or(0);
        assert!(count > 10, "{ends:?}");
    }
    assert_eq!(ends.len(), 3, "{ends:?}");
}

/// Each is the workflow with a rule taken out of it.
#[test]
fn a_lifecycle_without_one_of_its_rules_is_noticed() {
    let changes = [
        (
            "- check: state.tests.status == \"passed\"",
            "- check: \"true\"",
        ),
        ("d.approved == true)", "true)"),
        (
            "- check: exists(run.files + \"/design/design.md\")",
            "- check: \"true\"",
        ),
        ("failure: {goto: _block}", "failure: {goto: _fail}"),
        ("updates: [code]", "updates: [code, tests]"),
        ("on_violation: block", "on_violation: stop"),
    ];
    for (rule, instead) in changes {
        let ground = Ground::changed("lifecycle", |text| {
            assert!(text.contains(rule), "{rule}");
            text.replace(rule, instead)
        });
        let noticed = catch_unwind(std::panic::AssertUnwindSafe(|| {
            ground.drive_many(400, |_| (Map::new(), Anything))
        }));
        assert!(noticed.is_err(), "`{rule}` is not missed");
    }
}
