//! Numbers that a workflow takes from a variable, within their bounds.

use serde_json::{Map, Value};

use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::{Number, Timeout, Work};
use crate::text::units::parse_duration;

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

/// What a run is told about its numbers that lie out of their bounds, each once.
#[must_use]
pub fn clamped(workflow: &Workflow, variables: &Map<String, Value>) -> Vec<String> {
    let mut all = Vec::new();
    for step in &workflow.steps {
        let limit = step.limit.as_ref().map(|limit| &limit.max);
        let tries = step.retries.as_ref().map(|retries| &retries.max);
        let side_by_side = match &step.work {
            Work::ForEach(each) => Some(&each.max_parallel),
            _ => None,
        };
        let seconds = match &step.timeout {
            Some(Timeout::Seconds(number)) => Some(number),
            _ => None,
        };
        let plain = [limit, tries, side_by_side, seconds].into_iter().flatten();
        all.extend(plain.filter_map(|plain| number(plain, variables).1));
        if let Some(Timeout::Millis(time)) = &step.timeout {
            all.extend(clamped_time(time, variables));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The same for a time, which a variable gives with its unit.
fn clamped_time(time: &Number, variables: &Map<String, Value>) -> Option<String> {
    let Number::From { path, min, max, .. } = time else {
        return None;
    };
    let text = find(path, variables)?.as_str()?;
    let asked = parse_duration(text.trim()).ok()?.as_millis();
    let least = u128::from(min.unwrap_or(0));
    let value = asked.clamp(least, u128::from(max.unwrap_or(u64::MAX)).max(least));
    (asked != value).then(|| format!("`{path}` is {text}; {value}ms is taken instead"))
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
