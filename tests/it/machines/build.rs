//! `specs/build.yaml`: every rule of the build as a case.
//!
//! | rule | test |
//! |---|---|
//! | states and transitions, all of them | `every_transition_of_the_table`, `chance::every_build_keeps_to_the_table` |
//! | fields of the state, written as it goes | `the_state_tells_how_the_build_stands` |
//! | bounded: tests run at most `max_retries` + 1 times | `the_tests_run_once_more_than_there_are_retries`, `chance::*` |
//! | resumable, from each state | `resume::a_crash_in_…`, `resume::an_interrupt_…` |
//! | no other input while one is unfinished | `resume::an_unfinished_build_goes_on_or_is_named` |
//! | containment: path escape, absolute, link | `containment::*` |
//! | tests: a list without a shell, few variables, captured, in time | `tests::*` |
//! | input: YAML or JSON, unknown fields, `max_retries` clamped, state validated | `input::*`, `resume::a_corrupted_build_…` |
//! | stop conditions 1-5 and 8, with their exit codes | `every_transition_of_the_table`, `tests::a_test_that_takes_too_long_fails_the_build` |
//! | stop conditions 6, 7, 9 | `containment::*`, `resume::a_corrupted_build_…`, `resume::an_interrupt_…` |
//! | what models print, what agents write | `every_form_of_a_patch_is_taken`, `an_agent_may_write_its_files_itself` |
//! | `status`, `reset` | `people::*` |

mod chance;
mod containment;
mod input;
mod people;
mod resume;
mod tests;

use serde_json::{Value, json};

use super::Stage;
use crate::harness::{Ended, Program, Ran};

/// The tests of most builds: they count themselves, and are content with one word.
const CHECK: &str = "echo x >> tests; grep -qx good code.txt || { echo 'not good' >&2; exit 1; }";
const GOOD: &str = "```text code.txt\ngood\n```\n";
const BAD: &str = "Here it is.\n\n```text code.txt\nbad\n```\n";

impl Stage {
    /// Puts down a specification with these tests.
    fn spec(&self, test: &[&str]) -> &Stage {
        self.spec_with(json!({"name": "word", "description": "a good word", "test": test}))
    }

    fn spec_with(&self, spec: Value) -> &Stage {
        std::fs::write(self.bed.outside.join("spec.json"), spec.to_string()).unwrap();
        self
    }

    /// The usual tests.
    fn checked(&self) -> &Stage {
        self.spec(&["sh", "-c", CHECK])
    }

    fn builds(&self, more: &[&str]) -> Program {
        let words = ["run", "build", "--spec", "spec.json"];
        self.bed.orch(words.iter().chain(more))
    }

    fn build(&self, more: &[&str]) -> Ran {
        self.builds(more).run()
    }

    /// How often the usual tests were run.
    fn tested(&self) -> usize {
        let counted = std::fs::read_to_string(self.file("tests"));
        counted.map_or(0, |text| text.lines().count())
    }
}

/// The transitions that were made, `step>next`.
fn path(ran: &Ended) -> String {
    let step = |line: &str| {
        let (step, next) = line
            .strip_prefix('[')?
            .split_once("] ")?
            .1
            .split_once(" -> ")?;
        let step = step.split(' ').next()?;
        Some(format!("{step}>{}", next.split(' ').next()?))
    };
    let steps: Vec<String> = ran.stdout.lines().filter_map(step).collect();
    steps.join(" ")
}

/// One build: what is answered, how it ends, and every transition on the way.
struct Case {
    about: &'static str,
    answers: &'static [(&'static str, &'static str)],
    retries: &'static str,
    code: i32,
    path: &'static str,
    tested: usize,
    error: Value,
}

#[test]
fn every_transition_of_the_table() {
    let begin = "generate>keep keep>test";
    let round = "test>patch patch>apply_patch apply_patch>test";
    let cases = [
        Case {
            about: "the tests pass at once",
            answers: &[("generate", GOOD)],
            retries: "5",
            code: 0,
            path: "BEGIN test>_end",
            tested: 1,
            error: json!(null),
        },
        Case {
            about: "the tests pass after a patch",
            answers: &[("generate", BAD), ("patch", GOOD)],
            retries: "1",
            code: 0,
            path: "BEGIN ROUND test>_end",
            tested: 2,
            error: json!(null),
        },
        Case {
            about: "green on the third run",
            answers: &[("generate", BAD), ("patch.1", BAD), ("patch.2", GOOD)],
            retries: "5",
            code: 0,
            path: "BEGIN ROUND ROUND test>_end",
            tested: 3,
            error: json!(null),
        },
        Case {
            about: "no retry is left",
            answers: &[("generate", BAD), ("patch", BAD)],
            retries: "2",
            code: 1,
            path: "BEGIN ROUND ROUND test>_fail",
            tested: 3,
            error: json!("`shell` failed: exit code 1: not good"),
        },
        Case {
            about: "nothing is generated",
            answers: &[("generate", "")],
            retries: "5",
            code: 1,
            path: "generate>keep keep>_fail",
            tested: 0,
            error: json!(
                "there are no files in the output of `generate`, and it has written none itself"
            ),
        },
        Case {
            about: "the generator says that all is done, and has done nothing",
            answers: &[(
                "generate",
                r#"{"state": "SUCCESS", "last_test_exit_code": 0}"#,
            )],
            retries: "5",
            code: 1,
            path: "generate>keep keep>_fail",
            tested: 0,
            error: json!(
                "there are no files in the output of `generate`, and it has written none itself"
            ),
        },
        Case {
            about: "the generator fails",
            answers: &[(
                "generate",
                "#!/bin/sh\necho good > code.txt; echo 'no model' >&2; exit 7",
            )],
            retries: "5",
            code: 1,
            path: "generate>_fail",
            tested: 0,
            error: json!("`actor` failed: exit code 7: no model"),
        },
        Case {
            about: "the generator is killed",
            answers: &[("generate", "#!/bin/sh\nkill -9 $$")],
            retries: "5",
            code: 1,
            path: "generate>_fail",
            tested: 0,
            error: json!("`actor` was killed by SIGKILL"),
        },
        Case {
            about: "the patcher fails",
            answers: &[("generate", BAD), ("patch", "#!/bin/sh\nexit 3")],
            retries: "5",
            code: 1,
            path: "BEGIN test>patch patch>_fail",
            tested: 1,
            error: json!("`actor` failed: exit code 3, and no error message"),
        },
        Case {
            about: "the patcher has nothing to say",
            answers: &[
                ("generate", BAD),
                ("patch", "It looks right to me: approved."),
            ],
            retries: "5",
            code: 1,
            path: "BEGIN test>patch patch>apply_patch apply_patch>_fail",
            tested: 1,
            error: json!(
                "there are no files in the output of `patch`, and it has written none itself"
            ),
        },
    ];
    for case in cases {
        let about = case.about;
        let stage = Stage::new();
        stage.checked();
        for (step, answer) in case.answers {
            stage.answers(step, answer);
        }
        let ran = stage
            .build(&["--max-retries", case.retries])
            .about(about)
            .comes_to(case.code);
        let wanted = case.path.replace("BEGIN", begin).replace("ROUND", round);
        assert_eq!(path(&ran), wanted, "{about}");
        assert_eq!(stage.tested(), case.tested, "{about}");
        let state = stage.state();
        assert_eq!(state["state"]["last_error"], case.error, "{about}");
        let status = if case.code == 0 {
            "succeeded"
        } else {
            "failed"
        };
        assert_eq!(state["status"], status, "{about}");
        assert_eq!(state["pending"], json!([]), "{about}: nothing goes on");
    }
}

#[test]
fn the_tests_run_once_more_than_there_are_retries() {
    for retries in 1..=3_usize {
        let stage = Stage::new();
        stage
            .checked()
            .answers("generate", BAD)
            .answers("patch", BAD);
        let ran = stage
            .build(&["--max-retries", &retries.to_string()])
            .fails(1);
        assert_eq!(stage.tested(), retries + 1);
        assert_eq!(stage.calls().len(), retries + 1, "{:?}", stage.calls());
        let left = format!("no retry is left (max_retries: {retries})");
        assert!(ran.stderr.contains(&left), "{ran:?}");
    }
}

#[test]
fn the_state_tells_how_the_build_stands() {
    let stage = Stage::new();
    stage.checked().answers("generate", BAD);
    // Looked at from inside: while it is patched, and while it is tested again.
    let seen = stage.bed.outside.join("answers.seen");
    let look = format!(
        "#!/bin/sh\ncat \"$ORCH_ROOT\"/workspace/*/state.json > {}\nprintf '{GOOD}'",
        seen.display()
    );
    stage.answers("patch", look);
    stage.build(&["--max-retries", "4"]).expect(0);
    let patching: Value = serde_json::from_slice(&std::fs::read(&seen).unwrap()).unwrap();
    assert_eq!(patching["metadata"]["currentPhase"], "PATCHING");
    assert_eq!(
        patching["state"],
        json!({
            "retry_count": 0, "max_retries": 4, "last_test_exit_code": 1,
            "last_test_stderr": "not good", "last_error": "`shell` failed: exit code 1: not good",
        })
    );
    let state = stage.state();
    assert_eq!(
        state["metadata"],
        json!({"currentPhase": "TESTING", "status": "completed"})
    );
    assert_eq!(
        state["state"],
        json!({
            "retry_count": 1, "max_retries": 4, "last_test_exit_code": 0,
            "last_test_stderr": "", "last_error": null,
        })
    );
    assert_eq!(state["variables"]["input"]["name"], "word");
    assert!(
        !stage
            .bed
            .has(&format!("workspace/{}/state.json.tmp", stage.run_id()))
    );
}

#[test]
fn every_form_of_a_patch_is_taken() {
    let diff = "The fix:\n\n--- a/code.txt\n+++ b/code.txt\n@@ -1 +1 @@\n-bad\n+good\n";
    let fenced_diff = format!("```diff\n{}```\n", diff.trim_start_matches("The fix:\n\n"));
    let forms = [
        (
            "whole files as JSON",
            r#"{"files": {"code.txt": "good\n"}}"#,
        ),
        ("a fenced block", GOOD),
        ("a unified diff", diff),
        ("a unified diff in a fence", &fenced_diff),
        ("by itself", "#!/bin/sh\necho good > code.txt; echo done"),
    ];
    for (form, patch) in forms {
        let stage = Stage::new();
        stage
            .checked()
            .answers("generate", BAD)
            .answers("patch", patch);
        stage.build(&["--max-retries", "1"]).about(form).expect(0);
        assert_eq!(
            std::fs::read_to_string(stage.file("code.txt")).unwrap(),
            "good\n",
            "{form}"
        );
    }
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing() {
    let unfit = [
        "--- a/code.txt\n+++ b/code.txt\n@@ -1 +1 @@\n-something else\n+good\n",
        "--- a/code.txt\n+++ b/code.txt\n@@ -1 +1 @@\n-bad\n+good\n--- a/gone\n+++ b/gone\n@@ -1 +1 @@\n-x\n+y\n",
        r#"{"files": {"code.txt": "good\n", "tests": 7}}"#,
    ];
    for patch in unfit {
        let stage = Stage::new();
        stage
            .checked()
            .answers("generate", BAD)
            .answers("patch", patch);
        let ran = stage.build(&[]).about(patch).fails(1);
        assert!(
            path(&ran).ends_with("apply_patch>_fail"),
            "{patch}: {ran:#?}"
        );
        assert_eq!(
            std::fs::read_to_string(stage.file("code.txt")).unwrap(),
            "bad\n",
            "{patch}"
        );
        assert_eq!(stage.tested(), 1, "{patch}");
    }
}

#[test]
fn an_agent_may_write_its_files_itself() {
    let stage = Stage::new();
    stage.checked();
    stage.answers(
        "generate",
        "#!/bin/sh\nmkdir -p sub; echo x > sub/y; echo good > code.txt",
    );
    stage.build(&[]).expect(0);
    assert!(stage.file("sub/y").exists());
}

#[test]
fn the_agents_are_told_what_they_need() {
    let stage = Stage::new();
    stage
        .checked()
        .answers("generate", BAD)
        .answers("patch", GOOD);
    stage.build(&[]).expect(0);
    let prompt = stage.prompt("generate", 1);
    for part in ["a good word", "grep -qx good code.txt", "path/of/file"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    let prompt = stage.prompt("patch", 1);
    for part in [
        "a good word",
        "exit code 1",
        "not good",
        "bad\n",
        "/code.txt (4/4 bytes)",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
}
