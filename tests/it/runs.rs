//! Runs of workflows: they can be killed anywhere and go on, and end as if nothing had happened.

use orch::disk::order::Point;
use serde_json::Value;

use crate::crash::side_by_side;
use crate::harness::{Bed, Ran, shell, wait_for};

pub const RUN: &str = "20260101T000000Z-five-0001";

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
    fill_five(Bed::new())
}

/// The same on a root that is there.
pub fn fill_five(bed: Bed) -> Bed {
    // Steps run in the root; the file with their executions lies beside it.
    bed.write("specs/five.yaml", FIVE.replace("COUNT", "../outside/count"));
    let start = format!("---\nworkflow: five\nrun: {RUN}\n---\nplease\n");
    bed.drop_task("five", "go", start);
    bed
}

pub fn drain(bed: &Bed, fault: Option<&str>) -> Ran {
    drain_with(bed, "power", fault)
}

fn drain_with(bed: &Bed, durability: &str, fault: Option<&str>) -> Ran {
    let mut orch = bed.orch(["watch", "--drain", "--durability", durability]);
    if let Some(fault) = fault {
        orch = orch.env("ORCH_FAULT", fault);
    }
    orch.run()
}

pub fn state(bed: &Bed) -> Value {
    let text = bed.read(&format!("workspace/{RUN}/state.json"));
    serde_json::from_str(&text).unwrap()
}

/// What must be the same however often a run was killed: all but times and attempts.
pub fn lasting(mut value: Value) -> Value {
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
    let ran = drain(&bed, None).says("retry ").expect(0);
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
    drain(&whole, None).says("retry ").expect(0);
    let expected = lasting(state(&whole));
    let mut cases = Vec::new();
    for point in Point::ALL {
        for nth in [1, 4] {
            cases.push((*point, nth, "power"));
        }
        // Nothing is synced there.
        if !point.name().contains("sync") {
            cases.push((*point, 2, "process"));
        }
    }
    side_by_side(&cases, |(point, nth, durability)| {
        let story = format!(
            "kill -9 before {} for the {nth}th time, {durability}",
            point.name()
        );
        let bed = five();
        let fault = format!("kill:{}:{nth}", point.name());
        let ran = drain_with(&bed, durability, Some(&fault))
            .about(&story)
            .may_say(&["take over ", "retry "])
            .killed_or(0);
        let crashes = usize::from(ran.was_killed());
        drain_with(&bed, durability, None)
            .may_say(&["take over ", "retry "])
            .expect(0);
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
    drain(&whole, None).says("retry ").expect(0);
    let expected = lasting(state(&whole));
    let cases: Vec<Point> = Point::ALL.to_vec();
    side_by_side(&cases, |point| {
        let story = format!(
            "kill -9 after a commit to the log, then before {}",
            point.name()
        );
        let bed = five();
        drain(&bed, Some("kill:commit.create:5")).killed();
        let ran = drain(&bed, Some(&format!("kill:{}:2", point.name())))
            .about(&story)
            .may_say(&["take over ", "retry "])
            .killed_or(0);
        let crashes = 1 + usize::from(ran.was_killed());
        drain(&bed, None)
            .may_say(&["take over ", "retry "])
            .expect(0);
        assert_eq!(lasting(state(&bed)), expected, "{story}");
        assert!(executions(&bed) <= 8 + crashes, "{story}");
    });
}

#[test]
fn an_io_error_at_any_point_of_a_run_loses_nothing() {
    let whole = five();
    drain(&whole, None).says("retry ").expect(0);
    let expected = lasting(state(&whole));
    let mut cases = Vec::new();
    for point in Point::ALL {
        for (error, nth) in [("eio", 1), ("enospc", 4)] {
            cases.push((*point, error, nth));
        }
    }
    side_by_side(&cases, |(point, error, nth)| {
        let story = format!("{error} at {} for the {nth}th time", point.name());
        let bed = five();
        // What could not be written stops the run or is tried again; nothing is invented.
        let first = drain(&bed, Some(&format!("{error}:{}:{nth}", point.name())))
            .about(&story)
            .noisy()
            .any_code();
        let second = drain(&bed, None)
            .about(format!("{story}: {first:?}"))
            .may_say(&["take over ", "retry "])
            .expect(0);
        assert_eq!(
            lasting(state(&bed)),
            expected,
            "{story}: {first:?} {second:?}"
        );
        // What is done is not done again because it cannot be written down yet. After a failed sync
        // nobody knows what is on the disk, and the process does not go on with the run.
        let most = if *point == Point::RunLogSync { 9 } else { 8 };
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
fn a_task_that_no_run_waits_for_is_refused() {
    let bed = five();
    drain(&bed, None).says("retry ").expect(0);
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
    drain(&bed, Some("kill:run.spawn:2")).killed();
    bed.write(
        "specs/five.yaml",
        "version: \"1\"\nname: five\nsteps: [{name: other, command: [\"false\"]}]\n",
    );
    drain(&bed, None).says("take over").expect(0);
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

/// Two steps: the first does something to its own run, the second must not happen.
fn two(meddle: &str) -> Bed {
    let bed = Bed::new();
    let text = format!(
        "version: \"1\"\nname: two\nsteps:\n  - {{name: first, command: [sh, ../outside/meddle.sh, {TWO}]}}\n  - {{name: second, command: [touch, ../outside/second]}}\n"
    );
    bed.write("specs/two.yaml", text);
    // Longer than the clock that stamps files is coarse.
    let script = format!("sleep 0.1\nW=workspace/$1 L=logs/$1.jsonl T=../outside/t\n{meddle}\n");
    std::fs::write(bed.outside.join("meddle.sh"), script).unwrap();
    let start = format!("---\nworkflow: two\nrun: {TWO}\n---\nplease\n");
    bed.drop_task("two", "go", start);
    bed
}

const TWO: &str = "20260101T000000Z-two-0001";

/// What nobody but orch may change, how it is changed, and the exit code that tells it.
const MEDDLING: [(&str, &str, u8); 8] = [
    (
        "the state, replaced",
        r#"sed -i 's/"transitions": 0/"transitions": 9/' $W/state.json"#,
        2,
    ),
    (
        "the state, in place",
        r#"sed 's/"transitions": 0/"transitions": 9/' $W/state.json > $T; cat $T > $W/state.json"#,
        2,
    ),
    (
        "the state, to something else",
        r#"echo '{"version": 1}' > $W/state.json"#,
        3,
    ),
    (
        "a file of the spec",
        "echo '# more' >> $W/spec/specs/two.yaml",
        2,
    ),
    (
        "one more file in the spec",
        "mkdir $W/spec/specs/agents; echo x > $W/spec/specs/agents/shell.md",
        2,
    ),
    ("the log, replaced", "sed -i '1s/please/pleasf/' $L", 3),
    (
        "the log, in place",
        "sed '1s/please/pleasf/' $L > $T; cat $T > $L",
        3,
    ),
    ("the end of the log", "head -n 1 $L > $T; cat $T > $L", 3),
];

/// The run has failed, and whoever is asked tells the same.
fn assert_stopped(bed: &Bed, code: u8, story: &str) {
    let kind = if code == 2 {
        "SafetyViolation"
    } else {
        "StateCorrupted"
    };
    let text = bed.read(&format!("workspace/{TWO}/state.json"));
    let state: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(state["status"], "failed", "{story}: {state}");
    assert_eq!(state["error"]["kind"], kind, "{story}: {state}");
    assert_eq!(state["pending"], serde_json::json!([]), "{story}");
    let why = state["error"]["message"].as_str().unwrap();
    for words in [["status", TWO], ["show", TWO]] {
        let ran = bed.orch(words).run().expect(0);
        assert!(
            ran.stdout.contains("failed") && ran.stdout.contains(why),
            "{story}: {ran:?}"
        );
    }
    let ran = bed.orch(["resume", TWO]).run().fails(code.into());
    assert!(ran.stderr.contains(why), "{story}: {ran:?}");
    let ran = bed.orch(["audit", TWO]).run().expect(code.into());
    assert!(
        ran.stdout.contains("(failed,") && ran.stdout.contains(why),
        "{story}: {ran:?}"
    );
    assert!(!bed.outside.join("second").exists(), "{story}: it went on");
}

#[test]
fn what_a_step_does_to_its_own_run_stops_it_before_the_next() {
    side_by_side(&MEDDLING, |(what, meddle, code)| {
        let bed = two(meddle);
        drain(&bed, None).expect(1);
        assert_stopped(&bed, *code, what);
        // Nothing is left that would start it again, or that is told twice.
        drain(&bed, None).expect(0);
        assert_stopped(&bed, *code, what);
        bed.assert_nothing_runs();
    });
}

#[test]
fn what_is_done_to_a_run_while_nobody_watches_stops_it_as_well() {
    side_by_side(&MEDDLING, |(what, meddle, code)| {
        let bed = two("true");
        drain(&bed, Some("kill:run.spawn")).killed();
        let script = format!("W=workspace/{TWO} L=logs/{TWO}.jsonl T=../outside/t\n{meddle}\n");
        shell(&script)
            .current_dir(&bed.root)
            .run()
            .about(what)
            .expect(0);
        drain(&bed, None).says("take over").expect(1);
        assert_stopped(&bed, *code, what);
    });
}

#[test]
fn a_state_that_is_lost_or_torn_or_only_touched_stops_nothing() {
    let cases = [
        "rm $W/state.json",
        "head -c 100 $W/state.json > $T; cat $T > $W/state.json",
        "touch $W/state.json $L $W/spec/specs/two.yaml",
    ];
    side_by_side(&cases, |harmless| {
        let bed = two(harmless);
        drain(&bed, None).expect(0);
        assert!(bed.outside.join("second").exists(), "{harmless}");
        bed.orch(["audit", TWO]).run().expect(0);
    });
}

/// What a watcher was doing when a signal ended it: at work, or waiting for files.
const LONG: [(&str, &str); 2] = [
    (
        "command: [sh, -c, 'echo x >> ../outside/count; [ -e ../outside/go ] || exec sleep 600']",
        "count",
    ),
    (
        "wait_for: {glob: go, timeout_sec: 9000, poll_ms: 600000}",
        "none",
    ),
];

#[test]
fn only_a_crash_is_an_interruption_and_a_put_back_is_none() {
    for (work, count) in LONG {
        for (signal, code) in [("TERM", 143), ("INT", 130), ("KILL", 0)] {
            let bed = Bed::new();
            bed.write(
                "specs/one.yaml",
                format!(
                    "version: \"1\"\nname: one\nsteps:\n  - name: long\n    {work}\n    on: {{success: {{goto: _end}}, interrupted: {{goto: other}}}}\n  - {{name: other, command: [touch, ../outside/other]}}\n"
                ),
            );
            bed.drop_task("one", "go", format!("---\nrun: {RUN}\n---\nplease"));
            let watch = bed.watch(&[]);
            let log = format!("logs/{RUN}.jsonl");
            wait_for("the step to be begun", || {
                bed.has(&log) && bed.read(&log).contains("entered") && count_is(&bed, count, 1)
            });
            watch.signal(signal);
            let crashed = signal == "KILL";
            match crashed {
                true => watch.wait().killed(),
                false => watch.wait().says("put back").expect(code),
            };
            let put_back = bed.read(&log).contains("\"event\":\"put_back\"");
            assert_eq!(put_back, !crashed, "{signal} {work}: {}", bed.read(&log));
            std::fs::write(bed.outside.join("go"), "").unwrap();
            bed.write("go", "");
            drain(&bed, None)
                .may_say(&["take over ", "retry "])
                .expect(0);
            assert_eq!(
                bed.outside.join("other").exists(),
                crashed,
                "{signal} {work}"
            );
            let begun = if crashed { 1 } else { 2 };
            assert!(count_is(&bed, count, begun), "{signal} {work}");
            let state = state(&bed);
            assert_eq!(state["visits"]["long"], 1, "{signal} {work}");
            bed.orch(["audit", RUN]).run().expect(0);
        }
    }
}

/// A wait leaves no traces of its own.
fn count_is(bed: &Bed, file: &str, wanted: usize) -> bool {
    file == "none" || bed.count_lines(file) == wanted
}

/// Two items side by side: one is blocked while the other still has to be tried again.
#[test]
fn a_retry_beside_a_block_goes_on() {
    let bed = Bed::new();
    bed.write(
        "specs/one.yaml",
        r#"
version: "1"
name: one
steps:
  - name: all
    for_each:
      items: [blocks, retries]
      max_parallel: 2
      steps:
        - name: work
          command: [sh, -c, 'if [ "$1" = blocks ]; then until [ -e ../outside/tried ]; do sleep 0.01; done; printf no; elif [ -e ../outside/tried ]; then echo yes; else touch ../outside/tried; exit 1; fi', x, "${item}"]
          retries: {max: 9, delay_ms: 2000}
          ensures: [{check: "output != 'no'", reason: "it says no"}]
"#,
    );
    bed.drop_task("one", "go", format!("---\nrun: {RUN}\n---\nplease"));
    bed.orch(["watch", "--drain", "--jobs", "2", "--durability", "process"])
        .run()
        .says("retry ")
        .expect(0);
    let state = state(&bed);
    assert_eq!(state["status"], "blocked", "{state}");
    assert_eq!(state["blocks"].as_array().unwrap().len(), 1);
    let done = &state["step_results"]["all"][1]["work"];
    assert_eq!(
        (&done["output"], &done["attempt"]),
        (&"yes\n".into(), &2.into())
    );
}

#[test]
fn show_gives_every_guard_and_a_clamped_number_is_told() {
    let bed = Bed::new();
    bed.write(
        "specs/one.yaml",
        r#"
version: "1"
name: one
context: {n: 2}
steps:
  - name: work
    command: [echo, hi]
    max_visits: {from: context.n, min: 1, max: 5}
    when: {if: "context.n > 1"}
    requires: [{check: "visits.work == 1"}]
    ensures: [{check: "exit_code == 0"}]
"#,
    );
    let ran = bed
        .orch(["run", "one", "--context", "n=99"])
        .run()
        .says("warning: ")
        .expect(0);
    let clamped = "`context.n` is 99; 5 is taken instead";
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains(clamped), "{ran:?}");
    let shown = bed.orch(["show", "last"]).run().expect(0).stdout;
    for text in [
        "context.n > 1 => true",
        "visits.work == 1 => true",
        "exit_code == 0 => true",
    ] {
        assert_eq!(shown.matches(text).count(), 1, "{text}: {shown}");
    }
    bed.orch(["audit", "last"]).run().expect(0);
    // The guards are part of what the audit holds against the log.
    let log = bed
        .ls("logs")
        .into_iter()
        .find(|name| name.contains("-one-"))
        .unwrap();
    let text = bed.read(&format!("logs/{log}"));
    bed.write(
        &format!("logs/{log}"),
        text.replace("visits.work == 1 => true", "visits.work == 1 => fals"),
    );
    let found = bed.orch(["audit", "last"]).run().expect(3);
    assert!(found.stdout.contains("its `checks` are not"), "{found:?}");
}

/// Two steps side by side and one worker: the first stops the run while the second waits its turn.
#[test]
fn what_waits_when_a_run_is_stopped_is_cancelled() {
    let bed = Bed::new();
    bed.write(
        "specs/one.yaml",
        r#"
version: "1"
name: one
steps:
  - name: all
    parallel:
      - {name: bad, command: [echo, hi], ensures: [{check: "false", stop: true, reason: "it is bad"}]}
      - {name: waits, command: [touch, ../outside/ran]}
"#,
    );
    bed.drop_task("one", "go", format!("---\nrun: {RUN}\n---\nplease"));
    bed.orch(["watch", "--drain", "--jobs", "1", "--durability", "process"])
        .run()
        .expect(0);
    assert_eq!(state(&bed)["status"], "failed");
    assert!(!bed.outside.join("ran").exists());
    let record = bed.record(&format!("shell/{RUN}.0003-waits"));
    assert_eq!(record["status"], "cancelled", "{record}");
    assert_eq!(record["run"], RUN);
    assert_eq!(record["step"], "waits");
}

#[test]
fn a_stopped_run_is_told_to_be_reset_only_where_that_works() {
    for (meddle, resets) in [("state.json", true), ("spec/specs/one.yaml", false)] {
        let bed = Bed::new();
        bed.write(
            "specs/one.yaml",
            "version: \"1\"\nname: one\nsteps:\n  - {name: a, command: [echo, hi], requires: [{check: \"exists('go')\"}]}\n",
        );
        bed.drop_task("one", "go", format!("---\nrun: {RUN}\n---\nplease"));
        bed.drain().expect(0);
        let path = format!("workspace/{RUN}/{meddle}");
        let changed = bed
            .read(&path)
            .replace("blocked", "failed")
            .replace("echo", "ls");
        bed.write(&path, changed);
        bed.orch(["resume", RUN]).run().fails(2);
        let told = bed.orch(["resume", RUN]).run().fails(2);
        assert_eq!(told.stderr.contains("orch reset"), resets, "{told:?}");
        assert_eq!(told.stderr.contains("orch run one"), !resets, "{told:?}");
        let reset = bed.orch(["reset", RUN]).run();
        let reset = match resets {
            true => reset.expect(0),
            false => reset.fails_somehow(),
        };
        assert!(!reset.stderr.contains("orch reset"), "{reset:?}");
    }
}
