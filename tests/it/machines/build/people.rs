//! Looking at a build, starting it over, and what people get wrong.

use serde_json::json;

use super::*;

fn failed() -> Stage {
    let stage = Stage::new();
    stage
        .checked()
        .answers("generate", BAD)
        .answers("patch", BAD);
    stage.build(&["--max-retries", "1"]).fails(1);
    stage
}

#[test]
fn status_shows_how_a_build_stands() {
    let stage = failed();
    let ran = stage.orch(&["status", "last"]).expect(0);
    for part in ["failed", "TESTING", "no retry is left"] {
        assert!(ran.stdout.contains(part), "{part}: {ran:#?}");
    }
    let ran = stage.orch(&["show", "last"]).expect(0);
    for part in ["retry_count: 1", "last_test_exit_code: 1", "not good"] {
        assert!(ran.stdout.contains(part), "{part}: {ran:#?}");
    }
}

#[test]
fn a_reset_clears_the_files_and_keeps_logs_and_specs() {
    let stage = failed();
    let id = stage.run_id();
    let (specs, log) = (
        stage.bed.ls("specs"),
        stage.bed.read(&format!("logs/{id}.jsonl")),
    );
    stage.orch(&["reset", &id]).expect(0);
    assert!(stage.bed.ls(&format!("workspace/{id}/files")).is_empty());
    assert_eq!(stage.bed.ls("specs"), specs);
    assert!(
        stage
            .bed
            .read(&format!("logs/{id}.jsonl"))
            .starts_with(&log)
    );
    let state = stage.state();
    assert_eq!(
        state["metadata"],
        json!({"currentPhase": "GENERATING", "status": "in-progress"})
    );
    assert_eq!(state["state"]["retry_count"], 0);
    assert_eq!(state["state"]["last_error"], json!(null));
    // And it begins anew, with all of its retries.
    stage.answers("generate", BAD).answers("patch", GOOD);
    let ran = stage.build(&[]).says("goes on").expect(0);
    assert!(path(&ran).contains("generate>keep"), "{ran:#?}");
    assert_eq!(stage.tested(), 2);
}

#[test]
fn a_finished_build_is_not_moved_by_anybody() {
    let stage = failed();
    let id = stage.run_id();
    let before = stage.state();
    for words in [
        ["resume", &id, ""],
        ["approve", &id, "tests"],
        ["reply", &id, "go on"],
        ["cancel", &id, ""],
    ] {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        stage.orch(&words).about(format!("{words:?}")).fails(64);
    }
    stage
        .orch(&["set", &id, "state.retry_count=0", "--note", "once more"])
        .fails_somehow();
    assert_eq!(stage.state(), before);
}

#[test]
fn an_agent_cannot_start_its_build_over() {
    let stage = Stage::new();
    stage.checked().answers("generate", BAD);
    let orch = crate::harness::orch().display().to_string();
    stage.answers(
        "patch",
        format!("#!/bin/sh\n{orch} reset last || echo refused > told\nprintf '{GOOD}'"),
    );
    stage.build(&[]).expect(0);
    assert_eq!(
        std::fs::read_to_string(stage.file("told")).unwrap(),
        "refused\n"
    );
    assert_eq!(stage.calls(), ["generate", "patch"]);
}
