//! What no run can do, whatever its agents say: the graph of the workflow, and runs left to chance.

use std::collections::{BTreeMap, BTreeSet};

use orch::run::plan::{self, Folder};
use orch::run::state::{Effect, Event, Pending, RunState};
use orch::spec::workflow::model::{Mark, Step};
use serde_json::Map;

use super::*;
use crate::machines::random::{Dice, Done, Ground, Person, Play};

/// Where each step can lead, but for `_block`, which is open to all.
fn targets() -> BTreeMap<String, BTreeSet<String>> {
    let workflow = Ground::shipped("feature").workflow;
    let all = orch::spec::workflow::edges::edges(&workflow)
        .into_iter()
        .flatten();
    let mut targets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for edge in all {
        let from = workflow.step(edge.from).name.value.clone();
        let to = workflow.target_name(edge.to).to_owned();
        if to != "_block" {
            targets.entry(from).or_default().insert(to);
        }
    }
    targets
}

/// Every transition of the tables, and with it everything that the gates forbid.
#[test]
fn a_step_leads_where_the_tables_say_and_nowhere_else() {
    let targets = targets();
    let allowed: [(&str, &[&str]); 30] = [
        ("clarify", &["plan", "discover", "ask"]),
        ("ask", &["clarify", "plan"]),
        ("discover", &["clarify_again", "plan"]),
        ("clarify_again", &["plan", "discover", "ask_again"]),
        ("ask_again", &["clarify_again", "plan"]),
        ("plan", &["keep_plan"]),
        ("keep_plan", &["check_plan"]),
        ("check_plan", &["approve_plan"]),
        ("approve_plan", &["read_plan", "plan"]),
        ("read_plan", &["implement", "validate"]),
        // Gate 1: no other phase, no fix, no tick.
        ("code", &["code", "_next"]),
        ("implement", &["quality"]),
        // Gate 2: a phase that passed is ticked before anything else. Gate 3: no fix without an
        // analysis, no tick.
        ("quality", &["mark", "analyse", "escalate"]),
        ("analyse", &["check_tasks", "escalate"]),
        ("check_tasks", &["fix"]),
        ("apply", &["_next"]),
        ("fix", &["quality"]),
        ("escalate", &["analyse", "skip_phase", "_fail"]),
        ("mark", &["read_plan"]),
        ("skip_phase", &["read_plan"]),
        // Gates 5 and 6.
        (
            "validate",
            &["fix_phase", "escalate_validation", "review", "complete"],
        ),
        // Gate 7.
        ("review", &["fix_phase", "escalate_validation", "complete"]),
        ("fix_phase", &["keep_fix_phase", "escalate_validation"]),
        ("keep_fix_phase", &["check_fix_phase"]),
        ("check_fix_phase", &["read_plan"]),
        ("escalate_validation", &["fix_phase", "complete", "_fail"]),
        // Gate 4.
        ("complete", &["keep_summary"]),
        ("keep_summary", &["_end"]),
        ("triage", &["clarify", "fix_phase", "plan"]),
        ("research", &[]),
    ];
    for (step, to) in allowed {
        let to: BTreeSet<String> = to.iter().map(|to| (*to).to_owned()).collect();
        let found = targets.get(step).cloned().unwrap_or_default();
        assert_eq!(found, to, "{step}");
    }
    // Only one step ends a run well, and only one ticks.
    let ends: Vec<_> = targets
        .iter()
        .filter(|(_, to)| to.contains("_end"))
        .collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
}

/// Agents that say anything, over a plan that is really ticked.
struct Chance {
    folder: Folder,
    phases: usize,
    failed: u64,
    rounds: u64,
    discoveries: u64,
    fix_phases: u64,
    flagged: bool,
    /// The steps that were finished, in order.
    trail: Vec<String>,
}

impl Chance {
    fn new(seed: u64) -> Chance {
        Chance {
            folder: Folder::default(),
            phases: 1 + usize::try_from(seed % 3).unwrap(),
            failed: 0,
            rounds: 0,
            discoveries: 0,
            fix_phases: 0,
            flagged: seed.is_multiple_of(2),
            trail: Vec::new(),
        }
    }

    fn add_phase(&mut self) {
        let number = self.folder.files.len() + 1;
        self.folder.master +=
            &format!("\n## Phase {number}: p\n\n- [ ] {number:02}: t (`{number:02}-t.md`)\n");
        let flag = if self.flagged {
            "requires_ux_dx_review: true"
        } else {
            ""
        };
        let text = format!("# Task {number:02}\n{flag}\n");
        self.folder.files.insert(format!("{number:02}-t.md"), text);
    }

    fn load(&self) -> Done {
        let dir = "workspace/r-1/files/tasks";
        let mut done = Done::prints("read");
        match plan::read(&self.folder) {
            Ok(plan) => drop(done.changes.set.insert(
                orch::run::flow::document::PLAN.to_owned(),
                plan.to_value(dir),
            )),
            Err(_) => done.exit_code = 2,
        }
        done
    }

    fn mark(&mut self, state: &RunState, mark: Mark) -> Done {
        let number = state.state["plan"]["current"]["number"].as_u64().unwrap();
        let changed = plan::mark(&self.folder, u32::try_from(number).unwrap(), mark);
        for (name, text) in changed {
            match name.as_str() {
                plan::MASTER => self.folder.master = text,
                _ => drop(self.folder.files.insert(name, text)),
            }
        }
        self.load()
    }
}

impl Play for Chance {
    fn work(&mut self, step: &Step, _: &Pending, state: &RunState, dice: &mut Dice) -> Done {
        if dice.chance(4) {
            return Done::exits(1);
        }
        if dice.chance(4) {
            return Done::prints(*dice.pick(&[
                "PASS",
                "{\"status\": \"PASSED\"}",
                "",
                "{\"approvals\": {\"plan\": true}}",
            ]));
        }
        let now = &state.state["now"]["tasks"];
        let task = now[0].as_str().unwrap_or("01").to_owned();
        let foreign = dice.chance(5);
        let task = if foreign { "99".to_owned() } else { task };
        let passes = dice.chance(60);
        match step.name.value.as_str() {
            "clarify" | "clarify_again" => {
                let word =
                    *dice.pick(&["REQUIREMENTS_CLEAR", "QUESTIONS_NEEDED", "DISCOVERY_NEEDED"]);
                let asks: &[&str] = if word == "QUESTIONS_NEEDED" {
                    &["what?"]
                } else {
                    &[]
                };
                Done::prints(verdict(word, asks))
            }
            "plan" => {
                if self.folder.master.is_empty() {
                    (0..self.phases).for_each(|_| self.add_phase());
                }
                Done::prints("planned")
            }
            "fix_phase" => {
                self.add_phase();
                Done::prints("added")
            }
            "check_plan" | "read_plan" | "check_tasks" | "check_fix_phase" => self.load(),
            "mark" => self.mark(state, Mark::Done),
            "skip_phase" => self.mark(state, Mark::Skipped),
            "code" | "apply" => {
                let status = if passes { "done" } else { "error" };
                Done::json(&json!({"status": status, "blocking": !passes, "summary": "x"}))
            }
            "quality" => Done::prints(gate(
                if passes {
                    &[]
                } else {
                    std::slice::from_ref(&task)
                }
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .as_slice(),
            )),
            "analyse" => Done::prints(analysed(&[&task], "again")),
            "validate" | "review" => {
                Done::prints(validated(if passes { &[] } else { &["broken"] }))
            }
            _ => Done::prints("done"),
        }
    }

    fn exists(&mut self, _glob: &str, _state: &RunState, dice: &mut Dice) -> bool {
        dice.chance(97)
    }

    fn person(&mut self, asked: Option<&Pending>, _: &RunState, dice: &mut Dice) -> Person {
        match asked.map(|pending| pending.step.as_str()) {
            Some("approve_plan") if dice.chance(70) => Person::Approves,
            Some("approve_plan") => Person::Rejects("no".to_owned()),
            Some("escalate") => {
                Person::Replies(dice.pick(&["retry it", "skip it", "stop it"]).to_string())
            }
            Some("escalate_validation") => {
                Person::Replies(dice.pick(&["retry it", "accept it", "stop it"]).to_string())
            }
            Some(_) => Person::Replies("blue".to_owned()),
            None if dice.chance(90) => Person::Resumes,
            None => Person::Cancels,
        }
    }

    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, effects: &[Effect]) {
        let number =
            |state: &RunState, key: &str| state.state.get(key).and_then(Value::as_u64).unwrap_or(0);
        assert!(
            number(now, "rounds") <= 3 && number(now, "discoveries") <= 2,
            "{:?}",
            now.state
        );
        assert!(
            number(now, "iteration") <= number(now, "limit").max(3),
            "{:?}",
            now.state
        );
        assert!(number(now, "validations") <= 3, "{:?}", now.state);
        self.rounds = number(now, "rounds");
        self.discoveries = number(now, "discoveries");
        for effect in effects {
            let Effect::Checkpoint(line) = effect else {
                continue;
            };
            self.trail.push(line.step.clone());
            match (line.step.as_str(), line.next.as_str()) {
                ("quality", "analyse" | "escalate") => self.failed += 1,
                ("read_plan", _) => self.failed = 0,
                (_, "fix_phase") => self.fix_phases += 1,
                _ => {}
            }
            // Without a person's word no phase fails a fourth time.
            let asked = self.trail.iter().any(|step| step == "escalate");
            assert!(asked || self.failed <= 3, "{:?}", self.trail);
            if line.next == "implement" {
                assert_eq!(
                    now.governance.approvals["plan"], true,
                    "implemented without approval"
                );
            }
            if line.next == "complete" && line.step == "validate" {
                assert!(!self.flagged, "5b was skipped: {:?}", self.trail);
            }
        }
        // A box is ticked only by a `mark` after a gate that passed.
        let done = |state: &RunState| {
            state
                .state
                .get("plan")
                .map_or(0, |plan| plan["done"].as_u64().unwrap())
        };
        if done(now) > done(before) {
            let Event::Finished { task, .. } = event else {
                panic!("{event:?}")
            };
            assert!(task.ends_with("-mark"), "{task}");
            assert_eq!(
                before.step_results["quality"]["json_data"]["status"],
                "PASS"
            );
        }
    }
}

#[test]
fn random_runs_keep_the_rules() {
    let ground = Ground::shipped("feature");
    let ends = ground.drive_many(2000, |seed| (Map::new(), Chance::new(seed)));
    for end in ["succeeded", "failed", "blocked", "cancelled"] {
        assert!(ends.contains_key(end), "{ends:?}");
    }
}

/// The invariants above are worth something: without a guard they do not hold.
#[test]
#[should_panic(expected = "with seed")]
fn random_runs_notice_a_round_too_many() {
    let ground = Ground::changed("feature", |text| {
        text.replace("&& state.rounds < 3", "&& state.rounds < 4")
            .replace(
                "max_visits: 3\n    per: [triage]",
                "max_visits: 9\n    per: [triage]",
            )
    });
    ground.drive_many(100, |seed| (Map::new(), Chance::new(seed)));
}
