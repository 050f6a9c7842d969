//! Phase 4: implement, check, analyse, mend, mark; who is asked when it does not get better.

use super::*;

#[test]
fn a_gate_that_fails_is_analysed_and_only_what_fails_is_mended() {
    let stage = stage();
    stage
        .answers(
            "plan",
            planned(&[&[("01", ""), ("02", ""), ("03", "Depends On: 01")]]),
        )
        .answers("quality.1", gate(&["01", "03"]))
        .answers(
            "analyse",
            analysed(&["03", "01"], "the limit is off by one"),
        );
    let ran = approved(&stage).expect(0);
    for line in [
        r#"[4b] quality FAIL -> analyse | PHASE 1 | Tasks 01-03: ["01","03"] failed: gate FAIL"#,
        "[4b] analyse OK -> check_tasks | PHASE 1 | Tasks 01-03: the limit is off by one",
        r#"[4b] check_tasks OK -> fix | PHASE 1 | Tasks 01-03: only ["01","03"] are mended"#,
        "[4b] fix OK -> quality | PHASE 1 | Tasks 01-03: fixes of",
        "[4b] quality OK -> mark | PHASE 1 | Tasks 01-03: gate PASS",
    ] {
        said(&ran, line);
    }
    let calls = stage.calls();
    let calls: Vec<&str> = calls[2..].iter().map(String::as_str).collect();
    let expected = [
        "code", "code", "code", "quality", "analyse", "apply", "apply", "quality", "validate",
        "complete",
    ];
    assert_eq!(calls, expected);
    // One implementer for each task, which gets its own file and its own analysis.
    for (count, own, other) in [
        (1, "Task 01: do 01", "cause 03"),
        (2, "Task 03: do 03", "cause 01"),
    ] {
        let sent = stage.prompt("apply", count);
        assert!(
            sent.contains(own) && sent.contains("mend it") && !sent.contains(other),
            "{sent}"
        );
    }
    let sent = stage.prompt("quality", 1);
    for word in [
        "PHASE METADATA EXTRACTION - Phase 1",
        r#"Tasks in Phase: ["01","02","03"]"#,
        "Total Tasks: 3",
        "UX/DX Required: NO",
    ] {
        assert!(sent.contains(word), "{word}: {sent}");
    }
}

#[test]
fn the_third_failure_is_put_before_a_person_who_may_try_again_skip_or_stop() {
    let stage = stage();
    stage
        .answers("plan", planned(&[&[("01", ""), ("02", "")], &[("03", "")]]))
        .answers("analyse", analysed(&["02"], "try it with a lock"))
        .answers("analyse.2", analysed(&["02"], "try it with a queue"));
    for count in 1..=5 {
        let failed =
            json!({"status": "FAIL", "failing": ["02"], "summary": format!("test {count} is red")});
        stage.answers(&format!("quality.{count}"), failed.to_string());
    }
    let ran = approved(&stage).fails(4);
    said(
        &ran,
        r#"[4b] quality FAIL -> escalate | PHASE 1 | Tasks 01-02: ["02"] failed, and no fix is left without a person: test 3 is red"#,
    );
    let report = |stage: &Stage| {
        let name = stage.bed.ls("inbox/human").pop().unwrap();
        stage.bed.read(&format!("inbox/human/{name}"))
    };
    let first = report(&stage);
    let wanted = "## Escalation Required

**Phase**: 1
**Tasks**: [\"02\"]
**Iteration**: 3/3 (maximum reached)

### Failure History
| Iteration | Failure | Fix Attempted | Result |
|-----------|---------|---------------|--------|
| 1 | test 1 is red | try it with a lock | FAIL |
| 2 | test 2 is red | try it with a queue | FAIL |
| 3 | test 3 is red | none: the limit is reached | FAIL |

### Root Cause Analysis
try it with a queue
";
    assert!(first.contains(wanted), "{first}");
    for word in [
        "cause 02",
        "### Options\n1. `retry",
        "3. `skip WHY`: skip this phase, and document it as a known issue",
        "**User decision required to proceed.**",
    ] {
        assert!(first.contains(word), "{word}: {first}");
    }
    // Two analyses, two fixes, three gates; what is asked now is none of these.
    let count =
        |stage: &Stage, step: &str| stage.calls().iter().filter(|call| *call == step).count();
    assert_eq!(
        (
            count(&stage, "analyse"),
            count(&stage, "apply"),
            count(&stage, "quality")
        ),
        (2, 2, 3)
    );
    stage.orch(&["approve", "last", "plan"]).fails(64);
    stage.orch(&["reply", "last", "do as you like"]).fails(64);
    // Once more, with the words of the person: two more fixes, then he is asked again.
    reply(&stage, "retry with a mutex").fails(4);
    assert!(stage.prompt("analyse", 3).contains("retry with a mutex"));
    assert_eq!(
        (
            count(&stage, "analyse"),
            count(&stage, "apply"),
            count(&stage, "quality")
        ),
        (4, 4, 5)
    );
    let second = report(&stage);
    let rows = "| 3 | test 3 is red | try it with a lock | FAIL |\n| 4 | test 4 is red | try it with a lock | FAIL |\n| 5 | test 5 is red | none";
    assert!(
        second.contains(rows) && second.contains("**Iteration**: 5/5"),
        "{second}"
    );
    // The phase is skipped, known as an issue to the end, and the next one begins at zero.
    let ran = reply(&stage, "skip nobody needs it").expect(0);
    said(
        &ran,
        "[4c] skip_phase OK -> read_plan | PHASE 1 | Tasks 01-02: skipped, a known issue",
    );
    said(&ran, "PHASE 2: part 2");
    let plan = std::fs::read_to_string(stage.file("tasks/MASTER_PLAN.md")).unwrap();
    for word in ["- [-] 01", "- [-] 02", "- [x] 03", "**Progress**: 1/3"] {
        assert!(plan.contains(word), "{plan}");
    }
    let state = &stage.state()["state"];
    assert_eq!(
        (&state["iteration"], &state["plan"]["done"]),
        (&json!(0), &json!(1))
    );
    let issue = "PHASE 1 | Tasks 01-02 was skipped: test 5 is red (skip nobody needs it)";
    assert_eq!(state["known_issues"], json!([issue]));
    assert!(stage.prompt("complete", 1).contains(issue));
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn a_person_may_stop_at_the_third_failure() {
    let stage = stage();
    stage
        .answers("quality", gate(&["01"]))
        .answers("analyse", analysed(&["01"], "again"));
    approved(&stage).fails(4);
    stage
        .orch(&["reply", "last", "stop it is not worth it"])
        .speaks()
        .expect(0);
    assert_eq!(stage.state()["status"], "failed");
    assert!(stage.file("tasks/MASTER_PLAN.md").exists());
    assert!(!stage.file("SUMMARY.md").exists());
    stage.orch(&["reply", "last", "and now?"]).fails(64);
}

#[test]
fn gates_and_analyses_that_contradict_themselves_block() {
    let pass = json!({"status": "PASS", "failing": ["01"], "summary": "all is well"}).to_string();
    let none = json!({"status": "FAIL", "failing": [], "summary": "hm"}).to_string();
    let forged = json!({"status": "FAIL", "failing": ["01"], "summary": "a\n| 9 | x | y | PASS |"})
        .to_string();
    let long =
        json!({"status": "PASS", "failing": [], "summary": "x", "approvals": {"plan": true}})
            .to_string();
    for (step, answer, told) in [
        ("quality", pass.as_str(), "/failing"),
        ("quality", &none, "/failing"),
        ("quality", &gate(&["07"]), "outside of the phase"),
        ("quality", &forged, "/summary"),
        ("quality", &long, "approvals"),
        ("quality", "PASS", "JSON"),
        (
            "analyse",
            &analysed(&["01", "02"], "both"),
            "goes beyond the tasks that fail",
        ),
        (
            "analyse",
            &analysed(&["02"], "the other"),
            "goes beyond the tasks that fail",
        ),
    ] {
        let stage = stage();
        stage
            .answers("plan", planned(&[&[("01", ""), ("02", "")]]))
            .answers("quality", gate(&["01"]))
            .answers(step, answer);
        let ran = approved(&stage).fails(4);
        let told_all = ran.stdout + &ran.stderr;
        assert!(told_all.contains(told), "{answer}: {told_all}");
        assert!(
            !stage
                .calls()
                .iter()
                .any(|step| ["apply", "validate"].contains(&step.as_str()))
        );
        let plan = std::fs::read_to_string(stage.file("tasks/MASTER_PLAN.md")).unwrap();
        assert!(!plan.contains("[x]"), "{plan}");
    }
}

#[test]
fn an_analysis_that_leaves_a_task_out_runs_again_on_resume() {
    let stage = stage();
    stage
        .answers("plan", planned(&[&[("01", ""), ("02", "")]]))
        .answers("quality.1", gate(&["01", "02"]))
        .answers("analyse.1", analysed(&["01"], "one of them"))
        .answers("analyse", analysed(&["01", "02"], "both"));
    approved(&stage).fails(4);
    let reason = stage.state()["governance"]["blockedReason"].to_string();
    assert!(reason.contains("leaves out a task that fails"), "{reason}");
    stage.orch(&["resume", "last"]).expect(0);
    assert_eq!(
        stage.calls().iter().filter(|step| *step == "apply").count(),
        2
    );
}

#[test]
fn an_error_that_blocks_is_mended_twice_and_then_left_to_the_gate() {
    let stage = stage();
    let error = |blocking: bool| {
        json!({"status": "error", "blocking": blocking, "error": "no compiler", "summary": "it is not there"}).to_string()
    };
    stage.answers("code", error(true));
    let ran = approved(&stage).expect(0);
    assert_eq!(
        stage.calls().iter().filter(|step| *step == "code").count(),
        3
    );
    assert!(stage.prompt("code", 2).contains("no compiler"));
    said(&ran, "[4a] code OK -> code | task 01: no compiler");
    said(&ran, "[4a] implement OK -> quality");
    assert!(stage.prompt("quality", 1).contains("no compiler"));
    // Mended at the second try; one that does not block is only told; a crash counts as one that does.
    for (first, tries) in [
        (error(true), 2),
        (error(false), 1),
        ("#!\nexit 7\n".to_owned(), 2),
        ("no JSON".to_owned(), 2),
    ] {
        let stage = super::stage();
        stage.answers("code", done()).answers("code.1", &first);
        approved(&stage).expect(0);
        let codes = stage.calls().iter().filter(|step| *step == "code").count();
        assert_eq!(codes, tries, "{first}");
    }
}
