//! Where a step leads: rows, handlers, targets, limits, gates.

use super::support::*;
use crate::spec::workflow::Target;
use crate::spec::workflow::model::{Flow, When};

/// Two steps; the fields are those of the first, in line 4.
fn two(fields: &str) -> String {
    with(&format!(
        "  - {{name: a, command: [x], {fields}}}\n  - {{name: b, command: [x], output_capture: json}}\n"
    ))
}

#[test]
fn rows_and_handlers_are_read() {
    let table = [
        "next: [{if: 'exit_code == 0', goto: b, reason: 'code ${steps.a.exit_code}'}, {if: true, goto: _fail}]",
        "next: [{if: 'true', goto: b, set: {state.x.y: '1 + 1'}}], on: {failure: {goto: _block}, interrupted: {goto: b}}",
        "on: {success: {goto: b}, failure: {goto: _end}}",
        "on: {always: {goto: b}}",
        "when: {equals: {left: '${request}', right: x}}",
        "when: {exists: 'x/*.md'}",
        "when: {not_exists: 'x/*.md'}",
        "when: {if: 'context == {}'}",
        "requires: [{check: 'visits.b == 0', reason: no}], ensures: [{check: 'output != \"\"'}]",
        "approval: g, on_reject: b, next: [{if: 'approvals.g == true', goto: b}]",
        "max_visits: 3, on_limit: b",
        "ensures: []",
    ];
    for fields in table {
        good(&two(fields));
    }
    let workflow = good(&two(
        "when: {if: 'true'}, on: {success: {goto: _end}, always: {goto: b}}",
    ))
    .workflow
    .unwrap();
    let step = workflow.step(workflow.order[0]);
    assert!(matches!(step.when, Some(When::If(_))));
    let Flow::Handlers {
        always, failure, ..
    } = &step.flow
    else {
        panic!("{:?}", step.flow)
    };
    assert_eq!(
        (*always, *failure),
        (workflow.find("b").map(Target::Step), None)
    );
}

#[test]
fn faults_of_the_flow_have_their_place() {
    let table = [
        (
            "next: [{if: 'true', goto: c}]",
            55,
            "the target `c` is not a step",
        ),
        (
            "next: [{if: 'true', goto: _end}, {if: 'true', goto: bb}]",
            81,
            "is not a step",
        ),
        (
            "next: [{if: 'true', goto: _next}, {if: 'true', goto: b}]",
            55,
            "only in the body of a loop",
        ),
        ("next: [{goto: b}]", 36, "`if` is missing"),
        ("next: [{if: 'true'}]", 36, "`goto` is missing"),
        ("next: []", 35, "is empty"),
        (
            "next: [{if: 'true', goto: b}], on: {success: {goto: b}}",
            65,
            "`on.success` beside `next`",
        ),
        (
            "next: [{if: 'true', goto: b}], on: {always: {goto: b}}",
            65,
            "`on.always` beside `next`",
        ),
        (
            "next: [{if: 'true', goto: b, lock: d}]",
            64,
            "stores the step's JSON",
        ),
        (
            "next: [{if: 'true', goto: b, set: {x: '1'}}]",
            64,
            "not a path under `state.`",
        ),
        (
            "next: [{if: 'true', goto: b, set: {'state.x[0]': '1'}}]",
            64,
            "not a path under `state.`",
        ),
        (
            "next: [{if: 'true', goto: b, set: {state.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: '1'}}]",
            64,
            "not a path under `state.`",
        ),
        (
            "next: [{if: 'true', goto: b, set: {state.metadata.x: '1'}}]",
            64,
            "reserved",
        ),
        (
            "next: [{if: 'true', goto: b, set: {state.x: [1]}}]",
            73,
            "expression in quotes",
        ),
        ("next: [{if: 5, goto: b}]", 41, "expression in quotes"),
        ("on: {succes: {goto: b}}", 34, "unknown field `succes`"),
        ("on: {success: b}", 43, "must be a map"),
        ("on_limit: b", 29, "no meaning without `max_visits`"),
        ("per: [b]", 29, "no meaning without `max_visits`"),
        ("max_visits: 0", 41, "from 1 to"),
        (
            "max_visits: 2, per: [a]",
            50,
            "restarts its count on every entry",
        ),
        ("max_visits: 2, per: [c]", 50, "`c` is not a step"),
        ("evidence: [x]", 29, "no meaning without `approval`"),
        ("on_reject: b", 29, "no meaning without `approval`"),
        ("approval: g, evidence: [/x]", 53, "absolute"),
        ("when: {}", 35, "holds no condition"),
        (
            "when: {exists: x, not_exists: y}",
            47,
            "exactly one condition",
        ),
        ("when: {equals: {left: a}}", 44, "`right` is missing"),
        ("when: {if: 'output == 1'}", 41, "before the step has run"),
        (
            "requires: [{check: 'exit_code == 1'}]",
            49,
            "before the step has run",
        ),
        ("requires: [{reason: x}]", 40, "`check` is missing"),
        (
            "ensures: [{check: 'size(('}]",
            54,
            "cannot be read: it ends too early",
        ),
        ("ensures: [{check: ''}]", 47, "cannot be read: it is empty"),
        (
            "ensures: [{check: 'colour == 1'}]",
            48,
            "there is no `colour`",
        ),
        (
            "ensures: [{check: '${request} == 1'}]",
            47,
            "in an expression",
        ),
        (
            "ensures: [{check: 'steps.c.exit_code == 1'}]",
            48,
            "`steps.c`: there is no such step",
        ),
        ("ensures: [{check: 'visits.c == 1'}]", 48, "`visits.c`"),
        (
            "ensures: [{check: 'approvals.g == true'}]",
            48,
            "`approvals.g`",
        ),
        (
            "ensures: [{check: 'snapshots.d.status == 1'}]",
            48,
            "`snapshots.d`",
        ),
        (
            "ensures: [{check: 'item == 1'}]",
            48,
            "only in the body of a loop",
        ),
    ];
    for (fields, column, part) in table {
        bad(&two(fields), 4, column, part);
    }
}

#[test]
fn the_limits_of_expressions_are_checked_before_they_are_parsed() {
    let long = |n: usize| {
        let text = "x".repeat(n - "\"\" != output".len());
        format!("ensures: [{{check: '\"{text}\" != output'}}]")
    };
    bad(&two(&long(1025)), 4, 47, "1025 bytes long");
    good(&two(&long(1024)));
    let deep = |n: usize| {
        format!(
            "ensures: [{{check: '{}1{}'}}]",
            "(".repeat(n),
            ")".repeat(n)
        )
    };
    bad(&two(&deep(17)), 4, 64, "more than 16 brackets");
    good(&two(&deep(16)));
    good(&two(
        "ensures: [{check: '\"((((((((((((((((((\" == output'}]",
    ));
}

#[test]
fn bodies_and_parts_are_closed() {
    let steps = |goto: &str, inner: &str| {
        with(&format!(
            "  - {{name: a, command: [x], on: {{always: {{goto: {goto}}}}}}}\n  - name: b\n    for_each:\n      items: [1]\n      steps:\n        - {{name: p, command: [x], on: {{always: {{goto: {inner}}}}}}}\n  - {{name: c, parallel: [{{name: q, command: [x]}}]}}\n"
        ))
    };
    good(&steps("b", "_next"));
    good(&steps("b", "_fail"));
    bad(&steps("p", "_next"), 4, 49, "in the body of `b`");
    bad(&steps("q", "_next"), 4, 49, "part of the parallel step `c`");
    bad(&steps("b", "c"), 9, 55, "does not jump out");
}

#[test]
fn steps_that_no_run_comes_to_are_named() {
    bad(
        &two("on: {always: {goto: _end}}"),
        5,
        12,
        "no run comes to step `b`",
    );
    let loops = "  - name: a\n    for_each:\n      items: [1]\n      steps:\n        - {name: p, command: [x], on: {always: {goto: _next}}}\n        - {name: q, command: [x]}\n";
    bad(&with(loops), 9, 18, "no run comes to step `q`");
    // By a reply it is reached.
    let text = two("on: {always: {goto: _end}}").replace("steps:", "follow_up: b\nsteps:");
    good(&text);
    // After an unknown target nothing can be said.
    let report = checked(&two("on: {always: {goto: bb}}")).report;
    assert_eq!(report.faults.len(), 1, "{}", report.render());
}

#[test]
fn gates_can_be_told_apart() {
    let steps = |first: &str, second: &str| {
        with(&format!(
            "  - {{name: a, approval: {first}}}\n  - {{name: b, approval: {second}}}\n"
        ))
    };
    good(&steps("a", "x"));
    bad(&steps("x", "x"), 5, 25, "asks for the gate `x` too");
    bad(&steps("b", "x"), 4, 25, "has the name of the step `b`");
}

#[test]
fn names_are_used_once() {
    let text =
        with("  - {name: a, command: [x]}\n  - {name: b, parallel: [{name: a, command: [x]}]}\n");
    bad(&text, 5, 33, "another step `a` in line 4");
}

#[test]
fn unknown_fields_are_named_in_every_map() {
    let table = [
        ("when: {equals: {left: a, right: b, x: c}}", "x"),
        ("when: {iff: 'true'}", "iff"),
        ("requires: [{check: 'true', x: y}]", "x"),
        ("ensures: [{chek: 'true'}]", "chek"),
        ("next: [{if: 'true', goto: b, x: y}]", "x"),
        ("on: {success: {goto: b, x: y}}", "x"),
        ("on: {faliure: {goto: b}}", "faliure"),
        ("retries: {max: 1, x: 1}", "x"),
        ("depends_on: {requird: [a]}", "requird"),
        ("depends_on: {inject: {mode: list, x: y}}", "x"),
        ("max_visits: {from: context.n, default: 1, x: 1}", "x"),
    ];
    let named = |text: &str, field: &str| {
        let shown = checked(text).report.render();
        let part = format!("unknown field `{field}`");
        assert!(shown.contains(&part), "{part}: {text}{shown}");
    };
    for (fields, field) in table {
        named(&two(fields), field);
    }
    let table = [
        ("wait_for: {glob: a, x: 1}", "x"),
        (
            "for_each: {items: [1], x: 1, steps: [{name: p, command: [x]}]}",
            "x",
        ),
        (
            "for_each: {items: [1], steps: [{name: p, command: [x], y: 1}]}",
            "y",
        ),
        ("parallel: [{name: p, command: [x], y: 1}]", "y"),
        (
            "agent: coder, prompt: x, prompt_transport: {mode: stdin, x: 1}",
            "x",
        ),
        ("agent: human, prompt: x, choises: [a]", "choises"),
        ("action: load_plan, dir: a, x: 1", "x"),
    ];
    for (fields, field) in table {
        named(&with(&format!("  - {{name: a, {fields}}}\n")), field);
    }
    let step = "steps: [{name: a, command: [x]}]\n";
    for (head, field) in [
        ("input: {schema: specs/schemas/s.json, x: 1}\n", "x"),
        ("providers: {p: {command: [x], y: 1}}\n", "y"),
    ] {
        named(&format!("version: \"1\"\nname: w\n{head}{step}"), field);
    }
}
