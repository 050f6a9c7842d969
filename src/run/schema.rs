//! JSON Schema: compiled once, then compared with documents.
//!
//! Nothing is fetched: a `$ref` to another document is refused when the schema is loaded, and
//! patterns run in time linear in the text. A document is never changed, and defaults are not filled
//! in.

use std::fmt;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::text::error::{Fault, Kind};

/// How many differences a fault lists.
const MAX_PROBLEMS: usize = 3;
/// The deepest schema that is compiled.
const MAX_DEPTH: usize = 64;
/// The most values in a schema that is compiled.
const MAX_VALUES: usize = 20_000;
/// A value longer than this is not repeated in a message.
const MAX_SHOWN: usize = 80;

/// A compiled schema.
pub struct Schema {
    validator: Validator,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// [`Kind::WorkflowValidationError`]: it is no schema, too large, or refers to another document.
    pub fn compile(schema: &Value) -> Result<Self, Fault> {
        measure(schema)?;
        jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .build(schema)
            .map(|validator| Schema { validator })
            .map_err(|error| refused(&error))
    }

    /// Compares a document with the schema.
    ///
    /// # Errors
    /// [`Kind::SchemaError`], with the JSON pointer of each of the first few differences.
    pub fn check(&self, document: &Value) -> Result<(), Fault> {
        let mut errors = self.validator.iter_errors(document);
        let problems: Vec<String> = errors
            .by_ref()
            .take(MAX_PROBLEMS)
            .map(|e| problem(&e))
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        let more = match errors.count() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let message = format!(
            "the JSON does not match its schema: {}{more}",
            problems.join("; ")
        );
        Err(Fault::new(Kind::SchemaError, message))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

/// One difference: the pointer, then what is wrong there.
fn problem(error: &ValidationError<'_>) -> String {
    let pointer = match error.instance_path().as_str() {
        "" => "the document itself".to_owned(),
        pointer => format!("`{}`", line(pointer)),
    };
    let what = if error.instance().to_string().len() > MAX_SHOWN {
        error.masked().to_string()
    } else {
        error.to_string()
    };
    format!("at {pointer}: {}", line(&what))
}

/// A message of the library on one line, shortened.
fn line(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match clean.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

fn invalid(message: String) -> Fault {
    Fault::new(
        Kind::WorkflowValidationError,
        format!("the schema is not valid: {message}"),
    )
}

fn refused(error: &ValidationError<'_>) -> Fault {
    let place = match error.instance_path().as_str() {
        "" => String::new(),
        pointer => format!("at `{}`: ", line(pointer)),
    };
    invalid(format!("{place}{}", line(&error.to_string())))
        .hint("a `$ref` may only point into the same file, such as `#/$defs/name`")
}

/// Refuses a schema that would take the compiler too deep or too long.
fn measure(schema: &Value) -> Result<(), Fault> {
    let mut left = MAX_VALUES;
    let mut open = vec![(schema, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(invalid(format!(
                "it is nested more than {MAX_DEPTH} levels deep"
            )));
        }
        if left == 0 {
            return Err(invalid(format!("it holds more than {MAX_VALUES} values")));
        }
        left -= 1;
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gate() -> Schema {
        Schema::compile(&json!({
            "type": "object", "additionalProperties": false, "required": ["status", "failing"],
            "properties": {
                "status": {"enum": ["PASS", "FAIL"]},
                "failing": {"type": "array", "items": {"$ref": "#/$defs/id"}},
                "summary": {"type": "string", "pattern": "^[a-z]+$"}
            },
            "$defs": {"id": {"type": "string", "maxLength": 8}}
        }))
        .unwrap()
    }

    #[test]
    fn a_document_that_matches_passes() {
        assert_eq!(
            gate().check(&json!({"status": "PASS", "failing": ["t1"]})),
            Ok(())
        );
    }

    #[test]
    fn a_difference_is_named_by_its_pointer() {
        let table = [
            (
                json!({"status": "MAYBE", "failing": []}),
                "at `/status`: \"MAYBE\" is not one of",
            ),
            (
                json!({"status": "PASS", "failing": ["t1", 2]}),
                "at `/failing/1`: 2 is not of type",
            ),
            (
                json!({"status": "PASS"}),
                "at the document itself: \"failing\" is a required property",
            ),
            (
                json!({"status": "PASS", "failing": [], "x": 1}),
                "'x' was unexpected",
            ),
            (json!([]), "at the document itself"),
            (
                json!({"status": "PASS", "failing": ["y".repeat(5000)]}),
                "at `/failing/0`: value is longer",
            ),
        ];
        for (document, part) in table {
            let fault = gate().check(&document).unwrap_err();
            assert_eq!(fault.kind, Kind::SchemaError);
            assert!(fault.message.contains(part), "{fault}");
            assert!(fault.message.len() < 1000, "{fault}");
        }
    }

    #[test]
    fn only_a_few_differences_are_listed() {
        let fault = gate()
            .check(&json!({"status": "PASS", "failing": [1, 2, 3, 4, 5]}))
            .unwrap_err();
        assert!(fault.message.ends_with("; and 2 more"), "{fault}");
    }

    #[test]
    fn schemas_that_cannot_be_used_are_refused() {
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({"not": deep});
        }
        let table = [
            (json!({"type": "strin"}), "/type"),
            (json!({"required": "a"}), "/required"),
            (json!({"$ref": "https://example.com/x.json"}), "example.com"),
            (json!({"$ref": "file:///etc/passwd"}), "passwd"),
            (json!({"$ref": "other.json"}), "other.json"),
            (json!({"$ref": "#/$defs/none"}), "none"),
            (
                json!({"properties": {"a": {"$ref": "http://localhost/a"}}}),
                "localhost",
            ),
            (json!({"pattern": "("}), "("),
            (json!({"pattern": "(?=a)"}), "a"),
            (json!(7), ""),
            (json!({"enum": vec![1; 30_000]}), "20000 values"),
            (deep, "64 levels"),
        ];
        for (schema, part) in table {
            let fault = Schema::compile(&schema).expect_err(&schema.to_string());
            assert_eq!(fault.kind, Kind::WorkflowValidationError);
            assert!(fault.message.contains(part), "{schema}: {fault}");
        }
    }

    #[test]
    fn a_schema_may_go_down_into_itself() {
        let tree =
            Schema::compile(&json!({"type": "object", "properties": {"next": {"$ref": "#"}}}));
        let tree = tree.unwrap();
        assert_eq!(tree.check(&json!({"next": {"next": {}}})), Ok(()));
        assert!(tree.check(&json!({"next": {"next": 1}})).is_err());
        let mut deep = json!({});
        for _ in 0..120 {
            deep = json!({"next": deep});
        }
        assert_eq!(tree.check(&deep), Ok(()));
    }

    #[test]
    fn a_circle_of_references_comes_to_an_end() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}], "type": "object"}),
            json!({"$anchor": "x", "$ref": "#x"}),
            json!({"$dynamicAnchor": "x", "$dynamicRef": "#x"}),
            json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
            json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
        ] {
            if let Ok(schema) = Schema::compile(&schema) {
                let _ = schema.check(&json!({"a": {"a": 1}}));
            }
        }
    }

    #[test]
    fn pattern_bombs_take_no_time() {
        let schema = Schema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(
            schema
                .check(&json!(format!("{}!", "a".repeat(50_000))))
                .is_err()
        );
    }
}
