//! What is found to be changed, and what is outside of the parts.

use serde_json::{Map, Value, json};

use super::*;
use crate::spec::workflow::model::{At, Place};

fn map(value: Value) -> Map<String, Value> {
    value.as_object().expect("a map").clone()
}

fn parts(parts: &[&str]) -> Vec<Text> {
    let part = |part: &&str| At {
        value: (*part).to_owned(),
        place: Place::default(),
    };
    parts.iter().map(part).collect()
}

#[test]
fn every_difference_is_found_field_by_field() {
    let before =
        map(json!({"a": {"x": 1, "y": [1, 2], "gone": {"deep": 1}}, "b": null, "c/d~": 1}));
    let after = map(
        json!({"a": {"x": 1, "y": [2], "new": {"in": {"it": 1}, "empty": {}}}, "b": {}, "c/d~": 2}),
    );
    let changes = compare(&before, &after);
    assert_eq!(
        json!(changes),
        json!({
            "set": {"/a/new/empty": {}, "/a/new/in/it": 1, "/a/y": [2], "/b": {}, "/c~1d~0": 2},
            "removed": ["/a/gone"]
        })
    );
    assert!(compare(&before, &before).is_empty());
}

#[test]
fn only_what_lies_in_a_part_is_inside() {
    let updates = parts(&["code", "tests.status"]);
    let table = [
        ("/code", true),
        ("/code/a/b", true),
        ("/code.x", false),
        ("/codex", false),
        ("/tests", false),
        ("/tests/status", true),
        ("/tests/status/deep", true),
        ("/tests/statu", false),
        ("/metadata", false),
        ("/governance/approvals/code", false),
        ("", false),
    ];
    for (path, inside) in table {
        assert_eq!(is_inside(path, &updates), inside, "{path}");
    }
    // Even a part that should never have been let through opens nothing of orch's own.
    assert!(!is_inside("/metadata/status", &parts(&["metadata"])));
}

#[test]
fn a_violation_names_the_step_and_the_paths_and_is_of_bounded_length() {
    let mut changes = Changes::default();
    changes.set.insert("/tests/status".to_owned(), json!(1));
    changes.set.insert("/code/a".to_owned(), json!(1));
    let fault = outside("S", &changes, &parts(&["code"])).expect("a violation");
    assert_eq!(fault.kind, Kind::ScopeViolation);
    assert_eq!(
        fault.message,
        "step `S` changed `tests.status` in the document, which it may not"
    );
    assert!(outside("S", &changes, &parts(&["code", "tests"])).is_none());
    for n in 0..50 {
        changes
            .removed
            .insert(format!("/{n}\u{1b}{}", "x".repeat(500)));
    }
    let fault = outside("S", &changes, &[]).expect("a violation");
    assert!(fault.message.len() < 500, "{}", fault.message.len());
    assert!(!fault.message.contains('\u{1b}'), "{}", fault.message);
    assert!(fault.message.contains("and 49 more"), "{}", fault.message);
}

#[test]
fn the_parts_are_taken_from_an_answer_that_has_them() {
    let before =
        map(json!({"code": {"a": 1, "b": 2}, "tests": {"status": "none"}, "metadata": {}}));
    let output =
        json!({"code": {"a": 3}, "tests": {"status": "ok", "more": 1}, "metadata": {"x": 1}});
    let changes = told(
        &before,
        &output,
        &parts(&["code", "tests.status", "none.at.all"]),
    );
    assert_eq!(
        json!(changes),
        json!({"set": {"/code/a": 3, "/tests/status": "ok"}, "removed": ["/code/b"]})
    );
    for other in [json!([1]), json!("code"), json!(null), json!({})] {
        assert!(
            told(&before, &other, &parts(&["code"])).is_empty(),
            "{other}"
        );
    }
}
