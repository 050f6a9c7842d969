//! How the tests of a build are run: no shell, few variables, captured, and in time.

use std::collections::BTreeSet;

use orch::spec::workflow::model::{Number, Timeout};
use serde_json::json;

use super::*;
use crate::machines::random::Ground;

#[test]
fn the_command_is_a_list_and_no_shell_sees_it() {
    let stage = Stage::new();
    stage.spec(&[
        "printf",
        "%s|",
        "a b",
        "$(touch pwned)",
        "`id`",
        "*",
        "; exit 1",
        "$HOME",
    ]);
    stage.answers("generate", GOOD);
    stage.build(&[]).expect(0);
    let said = stage.state()["step_results"]["test"]["output"].clone();
    assert_eq!(said, "a b|$(touch pwned)|`id`|*|; exit 1|$HOME|");
    assert!(!stage.file("pwned").exists());
}

#[test]
fn only_a_few_variables_come_through() {
    let stage = Stage::new();
    stage.spec(&["env"]).answers("generate", GOOD);
    stage
        .builds(&[])
        .env("ANTHROPIC_API_KEY", "sk-1")
        .env("LANG", "C.UTF-8")
        .env("LC_ALL", "C")
        .env("TERM", "xterm")
        .env("USER", "ana")
        .run()
        .expect(0);
    let said = stage.state()["step_results"]["test"]["output"].clone();
    let lines = said.as_str().unwrap().lines();
    let given: BTreeSet<&str> = lines
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    // orch's own are the markers, and a folder for what is temporary.
    let own = ["ORCH_ROOT", "ORCH_TASK", "ORCH_WATCHER", "TMPDIR"];
    let foreign: Vec<&&str> = given.iter().filter(|name| !own.contains(name)).collect();
    assert_eq!(foreign, [&"HOME", &"LANG", &"PATH", &"PYTHONPATH"]);
    assert!(said.as_str().unwrap().contains("PYTHONPATH=.\n"));
}

#[test]
fn tests_run_in_the_folder_of_the_build_and_are_captured() {
    let stage = Stage::new();
    stage
        .spec(&["sh", "-c", "pwd -P; ls; echo loud >&2"])
        .answers("generate", GOOD);
    let ran = stage.build(&[]).expect(0);
    let said = stage.state()["step_results"]["test"]["output"].clone();
    let folder = stage.file("").canonicalize().unwrap();
    assert_eq!(said, format!("{}\ncode.txt\n", folder.display()));
    assert!(!(ran.stdout + &ran.stderr).contains("loud"));
}

#[test]
fn a_test_that_takes_too_long_fails_the_build() {
    let stage = Stage::new();
    stage.spec_with(json!({
        "name": "n", "description": "d", "timeout_sec": 3,
        "test": ["sh", "-c", "echo x >> tests; echo waiting >&2; sleep 600"],
    }));
    stage.answers("generate", GOOD);
    let ran = stage.build(&[]).fails(1);
    assert!(path(&ran).ends_with("keep>test test>_fail"), "{ran:#?}");
    assert!(ran.stderr.contains("time limit"), "{ran:#?}");
    assert_eq!(stage.tested(), 1);
    let state = stage.state();
    assert_eq!(state["state"]["last_test_exit_code"], 124);
    assert_eq!(state["state"]["last_test_stderr"], "waiting");
    stage.bed.assert_nothing_runs();
}

#[test]
fn the_time_limit_is_five_minutes_and_at_most_ten() {
    let ground = Ground::shipped("build");
    let test = ground.workflow.find("test").unwrap();
    let limit = Timeout::Seconds(Number::From {
        path: "input.timeout_sec".to_owned(),
        default: Some(300),
        min: Some(1),
        max: Some(600),
    });
    assert_eq!(ground.workflow.step(test).timeout, Some(limit));
    let stage = Stage::new();
    stage
        .spec_with(json!({"name": "n", "description": "d", "test": ["true"], "timeout_sec": 9999}));
    stage.answers("generate", GOOD);
    let ran = stage.build(&[]).says("warning: ").expect(0);
    let told = "warning: `input.timeout_sec` is 9999; 600 is taken instead";
    assert!(ran.stderr.contains(told), "{ran:#?}");
}

/// Exit codes that mean something else to orch are failing tests all the same.
#[test]
fn every_exit_code_but_zero_is_a_failing_test() {
    for code in ["1", "2", "77", "124", "126", "127", "255"] {
        let stage = Stage::new();
        stage.spec(&[
            "sh",
            "-c",
            &format!("grep -qx good code.txt || exit {code}"),
        ]);
        stage.answers("generate", BAD).answers("patch", GOOD);
        stage.build(&["--max-retries", "1"]).about(code).expect(0);
        let prompt = stage.prompt("patch", 1);
        assert!(prompt.contains(&format!("exit code {code}.")), "{prompt}");
    }
}

#[test]
fn tests_that_cannot_be_started_fail_the_build_at_once() {
    let stage = Stage::new();
    stage
        .spec(&["no-such-program-anywhere"])
        .answers("generate", GOOD);
    let ran = stage.build(&[]).fails(1);
    assert!(path(&ran).ends_with("test>_fail"), "{ran:#?}");
    assert!(ran.stderr.contains("no-such-program-anywhere"), "{ran:#?}");
    assert_eq!(stage.calls(), ["generate"]);
}

#[test]
fn the_patcher_gets_the_end_of_both_streams() {
    let stage = Stage::new();
    let many = "i=0; while [ $i -lt 3000 ]; do echo out-$i-0123456789012345678901234567890; echo err-$i-0123456789012345678901234567890 >&2; i=$((i+1)); done; grep -qx good code.txt";
    stage.spec(&["sh", "-c", many]);
    stage.answers("generate", BAD).answers("patch", GOOD);
    stage.build(&[]).expect(0);
    let prompt = stage.prompt("patch", 1);
    for part in ["out-2999-", "err-2999-", "out-2000-", "err-2000-"] {
        assert!(prompt.contains(part), "{part}");
    }
    for part in ["out-0-", "err-0-", "out-1000-", "err-1000-"] {
        assert!(!prompt.contains(part), "{part}");
    }
    assert!(prompt.len() < 140 * 1024, "{}", prompt.len());
}
