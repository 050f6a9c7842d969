//! Plans: read into the run's document, worked off in the order that they say, marked once.

use serde_json::json;

use super::{audited, bed, noted, only_run, result, run, state};
use crate::crash::side_by_side;
use crate::harness::Bed;

/// Loads the plan in `plan/`, works off phase by phase, and marks each.
const LOOP: &str = r#"
steps:
  - name: load
    action: load_plan
    dir: plan
    max_visits: 9
    next:
      - {if: 'state.plan.current != null', goto: each, reason: "phase ${state.plan.current.number}"}
      - {if: 'true', goto: _end}
  - name: each
    for_each:
      items_from: state.plan.current.tasks
      as: task
      key: id
      needs: depends_on
      conflicts: files
      max_parallel: 4
      steps:
        - name: work
          command: [sh, -c, 'echo "+$1" >> ../outside/noted; WAIT; echo "-$1" >> ../outside/noted', x, "${task.id}"]
  - name: mark
    action: mark_plan
    dir: plan
    as: done
    on: {success: {goto: load}}
"#;

/// A plan of one phase; each task is its id and its metadata.
fn phase(bed: &Bed, number: u32, tasks: &[(&str, &str)]) -> String {
    let mut text = format!("## Phase {number}: p\n**Status**: Pending\n\n");
    for (id, meta) in tasks {
        text.push_str(&format!("- [ ] {id}: task (`{id}-t.md`)\n"));
        bed.write(&format!("plan/{id}-t.md"), format!("# Task {id}\n{meta}\n"));
    }
    text
}

fn plan(bed: &Bed, phases: &[String]) {
    let text = format!("Progress: 0/0\n\n{}", phases.join("\n"));
    bed.write("plan/MASTER_PLAN.md", text);
}

/// A workflow whose tasks wait until this many of them have begun together.
fn together(count: usize) -> Bed {
    let wait = format!(
        "n=0; while [ $n -lt 3000 ] && [ $(grep -c + ../outside/noted) -lt {count} ]; do sleep 0.01; n=$((n+1)); done"
    );
    bed(&LOOP.replace("WAIT", &wait))
}

#[test]
fn tasks_that_name_each_other_run_at_once() {
    let bed = together(3);
    let tasks = [
        ("03", "Parallel With: 04, 05"),
        ("04", "Parallel With: 03, 05"),
        ("05", "Parallel With: 03, 04"),
    ];
    plan(&bed, &[phase(&bed, 1, &tasks)]);
    run(&bed).expect(0);
    // Each waited for the others: all began before the first ended.
    let noted = noted(&bed);
    assert!(
        noted[..3].iter().all(|line| line.starts_with('+')),
        "{noted:?}"
    );
}

#[test]
fn tasks_that_do_not_name_each_other_run_one_by_one() {
    let bed = bed(&LOOP.replace("WAIT", "sleep 0.05"));
    plan(
        &bed,
        &[phase(&bed, 1, &[("07", ""), ("08", ""), ("09", "")])],
    );
    run(&bed).expect(0);
    assert_eq!(noted(&bed), ["+07", "-07", "+08", "-08", "+09", "-09"]);
}

#[test]
fn what_depends_on_two_waits_for_both() {
    let bed = together(2);
    let tasks = [
        ("03", "Parallel With: 04"),
        ("04", "Parallel With: 03"),
        ("05", "Depends On: 03, 04"),
    ];
    plan(&bed, &[phase(&bed, 1, &tasks)]);
    run(&bed).expect(0);
    let noted = noted(&bed);
    assert!(
        noted[..2].iter().all(|line| line.starts_with('+')),
        "{noted:?}"
    );
    assert_eq!(noted[4..], ["+05", "-05"]);
}

#[test]
fn what_touches_the_same_file_runs_one_by_one_whatever_it_says() {
    let bed = bed(&LOOP.replace("WAIT", "sleep 0.05"));
    let tasks = [
        ("01", "Parallel With: 02\nFiles: `src/a.rs`"),
        ("02", "Parallel With: 01\nFiles: `src/a.rs`"),
    ];
    plan(&bed, &[phase(&bed, 1, &tasks)]);
    run(&bed).expect(0);
    assert_eq!(noted(&bed), ["+01", "-01", "+02", "-02"]);
}

#[test]
fn a_plan_is_worked_off_phase_by_phase_and_marked() {
    let bed = bed(&LOOP.replace("WAIT", ":"));
    let first = phase(&bed, 1, &[("01", ""), ("02", "Depends On: 01")]);
    let second = phase(&bed, 2, &[("03", "Depends On: 01, 02\nStatus: open")]);
    plan(&bed, &[first, second]);
    let ran = run(&bed).expect(0);
    assert!(ran.stdout.contains("load OK -> each | phase 2"), "{ran:?}");
    let text = bed.read("plan/MASTER_PLAN.md");
    assert!(!text.contains("[ ]") && !text.contains("Pending"), "{text}");
    assert!(text.starts_with("Progress: 3/3\n"), "{text}");
    assert_eq!(
        bed.read("plan/03-t.md"),
        "# Task 03\nDepends On: 01, 02\nStatus: Done\n"
    );
    let state = state(&bed);
    assert_eq!(state["state"]["plan"]["done"], 3);
    assert_eq!(state["state"]["plan"]["current"], json!(null));
    assert_eq!(state["step_results"]["mark"]["json_data"]["phase"], 2);
    assert!(bed.ls("plan").iter().all(|name| name.ends_with(".md")));
    audited(&bed);
}

#[test]
fn a_skipped_phase_is_not_open_and_not_done() {
    let bed = bed(
        "steps:\n  - {name: load, action: load_plan, dir: plan}\n  - {name: skip, action: mark_plan, dir: plan, as: skipped}\n  - {name: again, action: load_plan, dir: plan}\n",
    );
    plan(
        &bed,
        &[phase(&bed, 1, &[("01", "")]), phase(&bed, 2, &[("02", "")])],
    );
    run(&bed).expect(0);
    let state = state(&bed);
    let plan = &state["state"]["plan"];
    assert_eq!(plan["phases"][0]["status"], "skipped");
    assert_eq!(
        (&plan["done"], &plan["current"]["number"]),
        (&json!(0), &json!(2))
    );
    assert!(bed.read("plan/MASTER_PLAN.md").contains("- [-] 01: task"));
    audited(&bed);
}

#[test]
fn a_plan_with_faults_fails_the_step_with_all_of_them() {
    let bed = bed("steps:\n  - {name: load, action: load_plan, dir: plan}\n");
    let text = phase(
        &bed,
        1,
        &[("01", "Depends On: 08"), ("02", "Depends On: 09")],
    );
    plan(&bed, &[text]);
    run(&bed).fails(1);
    let load = result(&bed, "load");
    let message = load["error"]["message"].as_str().unwrap();
    assert_eq!(
        (&load["exit_code"], &load["error"]["kind"]),
        (&json!(2), &json!("PlanError"))
    );
    assert!(
        message.contains("01-t.md:2") && message.contains("02-t.md:2"),
        "{message}"
    );
    assert_eq!(load["json_data"]["faults"][1]["line"], 2);
    assert_eq!(state(&bed)["state"].get("plan"), None);
    audited(&bed);
}

#[test]
fn what_was_ticked_stays_ticked() {
    let bed = bed(
        "steps:\n  - {name: load, action: load_plan, dir: plan}\n  - {name: mark, action: mark_plan, dir: plan}\n  - {name: undo, command: [sed, -i, 's/\\[x\\]/[ ]/; s/Done/Open/', plan/MASTER_PLAN.md]}\n  - {name: again, action: load_plan, dir: plan}\n",
    );
    plan(&bed, &[phase(&bed, 1, &[("01", "")])]);
    run(&bed).fails(1);
    let message = result(&bed, "again")["error"]["message"].to_string();
    assert!(
        message.contains("task `01` was done before and is open now"),
        "{message}"
    );
}

/// Nothing of the forged plan has been taken over, so that taking it back is all that is asked for.
#[test]
fn with_own_ticks_what_others_ticked_is_refused_until_it_is_taken_back() {
    let tick = "sed -i 's/\\[ \\] 02/[x] 02/' plan/MASTER_PLAN.md";
    for (step, own) in [("again", "own_ticks: true, "), ("mark", "")] {
        let bed = bed(&format!(
            "steps:\n  - {{name: load, action: load_plan, dir: plan, own_ticks: true}}\n  - {{name: forge, command: [sh, -c, {tick:?}]}}\n  - {{name: {step}, action: {}, {own}dir: plan, on: {{failure: {{goto: _block}}}}}}\n",
            if step == "mark" {
                "mark_plan"
            } else {
                "load_plan"
            },
        ));
        plan(
            &bed,
            &[phase(&bed, 1, &[("01", "")]), phase(&bed, 2, &[("02", "")])],
        );
        let ran = run(&bed).fails(4);
        let told =
            "task `02` was ticked, and only orch may do that (change it back to `[ ]`, and resume)";
        assert!(ran.stderr.contains(told), "{ran:?}");
        bed.orch(["resume", "last"]).run().fails(4);
        let text = bed.read("plan/MASTER_PLAN.md");
        bed.write("plan/MASTER_PLAN.md", text.replace("[x] 02", "[ ] 02"));
        bed.orch(["resume", "last"]).run().expect(0);
    }
    // One that nobody has read yet may be ticked by hand, unless the workflow says otherwise.
    for (own, code) in [("", 0), (", own_ticks: true", 1)] {
        let bed = bed(&format!(
            "steps:\n  - {{name: load, action: load_plan, dir: plan{own}}}\n"
        ));
        plan(&bed, &[phase(&bed, 1, &[("01", ""), ("02", "")])]);
        let text = bed.read("plan/MASTER_PLAN.md");
        bed.write("plan/MASTER_PLAN.md", text.replace("[ ] 02", "[x] 02"));
        run(&bed).comes_to(code);
    }
}

#[test]
fn only_what_was_loaded_is_marked() {
    let new = "printf '%s\\n' '- [ ] 02: task' >> plan/MASTER_PLAN.md; echo > plan/02-t.md";
    for (between, told) in [("", "was not loaded"), (new, "task `02` of phase 1 is new")] {
        let load = match between {
            "" => String::new(),
            script => format!(
                "  - {{name: load, action: load_plan, dir: plan}}\n  - {{name: add, command: [sh, -c, \"{}\"]}}\n",
                script.replace('\\', "\\\\")
            ),
        };
        let bed = bed(&format!(
            "steps:\n{load}  - {{name: mark, action: mark_plan, dir: plan}}\n"
        ));
        plan(&bed, &[phase(&bed, 1, &[("01", "")])]);
        run(&bed).fails(1);
        let message = result(&bed, "mark")["error"]["message"].to_string();
        assert!(message.contains(told), "{message}");
        assert!(bed.read("plan/MASTER_PLAN.md").contains("[ ] 01"));
    }
}

#[test]
fn a_link_in_a_plan_is_a_violation() {
    for link in ["plan/02-t.md", "plan/MASTER_PLAN.md", "plan"] {
        let bed = bed(
            "steps:\n  - {name: load, action: load_plan, dir: plan, on: {failure: {goto: _end}}}\n",
        );
        plan(&bed, &[phase(&bed, 1, &[("01", "")])]);
        let path = bed.root.join(link);
        let away = bed.outside.join("away");
        if path.exists() {
            std::fs::rename(&path, &away).unwrap();
        }
        std::os::unix::fs::symlink(&away, &path).unwrap();
        run(&bed).fails(2);
        assert_eq!(
            result(&bed, "load")["error"]["kind"],
            "SafetyViolation",
            "{link}"
        );
    }
}

#[test]
fn a_phase_is_marked_once_however_often_orch_is_killed() {
    let cases = [
        "plan.write",
        "plan.sync",
        "plan.rename",
        "run.log-append",
        "run.log-sync",
        "commit.create",
    ];
    let mut all = Vec::new();
    for point in cases {
        for nth in 1..=8 {
            all.push((point, nth));
        }
    }
    side_by_side(&all, |(point, nth)| {
        let story = format!("kill -9 before {point} for the {nth}th time");
        let bed = bed(
            "steps:\n  - {name: load, action: load_plan, dir: plan}\n  - {name: mark, action: mark_plan, dir: plan}\n",
        );
        let first = phase(&bed, 1, &[("01", "Status: open"), ("02", "Status: open")]);
        plan(&bed, &[first, phase(&bed, 2, &[("03", "")])]);
        bed.drop_task("w", "go", "x");
        let fault = format!("kill:{point}:{nth}");
        bed.orch(["watch", "--drain"])
            .env("ORCH_FAULT", fault)
            .run()
            .about(&story)
            .killed_or(0);
        bed.drain().may_say(&["take over "]).expect(0);
        let text = bed.read("plan/MASTER_PLAN.md");
        assert_eq!(text.matches("[x]").count(), 2, "{story}: {text}");
        assert!(
            text.contains("Progress: 2/3") && text.contains("[ ] 03"),
            "{story}: {text}"
        );
        for id in ["01", "02"] {
            assert!(
                bed.read(&format!("plan/{id}-t.md"))
                    .contains("Status: Done"),
                "{story}"
            );
        }
        assert_eq!(
            state(&bed)["state"]["plan"]["current"]["number"],
            2,
            "{story}"
        );
        assert!(!only_run(&bed).is_empty());
    });
}
