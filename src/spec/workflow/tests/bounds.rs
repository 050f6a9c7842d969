//! The proof that a run ends.

use super::support::*;

fn steps(rows: &[(&str, &str)]) -> String {
    let rows: String = rows
        .iter()
        .map(|(name, rest)| format!("  - {{name: {name}, command: [x], {rest}}}\n"))
        .collect();
    with(&rows)
}

fn proven(rows: &[(&str, &str)]) -> Option<u64> {
    good(&steps(rows)).report.proven
}

#[test]
fn what_has_a_bound_is_measured() {
    let back = "on: {always: {goto: a}}";
    let out = "on: {success: {goto: b}, failure: {goto: _end}}";
    assert_eq!(proven(&[("a", "env: {}")]), Some(1));
    assert_eq!(
        proven(&[("a", "env: {}"), ("b", "env: {}"), ("c", "env: {}")]),
        Some(3)
    );
    // Three visits and the entry that is turned away.
    assert_eq!(
        proven(&[("a", "max_visits: 3, on: {always: {goto: a}}")]),
        Some(4)
    );
    // a b a b a, and the third entry of b is turned away.
    assert_eq!(
        proven(&[("a", out), ("b", &format!("max_visits: 2, {back}"))]),
        Some(6)
    );
    let from = "max_visits: {from: context.n, default: 1, max: 2}";
    assert_eq!(
        proven(&[("a", out), ("b", &format!("{from}, {back}"))]),
        Some(6)
    );
    // Without a `max` only the ceiling is known.
    let open = "max_visits: {from: context.n, default: 1}";
    assert_eq!(
        proven(&[("a", out), ("b", &format!("{open}, {back}"))]),
        Some(1000)
    );
}

#[test]
fn a_cycle_without_a_bound_is_named() {
    type Rows = &'static [(&'static str, &'static str)];
    let table: [(Rows, usize, &str); 6] = [
        (&[("a", "on: {failure: {goto: a}}")], 4, "`a -> a`"),
        (
            &[("a", "env: {}"), ("b", "on: {failure: {goto: a}}")],
            4,
            "`a -> b -> a`",
        ),
        // Restarted from within.
        (
            &[
                ("a", "max_visits: 2, per: [b]"),
                ("b", "on: {failure: {goto: a}}"),
            ],
            4,
            "`a -> b -> a`",
        ),
        // The way out of the limit leads back in.
        (
            &[
                ("a", "env: {}"),
                ("b", "max_visits: 2, on_limit: a, on: {failure: {goto: a}}"),
            ],
            4,
            "`a -> b -> a`",
        ),
        (
            &[("a", "env: {}"), ("b", "approval: g, on_reject: a")],
            4,
            "`a -> b -> a`",
        ),
        // The outer cycle is bounded, the inner is not.
        (
            &[
                ("a", "max_visits: 2"),
                ("b", "env: {}"),
                ("c", "on: {success: {goto: b}, failure: {goto: a}}"),
            ],
            5,
            "`b -> c -> b`",
        ),
    ];
    for (rows, line, cycle) in table {
        bad(&steps(rows), line, 12, cycle);
    }
}

#[test]
fn counts_that_are_restarted_from_outside_bound_an_inner_cycle() {
    let rows = [
        ("a", "max_visits: 2"),
        ("b", "max_visits: 3, per: [a]"),
        ("c", "on: {success: {goto: b}, failure: {goto: a}}"),
    ];
    assert!(proven(&rows).is_some());
    let both = [
        ("a", "max_visits: 2, per: [b]"),
        ("b", "max_visits: 3, per: [a]"),
        ("c", "on: {success: {goto: b}, failure: {goto: a}}"),
    ];
    bad(&steps(&both), 4, 12, "has no bound");
}

#[test]
fn loops_are_measured_by_their_items() {
    let each = |items: &str| {
        with(&format!(
            "  - name: a\n    for_each: {{{items}, steps: [{{name: p, command: [x]}}, {{name: q, command: [x]}}]}}\n"
        ))
    };
    assert_eq!(good(&each("items: [1, 2, 3]")).report.proven, Some(7));
    let open = good(&each("items_from: input.list")).report;
    assert_eq!(open.proven, Some(1000));
    assert!(
        open.notes
            .iter()
            .any(|note| note.message.contains("2 transitions for each item"))
    );
    let body = with(
        "  - name: a\n    for_each: {items: [1], steps: [{name: p, command: [x], on: {failure: {goto: p}}}]}\n",
    );
    bad(&body, 5, 43, "`p -> p` has no bound");
}

#[test]
fn the_text_says_what_was_proven() {
    let one = good(&steps(&[("a", "env: {}")])).report.render();
    assert_eq!(one, "ends after at most 1 transition\n");
}

#[test]
fn a_long_workflow_is_checked() {
    let mut rows = String::new();
    for n in 0..500 {
        let back = n / 10 * 10;
        rows.push_str(&format!(
            "  - name: s{n}\n    agent: coder\n    prompt: 'go ${{steps.s{back}.output:-x}} ${{request}}'\n    max_visits: 5\n    ensures: [{{check: 'output != \"\"', reason: empty}}]\n    on: {{failure: {{goto: s{back}}}}}\n"
        ));
    }
    good(&with(&rows));
}
