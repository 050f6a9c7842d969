//! The head of a workflow file, and how faults are shown.

use super::support::*;
use crate::spec::workflow::model::{Version, Violation};

const STEP: &str = "steps: [{name: a, command: [x]}]\n";

#[test]
fn the_head_is_read() {
    let text = format!(
        "version: \"1.1\"\nname: four-pass\ndescription: text\nstrict_flow: false\ncontext: {{k: 1}}\n\
         input: {{schema: specs/schemas/s.json}}\nstate: {{a: 1}}\non_violation: stop\nsingleton: true\n\
         follow_up: a\nmax_transitions: 7\n{STEP}"
    );
    let workflow = good(&text).workflow.unwrap();
    assert_eq!(workflow.version, Version::V1_1);
    assert_eq!(workflow.on_violation, Violation::Stop);
    assert!(!workflow.strict_flow && workflow.singleton);
    assert_eq!(workflow.follow_up, workflow.find("a"));
    assert_eq!(workflow.max_transitions, 7);
    for (written, version) in [("1", Version::V1), ("1.1.1", Version::V1_1_1)] {
        let text = format!("version: \"{written}\"\nname: w\n{STEP}");
        assert_eq!(good(&text).workflow.unwrap().version, version);
    }
    let plain = good(&with("  - {name: a, command: [x]}\n"))
        .workflow
        .unwrap();
    assert!(plain.strict_flow && !plain.singleton && plain.follow_up.is_none());
    assert_eq!(
        (plain.max_transitions, plain.on_violation),
        (1000, Violation::Block)
    );
}

#[test]
fn faults_of_the_head_have_their_place() {
    let table = [
        ("version: 1\nname: w\n", 1, 10, "`version` is 1"),
        ("version: \"2\"\nname: w\n", 1, 10, "not known"),
        ("name: w\n", 1, 1, "`version` is missing"),
        (
            "version: \"1\"\nname: W\n",
            2,
            7,
            "not a name for a workflow",
        ),
        ("version: \"1\"\nname: human\n", 2, 7, "reserved"),
        (
            "version: \"1\"\nname: coder\n",
            2,
            7,
            "there is an agent `coder` too",
        ),
        (
            "version: \"1\"\nname: w\nnmae: x\n",
            3,
            1,
            "unknown field `nmae`",
        ),
        (
            "version: \"1\"\nname: w\nstrict_flow: 1\n",
            3,
            14,
            "must be true or false",
        ),
        (
            "version: \"1\"\nname: w\nstate: {metadata: 1}\n",
            3,
            9,
            "`metadata` is reserved",
        ),
        (
            "version: \"1\"\nname: w\nstate: {governance: 1}\n",
            3,
            9,
            "`governance` is reserved",
        ),
        (
            "version: \"1\"\nname: w\non_violation: halt\n",
            3,
            15,
            "unknown value `halt`",
        ),
        (
            "version: \"1\"\nname: w\nfollow_up: b\n",
            3,
            12,
            "`b` is not a step",
        ),
        (
            "version: \"1\"\nname: w\nmax_transitions: 0\n",
            3,
            18,
            "from 1 to",
        ),
        (
            "version: \"1\"\nname: w\ninput: {schema: nope.json}\n",
            3,
            17,
            "there is no file",
        ),
        (
            "version: \"1\"\nname: w\ninput: {schema: /etc/x}\n",
            3,
            17,
            "absolute",
        ),
        (
            "version: \"1\"\nname: w\nproviders: {p: {comand: [x]}}\n",
            3,
            17,
            "unknown field `comand`",
        ),
        (
            "version: \"1\"\nname: w\nproviders: {p: {args: [x]}}\n",
            3,
            13,
            "no program",
        ),
    ];
    for (head, line, column, part) in table {
        bad(&format!("{head}{STEP}"), line, column, part);
    }
}

#[test]
fn all_faults_come_at_once_and_in_order() {
    let report = checked(
        "version: \"2\"\nname: w\ncolour: red\nsteps:\n  - name: a\n    comand: [x]\n  - name: a\n    command: [x]\n    on: {success: {goto: nowhere}}\n",
    )
    .report;
    let places: Vec<(usize, usize)> = report
        .faults
        .iter()
        .map(|fault| (fault.place.line, fault.place.column))
        .collect();
    assert_eq!(places, [(1, 10), (3, 1), (5, 5), (6, 5), (7, 11), (9, 26)]);
    assert_eq!(report.proven, None);
    assert!(
        report
            .fault()
            .unwrap()
            .message
            .ends_with("(and 5 more faults)")
    );
}

#[test]
fn a_fault_shows_its_line_a_caret_and_a_hint() {
    let report = checked(&with("  - name: a\n    command: [x]\n    dependson: {}\n")).report;
    assert_eq!(
        report.render(),
        "error: unknown field `dependson` in `steps.a`\n --> w.yaml:6:5\n  |\n6 |     dependson: {}\n  |     ^\n  = hint: did you mean `depends_on`?\n\n1 fault\n"
    );
}
