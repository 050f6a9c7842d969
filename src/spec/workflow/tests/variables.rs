//! Variables: which there are, and where they have a value.

use super::support::*;

/// Three steps in a row; the prompt is that of the second, in line 8.
fn prompt(text: &str) -> String {
    format!(
        "version: \"1\"\nname: w\ncontext: {{lang: rust}}\nstate: {{answers: []}}\nsteps:\n  - {{name: a, command: [x], output_capture: json}}\n  - name: b\n    agent: coder\n    secrets: [KEY]\n    prompt: \"{text}\"\n  - {{name: c, command: [x]}}\n"
    )
}

#[test]
fn variables_that_there_are() {
    let table = [
        "${request} ${reply} ${input} ${input.a.b[0]} ${STATE_FILE}",
        "${run.id} ${run.root} ${run.files} ${run.timestamp_utc}",
        "${context.lang} ${context.other:-none} ${state.answers} ${state.x:-}",
        "${steps.a.exit_code} ${steps.a.output} ${steps.a.json.x[0].y} ${steps.a.tail} ${steps.a}",
        "${steps.c.output:-not yet} ${steps.b.note:-none}",
        "$$ $5 $${nothing} {}",
    ];
    for text in table {
        good(&prompt(text));
    }
}

#[test]
fn variables_that_there_are_not() {
    let table = [
        ("${requst}", 14, "no variable `${requst}`"),
        ("go ${env.HOME}", 17, "environment is not put into texts"),
        ("${KEY}", 14, "is a secret"),
        ("${secrets.KEY}", 14, "is a secret"),
        ("${PROMPT}", 14, "no variable"),
        ("${run.name}", 14, "no `run.name`"),
        ("${run}", 14, "says nothing by itself"),
        ("${context.lng}", 14, "no `lng` in `context`"),
        ("${state.answer}", 14, "no `answer` in `state`"),
        ("${state.plan}", 14, "no `plan` in `state`"),
        ("${item}", 14, "only in the body of a loop"),
        ("${loop.index}", 14, "only in the body of a loop"),
        ("${steps}", 14, "names no step"),
        ("${steps.d.output}", 14, "no step `d`"),
        ("${steps.a.colour}", 14, "has no `colour`"),
        ("${steps.a.lines}", 14, "not read as lines"),
        ("${steps.a[0].x}", 14, "is no loop"),
        ("${steps.c.output}", 14, "`c` never runs before this"),
        ("${steps.b.output}", 14, "`b` never runs before this"),
        ("${a b}", 14, "is not a variable"),
        ("x ${", 16, "never closed"),
    ];
    for (text, column, part) in table {
        bad(&prompt(text), 10, column, part);
    }
}

#[test]
fn the_place_is_found_in_a_long_text() {
    let text = with(
        "  - name: a\n    agent: coder\n    prompt: |\n      first\n      then ${nothing} here\n",
    );
    bad(&text, 8, 12, "no variable");
}

#[test]
fn what_ran_on_some_path_is_fine() {
    let text = with(
        "  - {name: a, command: [x], on: {success: {goto: c}, failure: {goto: b}}}\n  - {name: b, command: [x]}\n  - {name: c, command: ['${steps.b.output}']}\n",
    );
    good(&text);
    let back = with(
        "  - {name: a, command: ['${steps.b.output}'], max_visits: 2}\n  - {name: b, command: [x], on: {success: {goto: a}}}\n",
    );
    good(&back);
}

#[test]
fn a_body_sees_its_item_and_its_own_steps() {
    let text = |inside: &str, outside: &str| {
        with(&format!(
            "  - name: a\n    for_each:\n      items: [1]\n      as: task\n      steps:\n        - {{name: p, command: [x]}}\n        - {{name: q, command: ['{inside}']}}\n  - {{name: b, command: ['{outside}']}}\n"
        ))
    };
    good(&text(
        "${task.id} ${item} ${loop.index} ${loop.total} ${steps.p.output}",
        "${steps.a[0].p.output} ${steps.a}",
    ));
    bad(&text("${steps.a}", "x"), 10, 32, "never runs before");
    bad(&text("${loop.count}", "x"), 10, 32, "no `loop.count`");
    bad(
        &text("x", "${steps.p.output}"),
        11,
        26,
        "in the body of `a`",
    );
    bad(
        &text("x", "${steps.a[0].z}"),
        11,
        26,
        "no step `z` in the body",
    );
    bad(&text("x", "${task}"), 11, 26, "no variable");
}

#[test]
fn parts_of_a_parallel_step_come_after_it() {
    let text = |sub: &str, after: &str| {
        with(&format!(
            "  - name: a\n    parallel:\n      - {{name: p, command: [x]}}\n      - {{name: q, command: ['{sub}']}}\n  - {{name: b, command: ['{after}']}}\n"
        ))
    };
    good(&text("x", "${steps.p.output}"));
    bad(&text("${steps.p.output}", "x"), 7, 30, "never runs before");
}

#[test]
fn nothing_is_substituted_in_env() {
    let checked = good(&with(
        "  - {name: a, command: [x], env: {A: '${request}'}}\n",
    ));
    assert!(
        checked.report.notes[0]
            .message
            .contains("nothing is substituted in `env`")
    );
}

#[test]
fn paths_stay_inside() {
    let step = |path: &str| with(&format!("  - {{name: a, command: [x], cwd: '{path}'}}\n"));
    for path in [
        "a/b",
        "${run.files}/x",
        "${run.root}",
        "a..b/c",
        "${context.x:-d}/e",
        "workspace/${run.id}/x",
    ] {
        good(&step(path));
    }
    for path in ["/a", "..", "a/../b", "${run.files}/../x", "~/a", ""] {
        bad(&step(path), 4, 34, "not a path that can be used");
    }
}
