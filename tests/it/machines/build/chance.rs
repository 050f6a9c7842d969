//! Builds whose agents and tests do anything: the table of states holds after each event.

use std::collections::BTreeSet;
use std::sync::Mutex;

use orch::run::state::{Effect, Event, Pending, RunState, RunStatus};
use orch::spec::workflow::model::Step;
use orch::text::error::Kind;
use serde_json::{Map, Value, json};

use crate::machines::random::{Dice, Done, Ground, Play};

/// Every transition that there is; what is not here is a mistake.
const TABLE: [(&str, &str); 9] = [
    ("GENERATING", "GENERATING"),
    ("GENERATING", "TESTING"),
    ("GENERATING", "FAILED"),
    ("TESTING", "SUCCESS"),
    ("TESTING", "PATCHING"),
    ("TESTING", "FAILED"),
    ("PATCHING", "PATCHING"),
    ("PATCHING", "TESTING"),
    ("PATCHING", "FAILED"),
];

/// A build in the words of the table.
fn word(state: &RunState) -> &str {
    match state.status {
        RunStatus::Succeeded => "SUCCESS",
        RunStatus::Failed => "FAILED",
        _ => &state.metadata.current_phase,
    }
}

struct Anything {
    /// How many retries were asked for, in and out of bounds.
    retries: i64,
    /// How likely each round of the tests passes.
    luck: u64,
    /// Results of tests that were committed.
    tested: u64,
    seen: BTreeSet<(String, String)>,
}

impl Anything {
    fn most(&self) -> u64 {
        u64::try_from(self.retries.clamp(1, 50)).unwrap()
    }
}

impl Play for Anything {
    fn work(&mut self, step: &Step, _: &Pending, _: &RunState, dice: &mut Dice) -> Done {
        let name = step.name.value.as_str();
        if name == "test" {
            return match dice.roll(200) {
                0 => Done::fails(Kind::TimeoutExpired, 124),
                1 => Done::fails(Kind::ProviderNotFound, 2),
                2 => Done::fails(Kind::OutputTooLargeError, 1),
                _ if dice.chance(self.luck) => Done::prints("all tests pass"),
                _ => Done {
                    text: "it is red".to_owned(),
                    ..Done::fails(Kind::ProviderFailed, *dice.pick(&[1, 2, 77, 124, 130, 255]))
                },
            };
        }
        match dice.roll(300) {
            0 => Done::exits(1),
            1 => Done::fails(Kind::TimeoutExpired, 124),
            2 => Done::fails(Kind::SafetyViolation, 2),
            3 => Done::fails(Kind::PatchError, 1),
            4 if ["generate", "patch"].contains(&name) => {
                let mut done = Done::prints("SUCCESS");
                let path = *dice.pick(&["/retry_count", "/metadata/status", "/max_retries"]);
                done.changes.set.insert(path.to_owned(), json!(-7));
                done
            }
            5 => Done::prints(""),
            6 => Done::json(&json!({"status": "SUCCESS", "retry_count": -1, "max_retries": 1000})),
            _ => Done::prints("```text code.txt\nx\n```\n"),
        }
    }

    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, _: &[Effect]) {
        assert_ne!(
            now.status,
            RunStatus::Blocked,
            "it waits for nobody: {event:?}"
        );
        if before.seq > 0 && word(before) != word(now) || now.status != before.status {
            let step = (word(before), word(now));
            if before.seq > 0 {
                assert!(TABLE.contains(&step), "{step:?} by {event:?}");
                self.seen.insert((step.0.to_owned(), step.1.to_owned()));
            }
        }
        if let Event::Finished { task, result, .. } = event {
            let is_test = task.ends_with("-test");
            self.tested += u64::from(is_test);
            let passed = is_test && result.exit_code == 0;
            assert_eq!(
                passed,
                now.status == RunStatus::Succeeded,
                "only tests decide: {event:?}"
            );
            let unsafe_path = result
                .error
                .as_ref()
                .is_some_and(|e| e.kind == Kind::SafetyViolation);
            assert!(!unsafe_path || now.status == RunStatus::Failed);
            if is_test {
                assert_eq!(
                    now.state["retry_count"],
                    json!(
                        now.visits.get("patch").copied().unwrap_or(0)
                            - u64::from(now.metadata.current_phase == "PATCHING")
                    )
                );
            }
        }
        let most = self.most();
        assert!(
            self.tested <= most + 1,
            "tested {} times of {most} + 1",
            self.tested
        );
        assert!(now.visits.get("patch").is_none_or(|visits| *visits <= most));
        let shown = &now.state["max_retries"];
        assert!(shown.is_null() || *shown == json!(most), "{shown}");
        let count = now.state["retry_count"].as_u64();
        assert!(count.is_some_and(|count| count <= most), "{count:?}");
    }
}

fn given(retries: i64) -> Map<String, Value> {
    let input = json!({"name": "n", "description": "d", "test": ["true"]});
    let Value::Object(given) = json!({"input": input, "context": {"max_retries": retries}}) else {
        unreachable!()
    };
    given
}

fn drive(ground: &Ground, seeds: u64) -> (BTreeSet<(String, String)>, usize) {
    let seen = Mutex::new(BTreeSet::new());
    let ends = ground.drive_many(seeds, |number| {
        let retries = [5, 1, 0, 3, 50, 99, -4, 2][usize::try_from(number % 8).unwrap()];
        let luck = [20, 5, 50, 0][usize::try_from(number / 8 % 4).unwrap()];
        let play = Watched {
            inner: Anything {
                retries,
                luck,
                tested: 0,
                seen: BTreeSet::new(),
            },
            all: &seen,
        };
        (given(retries), play)
    });
    assert_eq!(
        ends.keys().copied().collect::<Vec<_>>(),
        ["failed", "succeeded"],
        "{ends:?}"
    );
    (seen.into_inner().unwrap(), ends["succeeded"])
}

/// Keeps what was seen when the run is over.
struct Watched<'a> {
    inner: Anything,
    all: &'a Mutex<BTreeSet<(String, String)>>,
}

impl Play for Watched<'_> {
    fn work(&mut self, step: &Step, pending: &Pending, state: &RunState, dice: &mut Dice) -> Done {
        self.inner.work(step, pending, state, dice)
    }

    fn check(&mut self, before: &RunState, now: &RunState, event: &Event, effects: &[Effect]) {
        self.inner.check(before, now, event, effects);
        self.all.lock().unwrap().append(&mut self.inner.seen);
    }
}

#[test]
fn every_build_keeps_to_the_table() {
    let (seen, succeeded) = drive(&Ground::shipped("build"), 2000);
    // All of it was gone through: each change of state in the table, and both ends.
    let changes = TABLE.iter().filter(|(from, to)| from != to);
    for (from, to) in changes {
        assert!(
            seen.contains(&((*from).to_owned(), (*to).to_owned())),
            "{from} -> {to}"
        );
    }
    assert!(succeeded > 20, "{succeeded}");
}

/// Without its rules the build would not keep to the table: chance finds that out.
#[test]
fn a_build_without_one_of_its_rules_is_found_out() {
    let broken: [(&str, &str, &str); 4] = [
        (
            "the bound of the retries",
            "max: 50}\n    on_limit",
            "max: 51}\n    on_limit",
        ),
        (
            "the row of the last retry",
            "visits.patch >= state.max_retries",
            "visits.patch > 1000",
        ),
        (
            "the tests decide",
            "- if: status == \"succeeded\"\n        goto: _end",
            "- if: exit_code < 2\n        goto: _end",
        ),
        (
            "a crash counts",
            "state.retry_count: visits.patch, state.last_test_exit_code",
            "state.retry_count: visits.test, state.last_test_exit_code",
        ),
    ];
    for (what, from, to) in broken {
        let ground = Ground::changed("build", |text| {
            assert!(text.contains(from), "{what}");
            text.replace(from, to)
        });
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(&ground, 64)));
        // The bound and the row stand for each other: either alone still keeps the promise.
        let doubled = what.starts_with("the bound") || what.starts_with("the row");
        assert_eq!(found.is_ok(), doubled, "{what}");
    }
}
