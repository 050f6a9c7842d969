//! The contract of a run, seen from outside: its fields, its variables, and files of other makes.

use super::*;
use crate::harness::{PATIENCE, program, write_executable};

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn sha256(path: &Path) -> String {
    let ran = program("sha256sum").args([path]).run().expect(0);
    ran.stdout.split(' ').next().unwrap().to_owned()
}

fn log_lines(bed: &Bed) -> Vec<Value> {
    let text = bed.read(&format!("logs/{}.jsonl", only_run(bed)));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.len() >= 20 && &text[10..11] == "T" && text.ends_with('Z')
}

/// The most that ran at once, by a file of lines that start with `+` and `-`.
fn at_once(lines: &[String]) -> i32 {
    let mut now = 0;
    let steps = lines.iter().map(|line| {
        now += if line.starts_with('+') { 1 } else { -1 };
        now
    });
    steps.max().unwrap_or(0)
}

// What lies on disk

#[test]
fn the_state_of_a_run_has_the_fields_of_the_contract() {
    let bed = bed("context: {k: 1}
state: {n: 0}
steps:
  - name: one
    command: [echo, hi]
    next: [{if: 'true', goto: gate, set: {state.n: 'state.n + 1'}}]
  - name: gate
    phase: CHECK
    requires: [{check: 'exists(\"ready\")', reason: not ready}]
    command: [\"true\"]
");
    run(&bed, &["please"]).fails(4);
    let id = only_run(&bed);
    let blocked = state(&bed);
    for key in [
        "version",
        "run_id",
        "workflow_name",
        "workflow_sha256",
        "status",
        "metadata",
        "governance",
        "start_timestamp",
        "end_timestamp",
        "seq",
        "log_head",
        "variables",
        "visits",
        "snapshots",
        "step_results",
        "pending",
        "state",
    ] {
        assert!(blocked.get(key).is_some(), "{key}: {blocked:#}");
    }
    assert_eq!(blocked["version"], 1);
    assert_eq!(blocked["run_id"], id);
    assert_eq!(blocked["workflow_name"], "w");
    let spec = bed.root.join("specs/w.yaml");
    assert_eq!(blocked["workflow_sha256"], sha256(&spec));
    assert_eq!(blocked["status"], "blocked");
    assert_eq!(
        blocked["metadata"],
        json!({"currentPhase": "CHECK", "status": "blocked"})
    );
    assert_eq!(blocked["governance"]["blockedReason"], "not ready");
    assert_eq!(blocked["governance"]["approvals"], json!({}));
    assert!(is_time(&blocked["start_timestamp"]), "{blocked:#}");
    assert_eq!(blocked["end_timestamp"], Value::Null);
    assert_eq!(blocked["variables"]["request"], "please");
    assert_eq!(blocked["visits"], json!({"one": 1, "gate": 1}));
    assert_eq!(blocked["state"], json!({"n": 1}));
    assert_eq!(blocked["pending"], json!([]));
    assert_eq!(blocked["seq"], log_lines(&bed).len());
    bed.write("ready", "");
    bed.orch(["resume", "last"]).run().expect(0);
    let done = state(&bed);
    assert_eq!(done["status"], "succeeded");
    assert_eq!(done["metadata"]["status"], "completed");
    assert!(is_time(&done["end_timestamp"]), "{done:#}");
    assert_eq!(done["governance"]["blockedReason"], Value::Null);
    let log = bed.read(&format!("logs/{id}.jsonl"));
    let last = format!("{}\n", log.lines().last().unwrap());
    fs::write(bed.outside.join("last"), last).unwrap();
    assert_eq!(done["log_head"], sha256(&bed.outside.join("last")));
}

#[test]
fn the_result_of_a_step_has_the_fields_of_the_contract() {
    let bed = bed("strict_flow: false
steps:
  - {name: text, command: [echo, hi]}
  - {name: lines, command: [printf, 'a\\nb'], output_capture: lines}
  - {name: json, command: [echo, '[1]'], output_capture: json}
  - {name: bad, command: [sh, -c, 'echo oops >&2; exit 3']}
");
    run(&bed, &[]).expect(0);
    let common = [
        "attempt",
        "duration",
        "end_time",
        "exit_code",
        "start_time",
        "status",
        "step_name",
        "truncated",
        "visit",
    ];
    for (step, own) in [
        ("text", "output"),
        ("lines", "lines"),
        ("json", "json_data"),
        ("bad", "error"),
    ] {
        let result = result(&bed, step);
        for key in common.iter().chain([&own]) {
            assert!(keys(&result).contains(key), "{step}: {key}: {result:#}");
        }
        assert_eq!(result["step_name"], step);
        assert!(is_time(&result["start_time"]) && is_time(&result["end_time"]));
        assert!(result["duration"].as_f64().unwrap() < PATIENCE.as_secs_f64());
        assert_eq!(
            (&result["attempt"], &result["visit"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(result["truncated"], false);
        let status = if step == "bad" { "failed" } else { "succeeded" };
        assert_eq!(result["status"], status);
        let modes = ["output", "lines", "json_data"];
        let used: Vec<_> = modes
            .iter()
            .filter(|key| !result[**key].is_null())
            .collect();
        let mode = if step == "bad" { "output" } else { own };
        assert_eq!(used, [&mode], "{result:#}");
    }
    assert_eq!(result(&bed, "lines")["lines"], json!(["a", "b"]));
    assert_eq!(result(&bed, "json")["json_data"], json!([1]));
    assert_eq!(
        keys(&result(&bed, "bad")["error"])[..2],
        ["kind", "message"]
    );
}

#[test]
fn the_latest_visit_is_in_the_state_and_the_older_ones_are_in_the_log() {
    let bed = bed("steps:
  - name: try
    command: [sh, -c, 'echo try >> ../outside/count; echo \"answer $(wc -l < ../outside/count)\"']
    max_visits: 3
    on_limit: _end
    on: {success: {goto: try}}
");
    run(&bed, &[]).expect(0);
    assert_eq!(result(&bed, "try")["output"], "answer 3\n");
    assert_eq!(result(&bed, "try")["visit"], 3);
    let log = bed.read(&format!("logs/{}.jsonl", only_run(&bed)));
    for n in 1..=3 {
        says(&log, &format!("answer {n}\\n"));
    }
}

#[test]
fn every_transition_is_a_line_of_the_log_with_phase_outcome_target_and_reason() {
    let bed = bed("strict_flow: false
steps:
  - {name: one, phase: FIRST, command: [echo, hi], next: [{if: 'output == \"hi\\n\"', goto: two, reason: 'said ${steps.one.output}'}]}
  - {name: two, command: [sh, -c, exit 4]}
  - {name: three, command: [x], when: {if: 'false'}}
");
    let ran = run(&bed, &[]).expect(0);
    let log = bed.read(&format!("logs/{}.jsonl", only_run(&bed)));
    for line in [
        "[FIRST] one OK -> two | said hi",
        "[two] two FAIL -> three",
        "[three] three SKIP -> _end",
    ] {
        says(&ran.stdout, line);
        says(&log, line);
    }
}

// Variables

#[test]
fn every_variable_has_its_value() {
    let bed = bed(
        r#"context: {k: {deep: [x, y]}, odd: "$(id) ${context.k} \"q\" 'r' $$ \n end"}
state: {a: {b: 7}}
steps:
  - {name: text, command: [echo, hi]}
  - {name: lines, command: [printf, 'l1\nl2'], output_capture: lines}
  - {name: json, command: [echo, '{"a": {"b": [10, 20]}}'], output_capture: json}
  - {name: run, command: [printf, '%s|%s|%s|%s', "${run.id}", "${run.root}", "${run.files}", "${run.timestamp_utc}"]}
  - {name: given, command: [printf, '%s|%s|%s|%s', "${request}", "${input.list[1]}", "${context.k.deep[1]}", "${state.a.b}"]}
  - {name: odd, command: [printf, '%s', "${context.odd}"]}
  - {name: steps, command: [printf, '%s|%s|%s|%s|%s', "${steps.text.exit_code}", "${steps.text.output}", "${steps.lines.lines[1]}", "${steps.json.json.a.b[0]}", "${steps.text.duration}"]}
  - name: each
    for_each:
      items: [{v: p}, {v: q}]
      as: it
      steps:
        - {name: body, command: [printf, '%s|%s|%s/%s', "${it.v}", "${item.v}", "${loop.index}", "${loop.total}"]}
"#,
    );
    fs::write(bed.outside.join("in.yaml"), "list: [a, b]\n").unwrap();
    run(&bed, &["please", "--input", "in.yaml"]).expect(0);
    let id = only_run(&bed);
    let root = bed.root.display();
    let stamp = id.split('-').next().unwrap();
    let out = |step: &str| result(&bed, step)["output"].as_str().unwrap().to_owned();
    assert_eq!(
        out("run"),
        format!("{id}|{root}|{root}/workspace/{id}/files|{stamp}")
    );
    assert_eq!(out("given"), "please|b|y|7");
    assert_eq!(out("odd"), "$(id) ${context.k} \"q\" 'r' $$ \n end");
    assert!(
        out("steps").starts_with("0|hi\n|l2|10|0."),
        "{}",
        out("steps")
    );
    let bodies: Vec<Value> = (0..2)
        .map(|n| result(&bed, "each")[n]["body"]["output"].clone())
        .collect();
    assert_eq!(bodies, ["p|p|0/2", "q|q|1/2"]);
}

#[test]
fn a_prompt_has_whole_outputs_and_tails_and_one_that_is_too_long_fails() {
    let bed = bed(r#"strict_flow: false
steps:
  - {name: long, command: [sh, -c, 'head -c 20000 /dev/zero | tr "\0" a; echo END; echo trouble >&2']}
  - {name: whole, provider: echo, prompt: "<${steps.long.output}>"}
  - {name: tail, provider: echo, prompt: "<${steps.long.tail}>"}
  - {name: huge, command: [sh, -c, 'head -c 1100000 /dev/zero | tr "\0" a']}
  - {name: over, provider: echo, prompt: "${steps.huge.output}"}
"#);
    run(&bed, &[]).expect(0);
    let task = |step: &str| {
        let task = result(&bed, step)["task"].as_str().unwrap().to_owned();
        bed.read(&format!("artifacts/{task}.out"))
    };
    assert_eq!(task("long").len(), 20004, "everything is in the artifact");
    assert_eq!(task("whole").trim_end().len(), 20004 + 2);
    says(&task("tail"), "END\n");
    assert!(task("tail").trim_end().ends_with("trouble\n>"));
    failed_with(&result(&bed, "over"), 2, "OutputTooLargeError");
    says(
        result(&bed, "over")["error"]["message"].as_str().unwrap(),
        "1100000",
    );
}

#[test]
fn env_reaches_the_process_as_it_is_written() {
    let bed = bed(r#"steps:
  - name: one
    command: [sh, -c, 'printf "%s|%s" "$A" "$B"']
    env: {A: "${request} $HOME", B: 5}
"#);
    run(&bed, &["please"]).expect(0);
    assert_eq!(result(&bed, "one")["output"], "${request} $HOME|5");
}

#[test]
fn an_input_file_comes_before_the_prompt_and_is_sent_as_it_is() {
    let bed = bed(
        "steps:\n  - {name: one, provider: echo, input_file: specs/prompts/p.md, prompt: \"Now ${request}\"}\n  - {name: two, provider: echo, input_file: notes/n.md}\n",
    );
    bed.write("specs/prompts/p.md", "Read ${request} $$.\n");
    bed.write("notes/n.md", "only the file");
    run(&bed, &["go"]).expect(0);
    assert_eq!(
        result(&bed, "one")["output"],
        "Read ${request} $$.\n\nNow go"
    );
    assert_eq!(result(&bed, "two")["output"], "only the file");
}

// Work

#[test]
fn a_file_of_the_older_make_runs_as_it_is() {
    let bed = Bed::new();
    let tool = bed.outside.join("tool.sh");
    write_executable(
        &tool,
        "#!/bin/sh\nprintf 'model=%s prompt=<%s>' \"$1\" \"$2\"\n",
    );
    bed.write(
        "specs/w.yaml",
        format!(
            r#"version: "1.1"
name: w
strict_flow: true
context:
  project: demo
providers:
  tool:
    command: ["{}", "${{model}}", "${{PROMPT}}"]
    input_mode: "argv"
    defaults:
      model: "small"
steps:
  - name: ListFiles
    command: ["sh", "-c", "printf 'a.md\nb.md\n'"]
    output_capture: "lines"
  - name: Each
    for_each:
      items_from: "steps.ListFiles.lines"
      as: file
      steps:
        - name: Write
          command: ["sh", "-c", "mkdir -p artifacts/out && echo \"$0\" > artifacts/out/$0", "${{file}}"]
        - name: Ask
          provider: "tool"
          provider_params:
            model: "large"
          prompt: "Look at ${{file}} of ${{context.project}}"
          depends_on:
            required: ["artifacts/out/${{file}}"]
            optional: ["nothing/*.md"]
            inject: true
  - name: Default
    provider: "tool"
    prompt: "plain"
    timeout_sec: 600
    on:
      success: {{goto: Override}}
      failure: {{goto: Never}}
  - name: Never
    command_override: ["false"]
    when: {{equals: {{left: "${{steps.Default.exit_code}}", right: "1"}}}}
  - name: Override
    command_override: ["echo", "${{run.timestamp_utc}}"]
    env: {{MODE: "x"}}
    output_capture: "text"
    on:
      success: {{goto: Wait}}
      failure: {{goto: _end}}
  - name: Wait
    wait_for: {{glob: "artifacts/out/*.md", timeout_sec: 5, poll_ms: 50, min_count: 2}}
  - name: Parse
    command: ["echo", "not json"]
    output_capture: "json"
    allow_parse_error: true
"#,
            tool.display()
        ),
    );
    run(&bed, &[]).expect(0);
    let asked = result(&bed, "Each")[1]["Ask"]["output"].clone();
    assert_eq!(
        asked,
        "model=large prompt=<The following files are required inputs for this task:\n- artifacts/out/b.md\n\nLook at b.md of demo>"
    );
    assert_eq!(
        result(&bed, "Default")["output"],
        "model=small prompt=<plain>"
    );
    let stamp = result(&bed, "Override")["output"].clone();
    assert_eq!(stamp.as_str().unwrap().len(), "YYYYMMDDTHHMMSSZ\n".len());
    assert_eq!(result(&bed, "Wait")["files"].as_array().unwrap().len(), 2);
    assert!(result(&bed, "Parse")["json_parse_error"].is_string());
    assert_eq!(result(&bed, "Never"), Value::Null);
}

#[test]
fn the_prompt_of_a_step_goes_in_as_its_transport_says() {
    let bed = bed(r#"providers:
  p: {command: [sh, -c, 'printf "args:%s stdin:" "$*"; cat; [ -z "$F" ] || cat "$F"', x]}
  f: {command: [sh, -c, 'cat "$1"', x, "${PROMPT_FILE}"], prompt_via: temp_file}
steps:
  - {name: usual, provider: p, prompt: hello}
  - {name: argv, provider: p, prompt: hello, prompt_transport: {mode: argv}}
  - {name: flag, provider: p, prompt: hello, prompt_transport: {mode: argv, argv_template: -p}}
  - {name: stdin, provider: p, prompt: hello, prompt_transport: {mode: stdin}}
  - {name: file, provider: f, prompt: hello}
"#);
    run(&bed, &[]).expect(0);
    let out = |step: &str| result(&bed, step)["output"].as_str().unwrap().to_owned();
    assert_eq!(out("usual"), "args: stdin:hello");
    assert_eq!(out("argv"), "args:hello stdin:");
    assert_eq!(out("flag"), "args:-p hello stdin:");
    assert_eq!(out("stdin"), "args: stdin:hello");
    assert_eq!(out("file"), "hello");
}

#[test]
fn a_timeout_and_what_passes_by_itself_are_tried_again_after_the_delay() {
    let bed = bed(&format!(
        "strict_flow: false\nproviders:\n  p: {{command: [sh, -c, 'echo busy >> ../outside/count; echo overloaded >&2; exit 9'], transient: [overloaded]}}\nsteps:\n{}  - {{name: busy, provider: p, prompt: x, retries: {{max: 1, delay_ms: 1}}}}\n",
        counted(
            "late",
            "sleep 1000",
            "x",
            "    timeout: 1500ms\n    retries: {max: 1, delay_ms: 400}\n"
        )
    ));
    let began = std::time::Instant::now();
    run(&bed, &[]).expect(0);
    assert!(began.elapsed().as_millis() >= 1500 + 400 + 1500);
    assert_eq!(counts(&bed), ["late", "late", "busy", "busy"]);
    assert_eq!(result(&bed, "late")["exit_code"], 124);
    assert_eq!(result(&bed, "busy")["exit_code"], 9);
    assert_eq!(result(&bed, "busy")["attempt"], 2);
}

#[test]
fn dependencies_are_looked_for_again_in_every_iteration() {
    let bed = bed(r#"steps:
  - name: each
    for_each:
      items: [a, b]
      as: it
      on_error: continue
      steps:
        - {name: use, command: [cat, "in/${it}.md"], depends_on: {required: ["in/${it}.*"]}}
"#);
    bed.write("in/b.md", "B");
    run(&bed, &[]).expect(0);
    failed_with(
        &result(&bed, "each")[0]["use"],
        2,
        "DependencyNotFoundError",
    );
    assert_eq!(result(&bed, "each")[1]["use"]["output"], "B");
}

#[test]
fn a_group_runs_side_by_side_up_to_the_number_of_jobs() {
    let sub = |name: &str| {
        format!(
            "      - {{name: {name}, command: [sh, -c, 'echo + >> ../outside/count; sleep 0.4; echo - >> ../outside/count']}}\n"
        )
    };
    let group = format!(
        "  - name: group\n    parallel:\n{}{}{}",
        sub("a"),
        sub("b"),
        sub("c")
    );
    for (jobs, most) in [(None, 1), (Some("2"), 2), (Some("8"), 3)] {
        let bed = bed(&format!("steps:\n{group}"));
        let words: Vec<&str> = jobs.iter().flat_map(|n| ["--jobs", n]).collect();
        run(&bed, &words).expect(0);
        assert_eq!(at_once(&counts(&bed)), most, "{jobs:?}: {:?}", counts(&bed));
    }
}

#[test]
fn max_retries_is_for_workflows_that_use_it() {
    let using = "steps:
  - name: try
    command: [sh, -c, 'echo try >> ../outside/count; exit 1']
    max_visits: {from: context.max_retries, default: 5, min: 1, max: 4}
    on_limit: _end
    on: {failure: {goto: try}}
";
    for (words, tries) in [
        (&["--max-retries", "2"][..], 2),
        (&["--max-retries", "99"], 4),
    ] {
        let bed = bed(&using.replace("default: 5", "default: 3"));
        run(&bed, words).may_say(&["warning: "]).expect(0);
        assert_eq!(counts(&bed).len(), tries, "{words:?}");
    }
    let usual = bed(&using.replace("default: 5", "default: 3"));
    run(&usual, &[]).expect(0);
    assert_eq!(counts(&usual).len(), 3);
    let bed = bed("steps:\n  - {name: one, command: [touch, made]}\n");
    says(
        &run(&bed, &["--max-retries", "2"]).fails(64).stderr,
        "--max-retries",
    );
    assert!(!bed.has("made"));
    assert_eq!(bed.ls("workspace"), [""; 0]);
}

// Bad input

#[test]
fn json_that_is_nested_deep_fails_its_step_and_the_run_goes_on() {
    let step = |name: &str, levels: usize| {
        let print = |bracket| format!("printf %0{levels}d 0 | tr 0 \"{bracket}\"");
        let (open, close) = (print("["), print("]"));
        format!(
            "  - {{name: {name}, command: [sh, -c, '{open}; {close}'], output_capture: json}}\n"
        )
    };
    let bed = bed(&format!(
        "strict_flow: false\nsteps:\n{}{}{}{}  - {{name: last, command: [echo, done]}}\n",
        step("fine", 64),
        step("over", 65),
        step("brink", 126),
        step("far", 3000)
    ));
    run(&bed, &[]).expect(0);
    assert_eq!(result(&bed, "fine")["status"], "succeeded");
    for name in ["over", "brink", "far"] {
        failed_with(&result(&bed, name), 2, "JsonParseError");
    }
    assert_eq!(result(&bed, "last")["output"], "done\n");
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_document_that_grows_in_depth_blocks_in_time() {
    let bed = bed("state: {a: 1}
steps:
  - {name: a, command: [\"true\"], max_visits: 80, on_limit: _end, next: [{if: 'true', goto: a, set: {state.a: '[state.a]'}}]}
");
    let ran = run(&bed, &[]).fails(4);
    says(&ran.stderr, "nested more than 64 levels deep");
    assert_eq!(state(&bed)["visits"]["a"], 64);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_run_that_there_is_not_is_named_with_the_latest() {
    let bed = bed("steps:\n  - {name: one, command: [\"true\"]}\n");
    for words in [
        &["resume", "nosuch"][..],
        &["reset", "nosuch"],
        &["audit", "nosuch"],
    ] {
        let ran = bed.orch(words).run().fails(1);
        says(&ran.stderr, "nosuch");
    }
    run(&bed, &[]).expect(0);
    let ran = bed.orch(["resume", "nosuch"]).run().fails(1);
    says(&ran.stderr, &only_run(&bed));
}

#[test]
fn a_state_that_is_torn_newer_or_of_another_workflow_is_told_apart() {
    let gated = "steps:\n  - {name: one, command: [sh, -c, 'echo one >> ../outside/count']}\n  - {name: two, requires: [{check: 'exists(\"ready\")', reason: wait}], command: [\"true\"]}\n";
    let bed = bed(gated);
    run(&bed, &[]).fails(4);
    let file = format!("workspace/{}/state.json", only_run(&bed));
    let whole = bed.read(&file);
    let with = |from: &str, to: &str| {
        let changed = whole.replacen(from, to, 1);
        assert_ne!(whole, changed, "{whole}");
        changed
    };
    bed.write(&file, &whole[..whole.len() / 2]);
    bed.orch(["resume", "last"]).run().fails(4);
    assert_eq!(state(&bed)["status"], "blocked", "it is made anew");
    bed.orch(["audit", "last"]).run().expect(0);
    let newer = with("\"version\": 1", "\"version\": 2");
    bed.write(&file, &newer);
    let ran = bed.orch(["resume", "last"]).run().fails(65);
    says(&ran.stderr, "newer");
    assert_eq!(bed.read(&file), newer, "it is left as it is");
    bed.write(
        &file,
        with("\"workflow_name\": \"w\"", "\"workflow_name\": \"v\""),
    );
    let ran = bed.orch(["resume", "last"]).run().fails(3);
    says(&ran.stderr, "state.json");
    assert_eq!(counts(&bed), ["one"]);
}

#[test]
fn a_line_that_is_missing_in_the_log_is_corruption() {
    let gated = "steps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, requires: [{check: 'exists(\"ready\")', reason: wait}], command: [touch, made]}\n";
    for gone in 0..3 {
        let bed = bed(gated);
        run(&bed, &[]).fails(4);
        bed.write("ready", "");
        let log = format!("logs/{}.jsonl", only_run(&bed));
        let mut lines: Vec<String> = bed.read(&log).lines().map(str::to_owned).collect();
        lines.remove(gone);
        bed.write(&log, lines.join("\n") + "\n");
        bed.orch(["audit", "last"]).run().expect(3);
        bed.orch(["resume", "last"]).run().fails(3);
        bed.drain().expect(0);
        assert!(!bed.has("made"), "{gone}");
    }
}

#[test]
fn faults_have_the_names_of_the_contract() {
    let table = [
        ("yaml", "version: [", "YamlParseError"),
        (
            "tab",
            "version: \"1\"\nname: tab\n\tsteps: []\n",
            "YamlParseError",
        ),
        (
            "shape",
            "version: \"1\"\nname: shape\nsteps: 5\n",
            "WorkflowValidationError",
        ),
        (
            "goto",
            "version: \"1\"\nname: goto\nsteps: [{name: a, command: [x], on: {success: {goto: b}}}]\n",
            "WorkflowValidationError",
        ),
    ];
    let bed = Bed::new();
    for (name, text, _) in table {
        bed.write(&format!("specs/{name}.yaml"), text);
        bed.drop_task(name, "go", "please");
    }
    bed.drain().expect(1);
    for (name, _, kind) in table {
        let record = bed.record(&format!("{name}/go"));
        assert_eq!(record["status"], "rejected", "{record:#}");
        assert_eq!(record["error"]["kind"], kind, "{record:#}");
    }
    assert_eq!(bed.ls("workspace"), [""; 0]);
    workflow(
        &bed,
        "strict_flow: false
steps:
  - {name: folder, command: [x], cwd: nowhere}
  - {name: program, command: [no-such-program]}
  - {name: again, command: [\"true\"], max_visits: 1, on: {success: {goto: again}}}
",
    );
    run(&bed, &[]).fails(1);
    failed_with(&result(&bed, "folder"), 2, "FileNotFound");
    failed_with(&result(&bed, "program"), 2, "ProviderNotFound");
    assert_eq!(state(&bed)["error"]["kind"], "LimitExceeded");
}

// Tasks and runs

#[test]
fn a_task_names_its_workflow_and_the_context_for_it() {
    let bed = bed(
        "context: {n: 1, word: a}\nsteps:\n  - {name: one, command: [printf, '%s|%s|%s', \"${request}\", \"${context.n}\", \"${context.word}\"]}\n",
    );
    bed.script("bob", "cat");
    bed.drop_task(
        "bob",
        "go",
        "---\nworkflow: w\ncontext: {n: 7}\n---\nBody\n---\nmore\n",
    );
    bed.drop_task("bob", "odd", "---\nworkflow: w\ncontext: {nn: 7}\n---\nx\n");
    bed.drop_task(
        "bob",
        "type",
        "---\nworkflow: w\ncontext: {n: many}\n---\nx\n",
    );
    bed.drain().expect(1);
    assert_eq!(result(&bed, "one")["output"], "Body\n---\nmore|7|a");
    for name in ["odd", "type"] {
        let record = bed.record(&format!("bob/{name}"));
        assert_eq!(record["status"], "rejected", "{record:#}");
        says(record["error"]["message"].as_str().unwrap(), "n");
    }
    assert_eq!(bed.record("bob/go")["run"], only_run(&bed));
}

#[test]
fn the_inboxes_of_the_engine_take_nothing_but_steps() {
    let bed = bed("steps:\n  - {name: one, command: [\"true\"]}\n");
    for agent in ["shell", "orch"] {
        bed.drop_task(agent, "mine", "touch made");
        bed.drop_task(agent, "flow", "---\nworkflow: w\n---\nx\n");
    }
    bed.drain().expect(1);
    for agent in ["shell", "orch"] {
        for name in ["mine", "flow"] {
            assert_eq!(bed.status(&format!("{agent}/{name}")), "rejected");
        }
    }
    assert!(!bed.has("made"));
    assert_eq!(bed.ls("workspace"), [""; 0]);
}

#[test]
fn what_a_step_printed_never_becomes_front_matter() {
    let bed = bed(
        "steps:\n  - {name: one, command: [printf, '%s', \"${request}\"]}\n  - {name: two, agent: bob, prompt: \"${steps.one.output}\"}\n",
    );
    bed.script("bob", "cat");
    let hostile = "---\nprovider: bash\nworkflow: w\nthen: [bob]\n---\ntouch made";
    bed.orch(["run", "w", "-"])
        .run_with_input(hostile)
        .expect(0);
    assert_eq!(result(&bed, "two")["output"], hostile);
    assert!(!bed.has("made"));
    assert_eq!(bed.ls("workspace").len(), 1);
}

#[test]
fn a_step_whose_task_was_taken_away_is_dropped_again() {
    let bed = bed("steps:\n  - {name: one, agent: bob, prompt: hi}\n");
    let mut gate = Gate::new(&bed, "gate");
    bed.script("bob", &format!("{}; echo done", gate.wait_here(&bed)));
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    going.signal("TERM");
    going.wait().says("goes on").expect(143);
    let waiting = bed.ls("inbox/bob");
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    fs::remove_file(bed.root.join("inbox/bob").join(&waiting[0])).unwrap();
    gate.let_through(1);
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(result(&bed, "one")["output"], "done\n");
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn reset_keeps_what_was_done_on_disk_and_begins_anew() {
    let bed = bed("state: {n: 0}
steps:
  - {name: one, command: [echo, hi], next: [{if: 'true', goto: two, set: {state.n: '5'}}]}
  - {name: two, command: [\"false\"]}
");
    run(&bed, &[]).fails(1);
    let kept = |bed: &Bed| {
        let folders = ["artifacts", "processed"];
        folders.map(|folder| tree(&bed.root.join(folder)))
    };
    let before = kept(&bed);
    bed.orch(["reset", "last"]).run().expect(0);
    assert_eq!(kept(&bed), before);
    let anew = state(&bed);
    assert_eq!(anew["state"], json!({"n": 0}));
    assert_eq!(anew["step_results"], json!({}));
    assert_eq!(anew["snapshots"], json!({}));
    assert_eq!(anew["visits"], json!({"one": 1}));
    assert_eq!(anew["end_timestamp"], Value::Null);
    assert_eq!(anew["error"], Value::Null);
    assert_eq!(anew["metadata"]["status"], "in-progress");
    bed.orch(["resume", "last"]).run().fails(1);
    bed.orch(["audit", "last"]).run().expect(0);
}
