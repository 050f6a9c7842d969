//! Drawings and the schema.

use serde_json::Value;

use super::support::*;
use crate::spec::workflow::Workflow;
use crate::spec::workflow::fields::{Object, Shape, WORKFLOW};
use crate::spec::workflow::graph::{Format, Overlay, draw};
use crate::spec::workflow::schema::schema;

fn sample() -> Workflow {
    let text = with(
        "  - name: a\n    command: [x, '<b> & \"c\"']\n    next:\n      - {if: 'output == \"<&>\"', goto: c}\n      - {if: 'exit_code == 3', goto: _block}\n      - {if: 'true', goto: b}\n  - name: b\n    for_each: {items: [1], steps: [{name: p, command: [x]}]}\n    on: {failure: {goto: a}}\n    max_visits: 3\n  - {name: c, command: [x]}\n",
    );
    good(&text).workflow.unwrap()
}

fn overlay() -> Overlay {
    Overlay {
        visits: [("a".to_owned(), 2)].into(),
        taken: [(("a".to_owned(), "b".to_owned()), 2)].into(),
        current: Some("b".to_owned()),
        status: Some("running".to_owned()),
    }
}

#[test]
fn every_language_names_steps_lines_and_the_run() {
    let workflow = sample();
    for (format, parts) in [
        (
            Format::Mermaid,
            ["flowchart TD", "s0 -->", "2×", "class s1 current"],
        ),
        (
            Format::Dot,
            ["digraph \"w\"", "s0 -> s1", "2×", "fillcolor"],
        ),
        (Format::Svg, ["<svg ", "marker-end", "2×", "#fff3c4"]),
    ] {
        let drawing = draw(&workflow, format, Some(&overlay()));
        for part in parts {
            assert!(drawing.contains(part), "{part}\n{drawing}");
        }
        assert_eq!(drawing, draw(&workflow, format, Some(&overlay())));
    }
}

#[test]
fn text_is_escaped() {
    let workflow = sample();
    let svg = draw(&workflow, Format::Svg, None);
    assert!(
        svg.contains("&lt;&amp;&gt;") && !svg.contains("<b>"),
        "{svg}"
    );
    let mermaid = draw(&workflow, Format::Mermaid, None);
    assert!(
        mermaid.contains("#60;#38;#62;") && !mermaid.contains("<b>"),
        "{mermaid}"
    );
    let dot = draw(&workflow, Format::Dot, None);
    assert!(dot.contains("\\\"<&>\\\""), "{dot}");
}

fn objects(object: &'static Object, found: &mut Vec<&'static Object>) {
    if found.iter().any(|known| std::ptr::eq(*known, object)) {
        return;
    }
    found.push(object);
    for field in object.fields {
        let mut shape = &field.shape;
        while let Shape::List(inner) | Shape::Some(inner) | Shape::Map(inner) = shape {
            shape = inner;
        }
        if let Shape::Object(inner) | Shape::FlagOr(inner) = shape {
            objects(inner, found);
        }
    }
}

#[test]
fn the_schema_describes_every_field() {
    let schema = schema();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let mut all = Vec::new();
    objects(&WORKFLOW, &mut all);
    assert!(all.len() > 12, "{}", all.len());
    for object in all {
        let own = match object.name {
            "workflow" => &schema,
            name => &schema["definitions"][name],
        };
        assert_eq!(own["additionalProperties"], false, "{}", object.name);
        for field in object.fields {
            let described = &own["properties"][field.name]["description"];
            assert!(
                described.as_str().is_some_and(|text| text.len() > 8),
                "{}.{}",
                object.name,
                field.name
            );
        }
    }
    assert!(all_references_lead_somewhere(&schema, &schema));
}

fn all_references_lead_somewhere(value: &Value, root: &Value) -> bool {
    let here = match value.get("$ref").and_then(Value::as_str) {
        Some(path) => root.pointer(&path[1..]).is_some_and(Value::is_object),
        None => true,
    };
    let inside = match value {
        Value::Object(map) => map
            .values()
            .all(|value| all_references_lead_somewhere(value, root)),
        Value::Array(list) => list
            .iter()
            .all(|value| all_references_lead_somewhere(value, root)),
        _ => true,
    };
    here && inside
}

#[test]
fn providers_are_checked_by_the_keys_that_they_have() {
    // A key of the table that the reader does not know would be a promise that is not kept.
    for key in crate::spec::workflow::fields::PROVIDER_KEYS {
        let text = format!("{{\"{key}\": null}}");
        if let Err(error) = serde_json::from_str::<crate::spec::provider::Entry>(&text) {
            assert!(
                !error.to_string().contains("unknown field"),
                "{key}: {error}"
            );
        }
    }
}

#[test]
fn approvals_and_locks_are_drawn_and_an_open_way_needs_no_reasons() {
    let text = with(
        "  - name: a\n    command: [x]\n    output_capture: json\n    approval: money\n    on: {interrupted: {goto: b}}\n    next:\n      - {if: 'exit_code == 3', goto: _block, lock: spent}\n      - {if: 'true', goto: b}\n  - {name: b, approval: end}\n",
    );
    let mermaid = draw(&good(&text).workflow.unwrap(), Format::Mermaid, None);
    for part in [
        "$ x, approval money",
        "a person approves end",
        "|\"exit_code == 3, locks spent\"|",
        "  s0 --> s1\n",
    ] {
        assert!(mermaid.contains(part), "{part}\n{mermaid}");
    }
}
