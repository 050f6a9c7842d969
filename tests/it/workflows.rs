//! Workflows as a person uses them: `run`, `resume`, `cancel`, `reset`, `audit`, and what steps do.

mod contract;
mod records;
mod steps;
mod updates;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Bed, Ended, Ran, wait_for};
use crate::props::{Gate, wait_for_started};

/// A root with the workflow `w`, which has these keys and steps.
fn bed(rest: &str) -> Bed {
    let bed = Bed::new();
    workflow(&bed, rest);
    bed
}

fn workflow(bed: &Bed, rest: &str) {
    bed.write("specs/w.yaml", format!("version: \"1\"\nname: w\n{rest}"));
}

/// A command step that adds its name to `outside/count`, then does this; `$1` is `arg`.
fn counted(name: &str, script: &str, arg: &str, more: &str) -> String {
    format!(
        "  - name: {name}\n    command: [sh, -c, 'echo {name} >> ../outside/count; {script}', x, {arg}]\n{more}"
    )
}

fn run(bed: &Bed, more: &[&str]) -> Ran {
    let mut words = vec!["run", "w"];
    words.extend(more);
    bed.orch(words).run()
}

fn id(ran: &Ended) -> String {
    ran.stdout
        .lines()
        .next()
        .unwrap_or_else(|| panic!("{ran:?}"))
        .to_owned()
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

fn result(bed: &Bed, step: &str) -> Value {
    state(bed)["step_results"][step].clone()
}

fn counts(bed: &Bed) -> Vec<String> {
    let text = fs::read_to_string(bed.outside.join("count")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Everything below a folder, with its bytes.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = match path.is_dir() {
                true => Vec::new(),
                false => fs::read(&path).unwrap(),
            };
            all.insert(path.display().to_string(), bytes);
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    all
}

#[track_caller]
fn says(text: &str, what: &str) {
    assert!(text.contains(what), "{what:?} is not in:\n{text}");
}

/// A step result that is a failure of this code and kind.
#[track_caller]
fn failed_with(result: &Value, code: i32, kind: &str) {
    assert_eq!(
        (
            &result["status"],
            &result["exit_code"],
            &result["error"]["kind"]
        ),
        (&json!("failed"), &json!(code), &json!(kind)),
        "{result:#}"
    );
}

// Exit codes and checkpoints

#[test]
fn a_run_that_succeeds_prints_its_id_and_every_checkpoint_and_exits_0() {
    let bed = bed(&format!(
        "steps:\n{}{}",
        counted("one", "echo hi", "x", "    phase: FIRST\n"),
        counted("two", "test \"$1\" = \"please\"", "\"${request}\"", "")
    ));
    let ran = run(&bed, &["please"]).expect(0);
    let run_id = id(&ran);
    assert_eq!(run_id, only_run(&bed));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            run_id.as_str(),
            "[FIRST] one OK -> two",
            "[two] two OK -> _end",
            &format!("{run_id} is done")
        ]
    );
    assert_eq!(state(&bed)["status"], "succeeded");
    assert_eq!(counts(&bed), ["one", "two"]);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_run_that_fails_exits_1_says_why_and_runs_nothing_after_it() {
    let bed = bed(&format!(
        "steps:\n{}{}",
        counted("one", "echo broken >&2; exit 7", "x", ""),
        counted("two", "true", "x", "")
    ));
    let ran = run(&bed, &[]).fails(1);
    says(&ran.stdout, "[one] one FAIL -> _fail");
    says(&ran.stderr, "orch reset ");
    assert_eq!(result(&bed, "one")["exit_code"], 7);
    assert_eq!(counts(&bed), ["one"]);
    let ran = bed.orch(["resume", "last"]).run().fails(64);
    says(&ran.stderr, "failed");
}

#[test]
fn without_strict_flow_a_failure_goes_on_and_on_failure_is_taken() {
    let steps = format!(
        "{}{}{}",
        counted("one", "exit 3", "x", ""),
        counted("two", "exit 4", "x", "    on: {failure: {goto: rescue}}\n"),
        counted("never", "true", "x", "")
            + &counted("rescue", "echo \"$1\"", "\"${steps.two.exit_code}\"", ""),
    );
    let bed = bed(&format!("strict_flow: false\nsteps:\n{steps}"));
    let ran = run(&bed, &[]).expect(0);
    says(&ran.stdout, "[two] two FAIL -> rescue");
    assert_eq!(counts(&bed), ["one", "two", "rescue"]);
    assert_eq!(result(&bed, "rescue")["output"], "4\n");
}

#[test]
fn a_gate_blocks_with_exit_4_and_opens_only_when_its_cause_is_gone() {
    let gate = "    requires: [{check: 'exists(\"ready\")', reason: the file ready is missing}]\n";
    let bed = bed(&format!(
        "steps:\n{}{}",
        counted("one", "true", "x", ""),
        counted("two", "true", "x", gate)
    ));
    let ran = run(&bed, &[]).fails(4);
    says(&ran.stderr, "the file ready is missing");
    says(&ran.stderr, "orch resume ");
    for _ in 0..2 {
        let ran = bed.orch(["resume", "last"]).run().fails(4);
        says(&ran.stderr, "the file ready is missing");
    }
    let blocked = state(&bed);
    assert_eq!(blocked["status"], "blocked");
    assert_eq!(blocked["metadata"]["status"], "blocked");
    bed.drain().expect(0);
    assert_eq!(counts(&bed), ["one"], "nothing runs while it is blocked");
    bed.write("ready", "");
    let ran = bed.orch(["resume", "last"]).run().expect(0);
    says(&ran.stdout, "[two] two OK -> _end");
    assert_eq!(counts(&bed), ["one", "two"]);
    assert_eq!(state(&bed)["governance"]["blockedReason"], Value::Null);
    let ran = bed.orch(["resume", "last"]).run().fails(64);
    says(&ran.stderr, "succeeded, and that is final");
}

#[test]
fn an_ensures_that_fails_blocks_and_its_step_runs_once_more_after_resume() {
    let more = "    ensures: [{check: 'exists(\"made\")', reason: nothing was made}]\n";
    let bed = bed(&format!(
        "steps:\n{}",
        counted("one", "[ ! -e allow ] || touch made", "x", more)
    ));
    says(&run(&bed, &[]).fails(4).stderr, "nothing was made");
    bed.write("allow", "");
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(counts(&bed), ["one", "one"]);
}

// Several at once

#[test]
fn a_run_beside_a_watcher_is_worked_on_by_the_watcher_and_told_here() {
    let bed = bed(&format!(
        "steps:\n{}{}",
        counted("one", "true", "x", ""),
        counted("two", "exit 1", "x", "")
    ));
    let watcher = bed.watch(&[]);
    let ran = run(&bed, &[]).fails(1);
    says(&ran.stdout, "[one] one OK -> two");
    says(&ran.stdout, "[two] two FAIL -> _fail");
    watcher.signal("TERM");
    let watched = watcher.wait().expect(143);
    says(&watched.stdout, "[one] one OK -> two");
    assert_eq!(counts(&bed), ["one", "two"]);
}

#[test]
fn whoever_looks_at_a_run_while_it_is_worked_on_sees_it_whole() {
    let steps: String = (0..25)
        .map(|n| counted(&format!("s{n}"), "true", "x", ""))
        .collect();
    let bed = bed(&format!("steps:\n{steps}"));
    let _watcher = bed.watch(&[]);
    let going = bed.orch(["run", "w"]).start();
    wait_for("the first step", || bed.count_lines("count") > 0);
    wait_for("the last step", || {
        bed.orch(["show", "last"]).run().expect(0);
        bed.orch(["status", "last", "--json"]).run().expect(0);
        bed.count_lines("count") == 25
    });
    let ran = going.wait().expect(0);
    assert_eq!(ran.stdout.lines().count(), 27, "{ran:?}");
}

#[test]
fn two_resumes_at_once_both_end_well_and_every_step_runs_once() {
    let steps: String = (0..6)
        .map(|n| counted(&format!("s{n}"), "sleep 0.05", "x", ""))
        .collect();
    let gate = "  - name: gate\n    requires: [{check: 'exists(\"ready\")', reason: wait}]\n    command: [\"true\"]\n";
    let bed = bed(&format!("steps:\n{gate}{steps}"));
    run(&bed, &[]).fails(4);
    bed.write("ready", "");
    let both: Vec<_> = (0..2)
        .map(|_| bed.orch(["resume", "last"]).start())
        .collect();
    for one in both {
        one.wait().expect(0);
    }
    assert_eq!(counts(&bed), ["s0", "s1", "s2", "s3", "s4", "s5"]);
    assert_eq!(state(&bed)["status"], "succeeded");
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn cancel_ends_the_agent_and_a_late_result_is_not_committed() {
    let bed = bed(
        "steps:\n  - {name: slow, agent: bob, prompt: hi}\n  - {name: after, command: [touch, after]}\n",
    );
    let gate = Gate::new(&bed, "gate");
    bed.script("bob", &format!("{}; echo late", gate.wait_here(&bed)));
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    says(
        &bed.orch(["cancel", "last"]).run().expect(0).stdout,
        "cancelled",
    );
    let ran = going.wait().says("cancelled").expect(1);
    says(&ran.stderr, "was cancelled");
    bed.assert_nothing_runs();
    let state = state(&bed);
    assert_eq!(state["status"], "cancelled");
    assert_eq!(state["metadata"]["status"], "cancelled");
    assert_eq!(state["step_results"]["slow"], Value::Null);
    assert!(!bed.has("after"));
    bed.drain().expect(0);
    assert!(!bed.has("after"));
    bed.orch(["audit", "last"]).run().expect(0);
    bed.orch(["cancel", "last"]).run().fails(64);
    bed.orch(["resume", "last"]).run().fails(64);
}

#[test]
fn reset_is_refused_while_a_step_is_worked_on_and_else_starts_over_with_the_log_kept() {
    let bed = bed(
        "steps:\n  - {name: one, command: [sh, -c, 'echo x >> \"$1/made\"; cat \"$1/made\"', x, \"${run.files}\"]}\n  - {name: slow, agent: bob, prompt: hi}\n",
    );
    let mut gate = Gate::new(&bed, "gate");
    bed.script("bob", &format!("{}; echo done", gate.wait_here(&bed)));
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    let ran = bed.orch(["reset", "last"]).run().fails(75);
    says(&ran.stderr, "`slow`");
    gate.let_through(1);
    going.wait().expect(0);
    let before = state(&bed);
    let log = bed.read(&format!("logs/{}.jsonl", only_run(&bed)));
    bed.orch(["reset", "last"]).run().expect(0);
    assert_eq!(state(&bed)["status"], "running");
    assert_eq!(state(&bed)["step_results"], json!({}));
    gate.let_through(1);
    bed.orch(["resume", "last"]).run().expect(0);
    let after = state(&bed);
    assert!(after["seq"].as_u64() > before["seq"].as_u64());
    assert_eq!(
        after["step_results"]["one"]["output"], "x\n",
        "files begin empty"
    );
    assert!(
        bed.read(&format!("logs/{}.jsonl", only_run(&bed)))
            .starts_with(&log)
    );
    bed.orch(["audit", "last"]).run().expect(0);
}

// What a run is given

#[test]
fn a_dry_run_shows_the_steps_and_touches_nothing() {
    let bed = bed(
        "context: {n: 1}\nsteps:\n  - {name: one, command: [touch, \"made-${context.n}\"]}\n  - {name: two, provider: echo, prompt: \"${steps.one.output}\"}\n",
    );
    let before = tree(&bed.root);
    let ran = run(&bed, &["--dry-run", "--context", "n=5"]).expect(0);
    says(&ran.stdout, "made-5");
    says(&ran.stdout, "two");
    let json = run(&bed, &["--dry-run", "--json"]).expect(0);
    serde_json::from_str::<Value>(&json.stdout).unwrap();
    assert_eq!(tree(&bed.root), before);
}

#[test]
fn context_takes_the_type_of_its_default_and_unknown_keys_are_refused() {
    let bed = bed(
        "context: {n: 1, on: false, word: a, list: []}\nsteps:\n  - name: one\n    when: {if: 'context.n + 1 == 8 && context.on && context.word == \"7\" && context.list[0] == 3'}\n    command: [\"true\"]\n",
    );
    for (pair, told) in [
        ("nn=1", "`n`"),
        ("n=x", "a number"),
        ("on=7", "true or false"),
        ("list=3", "a JSON list"),
        ("n", "K=V"),
    ] {
        let ran = run(&bed, &["--context", pair]).fails(64);
        says(&ran.stderr, told);
    }
    assert_eq!(bed.ls("inbox/w"), [""; 0], "nothing was started");
    let mut words = Vec::new();
    for pair in ["n=7", "on=true", "word=7", "list=[3]"] {
        words.extend(["--context", pair]);
    }
    run(&bed, &words).expect(0);
    assert_eq!(result(&bed, "one")["status"], "succeeded");
    assert_eq!(
        state(&bed)["variables"]["context"],
        json!({"n": 7, "on": true, "word": "7", "list": [3]})
    );
}

#[test]
fn an_input_must_match_its_schema() {
    let bed = bed(
        "input: {schema: specs/schemas/in.json}\nsteps:\n  - {name: one, command: [echo, \"${input.title}\"]}\n",
    );
    bed.write(
        "specs/schemas/in.json",
        r#"{"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"], "additionalProperties": false}"#,
    );
    says(&run(&bed, &[]).fails(64).stderr, "--input");
    for bad in ["title: 5\n", "title: a\nother: b\n", "{}\n"] {
        fs::write(bed.outside.join("in.yaml"), bad).unwrap();
        let ran = run(&bed, &["--input", "in.yaml"]).fails(65);
        says(&ran.stderr, "input");
    }
    assert_eq!(bed.ls("workspace"), [""; 0]);
    fs::write(bed.outside.join("in.yaml"), "title: a b\n").unwrap();
    run(&bed, &["--input", "in.yaml"]).expect(0);
    assert_eq!(result(&bed, "one")["output"], "a b\n");
}

#[test]
fn a_task_in_the_inbox_of_a_workflow_starts_a_run() {
    let bed = bed("steps:\n  - {name: one, command: [echo, \"${request}\"]}\n");
    bed.drop_task("w", "go", "do it\n");
    bed.drain().expect(0);
    assert_eq!(result(&bed, "one")["output"], "do it\n");
    assert_eq!(bed.record("w/go")["run"], only_run(&bed));
    assert!(bed.has("processed/w/go.task"));
}
