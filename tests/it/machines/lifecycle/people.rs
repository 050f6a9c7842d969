//! What people do with a run, and what they do by mistake.

use super::*;
use crate::harness::{End, KILLED, wait_for};

/// A run that waits for the approval of this phase.
fn at(step: &str) -> Stage {
    let stage = honest();
    reach(&stage, step).fails(4);
    is_blocked(&stage, step, &waits(phase(step)));
    stage
}

fn log(stage: &Stage) -> String {
    stage.bed.read(&format!("logs/{}.jsonl", stage.run_id()))
}

fn set(stage: &Stage, value: &str, note: &str) {
    stage
        .orch(&["set", "last", value, "--note", note])
        .expect(0);
}

/// Refused as bad usage, with these words, and nothing has happened.
#[track_caller]
fn refused(stage: &Stage, words: &[&str], parts: &[&str]) {
    let before = (log(stage), stage.state(), stage.calls());
    let ran = stage.orch(words).fails(64);
    has(&ran.stderr, parts);
    has(&ran.stderr, &["hint: "]);
    assert_eq!((log(stage), stage.state(), stage.calls()), before);
}

#[test]
fn a_gate_is_called_by_its_name_or_by_its_steps() {
    let cases = [
        ("test", "test"),
        ("test", "tests"),
        ("deploy", "deploy"),
        ("deploy", "deployment"),
    ];
    side_by_side(&cases, |(step, word)| {
        let stage = at(step);
        let ran = stage.orch(&["approve", "last", word]);
        ran.may_say(&["no watcher is running"]).expect(0);
        let state = stage.state();
        assert_eq!(state["governance"]["approvals"][phase(step).part], true);
        assert_ne!(state["metadata"]["status"], "blocked");
    });
}

#[test]
fn no_gate_is_passed_before_its_turn() {
    let stage = at("design");
    for later in ["code", "test", "tests", "deploy", "deployment"] {
        refused(
            &stage,
            &["approve", "last", later],
            &["is not being asked", "asked now: design"],
        );
    }
    let twice = "`architecture` is not being asked: approved by";
    refused(&stage, &["approve", "last", "architecture"], &[twice]);
    let late = [
        "reject",
        "last",
        "architecture",
        "--note",
        "I did not mean it",
    ];
    refused(&stage, &late, &[twice]);
    refused(
        &stage,
        &["approve", "last", "desing"],
        &["no gate `desing`", "asked now: design"],
    );
    refused(&stage, &["reply", "last", "yes"], &["asks for no reply"]);
    for path in [
        "state.metadata.currentPhase=\"deploy\"",
        "state.governance.approvals.design=true",
        "governance.approvals.design=true",
    ] {
        refused(
            &stage,
            &["set", "last", path, "--note", "faster"],
            &["reserved", "orch approve"],
        );
    }
    is_blocked(&stage, "design", "`design` waits for approval");
}

#[test]
fn a_forged_task_of_a_later_phase_blocks() {
    let stage = at("architecture");
    let task = format!("{}.0009-deploy", stage.run_id());
    let text = format!("---\nrun: {}\nstep: deploy\n---\nship it\n", stage.run_id());
    stage.bed.drop_task("deployer", &task, text);
    stage.bed.drain().expect(1);
    is_blocked(&stage, "architecture", "0009-deploy");
    assert_eq!(stage.calls(), ["architecture"], "nothing of it is run");
    assert_eq!(stage.bed.status(&format!("deployer/{task}")), "rejected");
    // A resume lifts that block, and the approval is still missing.
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", "`architecture` waits for approval");
    approve(&stage, "architecture");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "design", "`design` waits for approval");
    assert_eq!(stage.calls(), ["architecture", "design"]);
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn no_phase_begins_while_a_block_stands_that_an_approval_does_not_lift() {
    let stage = at("architecture");
    let task = format!("{}.0009-deploy", stage.run_id());
    let text = format!("---\nrun: {}\nstep: deploy\n---\nship it\n", stage.run_id());
    stage.bed.drop_task("deployer", &task, text);
    stage.bed.drain().expect(1);
    approve(&stage, "architecture");
    is_blocked(&stage, "architecture", "0009-deploy");
    stage.bed.drain().expect(0);
    assert_eq!(stage.calls(), ["architecture"]);
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "design", "`design` waits for approval");
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn a_resume_without_the_approval_says_what_is_missing() {
    let stage = at("test");
    for _ in 0..2 {
        let ran = stage.orch(&["resume", "last"]).fails(4);
        let told = [
            "`tests` waits for approval",
            "orch approve",
            "tests/report.txt",
        ];
        has(&ran.stderr, &told);
        is_blocked(&stage, "test", "`tests` waits for approval");
    }
    assert_eq!(stage.calls().len(), 4, "the agent is not called for that");
}

#[test]
fn a_rejection_stays_blocked_and_the_agent_works_again_with_the_note() {
    let stage = at("design");
    let empty = ["reject", "last", "design", "--note", " "];
    refused(&stage, &empty, &["why"]);
    stage
        .orch(&["reject", "last", "design", "--note", "too vague"])
        .says("error: ")
        .expect(0);
    is_blocked(&stage, "design", "too vague");
    stage.bed.drain().expect(0);
    assert_eq!(stage.calls().len(), 2, "not by itself");
    // Correcting the document does not make rejected work good.
    set(&stage, "state.design.status=\"approved\"", "as it was");
    stage.orch(&["resume", "last"]).fails(4);
    assert_eq!(stage.calls(), ["architecture", "design", "design"]);
    has(&stage.prompt("design", 2), &["last rejection: too vague"]);
    is_blocked(&stage, "design", "`design` waits for approval");
    approve(&stage, "design");
    assert_eq!(stage.state()["metadata"]["currentPhase"], "code");
}

#[test]
fn an_approval_does_not_pass_what_no_longer_holds() {
    let stage = at("test");
    set(&stage, "state.tests.status=\"failed\"", "seen by hand");
    let ran = stage
        .orch(&["approve", "last", "tests"])
        .says("error: ")
        .expect(0);
    has(&ran.stderr, &["the tests have not passed"]);
    is_blocked(&stage, "test", "the tests have not passed");
    // The approval counts once the rest holds; the agent has nothing to do with it.
    set(&stage, "state.tests.status=\"passed\"", "it was my mistake");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "deploy", "`deployment` waits for approval");
    assert_eq!(stage.calls().len(), 5);
    // The same with the files; and where they stay away the agent makes them, and it is asked again.
    fs::remove_file(stage.file("deployment/report.md")).unwrap();
    approve(&stage, "deployment");
    is_blocked(&stage, "deploy", "there is no deployment/report.md");
    stage.orch(&["resume", "last"]).fails(4);
    assert_eq!(stage.calls().len(), 6);
    is_blocked(&stage, "deploy", "`deployment` waits for approval");
    let state = stage.state();
    assert_eq!(state["governance"]["approvals"]["deployment"], false);
    approve(&stage, "deploy");
    assert_eq!(stage.state()["metadata"]["status"], "completed");
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn the_ways_out_of_a_block() {
    let own = phase("architecture");
    // A policy override: the document is corrected, and nothing is done again.
    let stage = honest();
    stage.answers("architecture", own.says(CONDITIONS[1].1));
    begin(&stage).fails(4);
    let diagrams = r#"state.architecture.diagrams=[{"approved": true}]"#;
    set(&stage, diagrams, "agreed on the phone");
    is_blocked(&stage, "architecture", "not every architecture diagram");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", &waits(own));
    assert_eq!(stage.calls(), ["architecture"]);
    let log = stage.orch(&["log", "last"]).expect(0).stdout;
    has(
        &log,
        &["SET -> _block | `state.architecture.diagrams`: agreed on the phone"],
    );
    // A file is put where it is missing.
    let stage = honest();
    stage.answers("architecture", own.answer);
    begin(&stage).fails(4);
    let missing = "there is no architecture/blueprint.md";
    is_blocked(&stage, "architecture", missing);
    fs::create_dir_all(stage.file("architecture")).unwrap();
    fs::write(stage.file("architecture/blueprint.md"), "mine\n").unwrap();
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", &waits(own));
    assert_eq!(stage.calls(), ["architecture"]);
    // What the agent needs is put right: it was not there to be run.
    let stage = honest();
    let (actor, aside) = (
        stage.bed.outside.join("actor"),
        stage.bed.outside.join("aside"),
    );
    fs::rename(&actor, &aside).unwrap();
    begin(&stage).fails(4);
    is_blocked(&stage, "architecture", "`actor` failed: exit code");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", "`actor` failed: exit code");
    fs::rename(&aside, &actor).unwrap();
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", &waits(own));
}

#[test]
fn a_fix_by_hand_needs_no_agent() {
    let stage = honest();
    stage.answers("design", "#!\nexit 3\n");
    reach(&stage, "design").fails(4);
    fs::write(stage.file("design/design.md"), "by hand\n").unwrap();
    // Half of it is not enough: then the agent is called again.
    set(&stage, "state.design.by=\"ana\"", "begun");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "design", "failed: exit code 3");
    assert_eq!(stage.calls(), ["architecture", "design", "design"]);
    set(&stage, "state.design.status=\"approved\"", "done by hand");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "design", "`design` waits for approval");
    assert_eq!(stage.calls().len(), 3);
    approve(&stage, "design");
    assert_eq!(stage.state()["metadata"]["currentPhase"], "code");
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn a_completed_run_is_final() {
    let stage = at("deploy");
    approve(&stage, "deployment");
    let done = (log(&stage), stage.state());
    assert_eq!(done.1["metadata"]["status"], "completed");
    refused(&stage, &["resume", "last"], &["that is final"]);
    let ended = "has ended (succeeded)";
    refused(&stage, &["approve", "last", "deploy"], &[ended]);
    refused(
        &stage,
        &["reject", "last", "deploy", "--note", "x"],
        &[ended],
    );
    refused(&stage, &["reply", "last", "more"], &["that is final"]);
    let value = "state.code.status=\"draft\"";
    refused(
        &stage,
        &["set", "last", value, "--note", "x"],
        &["succeeded"],
    );
    stage.orch(&["cancel", "last"]).fails_somehow();
    let task = format!("{}.0002-design", stage.run_id());
    let text = format!("---\nrun: {}\nstep: design\n---\nagain\n", stage.run_id());
    stage.bed.drop_task("designer", &task, text);
    stage.bed.drain().expect(0);
    assert_eq!((log(&stage), stage.state()), done);
    assert_eq!(stage.calls().len(), 5);
}

#[test]
fn a_run_with_an_agent_at_work_is_not_reset_and_a_blocked_one_is() {
    let stage = honest();
    let hold = stage.bed.outside.join("hold");
    fs::write(&hold, "").unwrap();
    let slow = format!(
        "#!\nwhile [ -e {} ]; do sleep 0.05; done\n{}",
        hold.display(),
        &phase("architecture").honest()[3..]
    );
    stage.answers("architecture", slow);
    let running = stage
        .bed
        .orch(["run", "lifecycle", "a word counter"])
        .start();
    wait_for("the agent", || !stage.calls().is_empty());
    stage.orch(&["reset", "last"]).fails(75);
    let early = ["approve", "last", "architecture"];
    refused(&stage, &early, &["is not being asked"]);
    let value = "state.code.status=\"draft\"";
    refused(&stage, &["set", "last", value, "--note", "x"], &["running"]);
    fs::remove_file(&hold).unwrap();
    running.wait().fails(4);
    approve(&stage, "architecture");
    stage.orch(&["resume", "last"]).fails(4);
    stage.orch(&["reset", "last"]).expect(0);
    let state = stage.state();
    assert_eq!(state["metadata"]["currentPhase"], "architecture");
    assert_eq!(state["governance"]["approvals"]["architecture"], false);
    assert_eq!(state["state"]["design"], json!({"status": "draft"}));
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", "`architecture` waits for approval");
}

#[test]
fn a_deployment_that_was_cut_short_is_not_begun_again_by_itself() {
    for (signal, end, told) in [
        ("KILL", KILLED, "its watcher died while it ran"),
        ("TERM", End::Code(143), "orch was told to stop while it ran"),
    ] {
        let stage = at("test");
        let watcher = stage.bed.watch(&[]);
        stage.answers("deploy.1", "#!\nsleep 600\n");
        approve(&stage, "tests");
        wait_for("the deployment", || stage.calls().len() == 5);
        watcher.signal(signal);
        watcher.wait().may_say(&["put back "]).one_of(&[end]);
        stage.bed.drain().may_say(&["take over "]).expect(0);
        is_blocked(&stage, "deploy", told);
        assert_eq!(stage.calls().len(), 5);
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, "deploy", "`deployment` waits for approval");
        assert_eq!(stage.calls().len(), 6);
    }
}
