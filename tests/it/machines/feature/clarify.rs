//! Phases 0a to 3: what is asked, found out, planned and approved, and how often.

use super::*;
use crate::harness::End;

#[test]
fn a_request_that_is_clear_is_planned_and_nothing_else_is_asked() {
    let stage = stage();
    let ran = start(&stage).fails(4);
    said(&ran, "[0a] clarify OK -> plan");
    assert_eq!(stage.calls(), ["clarify", "plan"]);
    // Nothing was implemented, and the question shows the plan.
    assert!(ran.stderr.contains("MASTER_PLAN.md") && ran.stderr.contains("do 01"));
    assert_eq!(stage.state()["metadata"]["currentPhase"], "3");
    let ran = stage.orch(&["resume", "last"]).fails(4);
    assert!(ran.stderr.contains("`plan` waits for approval"), "{ran:?}");
    for (words, code) in [
        (&["approve", "last", "tests"][..], 64),
        (&["reply", "last", "yes"], 64),
        (&["approve", "last", "plan"], 0),
        (&["approve", "last", "plan"], 64),
    ] {
        stage.orch(words).speaks().expect(code);
    }
    let ran = resume(&stage).expect(0);
    for line in [
        "[4] read_plan OK -> implement | PHASE 1: part 1",
        "[4a] code OK -> _next | task 01: written",
        "[4a] implement OK -> quality | PHASE 1 | Tasks 01: 1 implemented",
        "[4b] quality OK -> mark | PHASE 1 | Tasks 01: gate PASS",
        "[4c] mark OK -> read_plan | PHASE 1 | Tasks 01: the plan is updated, 1/1 tasks are done",
        "[4] read_plan OK -> validate | every phase of the plan is complete",
        "[5a] validate OK -> complete | validation PASS; no task asks",
        "[6] complete OK -> keep_summary",
    ] {
        said(&ran, line);
    }
    let calls = stage.calls();
    assert_eq!(calls[2..], ["code", "quality", "validate", "complete"]);
    let plan = std::fs::read_to_string(stage.file("tasks/MASTER_PLAN.md")).unwrap();
    assert!(plan.contains("- [x] 01: do 01") && plan.contains("**Progress**: 1/1 tasks"));
    assert!(stage.file("LEARNINGS.md").exists() && stage.file("SUMMARY.md").exists());
    stage.orch(&["approve", "last", "plan"]).fails(64);
    stage.orch(&["resume", "last"]).fails(64);
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn a_person_is_asked_three_times_in_0a_and_0b_together_then_the_defaults_are_taken() {
    let stage = stage();
    stage
        .answers(
            "clarify",
            verdict("QUESTIONS_NEEDED", &["Which colour?", "Which size?"]),
        )
        .answers("clarify.3", verdict("DISCOVERY_NEEDED", &[]))
        .answers(
            "clarify_again",
            verdict("QUESTIONS_NEEDED", &["Which form?"]),
        );
    let ran = start(&stage).fails(4);
    said(&ran, "[0a] clarify OK -> ask");
    let asked = "1. Which colour?\n   default: default of Which colour?\n2. Which size?";
    assert!(ran.stderr.contains(asked), "{}", ran.stderr);
    stage.orch(&["approve", "last", "plan"]).fails(64);
    reply(&stage, "red").fails(4);
    let ran = reply(&stage, "small").fails(4);
    said(&ran, "[0a] clarify OK -> discover");
    said(&ran, "[1] discover OK -> clarify_again");
    said(&ran, "[0b] clarify_again OK -> ask_again");
    let ran = reply(&stage, "round").fails(4);
    said(
        &ran,
        "[0b] clarify_again OK -> plan | three rounds were asked: the defaults are taken",
    );
    let state = &stage.state()["state"];
    assert_eq!(
        (&state["rounds"], &state["defaults_taken"]),
        (&json!(3), &json!(true))
    );
    let prompt = stage.prompt("plan", 1);
    for word in [
        "red",
        "small",
        "round",
        "default of Which form?",
        "the defaults",
        "# the manual",
    ] {
        assert!(prompt.contains(word), "{word}: {prompt}");
    }
}

#[test]
fn three_rounds_in_0a_alone_force_the_defaults() {
    let stage = stage();
    stage.answers("clarify", verdict("QUESTIONS_NEEDED", &["Which colour?"]));
    start(&stage).fails(4);
    reply(&stage, "red").fails(4);
    reply(&stage, "blue").fails(4);
    let ran = reply(&stage, "green").fails(4);
    said(
        &ran,
        "[0a] clarify OK -> plan | three rounds were asked: the defaults are taken",
    );
    let calls = stage.calls();
    assert_eq!(calls, ["clarify", "clarify", "clarify", "clarify", "plan"]);
    assert_eq!(stage.state()["state"]["defaults_taken"], true);
}

#[test]
fn what_was_found_out_may_make_it_clear_and_half_of_it_does_not_count() {
    let stage = stage();
    stage
        .answers("clarify", verdict("DISCOVERY_NEEDED", &[]))
        .answers("explore.1", "#!\nexit 5\n");
    // Both have to come back.
    let ran = start(&stage).fails(4);
    said(&ran, "[1] discover FAIL -> _block");
    assert!(!stage.calls().contains(&"clarify_again".to_owned()));
    let ran = resume(&stage).fails(4);
    said(&ran, "[1] discover OK -> clarify_again");
    said(
        &ran,
        "[0b] clarify_again OK -> plan | requirements are clear",
    );
    assert_eq!(stage.state()["state"]["discoveries"], 1);
    let sent = stage.prompt("clarify_again", 1);
    assert!(sent.contains("# the manual") && sent.contains("# the code"));
}

#[test]
fn two_discoveries_at_most_side_by_side_then_it_is_planned() {
    let stage = stage();
    let both = "#!\nn=$(grep -c . ANSWERS.met); echo x >> ANSWERS.met; w=$(( (n / 2 + 1) * 2 ))\nwhile [ $(grep -c . ANSWERS.met) -lt $w ]; do sleep 0.01; n=$((n + 100)); [ $n -lt 200000 ] || exit 3; done\necho found\n";
    let both = both.replace(
        "ANSWERS",
        &stage.bed.outside.join("answers").display().to_string(),
    );
    stage
        .answers("clarify", verdict("DISCOVERY_NEEDED", &[]))
        .answers("clarify_again", verdict("DISCOVERY_NEEDED", &[]))
        .answers("research", &both)
        .answers("explore", &both);
    std::fs::write(stage.bed.outside.join("answers.met"), "").unwrap();
    let ran = start(&stage).fails(4);
    said(
        &ran,
        "[0b] clarify_again OK -> discover | more discovery is needed",
    );
    said(
        &ran,
        "[0b] clarify_again OK -> plan | there were two discoveries",
    );
    let calls = stage.calls();
    assert_eq!(calls.iter().filter(|step| *step == "research").count(), 2);
    assert_eq!(calls.iter().filter(|step| *step == "explore").count(), 2);
    assert!(stage.prompt("plan", 1).contains("found"));
}

#[test]
fn a_rejected_plan_is_planned_again_with_the_words_of_the_person() {
    let stage = stage();
    stage.answers("plan.2", planned(&[&[("01", "")], &[("02", "")]]));
    start(&stage).fails(4);
    stage.orch(&["reject", "last", "plan"]).fails(64);
    stage
        .orch(&["reject", "last", "plan", "--note", "in two phases"])
        .says("no watcher is running")
        .expect(0);
    let ran = resume(&stage).fails(4);
    said(&ran, "[2] plan OK -> keep_plan");
    assert!(stage.prompt("plan", 2).contains("in two phases"));
    assert_eq!(stage.state()["governance"]["approvals"]["plan"], false);
    let ran = approve(&stage).expect(0);
    said(&ran, "PHASE 2: part 2");
}

#[test]
fn answers_that_are_no_answers_block_and_nothing_is_guessed() {
    let clear = verdict("REQUIREMENTS_CLEAR", &["Which?"]);
    for (step, answer, told) in [
        ("clarify", "I approve the plan myself", "JSON"),
        ("clarify", &verdict("APPROVED", &[]), "/verdict"),
        ("clarify", &clear, "/questions"),
        ("clarify", &verdict("QUESTIONS_NEEDED", &[]), "/questions"),
        ("plan", "I have no plan", "there are no files"),
        (
            "plan",
            r#"{"files": {"../../../specs/x.md": "x"}}"#,
            "specs/x.md",
        ),
        (
            "plan",
            r##"{"files": {"01-t.md": "# Task 01"}}"##,
            "there is no MASTER_PLAN.md",
        ),
        (
            "plan",
            r#"{"files": {"MASTER_PLAN.md": "a plan without phases"}}"#,
            "no task files",
        ),
    ] {
        let stage = stage();
        stage.answers(step, answer);
        start(&stage)
            .about(answer)
            .says(told)
            .one_of(&[End::Code(2), End::Code(4)]);
        assert!(!stage.calls().contains(&"code".to_owned()));
        assert_eq!(stage.state()["governance"]["approvals"]["plan"], false);
    }
}

#[test]
fn a_planner_that_writes_outside_of_the_plan_is_stopped_short() {
    let stage = stage();
    let script = format!(
        "#!\necho x > specs/evil.yaml; echo x > {}/evil\necho nothing\n",
        stage.bed.root.display()
    );
    stage.answers("plan", script);
    start(&stage).fails(4);
    assert!(!stage.bed.has("specs/evil.yaml") && !stage.bed.has("evil"));
}
