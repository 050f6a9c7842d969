//! Phases 5 to 7: the final validation, completion, and what is asked for afterwards.

use super::*;

/// A plan with one phase more than the one task that is done.
fn second_phase(ticked: &str) -> String {
    planned(&[&[("01", "")], &[("02", "")]])
        .replace("[ ] 01", &format!("[{ticked}] 01"))
        .replacen(
            "**Status**: Pending",
            "**Status**: Done",
            usize::from(ticked == "x"),
        )
}

fn calls_of(stage: &Stage, step: &str) -> usize {
    stage.calls().iter().filter(|call| *call == step).count()
}

#[test]
fn five_a_leads_to_five_b_only_where_a_task_asks_for_it_and_nobody_takes_it_back() {
    let stage = stage();
    let forget = format!(
        "#!\nsed -i '/requires_ux/d' workspace/*/files/tasks/02-t.md\necho '{}'\n",
        gate(&[])
    );
    stage
        .answers(
            "plan",
            planned(&[
                &[("01", ""), ("02", "requires_ux_dx_review: true")],
                &[("03", "")],
            ]),
        )
        .answers("quality", forget);
    let ran = approved(&stage).expect(0);
    said(&ran, "[5a] validate OK -> review | validation PASS");
    said(&ran, "[5b] review OK -> complete | validation PASS");
    let sent = stage.prompt("quality", 1);
    assert!(sent.contains("UX/DX Required: YES"), "{sent}");
    assert!(
        sent.contains(r#"{"requires_ux_dx_review":true,"task":"02"}"#),
        "{sent}"
    );
}

#[test]
fn a_validation_that_fails_adds_a_phase_and_comes_back() {
    let stage = stage();
    stage
        .answers("plan", planned(&[&[("01", "requires_ux_dx_review: true")]]))
        .answers("validate.1", validated(&["the build is broken"]))
        .answers(
            "fix_phase",
            second_phase("x").replace(
                "# Task 01: do 01\\n\\n\\n",
                "# Task 01: do 01\\n\\nrequires_ux_dx_review: true\\n",
            ),
        );
    let ran = approved(&stage).expect(0);
    for line in [
        "[5a] validate FAIL -> fix_phase | validation FAIL",
        "[5] check_fix_phase OK -> read_plan | a fix phase was added: part 2",
        "PHASE 2 | Tasks 02: 1 implemented",
        "[5a] validate OK -> review",
    ] {
        said(&ran, line);
    }
    assert!(stage.prompt("fix_phase", 1).contains("the build is broken"));
    // Neither 5b nor 6 before 5a has passed.
    let calls = stage.calls();
    let rest = &calls[4..];
    assert_eq!(
        rest,
        [
            "validate",
            "fix_phase",
            "code",
            "quality",
            "validate",
            "review",
            "complete"
        ]
    );
}

#[test]
fn three_fix_phases_at_most_then_a_person_decides() {
    let stage = stage();
    stage
        .answers("plan", planned(&[&[("01", "requires_ux_dx_review: true")]]))
        .answers("review", validated(&["it is ugly"]));
    // Each time the planner prints the plan as it is, with one phase more.
    let script = "#!\ncd workspace/*/files/tasks; n=$(ls 0*.md | wc -l); m=$((n + 1))\nprintf '\\n## Phase %s: mend\\n**Status**: Pending\\n\\n- [ ] 0%s: mend (`0%s-t.md`)\\n' $m $m $m >> MASTER_PLAN.md\necho \"# Task 0$m\" > 0$m-t.md; echo done\n";
    stage.answers("fix_phase", script);
    let ran = approved(&stage).fails(4);
    said(
        &ran,
        "[5b] review FAIL -> escalate_validation | after three fix phases",
    );
    assert_eq!(
        (
            calls_of(&stage, "fix_phase"),
            calls_of(&stage, "review"),
            calls_of(&stage, "complete")
        ),
        (3, 4, 0)
    );
    assert!(
        ran.stderr.contains("## Escalation Required") && ran.stderr.contains("it is ugly"),
        "{ran:?}"
    );
    stage.orch(&["reply", "last", "whatever"]).fails(64);
    let ran = reply(&stage, "accept beauty is not everything").expect(0);
    said(&ran, "[6] complete OK -> keep_summary");
    assert_eq!(
        stage.state()["state"]["known_issues"],
        json!(["it is ugly"])
    );
    assert!(stage.prompt("complete", 1).contains("it is ugly"));
}

#[test]
fn a_person_may_send_the_validation_back_or_stop_it() {
    let stage = stage();
    stage.answers("validate", validated(&["it is slow"]));
    let script = "#!\ncd workspace/*/files/tasks; n=$(ls 0*.md | wc -l); m=$((n + 1))\nprintf '\\n## Phase %s: mend\\n**Status**: Pending\\n\\n- [ ] 0%s: mend (`0%s-t.md`)\\n' $m $m $m >> MASTER_PLAN.md\necho \"# Task 0$m\" > 0$m-t.md; echo done\n";
    stage.answers("fix_phase", script);
    let ran = approved(&stage).fails(4);
    said(
        &ran,
        "[5a] validate FAIL -> escalate_validation | after three fix phases: validation FAIL",
    );
    reply(&stage, "retry with an index").fails(4);
    assert!(stage.prompt("fix_phase", 4).contains("retry with an index"));
    // Three more, and then it is asked again; neither 5b nor 6 has come.
    assert_eq!(
        (
            calls_of(&stage, "fix_phase"),
            calls_of(&stage, "review"),
            calls_of(&stage, "complete")
        ),
        (6, 0, 0)
    );
    stage
        .orch(&["reply", "last", "stop it is slow"])
        .speaks()
        .expect(0);
    assert_eq!(stage.state()["status"], "failed");
    assert!(!stage.file("SUMMARY.md").exists());
}

/// Who checks what, and when.
#[test]
fn each_agent_is_told_its_own_part_of_the_checks() {
    let stage = stage();
    stage
        .answers("plan", planned(&[&[("01", "requires_ux_dx_review: true")]]))
        .answers("quality.1", gate(&["01"]))
        .answers("analyse", analysed(&["01"], "again"));
    approved(&stage).expect(0);
    let told: [(&str, &[&str]); 7] = [
        (
            "code",
            &["Lint, type-check and build", "Leave the tests to others"],
        ),
        (
            "quality",
            &[
                "Run the tests",
                "every acceptance criterion",
                "worked before",
                "Lint, types and build were already checked",
            ],
        ),
        (
            "analyse",
            &["FAILURE ANALYSIS", "only for those", "root cause"],
        ),
        (
            "apply",
            &["Do not touch tasks that pass", "Lint, type-check and build"],
        ),
        (
            "validate",
            &[
                "full test suite",
                "production build",
                "all task files",
                "fit together",
                "is broken",
            ],
        ),
        (
            "review",
            &["experience", "documentation", "fit together", "patterns"],
        ),
        (
            "complete",
            &["SUCCESS EXTRACTION", "LEARNINGS.md", "SUMMARY.md"],
        ),
    ];
    for (step, words) in told {
        let sent = stage.prompt(step, 1);
        for word in words {
            assert!(sent.contains(word), "{step}: {word}: {sent}");
        }
    }
}

#[test]
fn without_what_was_learnt_nothing_is_complete() {
    let stage = stage();
    stage.answers("complete", r#"{"files": {"SUMMARY.md": "done"}}"#);
    approved(&stage).fails(4);
    let reason = stage.state()["governance"]["blockedReason"].to_string();
    assert!(reason.contains("there is no LEARNINGS.md"), "{reason}");
    std::fs::write(stage.file("LEARNINGS.md"), "by hand").unwrap();
    resume(&stage).expect(0);
}

#[test]
fn validations_that_contradict_themselves_block() {
    for answer in [
        json!({"status": "PASS", "findings": ["broken"], "summary": "x"}),
        json!({"status": "FAIL", "findings": [], "summary": "x"}),
        json!({"status": "MAYBE", "findings": [], "summary": "x"}),
    ] {
        let stage = stage();
        stage.answers("validate", answer.to_string());
        let ran = approved(&stage).fails(4);
        assert!(ran.stderr.contains("the JSON does not match"), "{ran:?}");
        assert_eq!(
            (calls_of(&stage, "fix_phase"), calls_of(&stage, "complete")),
            (0, 0)
        );
    }
}

/// What the analyst says of a follow-up.
fn estimate(files: &[&str], clear: bool, new_feature: bool) -> String {
    json!({"files": files, "clear": clear, "new_feature": new_feature, "summary": "more"})
        .to_string()
}

#[test]
fn a_follow_up_is_routed_by_the_table_not_by_the_agent() {
    let stage = stage();
    stage.orch(&["reply", "last", "more"]).fails(64);
    approved(&stage).expect(0);
    let cases = [
        (
            estimate(&["a", "b"], true, false),
            "-> fix_phase | LIGHTWEIGHT",
            "fix_phase",
        ),
        (
            estimate(&["a"], false, false),
            "-> plan | PARTIAL RESTART",
            "plan",
        ),
        (
            estimate(&["a", "b", "c"], true, false),
            "-> plan | PARTIAL RESTART",
            "plan",
        ),
        (
            estimate(&["a"], true, true),
            "-> clarify | FULL RESTART",
            "plan",
        ),
    ];
    let mut asked = 1;
    for (place, (answer, line, planner)) in cases.into_iter().enumerate() {
        let phases = place + 2;
        let ids: Vec<String> = (1..=phases).map(|n| format!("0{n}")).collect();
        let tasks: Vec<[(&str, &str); 1]> = ids.iter().map(|id| [(id.as_str(), "")]).collect();
        let all: Vec<&[(&str, &str)]> = tasks.iter().map(|task| &task[..]).collect();
        let mut plan = planned(&all);
        for id in &ids[..phases - 1] {
            plan = plan.replace(&format!("[ ] {id}"), &format!("[x] {id}"));
        }
        stage.answers("triage", answer).answers(
            planner,
            plan.replacen("**Status**: Pending", "**Status**: Done", phases - 1),
        );
        stage
            .orch(&["reply", "last", "and a second flag"])
            .says("no watcher is running")
            .expect(0);
        let lightweight = planner == "fix_phase";
        let ran = resume(&stage).comes_to(if lightweight { 0 } else { 4 });
        said(&ran, line);
        if !lightweight {
            // It is approved anew; what was approved before does not count.
            asked += 1;
            assert_eq!(stage.state()["governance"]["approvals"]["plan"], false);
            approve(&stage).expect(0);
        }
        assert_eq!(stage.state()["state"]["plan"]["done"], phases);
    }
    assert_eq!(calls_of(&stage, "clarify"), 2);
    assert_eq!(calls_of(&stage, "plan"), asked);
    assert!(stage.prompt("fix_phase", 1).contains("and a second flag"));
    stage.orch(&["audit", "last"]).expect(0);
}
