//! Numbers that a workflow takes from a variable, within their bounds.

use serde_json::{Map, Value};

use crate::workflow::model::Number;

/// The value of a number that may come from a variable, and a warning where it was clamped.
#[must_use]
pub fn number(number: &Number, variables: &Map<String, Value>) -> (u64, Option<String>) {
    let (path, default, min, max) = match number {
        Number::Fixed(fixed) => return (*fixed, None),
        Number::From {
            path,
            default,
            min,
            max,
        } => (path, default, min, max),
    };
    let fallback = default.unwrap_or(1);
    let found = find(path, variables);
    let asked = found.map_or(Some(fallback), whole);
    let least = min.unwrap_or(0);
    let value = asked
        .unwrap_or(fallback)
        .clamp(least, max.unwrap_or(u64::MAX).max(least));
    let warning = (asked != Some(value)).then(|| {
        let shown = found.map_or_else(|| fallback.to_string(), Value::to_string);
        format!("`{path}` is {shown}; {value} is taken instead")
    });
    (value, warning)
}

fn find<'v>(path: &str, variables: &'v Map<String, Value>) -> Option<&'v Value> {
    let mut parts = path.split('.');
    let root = variables.get(parts.next()?)?;
    let found = parts.try_fold(root, |value, part| value.get(part))?;
    (!found.is_null()).then_some(found)
}

/// A whole number, also written as text; what lies below zero is less than any bound.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => Some(0),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from(value: Value) -> (u64, Option<String>) {
        let Value::Object(variables) = json!({"context": {"k": value}}) else {
            unreachable!()
        };
        let wanted = Number::From {
            path: "context.k".into(),
            default: Some(5),
            min: Some(2),
            max: Some(9),
        };
        number(&wanted, &variables)
    }

    #[test]
    fn a_number_from_a_variable_stays_within_its_bounds_and_says_so() {
        assert_eq!(from(json!(7)), (7, None));
        assert_eq!(from(json!(" 7 ")), (7, None));
        assert_eq!(from(Value::Null), (5, None));
        let said = |value, taken| {
            (
                taken,
                Some(format!("`context.k` is {value}; {taken} is taken instead")),
            )
        };
        assert_eq!(from(json!(1)), said("1", 2));
        assert_eq!(from(json!(-4)), said("-4", 2));
        assert_eq!(from(json!(100)), said("100", 9));
        assert_eq!(from(json!("many")), said("\"many\"", 5));
    }
}
