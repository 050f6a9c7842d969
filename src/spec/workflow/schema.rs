//! The JSON Schema (draft-07) of a workflow file, for editors.
//!
//! Printed from the table of fields that the loader uses; it adds no rule of its own.

use serde_json::{Map, Value, json};

use super::fields::{FROM, Object, PROVIDER_KEYS, Shape, WORKFLOW};

/// The whole schema.
#[must_use]
pub fn schema() -> Value {
    let mut definitions = Map::new();
    let root = object(&WORKFLOW, &mut definitions);
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        "http://json-schema.org/draft-07/schema#".into(),
    );
    schema.insert("title".into(), "orch workflow".into());
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    if let Some(version) = schema
        .get_mut("properties")
        .and_then(|properties| properties.get_mut("version"))
    {
        version["enum"] = json!(["1", "1.1", "1.1.1"]);
    }
    schema.insert("definitions".into(), Value::Object(definitions));
    Value::Object(schema)
}

/// The whole schema as the text of a file.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn object(object: &'static Object, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in object.fields {
        let mut value = shape(&field.shape, definitions);
        // Draft-07 ignores what stands beside a `$ref`.
        if value.get("$ref").is_some() {
            value = json!({"allOf": [value]});
        }
        value["description"] = field.doc.into();
        properties.insert(field.name.into(), value);
    }
    let mut out = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if !object.required.is_empty() {
        out["required"] = json!(object.required);
    }
    out
}

fn reference(inner: &'static Object, definitions: &mut Map<String, Value>) -> Value {
    if !definitions.contains_key(inner.name) {
        // The name is taken first: a step can hold steps.
        definitions.insert(inner.name.into(), Value::Null);
        let value = object(inner, definitions);
        definitions.insert(inner.name.into(), value);
    }
    json!({"$ref": format!("#/definitions/{}", inner.name)})
}

fn shape(shape_of: &'static Shape, definitions: &mut Map<String, Value>) -> Value {
    match shape_of {
        Shape::Text => json!({"type": "string"}),
        Shape::Guard => json!({"type": ["string", "boolean"]}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Count(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Shape::Number(min, max) => json!({"anyOf": [
            {"type": "integer", "minimum": min, "maximum": max},
            reference(&FROM, definitions),
        ]}),
        Shape::Duration => json!({"anyOf": [
            {"type": "string", "pattern": "^([0-9]+(d|h|ms|m|s))+$"},
            reference(&FROM, definitions),
        ]}),
        Shape::Word(words) => json!({"enum": words}),
        Shape::List(inner) => json!({"type": "array", "items": shape(inner, definitions)}),
        Shape::Some(inner) => {
            json!({"type": "array", "minItems": 1, "items": shape(inner, definitions)})
        }
        Shape::Map(inner) => json!({
            "type": ["object", "null"],
            "additionalProperties": shape(inner, definitions),
        }),
        Shape::Object(inner) => reference(inner, definitions),
        Shape::FlagOr(inner) => {
            json!({"anyOf": [{"type": "boolean"}, reference(inner, definitions)]})
        }
        Shape::Scalar => json!({"type": ["string", "number", "boolean"]}),
        Shape::Provider => json!({
            "type": ["object", "null"],
            "propertyNames": {"enum": PROVIDER_KEYS},
        }),
        Shape::Any => json!({}),
    }
}
