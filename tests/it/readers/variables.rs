//! Variables: a fault stands at a dollar sign, a value is never looked at again, and doubled dollar
//! signs give back any text.

use orch::spec::scope::Scope;
use orch::spec::vars::{NoOutputs, Path, Text};
use serde_json::{Value, json};

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let scope = scope(text);
    let (cut, faults) = Text::scan(text);
    for fault in &faults {
        assert!(text[fault.at..].starts_with("${"), "{fault:?}");
        assert!(fault.hint.is_some(), "{fault:?}");
    }
    match Text::parse(text) {
        Ok(parsed) => assert!(parsed == cut && faults.is_empty()),
        Err(fault) => assert_eq!(Some(&fault), faults.first()),
    }
    for var in cut.names() {
        assert!(text[var.at..].starts_with("${"), "{var:?}");
        let shown = var.path.to_string();
        assert_eq!(Path::parse(&shown).as_ref(), Ok(&var.path), "{shown}");
    }
    let filled = cut.fill(&scope, &NoOutputs);
    assert_eq!(filled, cut.fill(&scope, &NoOutputs));
    match &filled {
        Ok(filled) if cut.names().next().is_none() => {
            assert_eq!(cut.plain(), Some(filled.as_str()))
        }
        Ok(_) => assert_eq!(cut.plain(), None),
        Err(fault) => assert!(text[fault.at..].starts_with("${"), "{fault:?}"),
    }
    if let (Ok(filled), Ok(words)) = (&filled, cut.arguments(&scope, &NoOutputs))
        && let [word] = words.as_slice()
    {
        assert!(
            word == filled || filled.starts_with('['),
            "{word:?}, {filled:?}"
        );
    }
    as_it_is(text, &scope);
}

/// Written with doubled dollar signs or put in as a value, a text comes out as it is.
fn as_it_is(text: &str, scope: &Scope) {
    let doubled = Text::parse(&text.replace('$', "$$")).expect("no variable in it");
    assert_eq!(doubled.fill(scope, &NoOutputs).as_deref(), Ok(text));
    let put_in = Text::parse("${request}").expect("a variable");
    assert_eq!(put_in.fill(scope, &NoOutputs).as_deref(), Ok(text));
}

fn scope(text: &str) -> Scope<'static> {
    Scope::new()
        .with("request", text)
        .with("reply", Value::Null)
        .with("run", json!({"id": "r", "root": "/r"}))
        .with("item", json!({"id": "a", "list": [1, "two", {"three": 3}]}))
        .with(
            "context",
            json!({"a": "${b}", "b": "$", "many": ["x", "y"]}),
        )
        .with(
            "steps",
            json!({"one": {"output": "o", "lines": ["1", "2"], "json": {"k": [true]}}}),
        )
}
