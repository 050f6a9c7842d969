//! Where in a provider's JSON the answer, the cost and the rest stand.
//!
//! A rule is a JSON pointer, or a choice among items: `{where: {/type: result}, pick: last, at:
//! /result}`. A step `*` in a pointer stands for every element. Items are the lines of JSON lines,
//! the elements of an array, or what `from` points at. It reads values and never fails on them.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::text::error::hinted;

/// A JSON pointer (RFC 6901) in which `*` stands for every element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Each,
}

impl Pointer {
    /// Reads `/usage/input_tokens`, `/messages/*/text`; the empty text is the whole document.
    ///
    /// # Errors
    /// Says that it does not begin with a slash.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Pointer(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or_else(|| {
            let hint = format!("write it as `/{}`", text.replace('.', "/"));
            hinted(&format!("`{text}` is not a JSON pointer"), Some(&hint))
        })?;
        let step = |part: &str| match part {
            "*" => Step::Each,
            part => Step::Key(part.replace("~1", "/").replace("~0", "~")),
        };
        Ok(Pointer(rest.split('/').map(step).collect()))
    }

    /// Every value that the pointer leads to.
    fn values<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![root];
        for step in &self.0 {
            found = found
                .into_iter()
                .flat_map(|value| follow(step, value))
                .collect();
        }
        found
    }
}

fn follow<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match (step, value) {
        (Step::Each, Value::Array(items)) => items.iter().collect(),
        (Step::Each, Value::Object(entries)) => entries.values().collect(),
        (Step::Key(key), Value::Object(entries)) => entries.get(key).into_iter().collect(),
        (Step::Key(key), Value::Array(items)) => {
            let index = key.parse::<usize>().ok();
            index
                .and_then(|index| items.get(index))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Pointer;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON pointer such as `/result`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Pointer, E> {
                Pointer::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Which of several items counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The first that has a value.
    First,
    /// The last that has a value.
    #[default]
    Last,
    /// All of them, one text after the other.
    Concat,
    /// All of them, added up.
    Sum,
    /// All of them, as a list.
    List,
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    from: Option<Pointer>,
    filter: Vec<(Pointer, Value)>,
    pick: Pick,
    at: Vec<Pointer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(default)]
    from: Option<Pointer>,
    #[serde(default, rename = "where")]
    filter: Map<String, Value>,
    #[serde(default)]
    pick: Pick,
    at: OneOrMany,
}

/// `at: /a` or `at: [/a, /b]`, where the first that gives a value counts.
struct OneOrMany(Vec<Pointer>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pointers;
        impl<'de> Visitor<'de> for Pointers {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON pointer or a list of them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                let pointer = Pointer::parse(text).map_err(E::custom)?;
                Ok(OneOrMany(vec![pointer]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
                let mut pointers = Vec::new();
                while let Some(pointer) = items.next_element()? {
                    pointers.push(pointer);
                }
                Ok(OneOrMany(pointers))
            }
        }
        deserializer.deserialize_any(Pointers)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyRule;
        impl<'de> Visitor<'de> for AnyRule {
            type Value = Rule;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON pointer, or a map with `where`, `pick` and `at`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rule, E> {
                let pointer = Pointer::parse(text).map_err(E::custom)?;
                Ok(Rule::pointer(pointer))
            }
            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Rule, A::Error> {
                let raw = RawRule::deserialize(de::value::MapAccessDeserializer::new(entries))?;
                Rule::from_raw(raw).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(AnyRule)
    }
}

impl Rule {
    fn pointer(pointer: Pointer) -> Self {
        Rule {
            from: None,
            filter: Vec::new(),
            pick: Pick::Last,
            at: vec![pointer],
        }
    }

    fn from_raw(raw: RawRule) -> Result<Self, String> {
        let filter = raw.filter.into_iter();
        let filter = filter.map(|(key, value)| Ok((Pointer::parse(&key)?, value)));
        Ok(Rule {
            from: raw.from,
            filter: filter.collect::<Result<_, String>>()?,
            pick: raw.pick,
            at: raw.at.0,
        })
    }

    /// The items of a document that this rule looks at.
    fn items<'v>(&self, document: &'v Value) -> Vec<&'v Value> {
        let elements = |value: &'v Value| match value {
            Value::Array(items) => items.iter().collect(),
            other => vec![other],
        };
        match &self.from {
            Some(from) => from
                .values(document)
                .into_iter()
                .flat_map(elements)
                .collect(),
            None if self.filter.is_empty() => vec![document],
            None => elements(document),
        }
    }

    fn takes(&self, item: &Value) -> bool {
        self.filter.iter().all(|(pointer, wanted)| {
            let is_wanted = |value: &Value| match wanted {
                Value::Array(any) => any.contains(value),
                one => one == value,
            };
            pointer.values(item).into_iter().any(is_wanted)
        })
    }

    fn value_of(&self, item: &Value) -> Option<Value> {
        let says_something = |value: &&Value| !value.is_null() && **value != "";
        self.at.iter().find_map(|pointer| {
            pointer
                .values(item)
                .into_iter()
                .filter(says_something)
                .cloned()
                .fold(None, |before, value| Some(self.join(before, value, true)))
        })
    }

    /// Puts a further value to those before it, inside of one item or between items.
    fn join(&self, before: Option<Value>, value: Value, within: bool) -> Value {
        let Some(before) = before else {
            return match self.pick {
                Pick::List if !value.is_array() => Value::Array(vec![value]),
                _ => value,
            };
        };
        match (self.pick, before, value) {
            (Pick::List, Value::Array(mut list), Value::Array(more)) => {
                list.extend(more);
                list.into()
            }
            (Pick::List, Value::Array(mut list), value) => {
                list.push(value);
                list.into()
            }
            (Pick::First, before, _) if !within => before,
            (Pick::Last, _, value) if !within => value,
            (_, Value::String(text), Value::String(more)) => (text + &more).into(),
            (_, Value::Number(a), Value::Number(b)) => add(&a, &b),
            (_, _, value) => value,
        }
    }
}

fn add(a: &serde_json::Number, b: &serde_json::Number) -> Value {
    match (a.as_u64(), b.as_u64()) {
        (Some(a), Some(b)) => a.saturating_add(b).into(),
        _ => (a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)).into(),
    }
}

/// What a rule has found so far, document after document.
#[derive(Debug)]
pub struct Finder<'r> {
    rule: Option<&'r Rule>,
    found: Option<Value>,
}

impl<'r> Finder<'r> {
    /// Nothing found yet; without a rule nothing ever is.
    #[must_use]
    pub fn new(rule: Option<&'r Rule>) -> Self {
        Finder { rule, found: None }
    }

    /// Looks at one more document: the whole of a JSON output, or one line.
    pub fn look(&mut self, document: &Value) {
        let Some(rule) = self.rule else { return };
        for item in rule.items(document) {
            if rule.takes(item)
                && let Some(value) = rule.value_of(item)
            {
                self.found = Some(rule.join(self.found.take(), value, false));
            }
        }
    }

    /// The value as text; numbers and lists are spelled out.
    #[must_use]
    pub fn text(self) -> Option<String> {
        match self.found? {
            Value::String(text) => Some(text),
            Value::Array(items) => {
                let mut words: Vec<String> = Vec::new();
                for item in items {
                    let word = item
                        .as_str()
                        .map_or_else(|| item.to_string(), str::to_owned);
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
                (!words.is_empty()).then(|| words.join(", "))
            }
            other => Some(other.to_string()),
        }
    }

    /// The value as a count.
    #[must_use]
    pub fn count(self) -> Option<u64> {
        let value = self.found?;
        let rounded = |number: f64| (number >= 0.0).then_some(number as u64);
        value.as_u64().or_else(|| value.as_f64().and_then(rounded))
    }

    /// The value as a number.
    #[must_use]
    pub fn number(self) -> Option<f64> {
        self.found?.as_f64()
    }

    /// Whether the value says yes: not missing, null, false, zero or empty.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match &self.found {
            None | Some(Value::Null) => false,
            Some(Value::Bool(yes)) => *yes,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(entries)) => !entries.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(rule: &str, documents: &[Value]) -> Option<String> {
        let rule: Rule = crate::text::yaml::from_str(rule).expect(rule);
        let mut finder = Finder::new(Some(&rule));
        documents.iter().for_each(|document| finder.look(document));
        finder.text()
    }

    #[test]
    fn rules_find_what_they_say() {
        let lines = [
            json!({"type": "a", "n": 1, "t": "x"}),
            json!({"type": "b", "n": 2, "t": "y"}),
            json!({"type": "a", "n": 3, "t": "z"}),
            json!({"type": "a", "n": 0.5, "t": ""}),
        ];
        let array = [Value::Array(lines.to_vec())];
        let table = [
            ("{where: {/type: a}, at: /t}", Some("z")),
            ("{where: {/type: a}, pick: first, at: /t}", Some("x")),
            ("{where: {/type: a}, pick: concat, at: /t}", Some("xz")),
            ("{where: {/type: a}, pick: sum, at: /n}", Some("4.5")),
            ("{where: {/type: b}, pick: sum, at: /n}", Some("2")),
            (
                "{where: {/type: [a, b]}, pick: list, at: /t}",
                Some("x, y, z"),
            ),
            ("{where: {/type: c}, at: /t}", None),
            ("{where: {/type: a, /n: 3}, at: [/no, /t]}", Some("z")),
        ];
        for (rule, expected) in table {
            assert_eq!(find(rule, &lines).as_deref(), expected, "{rule}, lines");
            assert_eq!(find(rule, &array).as_deref(), expected, "{rule}, array");
        }
    }

    #[test]
    fn pointers_reach_into_lists_and_maps() {
        let document = json!({
            "a/b": {"~": "odd"},
            "list": [{"t": "x"}, {"u": 1}, {"t": "y"}],
            "models": {"m1": {"in": 2}, "m2": {"in": 3}},
            "empty": [], "no": null,
        });
        let table = [
            ("/a~1b/~0", Some("odd")),
            ("/list/0/t", Some("x")),
            ("/list/*/t", Some("xy")),
            ("{pick: list, at: /list/*/t}", Some("x, y")),
            ("/models/*/in", Some("5")),
            ("{from: /list, at: /t}", Some("y")),
            ("/list/9", None),
            ("/no", None),
            ("/list/x", None),
            ("{pick: list, at: /empty/*}", None),
        ];
        for (rule, expected) in table {
            assert_eq!(
                find(rule, std::slice::from_ref(&document)).as_deref(),
                expected,
                "{rule}"
            );
        }
    }

    #[test]
    fn a_bad_rule_is_refused_with_a_hint() {
        let fault = crate::text::yaml::from_str::<Rule>("usage.tokens").unwrap_err();
        assert_eq!(fault.hint.as_deref(), Some("write it as `/usage/tokens`"));
        let fault = crate::text::yaml::from_str::<Rule>("{at: /a, pck: last}").unwrap_err();
        assert_eq!(fault.hint.as_deref(), Some("did you mean `pick`?"));
        assert!(crate::text::yaml::from_str::<Rule>("{where: {type: a}, at: /t}").is_err());
        assert!(crate::text::yaml::from_str::<Rule>("{pick: last}").is_err());
    }

    #[test]
    fn truth_is_what_a_person_would_say() {
        let rule = Rule::pointer(Pointer::parse("/v").unwrap());
        let table = [
            (json!(true), true),
            (json!(false), false),
            (json!(0), false),
            (json!(1), true),
            (json!(""), false),
            (json!({}), false),
            (json!({"message": "x"}), true),
            (json!([]), false),
            (Value::Null, false),
        ];
        for (value, expected) in table {
            let mut finder = Finder::new(Some(&rule));
            finder.look(&json!({"v": value}));
            assert_eq!(finder.is_true(), expected, "{value}");
        }
    }
}
