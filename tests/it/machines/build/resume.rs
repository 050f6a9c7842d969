//! A build that is ended in the middle goes on from its last state: after a crash and after Ctrl-C.

use serde_json::json;

use super::*;
use crate::harness::{Running, wait_for};

/// Says that it is there, and stays until it is ended; later calls go on.
const STAYS: &str = "#!/bin/sh\n: > here; exec sleep 600";

/// Starts a build and waits until the agent or the tests of its last step are at work.
fn underway(stage: &Stage, more: &[&str]) -> Running {
    let running = stage.builds(more).start();
    wait_for("the step to be at work", || {
        !stage.bed.ls("workspace").is_empty() && stage.file("here").exists()
    });
    running
}

/// Ends it as a crash or a person does, and the one after goes on.
fn ended(stage: &Stage, running: Running, signal: &str) {
    running.signal(signal);
    let ran = running.wait();
    match signal {
        "KILL" => ran.killed(),
        _ => ran.says("orch resume").expect(130),
    };
    assert_eq!(stage.state()["status"], "running");
    std::fs::remove_file(stage.file("here")).unwrap();
    stage.bed.assert_nothing_runs();
}

fn in_generating(signal: &str) {
    let stage = Stage::new();
    stage
        .checked()
        .answers("generate.1", STAYS)
        .answers("generate.2", GOOD);
    let running = underway(&stage, &[]);
    assert_eq!(stage.state()["metadata"]["currentPhase"], "GENERATING");
    ended(&stage, running, signal);
    let ran = stage.build(&[]).says("goes on").expect(0);
    assert!(ran.stderr.contains("it goes on"), "{ran:#?}");
    assert_eq!(
        stage.calls(),
        ["generate", "generate"],
        "it is generated again"
    );
    assert_eq!(stage.tested(), 1);
}

fn in_testing(signal: &str) {
    let stage = Stage::new();
    let once = format!("[ -e again ] || {{ : > again; : > here; exec sleep 600; }}; {CHECK}");
    stage.spec(&["sh", "-c", &once]);
    stage.answers("generate", BAD).answers("patch", GOOD);
    let running = underway(&stage, &["--max-retries", "1"]);
    assert_eq!(stage.state()["metadata"]["currentPhase"], "TESTING");
    ended(&stage, running, signal);
    let ran = stage.build(&[]).says("goes on").expect(0);
    assert_eq!(
        stage.calls(),
        ["generate", "patch"],
        "nothing but the tests ran again"
    );
    assert!(
        path(&ran).ends_with("apply_patch>test test>_end"),
        "{ran:#?}"
    );
    assert_eq!(stage.state()["state"]["retry_count"], 1);
}

/// The tests say whether the patch has landed; the try is spent either way.
fn in_patching(signal: &str, landed: bool) {
    let stage = Stage::new();
    stage.checked().answers("generate", BAD);
    let word = if landed { "good" } else { "worse" };
    stage.answers(
        "patch",
        STAYS.replace(": > here", &format!("echo {word} > code.txt; : > here")),
    );
    let running = underway(&stage, &["--max-retries", "1"]);
    let state = stage.state();
    assert_eq!(state["metadata"]["currentPhase"], "PATCHING");
    assert_eq!(state["state"]["retry_count"], 0);
    ended(&stage, running, signal);
    let kept = stage.state();
    assert_eq!(kept["metadata"]["currentPhase"], "PATCHING");
    assert_eq!(kept["state"], state["state"], "preserved as it was");
    let ran = stage.build(&[]).says("goes on").expect(i32::from(!landed));
    let end = if landed { "_end" } else { "_fail" };
    assert!(
        path(&ran).ends_with(&format!("patch>test test>{end}")),
        "{ran:#?}"
    );
    assert_eq!(
        stage.calls(),
        ["generate", "patch"],
        "it is not patched again"
    );
    assert_eq!(
        (stage.tested(), &stage.state()["state"]["retry_count"]),
        (2, &json!(1))
    );
}

#[test]
fn a_crash_in_generating_generates_again() {
    in_generating("KILL");
}

#[test]
fn a_crash_in_testing_tests_again() {
    in_testing("KILL");
}

#[test]
fn a_crash_in_patching_tests_again_and_counts() {
    in_patching("KILL", true);
    in_patching("KILL", false);
}

#[test]
fn an_interrupt_leaves_the_state_and_the_next_start_goes_on() {
    in_generating("INT");
    in_testing("INT");
}

/// As after a crash: what a patcher left that was asked to stop is tested.
#[test]
fn an_interrupt_in_patching_tests_again_and_counts() {
    in_patching("INT", true);
    in_patching("INT", false);
}

/// Whatever was printed is written as a whole, wherever orch died while it wrote.
#[test]
fn a_crash_while_a_patch_is_written_leaves_no_half_of_it() {
    for point in ["apply.journal", "apply.rename"] {
        let stage = Stage::new();
        stage.checked().answers("generate", BAD);
        let patch = json!({"files": {"code.txt": "good\n", "second": "x\n", "third": "y\n"}});
        stage.answers("patch", patch.to_string());
        // The first of its kind wrote what was generated.
        stage
            .builds(&[])
            .env("ORCH_FAULT", format!("kill:{point}:2"))
            .run()
            .about(point)
            .killed();
        stage.build(&[]).says("goes on").expect(0);
        assert_eq!(stage.calls(), ["generate", "patch"], "{point}");
        assert!(
            stage.file("second").exists() && stage.file("third").exists(),
            "{point}"
        );
    }
}

#[test]
fn an_unfinished_build_goes_on_or_is_named() {
    let stage = Stage::new();
    stage
        .checked()
        .answers("generate.1", STAYS)
        .answers("generate", GOOD);
    let running = underway(&stage, &["--max-retries", "3"]);
    // What is being worked on is not started over.
    let id = stage.run_id();
    let ran = stage.orch(&["reset", &id]).fails(75);
    assert!(ran.stderr.contains("being worked on"), "{ran:#?}");
    ended(&stage, running, "INT");
    stage.spec_with(json!({"name": "another", "description": "d", "test": ["true"]}));
    let ran = stage.build(&[]).fails(64);
    for part in [
        id.as_str(),
        "\"word\"",
        "\"another\"",
        "orch resume",
        "orch cancel",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:#?}");
    }
    assert_eq!(stage.run_id(), id, "nothing began");
    stage.checked();
    let ran = stage
        .build(&["--max-retries", "7"])
        .says("warning: ")
        .expect(0);
    assert!(ran.stderr.contains("`max_retries` stays 3"), "{ran:#?}");
    // A build that has ended is no hindrance.
    stage.spec_with(json!({"name": "another", "description": "d", "test": ["true"]}));
    stage.build(&[]).expect(0);
    assert_eq!(stage.bed.ls("workspace").len(), 2);
}

fn interrupted() -> (Stage, String) {
    let stage = Stage::new();
    stage
        .checked()
        .answers("generate.1", STAYS)
        .answers("generate.2", GOOD);
    let running = underway(&stage, &[]);
    ended(&stage, running, "INT");
    let id = stage.run_id();
    (stage, id)
}

#[test]
fn a_corrupted_build_is_failed_with_the_reason() {
    type Spoil = fn(&Stage, &str);
    let spoil: [(&str, Spoil); 3] = [
        ("an unknown state", |stage, id| {
            let path = format!("workspace/{id}/state.json");
            let text = stage.bed.read(&path).replace("\"running\"", "\"dreaming\"");
            stage.bed.write(&path, text);
        }),
        ("a state ahead of its log", |stage, id| {
            let path = format!("workspace/{id}/state.json");
            let mut state = stage.state();
            state["seq"] = json!(99);
            stage.bed.write(&path, state.to_string());
        }),
        ("a line of the log", |stage, id| {
            let path = format!("logs/{id}.jsonl");
            let log = stage.bed.read(&path);
            let second = log.lines().nth(1).unwrap();
            stage.bed.write(&path, log.replace(second, "{}"));
        }),
    ];
    for (what, spoil) in spoil {
        for resumes in [true, false] {
            let (stage, id) = interrupted();
            spoil(&stage, &id);
            let ran = match resumes {
                true => stage.orch(&["resume", &id]),
                false => stage.build(&[]),
            }
            .about(what)
            .fails(3);
            assert!(ran.stderr.contains("error: "), "{what}: {ran:#?}");
            assert_eq!(stage.calls(), ["generate"], "{what}: nothing ran");
            let state = stage.state();
            assert_eq!(state["status"], "failed", "{what}: {state}");
            assert_eq!(state["error"]["kind"], "StateCorrupted", "{what}");
        }
    }
}

/// What only holds the sum of the log is made anew from it.
#[test]
fn a_torn_or_lost_state_is_made_anew_from_the_log() {
    for torn in [Some("{\"version\": 1, \"run_"), Some(""), None] {
        let (stage, id) = interrupted();
        let path = stage.bed.root.join(format!("workspace/{id}/state.json"));
        match torn {
            Some(text) => std::fs::write(path, text).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
        let ran = stage.build(&[]).says("goes on").expect(0);
        assert!(ran.stderr.contains(&id), "{ran:#?}");
        assert_eq!(stage.run_id(), id);
        assert_eq!(stage.calls(), ["generate", "generate"]);
    }
}
