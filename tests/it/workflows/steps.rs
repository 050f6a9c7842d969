//! What a step does with its prompt, its process, its output and its place in the run.

use std::time::Duration;

use super::*;
use crate::harness::let_pass;

#[test]
fn bad_json_is_retried_with_the_message_in_the_prompt() {
    let bed = bed(
        "steps:\n  - {name: one, agent: bob, prompt: give JSON, output_capture: json, retries: {max: 2, delay_ms: 1}}\n",
    );
    let out = bed.outside.display().to_string();
    bed.script(
        "bob",
        &format!(
            "n=$(ls {out} | grep -c prompt); cat > {out}/prompt$n; [ $n -ge 1 ] && echo '{{\"a\": 1}}' || echo '{{\"a\": '"
        ),
    );
    run(&bed, &[]).expect(0);
    let result = result(&bed, "one");
    assert_eq!(result["json_data"], json!({"a": 1}));
    assert_eq!(result["attempt"], 2);
    assert_eq!(result["visit"], 1, "a retry is no visit");
    let read = |n| fs::read_to_string(bed.outside.join(format!("prompt{n}"))).unwrap();
    assert!(!read(0).contains("could not be used"));
    assert!(read(1).starts_with(read(0).trim_end()));
    says(&read(1), "Your previous answer could not be used");
}

#[test]
fn json_that_stays_bad_is_exit_code_2_and_allow_parse_error_keeps_the_text() {
    let retries = "retries: {max: 2, delay_ms: 1}";
    let script = "command: [sh, -c, 'echo x >> ../outside/count; echo nope']";
    let bed = bed(&format!(
        "steps:\n  - {{name: soft, {script}, output_capture: json, allow_parse_error: true, {retries}}}\n  - {{name: hard, {script}, output_capture: json, {retries}}}\n"
    ));
    run(&bed, &[]).fails(1);
    let soft = result(&bed, "soft");
    assert_eq!(soft["status"], "succeeded");
    assert_eq!(soft["output"], "nope\n");
    assert!(soft["json_parse_error"].is_string(), "{soft}");
    failed_with(&result(&bed, "hard"), 2, "JsonParseError");
    assert_eq!(counts(&bed).len(), 1 + 3);
}

#[test]
fn a_schema_mismatch_is_exit_code_2_and_names_the_json_pointer() {
    let bed = bed(
        "steps:\n  - {name: one, command: [echo, '{\"a\": {\"b\": \"text\"}}'], output_capture: json, output_schema: specs/schemas/a.json}\n",
    );
    bed.write(
        "specs/schemas/a.json",
        r#"{"properties": {"a": {"properties": {"b": {"type": "integer"}}}}}"#,
    );
    let ran = run(&bed, &[]).fails(1);
    let result = result(&bed, "one");
    failed_with(&result, 2, "SchemaError");
    says(result["error"]["message"].as_str().unwrap(), "/a/b");
    says(&ran.stderr, "/a/b");
}

#[test]
fn a_process_that_failed_stays_failed_whatever_it_printed() {
    let bed = bed(
        "steps:\n  - {name: one, command: [sh, -c, 'echo nope; exit 9'], output_capture: json, allow_parse_error: true}\n",
    );
    run(&bed, &[]).fails(1);
    assert_eq!(result(&bed, "one")["exit_code"], 9);
    assert_eq!(result(&bed, "one")["status"], "failed");
}

#[test]
fn retries_try_1_again_and_not_other_codes() {
    let step = |name: &str, code: i32| {
        counted(
            name,
            &format!("exit {code}"),
            "x",
            "    retries: {max: 2, delay_ms: 1}\n",
        )
    };
    let bed = bed(&format!(
        "strict_flow: false\nsteps:\n{}{}",
        step("one", 1),
        step("two", 2)
    ));
    run(&bed, &[]).expect(0);
    assert_eq!(counts(&bed), ["one", "one", "one", "two"]);
    assert_eq!(result(&bed, "one")["attempt"], 3);
}

#[test]
fn a_timeout_is_exit_code_124_and_leaves_no_process() {
    let bed = bed(&format!(
        "steps:\n{}",
        counted("one", "sleep 60", "x", "    timeout: 300ms\n")
    ));
    run(&bed, &[]).fails(1);
    failed_with(&result(&bed, "one"), 124, "TimeoutExpired");
    bed.assert_nothing_runs();
}

#[test]
fn an_undefined_variable_is_exit_code_2_without_a_process_or_a_retry() {
    let bed = bed(&format!(
        "steps:\n  - {{name: zero, command: [echo, '{{\"a\": 1}}'], output_capture: json}}\n{}",
        counted(
            "one",
            "true",
            "\"${steps.zero.json.b}\"",
            "    retries: {max: 3, delay_ms: 1}\n"
        )
    ));
    run(&bed, &[]).fails(1);
    let result = result(&bed, "one");
    failed_with(&result, 2, "UndefinedVariableError");
    says(
        result["error"]["message"].as_str().unwrap(),
        "steps.zero.json.b",
    );
    assert_eq!(result["attempt"], 1);
    assert_eq!(counts(&bed), [""; 0]);
}

#[test]
fn a_default_stands_for_what_is_undefined_and_dollars_stay() {
    let bed = bed(
        "steps:\n  - {name: zero, command: [echo, '{}'], output_capture: json}\n  - {name: one, command: [echo, \"${steps.zero.json.b:-none}\", \"$${x}\", \"$$5\"]}\n",
    );
    run(&bed, &[]).expect(0);
    assert_eq!(result(&bed, "one")["output"], "none ${x} $5\n");
}

#[test]
fn a_missing_dependency_is_exit_code_2_for_agents_and_commands_alike() {
    for work in ["provider: echo\n    prompt: hi", "command: [touch, made]"] {
        let bed = bed(&format!(
            "steps:\n  - name: one\n    {work}\n    depends_on: {{required: [docs/*.md]}}\n    retries: {{max: 2, delay_ms: 1}}\n"
        ));
        run(&bed, &[]).fails(1);
        failed_with(&result(&bed, "one"), 2, "DependencyNotFoundError");
        says(
            result(&bed, "one")["error"]["message"].as_str().unwrap(),
            "docs/*.md",
        );
        assert!(!bed.has("made"));
    }
}

#[test]
fn dependencies_are_injected_as_a_list_or_with_their_content() {
    let bed = bed(
        "steps:
  - name: list
    provider: echo
    prompt: PROMPT
    depends_on: {required: ['docs/*.md'], optional: ['none/*'], inject: true}
  - name: content
    provider: echo
    prompt: PROMPT
    depends_on: {required: [docs/b.md], inject: {mode: content, position: append, instruction: Look here}}
",
    );
    bed.write("docs/b.md", "text of b: ${request}\n");
    bed.write("docs/a.md", "text of a\n");
    bed.write("docs/.hidden.md", "x");
    run(&bed, &[]).expect(0);
    let list = result(&bed, "list")["output"].as_str().unwrap().to_owned();
    assert!(
        list.starts_with(
            "The following files are required inputs for this task:\n- docs/a.md\n- docs/b.md\n"
        ),
        "{list}"
    );
    assert!(list.trim_end().ends_with("PROMPT"), "{list}");
    let content = result(&bed, "content")["output"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(content.starts_with("PROMPT"), "{content}");
    says(&content, "Look here");
    says(
        &content,
        "=== File: docs/b.md (22/22 bytes) ===\ntext of b: ${request}",
    );
}

#[test]
fn output_is_captured_as_text_lines_or_json_within_limits() {
    let bed = bed(
        "strict_flow: false
steps:
  - {name: text, command: [sh, -c, 'head -c 20000 /dev/zero | tr \"\\0\" a'], output_file: out/deep/text.txt}
  - {name: lines, command: [printf, 'a\\r\\nb\\nc'], output_capture: lines}
  - {name: many, command: [seq, '10050'], output_capture: lines}
  - {name: json, command: [echo, '{\"a\": [1, {\"b\": \"x y\"}]}'], output_capture: json}
  - {name: use, command: [echo, '${steps.json.json.a[1].b}', '<${steps.lines.lines}>', '${steps.json.json}', '${steps.lines.lines}']}
  - {name: big, command: [sh, -c, 'printf \"\\\"\"; head -c 1100000 /dev/zero | tr \"\\0\" a; printf \"\\\"\"'], output_capture: json}
",
    );
    run(&bed, &[]).expect(0);
    let text = result(&bed, "text");
    assert_eq!(text["output"].as_str().unwrap().len(), 8192);
    assert_eq!(text["truncated"], true);
    assert_eq!(bed.read("out/deep/text.txt").len(), 20000);
    assert_eq!(result(&bed, "lines")["lines"], json!(["a", "b", "c"]));
    let many = result(&bed, "many");
    assert_eq!(many["lines"].as_array().unwrap().len(), 10_000);
    assert_eq!(many["truncated"], true);
    assert_eq!(
        result(&bed, "use")["output"],
        "x y <a\nb\nc> {\"a\":[1,{\"b\":\"x y\"}]} a b c\n"
    );
    let big = result(&bed, "big");
    assert_eq!(
        (&big["status"], &big["exit_code"]),
        (&json!("failed"), &json!(2)),
        "{}",
        big["error"]
    );
}

#[test]
fn a_step_whose_when_is_false_is_skipped() {
    let step = |name: &str, when: &str| counted(name, "true", "x", &format!("    when: {when}\n"));
    let bed = bed(&format!(
        "context: {{mode: b}}\nsteps:\n{}{}{}{}{}",
        step("a", "{equals: {left: \"${context.mode}\", right: a}}"),
        step("b", "{equals: {left: \"${context.mode}\", right: b}}"),
        step("c", "{exists: 'none/*'}"),
        step("d", "{not_exists: 'none/*'}"),
        step("e", "{if: 'steps.a.status == \"succeeded\"'}")
    ));
    run(&bed, &[]).expect(0);
    assert_eq!(counts(&bed), ["b", "d"]);
    for name in ["a", "c", "e"] {
        let result = result(&bed, name);
        assert_eq!(
            (&result["status"], &result["exit_code"]),
            (&json!("skipped"), &json!(0))
        );
    }
}

#[test]
fn a_group_awaits_all_and_fails_with_the_first_code_in_written_order() {
    let bed = bed("steps:
  - name: group
    parallel:
      - {name: a, command: [sh, -c, 'sleep 0.2; exit 0']}
      - {name: b, command: [sh, -c, 'sleep 0.2; exit 5']}
      - {name: c, command: [sh, -c, 'exit 6']}
    next:
      - {if: 'exit_code == 5', goto: after}
  - {name: after, command: [echo, '${steps.c.exit_code}']}
");
    let ran = run(&bed, &["--jobs", "3"]).expect(0);
    says(&ran.stdout, "[group] group FAIL -> after");
    assert_eq!(result(&bed, "group")["exit_code"], 5);
    assert_eq!(result(&bed, "after")["output"], "6\n");
}

#[test]
fn items_run_in_waves_by_their_needs_and_conflicts_and_not_too_many_at_once() {
    let bed = bed(r#"steps:
  - name: plan
    command: [cat, items.json]
    output_capture: json
  - name: each
    for_each:
      items_from: steps.plan.json
      as: it
      key: id
      needs: needs
      conflicts: files
      max_parallel: 2
      steps:
        - {name: work, command: [sh, -c, 'echo "+ $1" >> ../outside/count; sleep 0.15; echo "- $1" >> ../outside/count', x, "${it.id}"]}
"#);
    bed.write(
        "items.json",
        r#"[{"id": "a", "needs": ["d"], "files": []}, {"id": "b", "needs": [], "files": ["x"]},
            {"id": "c", "needs": [], "files": ["x"]}, {"id": "d", "needs": [], "files": ["y"]},
            {"id": "e", "needs": [], "files": []}]"#,
    );
    run(&bed, &["--jobs", "4"]).expect(0);
    let log = counts(&bed);
    let at = |what: &str| log.iter().position(|line| line == what).unwrap();
    let mut now = 0;
    let mut most = 0;
    for line in &log {
        now += if line.starts_with('+') { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((log.len(), most), (10, 2), "{log:?}");
    assert!(at("+ a") > at("- d"), "{log:?}");
    assert!(at("+ c") > at("- b") || at("+ b") > at("- c"), "{log:?}");
    assert_eq!(result(&bed, "each").as_array().unwrap().len(), 5);
}

#[test]
fn an_item_whose_need_failed_is_skipped_and_the_rest_goes_on_if_told_to() {
    let bed = bed(r#"steps:
  - name: each
    for_each:
      items: [{id: a, needs: []}, {id: b, needs: [a]}, {id: c, needs: []}]
      as: it
      key: id
      needs: needs
      on_error: continue
      steps:
        - {name: work, command: [sh, -c, 'echo $1 >> ../outside/count; test $1 != a', x, "${it.id}"]}
"#);
    run(&bed, &[]).expect(0);
    assert_eq!(counts(&bed), ["a", "c"]);
}

#[test]
fn what_is_filled_in_never_reaches_a_shell_and_is_not_parsed_again() {
    let bed = bed(r#"steps:
  - {name: one, command: [printf, '%s', "${request}"]}
  - {name: two, command: [printf, '%s', "${steps.one.output}"]}
  - {name: three, provider: echo, prompt: "${steps.two.output}"}
"#);
    let hostile = "a 'b' \"c\" $(touch pwned) `touch pwned`; touch pwned\n| $HOME ${request} ${steps.one.output} $$ \\ *";
    run(&bed, &[hostile]).expect(0);
    for step in ["one", "two", "three"] {
        assert_eq!(result(&bed, step)["output"], hostile, "{step}");
    }
    assert!(!bed.has("pwned"));
}

#[test]
fn run_gives_up_after_its_timeout_and_resume_goes_on() {
    let bed =
        bed("steps:\n  - {name: wait, wait_for: {glob: go, timeout_sec: 9000, poll_ms: 20}}\n");
    let ran = run(&bed, &["--timeout", "500ms"]).fails(75);
    says(&ran.stderr, "orch resume ");
    bed.write("go", "");
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
}

#[test]
fn next_rows_are_taken_in_order_and_none_that_holds_blocks() {
    let bed = bed("context: {n: 1}
steps:
  - name: pick
    command: [echo, '${context.n}']
    next:
      - {if: 'output == \"1\\n\"', goto: low, reason: 'n is ${context.n}'}
      - {if: 'context.n < 5', goto: high}
  - {name: low, command: [touch, low], next: [{if: 'true', goto: _end}]}
  - {name: high, command: [touch, high], next: [{if: 'true', goto: _fail}]}
");
    let ran = run(&bed, &[]).expect(0);
    says(&ran.stdout, "[pick] pick OK -> low | n is 1");
    assert!(bed.has("low") && !bed.has("high"));
    says(
        &run(&bed, &["--context", "n=2"]).fails(1).stdout,
        "[high] high OK -> _fail",
    );
    run(&bed, &["--context", "n=9"]).fails(4);
}

#[test]
fn a_loop_back_ends_at_its_limit_and_the_state_counts() {
    let bed = bed("state: {n: 0}
steps:
  - name: try
    command: [sh, -c, 'echo try >> ../outside/count']
    max_visits: 3
    on_limit: over
    next:
      - {if: 'state.n < 100', goto: try, set: {state.n: 'state.n + 1'}}
  - {name: over, command: [echo, '${state.n}'], next: [{if: 'true', goto: _end}]}
");
    run(&bed, &[]).expect(0);
    assert_eq!(counts(&bed).len(), 3);
    assert_eq!(result(&bed, "over")["output"], "3\n");
    assert_eq!(state(&bed)["visits"]["try"], 3);
}

#[test]
fn a_guard_that_errors_blocks_and_names_what_was_missing() {
    let bed = bed("steps:
  - {name: one, command: [echo, '{}'], output_capture: json}
  - name: two
    when: {if: 'steps.one.json_data.absent == 1'}
    command: [touch, made]
");
    let ran = run(&bed, &[]).fails(4);
    says(&ran.stderr, "absent");
    assert!(!bed.has("made"));
}

#[test]
fn an_output_file_that_leads_out_of_the_root_by_a_link_is_refused() {
    let bed = bed("steps:\n  - {name: one, command: [echo, hi], output_file: link/out.txt}\n");
    std::os::unix::fs::symlink(&bed.outside, bed.root.join("link")).unwrap();
    run(&bed, &[]).fails(2);
    failed_with(&result(&bed, "one"), 2, "SafetyViolation");
    assert!(!bed.outside.join("out.txt").exists());
}

#[test]
fn an_output_file_that_cannot_be_written_or_named_fails_its_step() {
    let bed = bed("strict_flow: false
steps:
  - {name: folder, command: [sh, -c, 'echo x >> ../outside/count'], output_file: taken}
  - {name: json, command: [echo, '{}'], output_capture: json}
  - {name: undefined, command: [touch, made], output_file: 'out-${steps.json.json.absent}'}
  - {name: missing, command: [touch, made], output_file: kept, depends_on: {required: [nothing]}}
");
    bed.write("taken/file", "");
    bed.write("kept", "of before");
    run(&bed, &[]).expect(0);
    assert_eq!(counts(&bed).len(), 1);
    assert_eq!(result(&bed, "folder")["exit_code"], 2);
    failed_with(&result(&bed, "undefined"), 2, "UndefinedVariableError");
    failed_with(&result(&bed, "missing"), 2, "DependencyNotFoundError");
    assert!(!bed.has("made"));
    assert_eq!(
        bed.read("kept"),
        "of before",
        "nothing ran that could replace it"
    );
}

#[test]
fn steps_side_by_side_share_a_dir_that_is_closed_to_everybody_else() {
    let bed = bed(r#"steps:
  - name: each
    for_each:
      items: [a, b]
      as: it
      max_parallel: 2
      steps:
        - {name: work, dir: app, command: [sh, work.sh]}
"#);
    let app = bed.outside.join("app");
    fs::create_dir(&app).unwrap();
    bed.settings(&format!("dirs: {{app: {{path: {}}}}}\n", app.display()));
    let mut gate = Gate::new(&bed, "gate");
    fs::write(app.join("work.sh"), gate.wait_here(&bed)).unwrap();
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    let _watcher = bed.watch(&["--jobs", "6"]);
    bed.orch(["run", "w", "--detach"]).run().expect(0);
    wait_for_started(&bed, 2);
    // Another run of the same workflow, and a task of no run, find the dir taken.
    bed.orch(["run", "w", "--detach"]).run().expect(0);
    bed.drop_task("a", "x", "---\ndir: app\n---\nwork");
    bed.drop_task("echo", "y", "hello");
    wait_for("a task that needs no dir", || {
        bed.has("processed/echo/y.task")
    });
    let_pass(Duration::from_millis(300));
    assert_eq!(bed.count_lines("started"), 2);
    // What is let through beyond the two is for those that come after them, in whatever order.
    gate.let_through(1);
    wait_for("one of the two to end", || {
        bed.ls("processed/shell").len() == 1
    });
    assert_eq!(bed.count_lines("started"), 2, "one is still at work");
    gate.let_through(4);
    wait_for("the others", || {
        bed.count_lines("started") == 5 && bed.ls("processed/shell").len() == 4
    });
}
