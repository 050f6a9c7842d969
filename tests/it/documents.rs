//! Locked decisions and the canonical document: what is locked stays, and a step changes only what it
//! may. Most agents here lie.

use orch::disk::order::Point;
use serde_json::{Value, json};

use crate::crash::side_by_side;
use crate::harness::{Bed, Ran};

fn bed(rest: &str) -> Bed {
    let bed = Bed::new();
    bed.write("specs/w.yaml", format!("version: \"1\"\nname: w\n{rest}"));
    bed
}

fn run(bed: &Bed) -> Ran {
    bed.orch(["run", "w"]).run()
}

fn only_run(bed: &Bed) -> String {
    let all = bed.ls("workspace");
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn state(bed: &Bed) -> Value {
    let text = bed.read(&format!("workspace/{}/state.json", only_run(bed)));
    serde_json::from_str(&text).unwrap()
}

fn audit(bed: &Bed) -> Ran {
    bed.orch(["audit", "last"]).run()
}

#[track_caller]
fn says(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in:\n{text}");
}

/// A decision that is locked, and a step after it that runs this script; `$1` is the run's folder.
fn decided(script: &str) -> Bed {
    bed(&format!(
        r#"steps:
  - name: decide
    command: [sh, -c, 'printf "{{\"b\": 1,\n \"a\": [true]}}"']
    output_capture: json
    next: [{{if: "output.b == 1", goto: act, lock: decision}}]
  - name: act
    requires: [{{check: 'snapshots.decision.status == "LOCKED"', stop: true}}]
    command: [sh, -c, '{script}', x, "${{run.files}}/.."]
    on: {{always: {{goto: after}}}}
  - name: after
    command: [sh, -c, 'echo after >> ../outside/count']
"#
    ))
}

#[test]
fn a_decision_is_locked_with_its_hash_and_audit_tells_when() {
    let bed = decided("true");
    run(&bed).expect(0);
    let path = format!("workspace/{}/snapshots/decision.json", only_run(&bed));
    assert_eq!(bed.read(&path), r#"{"a":[true],"b":1}"#);
    let snapshot = state(&bed)["snapshots"]["decision"].clone();
    assert_eq!(snapshot["status"], "LOCKED");
    assert_eq!(snapshot["step"], "decide");
    assert_eq!(
        snapshot["sha256"].as_str().unwrap(),
        orch::text::canonical::sha256(bed.read(&path).as_bytes())
    );
    let locked_at = snapshot["locked_at"].as_str().unwrap();
    says(&audit(&bed).expect(0).stdout, locked_at);
    says(
        &bed.orch(["show", "last"]).run().expect(0).stdout,
        locked_at,
    );
}

#[test]
fn a_locked_decision_that_is_changed_is_a_hard_stop() {
    let scripts = [
        ("echo {} > \"$1/snapshots/decision.json\"", "was changed"),
        ("rm \"$1/snapshots/decision.json\"", "is missing"),
        (
            "cd \"$1/snapshots\"; cp decision.json ../copy; ln -sf ../copy decision.json",
            "cannot be read",
        ),
        (
            "cd \"$1\"; cp -r snapshots other; rm -r snapshots; ln -s other snapshots",
            "cannot be read",
        ),
        (
            "cd \"$1/snapshots\"; rm decision.json; mkdir decision.json",
            "cannot be read",
        ),
    ];
    for (script, why) in scripts {
        let bed = decided(script);
        let ran = run(&bed).fails(2);
        says(&ran.stderr, why);
        says(&ran.stderr, "snapshots/decision.json");
        let state = state(&bed);
        assert_eq!(state["error"]["kind"], "SafetyViolation", "{script}");
        assert_eq!(state["status"], "failed");
        assert_eq!(
            bed.count_lines("count"),
            0,
            "nothing runs after it: {script}"
        );
        bed.orch(["resume", "last"]).run().fails(2);
        says(&audit(&bed).expect(2).stdout, "finding");
        bed.orch(["reset", "last"]).run().expect(0);
        let folder = format!("workspace/{}/snapshots", only_run(&bed));
        assert_eq!(bed.ls(&folder), [""; 0], "{script}");
    }
}

#[test]
fn a_locked_decision_that_was_changed_before_a_resume_is_a_hard_stop() {
    let bed = bed(
        "steps:\n  - {name: decide, command: [echo, '{}'], output_capture: json, next: [{if: 'true', goto: act, lock: d}]}\n  - {name: act, requires: [{check: 'exists(\"ready\")'}], command: [sh, -c, 'echo act >> ../outside/count']}\n",
    );
    run(&bed).fails(4);
    bed.write(
        &format!("workspace/{}/snapshots/d.json", only_run(&bed)),
        "{ }",
    );
    bed.write("ready", "");
    let ran = bed.orch(["resume", "last"]).run().fails(2);
    says(&ran.stderr, "was changed after it was locked");
    assert_eq!(state(&bed)["status"], "failed");
    assert_eq!(bed.count_lines("count"), 0);
}

#[test]
fn a_step_that_did_not_lock_finds_a_gate_that_stops() {
    let bed = bed(
        "steps:\n  - {name: act, requires: [{check: 'has(snapshots.d)', reason: nothing is decided, stop: true}], command: [sh, -c, 'echo act >> ../outside/count']}\n  - {name: decide, command: [echo, '{}'], output_capture: json, next: [{if: 'true', goto: _end, lock: d}]}\n",
    );
    let ran = run(&bed).fails(2);
    says(&ran.stderr, "nothing is decided");
    assert_eq!(bed.count_lines("count"), 0);
    says(&audit(&bed).expect(2).stdout, "sound");
}

/// One step that may change `code`, and runs this; `$1` is its copy of the document.
fn updating(on_violation: &str, script: &str) -> Bed {
    bed(&format!(
        r#"on_violation: {on_violation}
state: {{code: {{status: draft, notes: [1]}}, tests: {{status: none}}}}
steps:
  - name: code
    phase: CODE
    updates: [code]
    command: [sh, -c, 'echo code >> ../outside/count; {script}', x, "${{STATE_FILE}}"]
    on: {{failure: {{goto: caught}}}}
  - name: last
    command: [echo, "${{state.code.status}}"]
    on: {{success: {{goto: _end}}}}
  - name: caught
    command: [echo, caught]
"#
    ))
}

fn edit(from: &str, to: &str) -> String {
    format!("sed -i \"s|{from}|{to}|\" \"$1\"")
}

#[test]
fn a_step_changes_its_part_of_the_document() {
    let bed = updating("block", &edit("draft", "done"));
    run(&bed).expect(0);
    let after = state(&bed);
    assert_eq!(
        after["state"],
        json!({"code": {"status": "done", "notes": [1]}, "tests": {"status": "none"}})
    );
    assert_eq!(after["step_results"]["last"]["output"], "done\n");
    audit(&bed).expect(0);
    // The copy that it was given lies beside its other files.
    let files = bed.ls("artifacts/shell");
    assert!(
        files.iter().any(|name| name.ends_with("-code.state")),
        "{files:?}"
    );
}

#[test]
fn the_copy_holds_the_document_and_what_is_read_only() {
    let bed = updating(
        "block",
        "cat \"$ORCH_STATE_FILE\"; test \"$1\" = \"$ORCH_STATE_FILE\"",
    );
    run(&bed).expect(0);
    let output = state(&bed)["step_results"]["code"]["output"].clone();
    let copy: Value = serde_json::from_str(output.as_str().unwrap()).unwrap();
    assert_eq!(copy["code"]["status"], "draft");
    assert_eq!(
        copy["metadata"],
        json!({"currentPhase": "CODE", "status": "in-progress"})
    );
    assert_eq!(
        copy["governance"],
        json!({"approvals": {}, "blockedReason": null})
    );
}

/// What lying agents do to the document, and what is said of it.
fn lies() -> Vec<(String, &'static str)> {
    vec![
        (edit("none", "passed"), "`tests.status`"),
        (edit("CODE", "DEPLOY"), "`metadata.currentPhase`"),
        (
            edit(
                "\\\"approvals\\\": {}",
                "\\\"approvals\\\": {\\\"code\\\": true}",
            ),
            "`governance.approvals.code`",
        ),
        (edit("in-progress", "completed"), "`metadata.status`"),
        ("echo \"{}\" > \"$1\"".to_owned(), "`governance`"),
        ("rm \"$1\"".to_owned(), "removed the document"),
        (
            "mv \"$1\" \"$1.mine\"; ln -s \"$1.mine\" \"$1\"".to_owned(),
            "something else in the place",
        ),
        (
            "ln \"$1\" \"$1.mine\"".to_owned(),
            "something else in the place",
        ),
        (
            "rm \"$1\"; mkdir \"$1\"".to_owned(),
            "something else in the place",
        ),
        (
            "rm \"$1\"; mkfifo \"$1\"".to_owned(),
            "something else in the place",
        ),
    ]
}

#[test]
fn a_change_outside_of_the_scope_blocks_and_nothing_is_taken() {
    for (lie, named) in lies() {
        // What it may change is not taken either.
        let bed = updating("block", &format!("{}; {lie}", edit("draft", "done")));
        let ran = run(&bed).fails(4);
        says(&ran.stderr, "step `code`");
        says(&ran.stderr, named);
        let after = state(&bed);
        assert_eq!(after["state"]["code"]["status"], "draft", "{lie}");
        assert_eq!(after["state"]["tests"]["status"], "none", "{lie}");
        assert_eq!(after["governance"]["approvals"], json!({}), "{lie}");
        assert_eq!(
            after["metadata"],
            json!({"currentPhase": "CODE", "status": "blocked"})
        );
        assert_eq!(
            bed.count_lines("count"),
            1,
            "it is not tried again by itself"
        );
        bed.orch(["resume", "last"]).run().fails(4);
        assert_eq!(bed.count_lines("count"), 2, "a resume runs it again");
    }
}

#[test]
fn a_change_outside_of_the_scope_is_rejected_or_stops_as_the_workflow_says() {
    let (lie, named) = lies().remove(0);
    let bed = updating("reject", &lie);
    run(&bed).expect(0);
    let after = state(&bed);
    let result = &after["step_results"]["code"];
    assert_eq!(
        (&result["exit_code"], &result["error"]["kind"]),
        (&json!(2), &json!("ScopeViolation"))
    );
    assert_eq!(after["step_results"]["caught"]["status"], "succeeded");
    assert_eq!(after["state"]["tests"]["status"], "none");
    let bed = updating("stop", &lie);
    let ran = run(&bed).fails(2);
    says(&ran.stderr, named);
    assert_eq!(state(&bed)["error"]["kind"], "SafetyViolation");
    bed.orch(["resume", "last"]).run().fails(2);
}

#[test]
fn a_document_that_is_none_fails_the_step() {
    let table = [
        ("echo \"{\" > \"$1\"", "JsonParseError", "cannot be read"),
        ("echo \"[]\" > \"$1\"", "JsonParseError", "not an object"),
        ("printf \"\" > \"$1\"", "JsonParseError", "cannot be read"),
        (
            "head -c 2000000 /dev/zero > \"$1\"",
            "OutputTooLargeError",
            "1 MiB",
        ),
        (
            "(head -c 100 /dev/zero | tr \"\\0\" \"[\"; head -c 100 /dev/zero | tr \"\\0\" \"]\") > \"$1\"",
            "JsonParseError",
            "deep",
        ),
    ];
    for (script, kind, message) in table {
        let bed = updating("stop", script);
        run(&bed).expect(0);
        let after = state(&bed);
        let result = &after["step_results"]["code"];
        assert_eq!(result["error"]["kind"], kind, "{script}");
        assert_eq!(result["exit_code"], 2, "{script}");
        says(result["error"]["message"].as_str().unwrap(), message);
        assert_eq!(after["state"]["code"]["status"], "draft");
        assert_eq!(after["step_results"]["caught"]["status"], "succeeded");
    }
}

#[test]
fn a_step_that_failed_changes_nothing() {
    let bed = updating("block", &format!("{}; exit 3", edit("draft", "done")));
    run(&bed).expect(0);
    let after = state(&bed);
    assert_eq!(after["state"]["code"]["status"], "draft");
    assert_eq!(after["step_results"]["code"]["exit_code"], 3);
    // But a lie is a lie.
    let bed = updating("stop", &format!("{}; exit 3", edit("none", "passed")));
    run(&bed).fails(2);
}

#[test]
fn an_answer_in_json_updates_the_parts_that_it_names() {
    let bed = bed(
        r#"state: {code: {status: draft}, tests: {status: none, left: 1}, other: 1}
steps:
  - name: code
    updates: [code, tests.status]
    command: [echo, '{"code": {"status": "done"}, "tests": {"status": "passed", "left": 2}, "other": 2, "metadata": {"currentPhase": "x"}}']
    output_capture: json
    ensures: [{check: 'state.tests.status == "passed"'}]
"#,
    );
    run(&bed).expect(0);
    let after = state(&bed);
    assert_eq!(
        after["state"],
        json!({"code": {"status": "done"}, "tests": {"status": "passed", "left": 1}, "other": 1})
    );
    assert_eq!(after["metadata"]["currentPhase"], "code");
    audit(&bed).expect(0);
}

#[test]
fn a_step_without_updates_gets_a_copy_only_to_read() {
    let steps = |script: &str| {
        format!(
            "state: {{a: old}}\nsteps:\n  - {{name: look, command: [sh, -c, '{script}', x, \"${{STATE_FILE}}\"]}}\n"
        )
    };
    let bed1 = bed(&steps("cat \"$1\"; test ! -w \"$1\" || test $(id -u) = 0"));
    run(&bed1).expect(0);
    says(
        state(&bed1)["step_results"]["look"]["output"]
            .as_str()
            .unwrap(),
        "\"a\": \"old\"",
    );
    let bed2 = bed(&steps("chmod +w \"$1\"; sed -i s/old/new/ \"$1\""));
    let ran = run(&bed2).fails(4);
    says(&ran.stderr, "`a`");
    assert_eq!(state(&bed2)["state"]["a"], "old");
    // Nobody who does not ask for it gets one.
    let bed3 = bed("steps:\n  - {name: look, command: [env]}\n");
    run(&bed3).expect(0);
    assert!(
        !bed3
            .ls("artifacts/shell")
            .iter()
            .any(|name| name.ends_with(".state"))
    );
}

#[test]
fn every_attempt_gets_a_fresh_copy() {
    let bed = bed(r#"state: {n: {tries: 0, left: x}}
steps:
  - name: flaky
    updates: [n]
    retries: {max: 3, delay_ms: 1}
    command: [sh, -c, 'grep -q "\"tries\": 0" "$1" || exit 9; sed -i "s/\"tries\": 0/\"tries\": 1/" "$1"; [ -e tried ] || { touch tried; exit 1; }', x, "${STATE_FILE}"]
"#);
    run(&bed).expect(0);
    let after = state(&bed);
    assert_eq!(after["step_results"]["flaky"]["attempt"], 2);
    assert_eq!(after["state"]["n"], json!({"tries": 1, "left": "x"}));
    let files = bed.ls("artifacts/shell");
    assert!(
        files.iter().any(|name| name.ends_with("~1.state")),
        "{files:?}"
    );
}

#[test]
fn an_agent_gets_the_document_by_its_provider_too() {
    let bed =
        bed("state: {a: 1}\nsteps:\n  - {name: work, agent: worker, prompt: go, updates: [a]}\n");
    bed.script(
        "worker",
        "cat >/dev/null; sed -i 's/\"a\": 1/\"a\": 2/' \"$ORCH_STATE_FILE\"",
    );
    run(&bed).expect(0);
    assert_eq!(state(&bed)["state"]["a"], 2);
}

/// Two steps; the first drops a task that nobody waits for, by the name and in the inbox given.
fn intruded(on_violation: &str, inbox: &str, name: &str) -> Bed {
    let bed = bed(&format!(
        r#"on_violation: {on_violation}
steps:
  - name: one
    command: [sh, -c, 'mkdir -p inbox/{inbox}; printf -- "---\nrun: %s\nstep: two\n---\nrm -rf\n" "$1" > inbox/{inbox}/$1.{name}.task', x, "${{run.id}}"]
  - name: two
    command: [sh, -c, 'echo two >> ../outside/count']
"#
    ));
    bed.script("early", "cat; echo early >> ../outside/count");
    bed
}

const INTRUDERS: [(&str, &str); 5] = [
    ("shell", "0000-two"),
    ("shell", "1-two"),
    ("shell", "0001-nobody"),
    ("early", "0099-two"),
    // The very task that will be pending, in the inbox of another.
    ("early", "0002-two"),
];

#[test]
fn a_task_that_the_run_does_not_wait_for_blocks_it() {
    for (inbox, name) in INTRUDERS {
        let bed = intruded("block", inbox, name);
        let ran = run(&bed).fails(4);
        says(&ran.stderr, "forged, early or in the wrong inbox");
        says(&ran.stderr, name);
        let after = state(&bed);
        assert_eq!(
            after["metadata"],
            json!({"currentPhase": "two", "status": "blocked"})
        );
        assert_eq!(bed.count_lines("count"), 0, "{name}: nothing of it is run");
        let target = format!("{inbox}/{}.{name}", only_run(&bed));
        assert_eq!(bed.status(&target), "rejected");
        bed.orch(["resume", "last"]).run().expect(0);
        assert_eq!(
            bed.count_lines("count"),
            1,
            "{name}: the real one is run once"
        );
        audit(&bed).expect(0);
    }
}

#[test]
fn a_task_that_the_run_does_not_wait_for_is_refused_alone_or_stops_it_as_the_workflow_says() {
    for (inbox, name) in INTRUDERS {
        let bed = intruded("reject", inbox, name);
        run(&bed).expect(0);
        assert_eq!(bed.count_lines("count"), 1, "{name}");
        let target = format!("{inbox}/{}.{name}", only_run(&bed));
        assert_eq!(bed.status(&target), "rejected");
        let bed = intruded("stop", inbox, name);
        let ran = run(&bed).fails(2);
        says(&ran.stderr, name);
        assert_eq!(state(&bed)["error"]["kind"], "SafetyViolation");
        assert_eq!(bed.count_lines("count"), 0, "{name}");
        bed.orch(["resume", "last"]).run().fails(2);
    }
}

#[test]
fn a_hard_stop_ends_what_else_the_run_has_at_work() {
    let bed = bed(r#"steps:
  - {name: decide, command: [echo, '{}'], output_capture: json, next: [{if: 'true', goto: both, lock: d}]}
  - name: both
    parallel:
      - {name: sleeper, command: [sh, -c, 'touch started; sleep 600']}
      - {name: liar, command: [sh, -c, 'while ! [ -e started ]; do sleep 0.02; done; echo 1 > "$1/../snapshots/d.json"', x, "${run.files}"]}
"#);
    let ran = bed.orch(["run", "w", "--jobs", "2"]).run().fails(2);
    says(&ran.stderr, "snapshots/d.json");
    bed.assert_nothing_runs();
    let task = format!("shell/{}.0003-sleeper", only_run(&bed));
    assert_eq!(bed.status(&task), "cancelled");
}

/// A run that is blocked until `state.n` is 2.
fn waiting() -> Bed {
    let bed = bed(
        "state: {n: 1, deep: {a: x}}\nsteps:\n  - {name: one, requires: [{check: 'state.n == 2', reason: n is wrong}], command: [echo, \"${state.deep.a} ${state.new.b:-}\"]}\n",
    );
    run(&bed).fails(4);
    bed
}

#[test]
fn a_person_corrects_the_document_of_a_blocked_run() {
    let bed = waiting();
    let words = [
        "set",
        "last",
        "state.n=2",
        r#"state.deep.a="b c""#,
        "state.new.b=[1]",
    ];
    let ran = bed
        .orch(words.into_iter().chain(["--note", "as agreed"]))
        .run()
        .expect(0);
    says(&ran.stdout, "state.deep.a = \"b c\"");
    says(&ran.stdout, "orch resume");
    let log = bed.orch(["log", "last"]).run().expect(0).stdout;
    says(
        &log,
        "[one] one SET -> _block | `state.n`, `state.deep.a`, `state.new.b`: as agreed",
    );
    assert_eq!(state(&bed)["status"], "blocked", "nothing moves by itself");
    bed.orch(["resume", "last"]).run().expect(0);
    let after = state(&bed);
    assert_eq!(after["step_results"]["one"]["output"], "b c [1]\n");
    audit(&bed).expect(0);
    let ran = bed
        .orch(["set", "last", "state.n=3", "--note", "late"])
        .run()
        .fails(64);
    says(&ran.stderr, "succeeded");
}

#[test]
fn a_correction_that_is_not_valid_changes_nothing() {
    let bed = waiting();
    let log = format!("logs/{}.jsonl", only_run(&bed));
    let before = bed.read(&log);
    let table: [(&[&str], &str); 10] = [
        (&["state.n=2", "state.deep=oops"], "is not JSON"),
        (&["state.n=2", "deep.a=1"], "not a path under `state.`"),
        (&["state.n=2", "state.=1"], "not a path under `state.`"),
        (&["state.n=2", "state.a..b=1"], "not a path"),
        (&["state.n=2", "state.n.x=1"], "not a map"),
        (&["state.n=2", "state.n=3"], "twice"),
        (&["state.n=2", "nonsense"], "`state.path=JSON`"),
        (&["state.metadata.status=\"completed\""], "reserved"),
        (&["state.governance={}"], "reserved"),
        (&["state.n="], "is not JSON"),
    ];
    for (values, why) in table {
        let words = ["set", "last"].iter().chain(values).chain(&["--note", "x"]);
        let ran = bed.orch(words).run().fails(64);
        says(&ran.stderr, why);
        assert_eq!(bed.read(&log), before, "{values:?}");
    }
    bed.orch(["set", "last", "state.n=2"]).run().fails(64);
    bed.orch(["set", "last", "state.n=2", "--note", " "])
        .run()
        .fails(64);
    bed.orch(["set", "last", "--note", "x"]).run().fails(64);
    let ran = bed
        .orch(["set", "nobody", "state.n=2", "--note", "x"])
        .run()
        .fails_somehow();
    says(&ran.stderr, "there is no run `nobody`");
    assert_eq!(bed.read(&log), before);
}

#[test]
fn an_agent_corrects_nothing() {
    let bed = bed(&format!(
        "state: {{n: 1}}\nsteps:\n  - {{name: liar, command: [sh, -c, '{} set last state.n=2 --note mine; echo $?']}}\n",
        crate::harness::orch().display()
    ));
    run(&bed).expect(0);
    let after = state(&bed);
    assert_eq!(after["state"]["n"], 1);
    assert_ne!(after["step_results"]["liar"]["output"], "0\n");
}

#[test]
fn a_workflow_says_by_a_target_that_a_run_is_stopped() {
    let bed = bed("steps:\n  - {name: one, command: ['false'], on: {failure: {goto: _stop}}}\n");
    let ran = run(&bed).fails(2);
    says(&ran.stderr, "exit code 1");
    bed.orch(["check", "w"]).run().expect(0);
    says(&bed.orch(["graph", "w"]).run().expect(0).stdout, "_stop");
}

#[test]
fn steps_side_by_side_update_parts_of_their_own() {
    let steps = |one: &str, two: &str| {
        let sub =
            |name: &str, part: &str| format!("{{name: {name}, command: [x], updates: [{part}]}}");
        format!(
            "state: {{a: {{}}, ab: 1}}\nsteps:\n  - {{name: p, parallel: [{}, {}]}}\n",
            sub("x", one),
            sub("y", two)
        )
    };
    for (one, two, code) in [
        ("a", "a", 65),
        ("a", "a.b", 65),
        ("a.b", "a", 65),
        ("a.b", "a.c", 0),
        ("a", "ab", 0),
    ] {
        let bed = bed(&steps(one, two));
        let ran = bed.orch(["check", "w"]).run().expect(code);
        if code != 0 {
            says(&format!("{}{}", ran.stdout, ran.stderr), "side by side");
        }
    }
}

const RUN: &str = "20260101T000000Z-w-0001";

/// A decision that is another at every execution, and a part of the document that it updates.
fn deciding() -> Bed {
    let bed = bed(r#"state: {seen: {n: 0}}
steps:
  - name: decide
    updates: [seen]
    output_capture: json
    command: [sh, -c, 'echo x >> ../outside/count; n=$(wc -l < ../outside/count); sed -i "s/\"n\": 0/\"n\": $n/" "$1"; echo "{\"n\": $n}"', x, "${STATE_FILE}"]
    next: [{if: "output.n == state.seen.n", goto: act, lock: decision}]
  - name: act
    requires: [{check: 'snapshots.decision.status == "LOCKED"', stop: true}]
    command: [echo, "${state.seen.n}"]
"#);
    bed.drop_task("w", "go", format!("---\nworkflow: w\nrun: {RUN}\n---\n"));
    bed
}

fn drain(bed: &Bed, fault: Option<&str>) -> Ran {
    let mut orch = bed.orch(["watch", "--drain", "--durability", "power"]);
    if let Some(fault) = fault {
        orch = orch.env("ORCH_FAULT", fault);
    }
    orch.run()
}

#[test]
fn a_decision_is_locked_once_wherever_the_watcher_is_killed() {
    let mut cases = Vec::new();
    for point in Point::ALL {
        let name = point.name();
        let often = ["run.log", "run.state"]
            .iter()
            .any(|part| name.starts_with(part));
        if name.starts_with("run.snapshot") || *point == Point::RunDocument || often {
            let most = if often { 5 } else { 1 };
            cases.extend((1..=most).map(|nth| (name, nth)));
        }
    }
    assert!(cases.len() > 20, "{cases:?}");
    side_by_side(&cases, |(name, nth)| {
        let story = format!("kill -9 before {name} for the {nth}th time");
        let bed = deciding();
        let ran = drain(&bed, Some(&format!("kill:{name}:{nth}"))).about(&story);
        match name.starts_with("run.snapshot") {
            true => ran.killed(),
            false => ran.killed_or(0),
        };
        drain(&bed, None).may_say(&["take over "]).expect(0);
        let after = state(&bed);
        assert_eq!(after["status"], "succeeded", "{story}");
        let n = &after["state"]["seen"]["n"];
        let folder = format!("workspace/{RUN}/snapshots");
        assert_eq!(bed.ls(&folder), ["decision.json"], "{story}");
        assert_eq!(
            bed.read(&format!("{folder}/decision.json")),
            format!("{{\"n\":{n}}}"),
            "{story}"
        );
        assert_eq!(
            after["step_results"]["act"]["output"],
            format!("{n}\n"),
            "{story}"
        );
        bed.orch(["audit", RUN]).run().expect(0);
    });
}

#[test]
fn what_a_crash_kept_from_being_locked_is_gone_after_it() {
    let bed = bed(r#"steps:
  - name: decide
    output_capture: json
    command: [sh, -c, 'echo x >> ../outside/count; echo "{\"n\": $(wc -l < ../outside/count)}"']
    next: [{if: "output.n == 1", goto: _end, lock: decision}, {if: "true", goto: _fail, reason: another time}]
"#);
    bed.drop_task("w", "go", format!("---\nworkflow: w\nrun: {RUN}\n---\n"));
    // The third event is the result.
    drain(&bed, Some("kill:run.log-append:3")).killed();
    let folder = format!("workspace/{RUN}/snapshots");
    assert_eq!(bed.ls(&folder), ["decision.json"]);
    drain(&bed, None).says("take over").expect(0);
    assert_eq!(state(&bed)["error"]["message"], "another time");
    assert_eq!(bed.ls(&folder), [""; 0]);
    bed.orch(["audit", RUN]).run().expect(0);
}
