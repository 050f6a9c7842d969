//! The plan: its grammar, its faults, who may tick it, and what runs side by side.

use std::fs;

use super::*;

/// The blocks of a text that stand four columns to the right, each with its margin taken off.
fn examples(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(rest) => *blocks.last_mut().unwrap() += &format!("{rest}\n"),
            None if line.is_empty() => blocks.last_mut().unwrap().push('\n'),
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

#[test]
fn the_example_in_the_prompts_of_the_planner_is_a_plan() {
    let grammar = include_str!("../../../../specs/prompts/plan-grammar.md");
    for prompt in [
        include_str!("../../../../specs/prompts/feature/plan.md"),
        include_str!("../../../../specs/prompts/feature/fix-phase.md"),
    ] {
        assert!(prompt.ends_with(grammar), "the grammar is one text");
        let shown = examples(prompt);
        assert_eq!(shown.len(), 2, "{shown:?}");
        let mut folder = orch::run::plan::Folder {
            master: shown[0].clone(),
            ..Default::default()
        };
        for (id, name) in [("01", "01-split-writer.md"), ("02", "02-json-form.md")] {
            let text = format!("# Task {id}\n\n- **Parallel With**: none\n");
            folder.files.insert(name.to_owned(), text);
        }
        folder
            .files
            .insert("03-add-flag.md".to_owned(), shown[1].clone());
        let plan = orch::run::plan::read(&folder).unwrap().to_value("p");
        assert_eq!(
            (plan["total"].clone(), plan["current"]["number"].clone()),
            (json!(3), json!(1))
        );
        let third = &plan["tasks"][2];
        assert_eq!(third["depends_on"], json!(["01", "02"]));
        assert_eq!(third["files"], json!(["src/cli.rs", "src/export.rs"]));
        assert_eq!(third["requires_ux_dx_review"], true);
    }
}

#[test]
fn a_plan_with_faults_is_not_put_before_a_person_and_goes_on_when_it_is_mended() {
    let stage = stage();
    let plan = planned(&[&[
        ("01", "Depends On: 02"),
        ("02", "Depends On: 01"),
        ("03", ""),
        ("04", ""),
    ]]);
    let mut plan: Value = serde_json::from_str(&plan).unwrap();
    let files = plan["files"].as_object_mut().unwrap();
    files.remove("03-t.md");
    let master = files["MASTER_PLAN.md"].as_str().unwrap().to_owned();
    files["MASTER_PLAN.md"] = json!(master + "- [ ] 04: again (`04-t.md`)\n");
    stage.answers("plan", plan.to_string());
    let ran = start(&stage).fails(4);
    for fault in ["03-t.md", "`04` is listed twice", "in a cycle: 01, 02"] {
        assert!(ran.stderr.contains(fault), "{fault}: {}", ran.stderr);
    }
    assert_eq!(stage.bed.ls("inbox/human"), Vec::<String>::new());
    // What is still wrong is told again, and the planner is not called again for it.
    let file = stage.file("tasks/MASTER_PLAN.md");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("- [ ] 04: again (`04-t.md`)\n", "")).unwrap();
    let ran = resume(&stage).fails(4);
    assert!(
        !ran.stderr.contains("listed twice") && ran.stderr.contains("03-t.md"),
        "{ran:?}"
    );
    fs::write(stage.file("tasks/01-t.md"), "# Task 01\n").unwrap();
    fs::write(stage.file("tasks/03-t.md"), "# Task 03\n").unwrap();
    let ran = resume(&stage).fails(4);
    assert!(ran.stderr.contains("`plan` waits for approval"), "{ran:?}");
    assert_eq!(stage.calls(), ["clarify", "plan"]);
    approve(&stage).expect(0);
}

/// Agents can write where the plan lies. What they do to it is found out before it counts.
#[test]
fn nobody_but_orch_ticks_a_box_or_changes_what_was_approved() {
    let tasks = "workspace/*/files/tasks";
    let tick = format!("#!\nsed -i 's/\\[ \\] 02/[x] 02/' {tasks}/MASTER_PLAN.md\n");
    let drop = format!(
        "#!\nsed -i '/\\[ \\] 02/d; /Phase 2/,$d' {tasks}/MASTER_PLAN.md; rm {tasks}/02-t.md\n"
    );
    let add = format!(
        "#!\ncd {tasks}; echo '- [ ] 09: more (`09-t.md`)' >> MASTER_PLAN.md; echo '# Task 09' > 09-t.md\n"
    );
    let untick =
        format!("#!\nsed -i 's/\\[x\\] 01/[ ] 01/; s/Done/Pending/' {tasks}/MASTER_PLAN.md\n");
    let says = |script: &str, answer: String| format!("{script}echo '{answer}'\n");
    for (step, answer, told) in [
        (
            "code",
            says(&tick, done()),
            "ticked, and only orch may do that",
        ),
        (
            "quality",
            says(&tick, gate(&[])),
            "ticked, and only orch may do that",
        ),
        (
            "code",
            says(&drop, done()),
            "other tasks than those that were approved",
        ),
        (
            "code",
            says(&add, done()),
            "other tasks than those that were approved",
        ),
        (
            "analyse",
            says(&tick, analysed(&["01"], "x")),
            "ticked, and only orch may do that",
        ),
        (
            "analyse",
            says(&add, analysed(&["01"], "x")),
            "other tasks than those that were approved",
        ),
        (
            "code.2",
            says(&untick, done()),
            "task `01` was done before and is open now",
        ),
    ] {
        let stage = stage();
        stage
            .answers("plan", planned(&[&[("01", "")], &[("02", "")]]))
            .answers(step, &answer);
        if step == "analyse" {
            stage.answers("quality.1", gate(&["01"]));
        }
        approved(&stage).about(format!("{step}: {answer}")).fails(4);
        let reason = stage.state()["governance"]["blockedReason"].to_string();
        assert!(reason.contains(told), "{answer}: {reason}");
        assert!(
            !stage
                .calls()
                .iter()
                .any(|step| ["apply", "validate"].contains(&step.as_str()))
        );
        if answer.contains("[x] 02/") {
            // The person takes it back, and it goes on.
            let file = stage.file("tasks/MASTER_PLAN.md");
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, text.replace("[x] 02", "[ ] 02")).unwrap();
            stage
                .answers("code", done())
                .answers("analyse", analysed(&["01"], "x"));
            resume(&stage).expect(0);
        }
    }
}

#[test]
fn a_plan_that_comes_ticked_is_no_plan() {
    let stage = stage();
    stage.answers(
        "plan",
        planned(&[&[("01", "")], &[("02", "")]]).replace("[ ] 01", "[x] 01"),
    );
    let ran = start(&stage).fails(4);
    assert!(ran.stderr.contains("only orch may do that"), "{ran:?}");
    assert_eq!(stage.bed.ls("inbox/human"), Vec::<String>::new());
    // What to type stands there: the box is emptied by hand, and it goes on.
    assert!(ran.stderr.contains("change it back to `[ ]`, and resume"));
    let file = stage.file("tasks/MASTER_PLAN.md");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[x] 01", "[ ] 01")).unwrap();
    let ran = resume(&stage).fails(4);
    said(&ran, "[2] check_plan OK -> approve_plan");
}

/// The intervals of the implementers, as they noted them.
fn noted(stage: &Stage) -> Vec<String> {
    let text = fs::read_to_string(stage.bed.outside.join("noted")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Implementers that note when they begin and end, and wait until so many have begun.
fn implementers(stage: &Stage, together: usize) {
    let noted = stage.bed.outside.join("noted");
    let noted = noted.display();
    let script = format!(
        "#!\nid=$(sed -n 's/^Task \\([0-9]*\\):.*/\\1/p' \"$PROMPT\" | head -n 1)\necho \"+$id\" >> {noted}\nn=0; while [ $n -lt 2000 ] && [ $(grep -c + {noted}) -lt {together} ]; do sleep 0.01; n=$((n+1)); done\n[ $n -lt 2000 ] || exit 3\necho \"-$id\" >> {noted}\necho '{}'\n",
        done()
    );
    stage.answers("code", script);
}

#[test]
fn pattern_a_independent_tasks_run_side_by_side() {
    let stage = stage();
    let all = "Parallel With: 03, 04, 05, 06";
    let without = |id: &str| {
        all.replace(&format!("{id}, "), "")
            .replace(", 06", if id == "06" { "" } else { ", 06" })
    };
    let metas: Vec<(&str, String)> = ["03", "04", "05", "06"]
        .iter()
        .map(|id| (*id, without(id)))
        .collect();
    let tasks: Vec<(&str, &str)> = metas
        .iter()
        .map(|(id, meta)| (*id, meta.as_str()))
        .collect();
    stage.answers("plan", planned(&[&tasks]));
    implementers(&stage, 4);
    approved(&stage).expect(0);
    let noted = noted(&stage);
    assert_eq!(noted.len(), 8, "one implementer for each task: {noted:?}");
    assert!(
        noted[..4].iter().all(|line| line.starts_with('+')),
        "{noted:?}"
    );
}

#[test]
fn pattern_b_tasks_that_do_not_name_each_other_or_share_a_file_run_one_by_one() {
    let stage = stage();
    let shared = "Parallel With: 09\nFiles: `src/a.rs`";
    let tasks = [
        ("07", ""),
        ("08", shared),
        ("09", "Parallel With: 08\nFiles: `src/a.rs`"),
    ];
    stage.answers("plan", planned(&[&tasks]));
    implementers(&stage, 1);
    approved(&stage).expect(0);
    assert_eq!(noted(&stage), ["+07", "-07", "+08", "-08", "+09", "-09"]);
}

#[test]
fn pattern_c_what_depends_on_two_waits_for_both_and_phases_for_each_other() {
    let stage = stage();
    let first = [
        ("03", "Parallel With: 04"),
        ("04", "Parallel With: 03"),
        ("05", "Depends On: 03, 04"),
    ];
    stage.answers("plan", planned(&[&first, &[("06", "")]]));
    implementers(&stage, 2);
    let ran = approved(&stage).expect(0);
    let noted = noted(&stage);
    assert!(
        noted[..2].iter().all(|line| line.starts_with('+')),
        "{noted:?}"
    );
    assert_eq!(noted[4..], ["+05", "-05", "+06", "-06"]);
    let at = |line: &str| ran.stdout.find(line).unwrap();
    assert!(at("[4c] mark OK -> read_plan | PHASE 1 | Tasks 03-05") < at("task 06: written"));
}
