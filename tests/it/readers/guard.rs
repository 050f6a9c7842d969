//! Guards: a fault has a place in the text, a value comes out the same every time, and soon.

use std::time::Duration;

use orch::spec::expr::{Expr, ExprFault, FaultKind, MAX_BRACKETS, MAX_BYTES, MAX_TOKENS};
use orch::spec::scope::Scope;
use serde_json::json;

/// No guard takes more of a processor's time, however it is built.
const SOON: Duration = Duration::from_secs(8);

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let before = spent();
    let expr = match Expr::parse(text) {
        Ok(expr) => expr,
        Err(fault) => return placed(&fault, text),
    };
    assert!(text.len() <= MAX_BYTES);
    assert_eq!(expr.text(), text);
    let mut scope = scope();
    for glob in expr.asks_exists(&scope) {
        let found = glob.len() % 2 == 0;
        scope.answer(glob, found);
    }
    let value = expr.eval(&scope);
    assert_eq!(value, expr.eval(&scope), "it is not the same twice");
    assert_eq!(expr.trace(&scope).outcome, value);
    match &value {
        Ok(value) if value.is_boolean() => {
            assert_eq!(expr.holds(&scope).ok(), value.as_bool());
        }
        Ok(_) => assert_eq!(expr.holds(&scope).unwrap_err().kind, FaultKind::Type),
        Err(fault) => placed(fault, text),
    }
    in_brackets(text, &scope, &value);
    let spent = spent() - before;
    assert!(spent < SOON, "{spent:?}");
}

/// How much of a processor's time this thread has had.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn placed(fault: &ExprFault, text: &str) {
    assert!(!fault.message.is_empty());
    assert!(
        fault.at.is_none_or(|at| text.is_char_boundary(at)),
        "{fault:?} is outside of {text:?}"
    );
}

/// Brackets around a whole change nothing.
fn in_brackets(text: &str, scope: &Scope, value: &Result<serde_json::Value, ExprFault>) {
    let whole = format!("(\n{text}\n)");
    match Expr::parse(&whole) {
        Ok(expr) => match (value, expr.eval(scope)) {
            (Ok(value), inner) => assert_eq!(Ok(value), inner.as_ref()),
            (Err(fault), inner) => assert_eq!(Some(fault.kind), inner.err().map(|e| e.kind)),
        },
        Err(fault) => assert_eq!(
            fault.kind,
            FaultKind::Limit,
            "{whole:?}: {fault}; {MAX_BRACKETS} brackets, {MAX_TOKENS} tokens"
        ),
    }
}

fn scope() -> Scope<'static> {
    Scope::new()
        .with("output", "three\nlines of\ntext")
        .with("exit_code", 3)
        .with("status", "failed")
        .with("request", "do it: ${x} äöü")
        .with(
            "run",
            json!({"id": "20260101T000000Z-w-0001", "files": "workspace/files"}),
        )
        .with("visits", json!({"fix": 2, "test": 3}))
        .with("approvals", json!({"design": true}))
        .with("item", json!({"id": "a", "after": ["b"], "n": -1.5}))
        .with("loop", json!({"index": 0, "total": 3}))
        .with(
            "context",
            json!({"max_retries": 2, "big": u64::MAX, "small": i64::MIN, "null": null}),
        )
        .with(
            "steps",
            json!({
                "test": {"exit_code": 1, "json": {"passed": [1, 2, 3], "failed": [], "rate": 0.5}},
                "fix": {"lines": ["a", "b", "a"], "output": "x".repeat(200), "json": null},
            }),
        )
        .with(
            "state",
            json!({"plan": {"done": 2, "total": 3, "list": (0..40).collect::<Vec<_>>()}}),
        )
}
