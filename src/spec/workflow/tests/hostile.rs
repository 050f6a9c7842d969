//! Files that nobody should have written.

use std::time::Instant;

use super::support::*;

fn step(field: &str) -> String {
    with(&format!("  - name: a\n    command: [x]\n    {field}\n"))
}

#[test]
fn hostile_files_are_refused_with_a_place() {
    let table = [
        (String::new(), 1, 1, "`version` is missing"),
        ("# only a comment\n".to_owned(), 1, 1, "`steps` is missing"),
        ("[1, 2]".to_owned(), 1, 1, "a workflow is a map"),
        ("just text".to_owned(), 1, 1, "a workflow is a map"),
        (step("\tphase: x"), 6, 5, "tab"),
        (step("env: {A: 1, A: 2}"), 6, 17, "duplicate key `A`"),
        (step("command: [y]"), 6, 5, "duplicate key `command`"),
        (step("when: {if: !x}"), 6, 16, "tag"),
        (step("phase: !!str 5"), 6, 12, "tag"),
        (step("env: {<<: {A: 1}}"), 6, 11, "merge key"),
        (step("phase: .nan"), 6, 12, "`.nan`"),
        (step("env: {A: -.inf}"), 6, 14, "`.inf`"),
        (
            format!("{}---\nname: x\n", step("once: true")),
            7,
            1,
            "more than one YAML document",
        ),
        (
            format!("%YAML 1.2\n---\n{}", step("once: true")),
            1,
            1,
            "directives",
        ),
        (step("? [a]\n    : b"), 6, 7, "key"),
        (step("env: *nobody"), 6, 10, "alias"),
        (step("phase: a: b"), 6, 13, "`:`"),
        (step("prompt: \"open"), 7, 1, ""),
    ];
    for (text, line, column, part) in table {
        bad(&text, line, column, part);
    }
}

#[test]
fn several_faults_of_syntax_come_together() {
    let text = step("env: {A: 1, A: 2}\n    phase: !x y\n    when: {<<: 1}\n    colour: red");
    let messages: Vec<String> = checked(&text)
        .report
        .faults
        .into_iter()
        .map(|f| f.message)
        .collect();
    for part in [
        "duplicate key `A`",
        "tag",
        "merge key",
        "unknown field `colour`",
    ] {
        assert!(
            messages.iter().any(|message| message.contains(part)),
            "{part}: {messages:?}"
        );
    }
}

#[test]
fn a_byte_order_mark_and_windows_lines_are_read() {
    good(&format!("\u{feff}{}", step("once: true")));
    good(&step("once: true").replace('\n', "\r\n"));
    bad(
        &format!("\u{feff}{}", step("onec: true")),
        6,
        5,
        "unknown field `onec`",
    );
}

#[test]
fn bombs_are_refused_quickly() {
    let start = Instant::now();
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (before, name) in ('a'..='h').zip('b'..='i') {
        let list = vec![format!("*{before}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let report = checked(&bomb).report;
    assert!(
        report.faults[0].message.contains("too much data"),
        "{}",
        report.render()
    );
    let deep = format!("state: {}{}\n", "[".repeat(70), "]".repeat(70));
    assert!(checked(&deep).report.render().contains("64 levels deep"));
    let deeper = "[".repeat(100_000);
    assert!(checked(&deeper).report.render().contains("levels deep"));
    let huge = format!("{}# {}\n", step("once: true"), "x".repeat(256 * 1024));
    assert!(
        checked(&huge)
            .report
            .render()
            .contains("over the limit of 256KiB")
    );
    assert!(start.elapsed().as_secs() < 5);
}

#[test]
fn anchors_within_measure_are_read() {
    let text = step("env: &e {A: 1}\n  - name: b\n    command: [x]\n    env: *e");
    let workflow = good(&text).workflow.unwrap();
    assert_eq!(workflow.step(workflow.order[1]).env["A"], "1");
}

#[test]
fn a_shown_line_is_cut_and_cleaned() {
    let text = step(&format!(
        "env: {{A: \"{}\u{1b}[31m\"}}\n    {}: 1",
        "y".repeat(300),
        "z".repeat(300)
    ));
    let shown = checked(&text).report.render();
    assert!(!shown.contains('\u{1b}'), "{shown}");
    assert!(
        shown
            .lines()
            .filter(|line| line.contains('|'))
            .all(|line| line.chars().count() < 130)
    );
}

const FULL: &str = "version: \"1\"
name: w
context: {n: 2}
state: {a: []}
providers:
  p: {command: [tool, '${PROMPT}', '${m}'], defaults: {m: x}}
steps:
  - name: a
    provider: p
    prompt: |
      Do ${request} with ${context.n}
    output_capture: json
    retries: {max: 1, delay_ms: 10}
    next:
      - {if: 'output.ok', goto: b, lock: d, set: {state.a: '[1]'}, reason: 'x ${steps.a.json}'}
      - {if: 'true', goto: _block}
  - name: b
    for_each:
      items_from: steps.a.json.list
      as: task
      steps:
        - {name: c, agent: coder, prompt: '${task.id}', max_visits: 2, on_limit: _next, on: {failure: {goto: c}}}
    max_visits: {from: context.n, default: 2, max: 3}
    per: [d]
    on: {failure: {goto: b}}
  - name: d
    parallel:
      - {name: e, command: [x]}
    approval: &g gate
";

#[test]
fn a_damaged_file_is_never_more_than_a_report() {
    let good = FULL.replace("    approval: &g gate\n", "");
    super::support::good(&good);
    let rows: Vec<&str> = FULL.lines().collect();
    for skipped in 0..rows.len() {
        let mut rest = rows.clone();
        rest.remove(skipped);
        let _ = checked(&rest.join("\n")).report.render();
    }
    for end in (0..FULL.len()).step_by(13) {
        let _ = checked(&FULL[..end]).report.render();
        for other in ["{", "[", "${", "\t", "*g", "!x ", "5", "- ", ": "] {
            let after = FULL.get(end + 3..).unwrap_or_default();
            let _ = checked(&format!("{}{other}{after}", &FULL[..end]))
                .report
                .render();
        }
    }
}
