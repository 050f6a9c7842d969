//! Runs of workflows: they can be killed anywhere and go on, and end as if nothing had happened.

use orch::disk::Point;
use serde_json::Value;

use crate::crash::side_by_side;
use crate::harness::{Bed, Ran};

const RUN: &str = "20260101T000000Z-five-0001";

/// Five steps: a command, a group, a loop, one that needs a second try, and an agent.
const FIVE: &str = r#"
version: "1"
name: five
context: {who: world}
steps:
  - name: hello
    command: [sh, -c, 'echo hello >> "$2"; echo "hi $1"', x, "${context.who}", COUNT]
  - name: pair
    parallel:
      - {name: left, command: [sh, -c, 'echo left >> "$1"; echo left', x, COUNT]}
      - {name: right, command: [sh, -c, 'echo right >> "$1"; echo right', x, COUNT]}
  - name: each
    for_each:
      items: [a, b, c]
      as: letter
      steps:
        - name: shout
          command: [sh, -c, 'echo "shout $1" >> "$2"; echo "$1"', x, "${letter}${loop.index}", COUNT]
  - name: flaky
    command: [sh, -c, 'echo flaky >> "$1"; [ -e "$1.tried" ] || { touch "$1.tried"; exit 1; }; echo ok', x, COUNT]
    retries: {max: 5, delay_ms: 1}
  - name: sum
    provider: echo
    prompt: "${steps.hello.output}${steps.each[1].shout.output}${steps.flaky.output}${request}"
"#;

fn five() -> Bed {
    let bed = Bed::new();
    // Steps run in the root; the file with their executions lies beside it.
    bed.write("specs/five.yaml", FIVE.replace("COUNT", "../outside/count"));
    let start = format!("---\nworkflow: five\nrun: {RUN}\n---\nplease\n");
    bed.drop_task("five", "go", start);
    bed
}

fn drain(bed: &Bed, fault: Option<&str>) -> Ran {
    let mut orch = bed.orch(["watch", "--drain", "--durability", "power"]);
    if let Some(fault) = fault {
        orch = orch.env("ORCH_FAULT", fault);
    }
    orch.run()
}

fn state(bed: &Bed) -> Value {
    let text = bed.read(&format!("workspace/{RUN}/state.json"));
    serde_json::from_str(&text).unwrap()
}

/// What must be the same however often a run was killed: all but times and attempts.
fn lasting(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for passing in [
                "start_time",
                "end_time",
                "start_timestamp",
                "end_timestamp",
                "duration",
                "attempt",
                "attempts",
                "seq",
                "log_head",
                "root",
                "files",
                "artifacts",
                "since",
            ] {
                fields.remove(passing);
            }
            for field in fields.values_mut() {
                *field = lasting(field.take());
            }
        }
        Value::Array(all) => {
            for one in all {
                *one = lasting(one.take());
            }
        }
        _ => {}
    }
    value
}

fn executions(bed: &Bed) -> usize {
    bed.count_lines("count")
}

#[test]
fn a_run_goes_through_all_its_steps() {
    let bed = five();
    let ran = drain(&bed, None).expect(0);
    let state = state(&bed);
    assert_eq!(state["status"], "succeeded", "{ran:?}");
    assert_eq!(state["metadata"]["status"], "completed");
    assert_eq!(
        state["step_results"]["sum"]["output"],
        "hi world\nb1\nok\nplease"
    );
    assert_eq!(state["step_results"]["each"][2]["shout"]["output"], "c2\n");
    assert_eq!(executions(&bed), 8, "one each, and the flaky one twice");
    assert!(ran.stdout.contains("[each] each OK -> flaky"), "{ran:?}");
    assert!(bed.has("processed/five/go.task"));
    assert_eq!(bed.record("five/go")["run"], RUN);
    bed.assert_nothing_runs();
}

#[test]
fn a_run_killed_at_any_point_ends_as_if_nothing_had_happened() {
    let whole = five();
    drain(&whole, None).expect(0);
    let expected = lasting(state(&whole));
    let mut cases = Vec::new();
    for point in Point::ALL {
        for nth in [1, 4] {
            cases.push((*point, nth));
        }
    }
    side_by_side(&cases, |(point, nth)| {
        let story = format!("kill -9 before {} for the {nth}th time", point.name());
        let bed = five();
        let ran = drain(&bed, Some(&format!("kill:{}:{nth}", point.name())));
        let crashes = usize::from(ran.was_killed());
        assert!(ran.was_killed() || ran.code() == 0, "{story}: {ran:?}");
        drain(&bed, None).expect(0);
        assert_eq!(lasting(state(&bed)), expected, "{story}");
        let most = 8 + crashes;
        assert!(
            executions(&bed) <= most,
            "{story}: finished work was done again"
        );
        for folder in ["shell", "orch", "echo", "five"] {
            assert_eq!(bed.ls(&format!("inbox/{folder}")), [""; 0], "{story}");
        }
        bed.assert_nothing_runs();
    });
}

#[test]
fn a_run_killed_twice_ends_as_if_nothing_had_happened() {
    let whole = five();
    drain(&whole, None).expect(0);
    let expected = lasting(state(&whole));
    let cases: Vec<Point> = Point::ALL.to_vec();
    side_by_side(&cases, |point| {
        let story = format!(
            "kill -9 after a commit to the log, then before {}",
            point.name()
        );
        let bed = five();
        assert!(drain(&bed, Some("kill:commit.create:5")).was_killed());
        let ran = drain(&bed, Some(&format!("kill:{}:2", point.name())));
        let crashes = 1 + usize::from(ran.was_killed());
        drain(&bed, None).expect(0);
        assert_eq!(lasting(state(&bed)), expected, "{story}");
        assert!(executions(&bed) <= 8 + crashes, "{story}");
    });
}

#[test]
fn a_task_that_no_run_waits_for_is_refused() {
    let bed = five();
    drain(&bed, None).expect(0);
    let forged = format!("---\nrun: {RUN}\nstep: hello\n---\nrm -rf\n");
    bed.drop_task("shell", "forged", &forged);
    bed.drop_task("shell", &format!("{RUN}.0099-hello"), &forged);
    bed.drop_task("shell", "plain", "echo hi");
    drain(&bed, None).expect(1);
    for name in ["forged", &format!("{RUN}.0099-hello"), "plain"] {
        assert_eq!(bed.status(&format!("shell/{name}")), "rejected");
    }
    assert_eq!(executions(&bed), 8);
}

#[test]
fn a_run_is_pinned_to_the_workflow_it_began_with() {
    let bed = five();
    assert!(drain(&bed, Some("kill:run.spawn:2")).was_killed());
    bed.write(
        "specs/five.yaml",
        "version: \"1\"\nname: five\nsteps: [{name: other, command: [\"false\"]}]\n",
    );
    drain(&bed, None).expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
}

#[test]
fn a_workflow_that_does_not_check_starts_nothing() {
    let bed = Bed::new();
    bed.write("specs/bad.yaml", "version: \"1\"\nname: bad\nsteps: [{name: a, command: [x], on: {success: {goto: nowhere}}}]\n");
    bed.drop_task("bad", "go", "please");
    drain(&bed, None).expect(1);
    assert_eq!(bed.status("bad/go"), "rejected");
    assert_eq!(bed.ls("workspace"), [""; 0]);
}

#[test]
fn a_task_names_no_workflow_outside_of_specs() {
    let bed = Bed::new();
    std::fs::write(bed.outside.join("w.yaml"), "a secret\n").unwrap();
    let absolute = bed.outside.join("w.yaml").display().to_string();
    for (name, word) in [
        "../outside/w.yaml",
        "specs/../../outside/w.yaml",
        &absolute,
        "/etc/passwd",
    ]
    .iter()
    .enumerate()
    {
        bed.drop_task(
            "five",
            &format!("t{name}"),
            format!("---\nworkflow: {word}\n---\nx"),
        );
    }
    drain(&bed, None).expect(1);
    for name in 0..4 {
        let record = bed.record(&format!("five/t{name}"));
        assert_eq!(record["error"]["kind"], "UnknownWorkflow", "{record}");
        assert!(!record.to_string().contains("secret"), "{record}");
    }
    assert_eq!(bed.ls("workspace"), [""; 0]);
}
