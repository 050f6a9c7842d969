//! A step and the work that it does.

use super::support::*;
use crate::spec::workflow::Work;
use crate::spec::workflow::model::{Action, Capture, InjectMode, Number, Position, Timeout};

#[test]
fn every_kind_of_work_is_read() {
    let table = [
        ("agent: coder, prompt: hi", "agent"),
        ("provider: echo, prompt: hi", "agent"),
        ("agent: coder, provider: echo, prompt: hi", "agent"),
        ("command: [make, 5, true]", "command"),
        ("command_override: [make]", "command"),
        ("wait_for: {glob: 'x/*.md'}", "wait_for"),
        ("agent: human, prompt: which?, choices: [a, b]", "human"),
        (
            "approval: plan, evidence: ['x/*.md'], on_reject: _fail",
            "approval",
        ),
        (
            "parallel: [{name: p, command: [x]}, {name: q, agent: coder, prompt: x}]",
            "parallel",
        ),
        (
            "for_each: {items: [1, 2], steps: [{name: p, command: ['${item}']}]}",
            "for_each",
        ),
        ("action: load_plan, dir: '${run.files}/tasks'", "action"),
        ("action: mark_plan, dir: plan, as: skipped", "action"),
        ("approval: plan, command: [x]", "command"),
    ];
    for (fields, kind) in table {
        let checked = good(&with(&format!("  - {{name: a, {fields}}}\n")));
        let workflow = checked.workflow.unwrap();
        assert_eq!(
            workflow.step(workflow.order[0]).work.kind(),
            kind,
            "{fields}"
        );
    }
}

#[test]
fn the_fields_of_a_step_are_read() {
    let fields = [
        "name: a",
        "phase: 4",
        "agent: coder",
        "prompt: hi",
        "timeout: 15m",
        "retries: {max: 2, delay_ms: 5}",
        "env: {A: 1}",
        "secrets: [KEY]",
        "inherit_env: []",
        "writes: []",
        "dir: app",
        "depends_on: {required: ['a/*.md'], inject: {mode: content, position: append}}",
        "output_capture: json",
        "output_schema: specs/schemas/s.json",
        "output_file: out/a.json",
        "allow_parse_error: true",
        "once: true",
        "access: read",
        "prompt_transport: {mode: argv, argv_template: -p}",
    ];
    let text = with(&format!("  - {}\n", fields.join("\n    ")));
    let workflow = good(&text).workflow.unwrap();
    let step = workflow.step(workflow.order[0]);
    assert_eq!(step.phase, "4");
    assert_eq!(step.timeout, Some(Timeout::Millis(Number::Fixed(900_000))));
    assert_eq!(step.retries.as_ref().map(|r| r.delay_ms), Some(5));
    assert_eq!(step.env["A"], "1");
    assert_eq!(step.inherit_env, Some(vec![]));
    assert!(step.writes.as_ref().is_some_and(Vec::is_empty));
    let inject = step.depends_on.inject.as_ref().unwrap();
    assert_eq!(
        (inject.mode, inject.position),
        (InjectMode::Content, Position::Append)
    );
    assert!(step.capture == Capture::Json && step.once && step.allow_parse_error);
}

#[test]
fn a_step_does_exactly_one_thing() {
    let table = [
        ("{name: a}", 5, "does nothing"),
        (
            "{name: a, command: [x], agent: coder}",
            29,
            "both `command` and `agent`",
        ),
        (
            "{name: a, agent: coder, command: [x]}",
            29,
            "both `agent` and `command`",
        ),
        ("{name: a, command: [x], command_override: [y]}", 29, "both"),
        (
            "{name: a, wait_for: {glob: x}, action: load_plan, dir: x}",
            36,
            "both",
        ),
        ("{command: [x]}", 5, "`name` is missing"),
        ("{name: _end, command: [x]}", 12, "reserved for targets"),
        ("{name: a.b, command: [x]}", 12, "only letters"),
        ("{name: 4, command: [x]}", 12, "must be text"),
        ("{name: a, command: []}", 24, "is empty"),
        ("{name: a, command: make}", 24, "must be a list"),
        (
            "{name: a, command: ['']}",
            25,
            "program of `command` is empty",
        ),
        (
            "{name: a, agent: Coder, prompt: x}",
            22,
            "not a name for an agent",
        ),
        ("{name: a, agent: shell, prompt: x}", 22, "reserved"),
        (
            "{name: a, agent: codr, prompt: x}",
            22,
            "there is no agent `codr`",
        ),
        (
            "{name: a, provider: clade, prompt: x}",
            25,
            "there is no provider `clade`",
        ),
        (
            "{name: a, command: [x], prompt: y}",
            29,
            "`prompt` has no meaning",
        ),
        (
            "{name: a, agent: coder, prompt: y, choices: [a]}",
            40,
            "`choices` has no meaning",
        ),
        (
            "{name: a, command: [x], as: done}",
            29,
            "`as` has no meaning",
        ),
        (
            "{name: a, command: [x], lock: d}",
            29,
            "unknown field `lock`",
        ),
        (
            "{name: a, agent: human, prompt: x, choices: [a, a]}",
            53,
            "there twice",
        ),
        (
            "{name: a, agent: human, prompt: x, approval: g}",
            40,
            "`approval` has no meaning",
        ),
        ("{name: a, wait_for: {}}", 25, "`glob` is missing"),
        (
            "{name: a, wait_for: {glob: x, min_count: 0}}",
            46,
            "from 1 to",
        ),
        ("{name: a, wait_for: {glob: /x}}", 32, "absolute"),
        ("{name: a, command: [x], cwd: ../x}", 34, "leads upwards"),
        (
            "{name: a, command: [x], cwd: x, dir: app}",
            37,
            "exclude each other",
        ),
        (
            "{name: a, command: [x], dir: ap}",
            34,
            "there is no directory `ap`",
        ),
        ("{name: a, command: [x], writes: ['[']}", 38, "not a glob"),
        ("{name: a, command: [x], writes: }", 35, "must be a list"),
        (
            "{name: a, command: [x], output_file: '~/x'}",
            42,
            "home folder",
        ),
        (
            "{name: a, command: [x], output_schema: specs/schemas/s.json}",
            44,
            "not read as JSON",
        ),
        (
            "{name: a, command: [x], output_capture: json, output_schema: nope}",
            66,
            "there is no file",
        ),
        (
            "{name: a, command: [x], output_capture: json, output_schema: specs/schemas/bad.json}",
            66,
            "not valid JSON",
        ),
        (
            "{name: a, command: [x], output_capture: yaml}",
            45,
            "unknown value `yaml`",
        ),
        (
            "{name: a, agent: coder, input_file: specs/prompts/q.md}",
            41,
            "there is no file",
        ),
        (
            "{name: a, agent: coder, prompt: x, prompt_transport: {mode: stdin, argv_template: -p}}",
            87,
            "only with `mode: argv`",
        ),
        (
            "{name: a, command: [x], secrets: ['A-B']}",
            39,
            "not the name of a variable",
        ),
        (
            "{name: a, command: [x], timeout: 15}",
            38,
            "unit is missing",
        ),
        (
            "{name: a, command: [x], timeout: 5s, timeout_sec: 5}",
            42,
            "exclude each other",
        ),
        ("{name: a, command: [x], timeout_sec: 0}", 42, "from 1 to"),
        ("{name: a, command: [x], retries: 3}", 38, "must be a map"),
        (
            "{name: a, command: [x], retries: {max: 101}}",
            44,
            "from 0 to 100",
        ),
        (
            "{name: a, command: [x], depends_on: {inject: yes}}",
            50,
            "true, false or a map",
        ),
        (
            "{name: a, command: [x], updates: [code]}",
            39,
            "no part `code`",
        ),
        (
            "{name: a, command: [x], updates: [metadata]}",
            39,
            "read-only",
        ),
        (
            "{name: a, command: [x], updates: [a..b]}",
            39,
            "not a part of the document",
        ),
    ];
    all_bad(table.map(|(step, column, part)| (with(&format!("  - {step}\n")), 4, column, part)));
}

#[test]
fn numbers_can_come_from_elsewhere() {
    let step = |field: &str| format!("  - {{name: a, command: [x], {field}}}\n");
    let from = "{from: context.n, default: 5, min: 1, max: 50}";
    for field in ["max_visits", "timeout_sec"] {
        good(&with(&step(&format!("{field}: {from}"))));
    }
    good(&with(&step(
        "timeout: {from: context.t, default: 5m, max: 1h}",
    )));
    let table = [
        ("max_visits: {from: context.n}", 42, "no `default`"),
        ("max_visits: {from: env.n, default: 5}", 48, "not a path"),
        (
            "max_visits: {from: context.n, default: 5, max: 4}",
            41,
            "not between",
        ),
        (
            "max_visits: {from: context.n, default: 5, min: 9, max: 4}",
            41,
            "larger than",
        ),
        ("max_visits: {default: 5}", 41, "`from` is missing"),
        (
            "max_visits: {from: context.n, deflt: 5}",
            59,
            "unknown field `deflt`",
        ),
        (
            "timeout: {from: context.n, default: 5}",
            65,
            "unit is missing",
        ),
    ];
    all_bad(table.map(|(field, column, part)| (with(&step(field)), 4, column, part)));
    let uses = |field: &str| good(&with(&step(field))).workflow.unwrap().uses_max_retries;
    assert!(uses("max_visits: {from: context.max_retries, default: 5}"));
    assert!(!uses("max_visits: 5"));
}

#[test]
fn parallel_and_loops_keep_their_rules() {
    let parallel = |sub: &str| format!("  - name: a\n    parallel:\n      - {{name: p, {sub}}}\n");
    let table = [
        ("command: [x], on: {success: {goto: _end}}", 33, "no `on`"),
        (
            "command: [x], next: [{if: 'true', goto: _end}]",
            33,
            "no `next`",
        ),
        ("command: [x], approval: g", 33, "no `approval`"),
        ("command: [x], max_visits: 2", 33, "no `max_visits`"),
        (
            "agent: human, prompt: x",
            9,
            "agents and commands, not `human`",
        ),
        (
            "wait_for: {glob: x}",
            9,
            "agents and commands, not `wait_for`",
        ),
    ];
    for (sub, column, part) in table {
        bad(&with(&parallel(sub)), 6, column, part);
    }
    let each = |fields: &str| format!("  - name: a\n    for_each: {{{fields}}}\n");
    let body = "steps: [{name: p, command: [x]}]";
    let table = [
        (body.to_owned(), 15, "neither `items` nor"),
        (format!("items: [1], items_from: input.x, {body}"), 28, "exclude each other"),
        (format!("items_from: steps.nope.json, {body}"), 28, "no step `nope`"),
        (format!("items_from: nothing.x, {body}"), 28, "there is no variable"),
        (format!("items: [1], as: context, {body}"), 32, "hides the variable"),
        (format!("items: [1], as: A-b, {body}"), 32, "not a name"),
        (format!("items: [1], needs: x, {body}"), 28, "there is no `key`"),
        (format!("items: [1], max_parallel: 65, {body}"), 42, "from 1 to 64"),
        (format!("items: [1], on_error: go, {body}"), 38, "unknown value `go`"),
        ("items: [1], steps: []".to_owned(), 35, "is empty"),
        ("items: [1], steps: [{name: p, command: [x], approval: g}]".to_owned(), 60, "cannot stand in the body"),
        ("items: [1], steps: [{name: p, for_each: {items: [1], steps: [{name: q, command: [x]}]}}]".to_owned(), 46, "body of another"),
    ];
    for (fields, column, part) in table {
        bad(&with(&each(&fields)), 5, column, part);
    }
}

#[test]
fn actions_name_what_they_need() {
    let first = "  - {name: a, agent: coder, prompt: x}\n";
    let checked = good(&with(&format!(
        "{first}  - {{name: b, action: apply_files, from: a, into: '${{run.files}}'}}\n"
    )));
    let workflow = checked.workflow.unwrap();
    let step = workflow.step(workflow.order[1]);
    assert!(
        matches!(step.work, Work::Action(Action::ApplyFiles { from, .. }) if from == workflow.order[0])
    );
    let table = [
        ("action: apply_files, from: a", 5, "needs `into`"),
        ("action: apply_files, into: x", 5, "needs `from`"),
        (
            "action: apply_files, from: c, into: x",
            42,
            "`c` is not a step",
        ),
        ("action: apply_files, from: a, into: /x", 51, "absolute"),
        ("action: load_plan", 5, "needs `dir`"),
        (
            "action: mark_plan, dir: x, as: gone",
            46,
            "unknown value `gone`",
        ),
        ("action: dance", 23, "unknown value `dance`"),
        (
            "action: load_plan, dir: x, into: y",
            42,
            "`into` has no meaning",
        ),
    ];
    for (fields, column, part) in table {
        bad(
            &with(&format!("{first}  - {{name: b, {fields}}}\n")),
            5,
            column,
            part,
        );
    }
}

#[test]
fn a_providers_placeholders_have_values() {
    let text = |command: &str, step: &str| {
        format!(
            "version: \"1.1\"\nname: w\nproviders:\n  p: {{command: {command}, defaults: {{model: m}}, input_mode: argv}}\nsteps:\n  - {{name: a, provider: p, prompt: x{step}}}\n"
        )
    };
    good(&text("[tool, -p, '${PROMPT}', '${model}']", ""));
    good(&text(
        "[tool, '${PROMPT}', '${depth}']",
        ", provider_params: {depth: 3}",
    ));
    bad(
        &text("[tool, '${PROMPT}', '${depth}']", ""),
        6,
        12,
        "`${depth}` of provider `p` has no value",
    );
    bad(
        &text("[tool, '${PROMPT}', '${INPUT_FILE}']", ""),
        6,
        12,
        "has no `input_file`",
    );
    bad(
        &text("[tool]", ", prompt_transport: {mode: temp_file}"),
        6,
        25,
        "takes no prompt file",
    );
}
