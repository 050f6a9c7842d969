//! What commands print with `--json` is what the reference lists: every field that comes up has a
//! row, and every row comes up.
//!
//! A row with a link stands for a whole object, which has a table elsewhere. A row that says "left
//! out" need not come up.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::page;
use super::reference::table;
use crate::harness::{Bed, Ended, Ran, wait_for};
use crate::props::{Gate, wait_for_started};

/// The paths of everything in a document: `a.b`, `a[].b`.
fn paths(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match at {
                    "" => name.clone(),
                    at => format!("{at}.{name}"),
                };
                out.insert(path.clone());
                paths(value, &path, out);
            }
        }
        Value::Array(items) => {
            let path = format!("{at}[]");
            if !items.is_empty() {
                out.insert(path.clone());
            }
            items.iter().for_each(|item| paths(item, &path, out));
        }
        _ => {}
    }
}

/// Holds documents against the table below a heading.
#[track_caller]
fn assert_listed(heading: &str, documents: &[Value]) {
    let rows = table(&page("docs/reference.md"), heading, 0);
    let mut seen = BTreeSet::new();
    documents
        .iter()
        .for_each(|document| paths(document, "", &mut seen));
    let row = |path: &str| rows.iter().find(|row| row[0] == format!("`{path}`"));
    let leads_on = |path: &str| {
        let inside = |row: &&Vec<String>| {
            let rest = row[0].trim_matches('`').strip_prefix(path);
            rest.is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        rows.iter().find(inside).is_some()
    };
    let whole = |path: &str| {
        let above = path.match_indices(['.', '[']).map(|(at, _)| &path[..at]);
        let mut above = above.chain(path.ends_with(']').then_some(path));
        let mut above_list = path.match_indices("].").map(|(at, _)| &path[..=at]);
        let is_whole = |path: &str| row(path).is_some_and(|row| row[1].contains("](#"));
        above.any(is_whole) || above_list.any(is_whole)
    };
    for path in &seen {
        let known = row(path).is_some() || leads_on(path) || whole(path);
        assert!(known, "{heading}: `{path}` is printed and has no row");
    }
    for row in &rows {
        let path = row[0].trim_matches('`');
        let may_lack = row[1].contains("left out");
        assert!(
            may_lack || seen.contains(path),
            "{heading}: `{path}` has a row and is not printed"
        );
    }
}

/// The JSON that a command printed.
#[track_caller]
fn one(ran: &Ended) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

/// The lines of JSON that a command printed.
#[track_caller]
fn lines(ran: &Ended) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    ran.stdout.lines().map(line).collect()
}

/// A command with `--json`.
fn ask(bed: &Bed, words: &[&str]) -> Ran {
    bed.orch(words.iter().chain(&["--json"])).run().noisy()
}

#[test]
fn a_field_without_a_row_and_a_row_without_a_field_are_found() {
    let fails = |document: Value| {
        let documents = [document];
        std::panic::catch_unwind(|| assert_listed("`orch send --json`", &documents)).is_err()
    };
    assert!(!fails(json!({"agent": "a", "task": "t"})));
    assert!(fails(json!({"agent": "a"})));
    assert!(fails(json!({"agent": "a", "task": "t", "more": 1})));
    assert!(fails(json!({"agent": "a", "task": {"name": 1}})));
}

/// A workflow that judges, asks, locks and ends, with commands alone.
const JUDGE: &str = r#"version: "1"
name: judge
description: decides
steps:
  - name: decide
    command: [echo, '{"go": true, "issues": [{"id": "I1"}], "fixes": [{"issue": "I1"}]}']
    output_capture: json
    next: [{if: output.go, goto: ask, lock: decision}]
  - name: ask
    approval: gate
    next: [{if: approvals.gate == true, goto: both}]
  - name: both
    requires: [{check: "visits.ask == 1"}]
    parallel:
      - {name: left, command: ["true"], depends_on: {optional: ["*.md"]}}
      - {name: right, command: ["true"]}
"#;

fn judging() -> Bed {
    let bed = Bed::new();
    bed.write("specs/judge.yaml", JUDGE);
    bed
}

#[test]
fn of_runs() {
    let bed = judging();
    let outline = one(&ask(&bed, &["run", "judge", "--dry-run"]).expect(0));
    assert_listed("`orch run --dry-run --json`", &[outline]);
    let detached = one(&ask(&bed, &["run", "judge", "--detach"]).expect(0));
    assert_eq!(
        detached.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["run"]
    );
    bed.orch([
        "cancel",
        &format!("judge/{}", detached["run"].as_str().unwrap()),
    ])
    .run()
    .expect(0);
    let mut printed = lines(&ask(&bed, &["run", "judge"]).expect(4));
    let result = printed.pop().unwrap();
    assert_listed("`orch run --json`", &[result]);
    assert_listed("`orch log --json`", &printed);
    assert_eq!(lines(&ask(&bed, &["log", "last"]).expect(0)), printed);
    let status = one(&ask(&bed, &["status", "last"]).expect(0));
    bed.write(
        "specs/wait.yaml",
        "version: \"1\"\nname: wait\nsteps:\n  - {name: w, wait_for: {glob: \"x/*\"}}\n",
    );
    ask(&bed, &["run", "wait", "--timeout", "1s"]).expect(75);
    let waiting = one(&ask(&bed, &["status", "wait"]).expect(0));
    assert_listed("`orch status RUN --json`", &[status, waiting]);
    bed.orch(["cancel", "wait"]).run().expect(0);
    let answered = one(&ask(&bed, &["approve", "judge", "gate"]).expect(0));
    assert_listed("`orch approve --json`", &[answered]);
    ask(&bed, &["resume", "judge"]).expect(0);
    let run = bed
        .ls("workspace")
        .into_iter()
        .find(|run| run.contains("judge"))
        .unwrap();
    bed.write(&format!("workspace/{run}/snapshots/decision.json"), "{}");
    let audit = one(&ask(&bed, &["audit", &run]).expect(3));
    assert_listed("`orch audit --json`", &[audit]);
}

#[test]
fn of_tasks() {
    let bed = Bed::new();
    bed.script("ok", "cat");
    let sent = one(&ask(&bed, &["send", "ok", "hello", "--name", "t"]).expect(0));
    assert_listed("`orch send --json`", &[sent]);
    bed.drain().expect(0);
    bed.orch(["retry", "ok/t"]).run().noisy().expect(0);
    bed.drain().expect(0);
    let shown = one(&ask(&bed, &["show", "ok/t"]).expect(0));
    assert_listed("`orch show AGENT/NAME --json`", &[shown]);
    let list = one(&ask(
        &bed,
        &["clean-processed", "--older-than", "0s", "--dry-run"],
    )
    .expect(0));
    let removed = one(&ask(&bed, &["clean-processed", "--older-than", "0s"]).expect(0));
    assert_listed("`orch clean-processed --json`", &[list, removed]);
}

#[test]
fn of_checks() {
    let bed = judging();
    bed.write(
        "specs/bad.yaml",
        "version: \"1\"\nname: bad\nsteps:\n  - {name: a, comand: [x], env: {A: \"${x}\"}}\n",
    );
    bed.write(
        "specs/odd.yaml",
        "version: \"1\"\nname: odd\nsteps:\n  - {name: a, command: [x], env: {A: \"${x}\"}}\n",
    );
    let checked = one(&ask(&bed, &["check"]).expect(65));
    assert_listed("`orch check --json`", &[checked]);
    let found = one(&ask(&bed, &["doctor"]).expect(1));
    assert_listed("`orch doctor --json`", &[found]);
}

#[test]
fn of_a_root_at_work() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("slow", &gate.wait_here(&bed));
    bed.script("ok", "cat");
    bed.write(
        "specs/wait.yaml",
        "version: \"1\"\nname: wait\nsteps:\n  - {name: w, wait_for: {glob: \"x/*\"}}\n",
    );
    bed.drop_task("slow", "a", "x");
    bed.drop_task("wait", "b", "x");
    let _watcher = bed.watch(&[
        "--jobs", "2", "--agent", "slow", "--agent", "wait", "--agent", "orch",
    ]);
    wait_for_started(&bed, 1);
    wait_for("the run to wait", || {
        let status = one(&ask(&bed, &["status"]).expect(0));
        status["runs"][0]["waits"][0].is_object()
    });
    bed.drop_task("ok", "c", "x");
    bed.write("inbox/ok/d.claimed", "x");
    bed.write("inbox/ok/not a task.task", "x");
    let status = one(&ask(&bed, &["status"]).expect(0));
    assert_listed("`orch status --json`", &[status]);
}

/// The events of `watch --json` by their names, each with its fields.
#[test]
fn of_a_watcher() {
    let bed = judging();
    let gate = Gate::new(&bed, "gate");
    bed.script("slow", &gate.wait_here(&bed));
    bed.script_with(
        "busy",
        "echo 'rate limit'; exit 1",
        "transient: [rate limit]",
        "retries: 1",
    );
    bed.agent("person", "provider: human", "");
    bed.write("inbox/busy/not a task.task", "x");
    bed.write("inbox/person/odd.reply", "no answer in here");
    bed.write("inbox/busy/dead.claimed", "x");
    bed.drop_task("judge", "j", "x");
    let mut all = lines(&ask(&bed, &["watch", "--drain", "--durability", "process"]).expect(1));
    bed.drop_task("slow", "cancel", "x");
    bed.drop_task("slow", "stop", "x");
    let watcher = bed
        .orch(["watch", "--json", "--durability", "process"])
        .start();
    wait_for_started(&bed, 1);
    std::fs::remove_file(bed.root.join("inbox/slow/cancel.claimed")).unwrap();
    wait_for_started(&bed, 2);
    watcher.signal("TERM");
    all.extend(lines(&watcher.wait().expect(143)));
    let mut seen = BTreeSet::new();
    for event in &all {
        let fields = event.as_object().unwrap().keys();
        let fields = fields
            .filter(|key| *key != "event")
            .map(|key| format!("`{key}`"));
        let name = event["event"].as_str().unwrap();
        let fields = match fields.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "–".to_owned(),
            some => some,
        };
        seen.insert((format!("`{name}`"), fields));
    }
    let rows = table(&page("docs/reference.md"), "`orch watch --json`", 0);
    let rows: BTreeSet<_> = rows
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    assert_eq!(seen, rows);
}

/// What some kinds of steps add to their results.
#[test]
fn of_results() {
    let bed = Bed::new();
    bed.script("model", "printf 'Here:\\n```text a.txt\\nx\\n```\\n'");
    bed.write(
        "specs/all.yaml",
        r#"version: "1"
name: all
steps:
  - {name: fenced, command: [printf, "It is\n```json\n{}\n```\n"], output_capture: json}
  - {name: printed, agent: model}
  - {name: apply, action: apply_files, from: printed, into: "${run.files}"}
  - name: each
    for_each: {items: [1], steps: [{name: one, command: ["true"]}]}
  - {name: secret, command: ["true"], secrets: [ORCH_TEST_NO_SUCH_SECRET]}
"#,
    );
    ask(&bed, &["run", "all"]).expect(1);
    let state = one(&ask(&bed, &["show", "last"]).expect(0));
    let mut seen = BTreeSet::new();
    for results in [&state["step_results"], &state["loop_results"]] {
        let results = results.as_object().unwrap().values();
        let more = results.filter_map(|result| result["more"].as_object());
        seen.extend(more.flat_map(|more| more.keys().map(|key| format!("`{key}`"))));
    }
    let rows = table(&page("docs/reference.md"), "Fields of steps", 1);
    let names = rows
        .iter()
        .flat_map(|row| row[0].split(", ").map(str::to_owned));
    assert_eq!(seen, names.collect());
}

/// Every heading of a `--json` output belongs to a test in here.
#[test]
fn every_output_is_held_against_its_table() {
    let own = include_str!("json.rs");
    let text = page("docs/reference.md");
    let headings = text
        .lines()
        .filter_map(|line| line.strip_prefix("### `orch "));
    for heading in headings {
        let quoted = format!("\"`orch {heading}\"");
        assert!(own.contains(&quoted), "{quoted}");
    }
}
