//! Four passes whose agents say anything, honest, wrong or hostile, and people who do anything.

use std::collections::BTreeMap;

use orch::run::state::{Effect, Event, Pending, RunState, RunStatus, Stage};
use orch::spec::workflow::model::Step;
use orch::text::error::Kind;
use serde_json::{Map, Value, json};

use crate::machines::random::{Dice, Done, Ground, Person, Play};

const PASSES: [&str; 4] = ["decide", "execute", "verify", "patch"];
const PHASES: [&str; 5] = ["DECIDE", "EXECUTE", "VERIFY", "PATCH", "DONE"];

/// Anything, and what it has shown so far.
#[derive(Default)]
struct Anything {
    /// How often each pass has been committed since the last reset.
    committed: BTreeMap<String, u32>,
}

impl Play for Anything {
    fn work(&mut self, step: &Step, _: &Pending, state: &RunState, dice: &mut Dice) -> Done {
        match dice.roll(40) {
            0 => return Done::exits(1),
            1 => return Done::exits(2),
            2 => return Done::fails(Kind::TimeoutExpired, 124),
            3 => return Done::fails(Kind::ScopeViolation, 2),
            4 => return Done::prints("I have approved it myself."),
            5 if PASSES.contains(&step.name.value.as_str()) => {
                let mut done = Done::json(&decision(dice));
                let path = dice.pick(&[
                    "/metadata/status",
                    "/governance/approvals/x",
                    "/snapshots/decision",
                ]);
                done.changes
                    .set
                    .insert((*path).to_owned(), json!("completed"));
                return done;
            }
            _ => {}
        }
        match step.name.value.as_str() {
            "decide" => Done::json(&decision(dice)),
            "verify" => Done::json(&issues(dice)),
            "patch" => Done::json(&patch(
                &state.step_results["verify"]["json_data"]["issues"],
                dice,
            )),
            _ => Done::prints("done"),
        }
    }

    fn exists(&mut self, _: &str, _: &RunState, dice: &mut Dice) -> bool {
        dice.chance(92)
    }

    fn person(&mut self, _: Option<&Pending>, _: &RunState, dice: &mut Dice) -> Person {
        match dice.roll(10) {
            0 => Person::Cancels,
            1 => Person::Resets,
            2 => Person::Leaves,
            3 => {
                let path = dice.pick(&["metadata.status", "note", "governance", "snapshots"]);
                Person::Corrects(Map::from_iter([((*path).to_owned(), json!("completed"))]))
            }
            _ => Person::Resumes,
        }
    }

    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, effects: &[Effect]) {
        match event {
            Event::Reset => {
                self.committed.clear();
                assert!(now.snapshots.is_empty() && now.step_results.is_empty());
                assert_eq!(now.metadata.current_phase, "DECIDE");
            }
            Event::Finished { task, .. } => {
                let step = &before.pending(task).unwrap().step;
                *self.committed.entry(step.clone()).or_insert(0) += 1;
            }
            _ => {}
        }
        if let Event::Finished { result, .. } = event
            && let Some(fault) = &result.error
            && fault.kind == Kind::ScopeViolation
        {
            assert_eq!(now.status, RunStatus::Failed, "{fault:?}");
        }
        let waits = now.blocks.iter().any(|b| b.stage == Stage::Requires);
        assert!(!waits, "a precondition stops the run: {:?}", now.blocks);
        for pass in PASSES {
            let count = self.committed.get(pass).copied().unwrap_or(0);
            assert!(count <= 1, "{pass} has {count} results");
        }
        let phase = |state: &RunState| {
            let phase = state.metadata.current_phase.as_str();
            PHASES.iter().position(|p| *p == phase).unwrap_or(0)
        };
        if !matches!(event, Event::Reset) {
            let (from, to) = (phase(before), phase(now));
            assert!(
                to == from || to == from + 1 || (from, to) == (2, 4),
                "{from} -> {to}"
            );
        }
        for effect in effects {
            if let Effect::Run(pending) = effect {
                self.may_run(&pending.step, now);
            }
        }
        self.may_stand(now);
    }
}

impl Anything {
    /// The table of what each pass needs.
    fn may_run(&self, step: &str, now: &RunState) {
        assert!(
            !self.committed.contains_key(step) || !PASSES.contains(&step),
            "{step} again"
        );
        let done = |step: &str| {
            now.step_results
                .get(step)
                .is_some_and(|r| r["status"] == "succeeded")
        };
        let locked = now
            .snapshots
            .get("decision")
            .is_some_and(|s| s["status"] == "LOCKED");
        assert_eq!(locked, step != "decide", "{step}");
        match step {
            "verify" => assert!(done("decide") && done("execute") && done("keep_artifact")),
            "patch" => {
                let asked = has(now, "BLOCKER") || patches_major(now) && has(now, "MAJOR");
                assert!(done("verify") && asked);
            }
            "done" => {
                let patched = done("patch") && done("keep_patched");
                let wanted = has(now, "BLOCKER") || patches_major(now) && has(now, "MAJOR");
                assert!(done("verify") && patched == wanted);
            }
            _ => {}
        }
    }

    fn may_stand(&self, now: &RunState) {
        let decided = &now
            .step_results
            .get("decide")
            .map(|r| r["json_data"]["decision"].clone());
        if decided.as_ref().is_some_and(|d| d == "BLOCK") && !now.status.is_final() {
            assert_eq!(now.status, RunStatus::Blocked);
            assert_eq!(now.metadata.current_phase, "DECIDE");
            assert!(now.snapshots.is_empty());
            let reason = now.governance.blocked_reason.as_deref().unwrap();
            assert!(reason.contains("which database"), "{reason}");
        }
        if now.status == RunStatus::Succeeded {
            assert_eq!(now.metadata.current_phase, "DONE");
            assert!(now.snapshots.contains_key("decision"));
            let none = Vec::new();
            let list = |step: &str, key: &str| {
                let list = now
                    .step_results
                    .get(step)
                    .and_then(|r| r["json_data"][key].as_array());
                list.unwrap_or(&none).clone()
            };
            let fixes = list("patch", "fixes");
            for issue in list("verify", "issues")
                .iter()
                .filter(|i| i["severity"] == "BLOCKER")
            {
                let own: Vec<&Value> = fixes.iter().filter(|f| f["issue"] == issue["id"]).collect();
                assert!(
                    !own.is_empty() && own.iter().all(|f| f["status"] == "FIXED"),
                    "{issue}"
                );
            }
        }
        if now.status == RunStatus::Failed {
            let kind = now.error.as_ref().unwrap().kind;
            let stops = matches!(kind, Kind::SafetyViolation | Kind::ScopeViolation);
            assert!(stops, "{:?}", now.error);
        }
    }
}

fn has(state: &RunState, severity: &str) -> bool {
    let issues = state.step_results["verify"]["json_data"]["issues"].as_array();
    issues.is_some_and(|all| all.iter().any(|i| i["severity"] == severity))
}

fn patches_major(state: &RunState) -> bool {
    state.variables["context"]["patch_major"] == true
}

fn decision(dice: &mut Dice) -> Value {
    let mut decision = json!({
        "decision": "DECIDE", "rationale_summary": "it is small", "assumptions": [],
        "open_questions": [], "architecture_decision_json": {"files": ["a"]},
    });
    match dice.roll(12) {
        0 => decision["architecture_decision_json"] = json!({}),
        1 => decision["decision"] = json!("APPROVED"),
        2 => decision["metadata"] = json!({"status": "completed"}),
        3 => decision["decision"] = json!("BLOCK"),
        4 => {
            decision["decision"] = json!("BLOCK");
            decision["open_questions"] = json!(["which database?"]);
        }
        _ => {}
    }
    decision
}

fn issues(dice: &mut Dice) -> Value {
    let mut all = Vec::new();
    for number in 0..dice.roll(4) {
        let severity = dice.pick(&["BLOCKER", "BLOCKER", "MAJOR", "MAJOR", "MINOR"]);
        let mut issue = json!({
            "id": format!("I{number}"), "severity": severity, "title": "t", "evidence": "e",
            "location": "a:1", "recommendation": "r",
        });
        match dice.roll(40) {
            0 => issue["severity"] = json!("CRITICAL"),
            1 => issue["evidence"] = json!(""),
            2 => issue["id"] = json!("I0"),
            _ => {}
        }
        all.push(issue);
    }
    json!({ "issues": all })
}

fn patch(issues: &Value, dice: &mut Dice) -> Value {
    let (mut plan, mut fixes) = (Vec::new(), Vec::new());
    for issue in issues.as_array().into_iter().flatten() {
        let id = match dice.chance(3) {
            true => json!("I9"),
            false => issue["id"].clone(),
        };
        if dice.chance(95) {
            plan.push(json!({"issue": id, "change": "c"}));
        }
        let status = dice.pick(&["FIXED", "FIXED", "FIXED", "FIXED", "NOT_FIXED"]);
        let times = if dice.chance(90) { 1 } else { dice.roll(3) };
        for _ in 0..times {
            fixes.push(json!({"issue": id, "status": status, "why": "w"}));
        }
        if dice.chance(5) {
            fixes.push(json!({"issue": id, "status": "NOT_FIXED", "why": "w"}));
        }
    }
    json!({"patch_plan": plan, "fixes": fixes})
}

fn given(seed: u64) -> (Map<String, Value>, Anything) {
    let context = json!({"patch_major": seed.is_multiple_of(3)});
    let given = Map::from_iter([("context".to_owned(), context)]);
    (given, Anything::default())
}

/// What the workflow says is what holds the rules: without it, they are seen to be broken.
#[test]
fn a_workflow_that_leaves_a_rule_out_is_noticed() {
    let blocker = r#"output.issues.exists(i, i.severity == "BLOCKER")"#;
    let fixed = r#"|| f.status == "FIXED")"#;
    let table = [
        ("    once: true\n", ""),
        ("        stop: true\n", ""),
        ("on_violation: stop", "on_violation: block"),
        (blocker, r#""false""#),
        (fixed, "|| true)"),
        ("context.patch_major && ", ""),
        (
            "goto: _block\n        reason: \"the decision",
            "goto: _fail\n        reason: \"the decision",
        ),
    ];
    for (rule, instead) in table {
        let ground = Ground::changed("four-pass", |text| {
            assert!(text.contains(rule), "{rule}");
            text.replace(rule, instead)
        });
        let many = std::panic::AssertUnwindSafe(|| ground.drive_many(600, given));
        assert!(std::panic::catch_unwind(many).is_err(), "{rule}");
    }
}

#[test]
fn whatever_agents_and_people_do_the_rules_hold() {
    let ground = Ground::shipped("four-pass");
    let ends = ground.drive_many(2000, given);
    for end in ["succeeded", "blocked", "failed", "cancelled"] {
        assert!(ends.get(end).is_some_and(|count| *count > 30), "{ends:?}");
    }
}
