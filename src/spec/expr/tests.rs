//! Guards as workflows write them: what holds, what is missing, what is refused.

use serde_json::{Value, json};

use super::*;

fn scope() -> Scope<'static> {
    let task = |id: &str, ux: bool| json!({"id": id, "requires_ux_dx_review": ux});
    let issue = |id: u64, severity: &str| json!({"id": id, "severity": severity});
    let issues = json!([issue(1, "BLOCKER"), issue(2, "MINOR")]);
    let mut scope = Scope::new()
        .with(
            "output",
            json!({"verdict": "CLEAR", "status": "FAIL", "failing": ["a"], "issues": issues,
                "blocking": true, "summary": "s", "patch_plan": [{"issue": 1}], "clear": true,
                "files": ["x"], "tasks": [{"id": "a"}], "new_feature": false}),
        )
        .with("exit_code", 1)
        .with("status", "failed")
        .with("error", json!({"kind": "TimeoutExpired"}))
        .with(
            "steps",
            json!({"decide": {"json": {"architecture": {}}}, "verify": {"json": {"issues": issues}},
                "quality": {"json": {"failing": ["a"]}}, "my-step": {"exit_code": 3}}),
        )
        .with(
            "state",
            json!({"n": 1, "big": u64::MAX, "f": 1.5, "plan": {"current": {"tasks": [task("a", false)]},
                "tasks": [task("a", false), task("b", true)]}, "failures": ["f"], "nothing": null,
                "architecture": {"diagrams": [{"approved": true}], "blueprint": {"approved": true}}}),
        )
        .with("context", json!({"patch_major": false}))
        .with("visits", json!({"ask_a": 1, "ask_b": 1, "discover": 0}))
        .with("approvals", json!({"plan": true}))
        .with("snapshots", json!({"decision": {"status": "LOCKED"}}))
        .with("run", json!({"files": "workspace/r1/files"}))
        .with("reply", "try again")
        .with("item", json!({"id": 7}))
        .with("loop", json!({"index": 0, "total": 2}));
    scope.answer("workspace/r1/files/output/**", true);
    scope.answer("a/*.md", false);
    scope
}

fn parse(text: &str) -> Expr {
    Expr::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

#[test]
fn the_guards_of_the_workflows_are_evaluated() {
    let table = [
        (r#"status == "succeeded""#, false),
        ("exit_code == 124", false),
        ("has(error.kind) && exit_code == 2", false),
        ("true", true),
        (
            r#"output.verdict == "CLEAR" && visits.ask_a + visits.ask_b < 3"#,
            true,
        ),
        (r#"exists(run.files + "/output/**")"#, true),
        (r#"exists("a/*.md")"#, false),
        ("approvals.plan == true", true),
        ("state.plan.current != null", true),
        (
            r#"output.status == "PASS" ? size(output.failing) == 0 : size(output.failing) > 0"#,
            true,
        ),
        (
            "output.failing.all(f, state.plan.current.tasks.exists(t, t.id == f))",
            true,
        ),
        (
            "size(output.tasks) > 0 && output.tasks.all(t, t.id in steps.quality.json.failing)",
            true,
        ),
        (r#"reply.startsWith("try")"#, true),
        ("state.plan.tasks.exists(t, t.requires_ux_dx_review)", true),
        ("output.new_feature", false),
        ("size(output.files) < 3 && output.clear", true),
        (r#"snapshots.decision.status == "LOCKED""#, true),
        ("has(steps.decide.json.architecture)", true),
        (r#"output.issues.exists(i, i.severity == "BLOCKER")"#, true),
        (
            r#"context.patch_major && output.issues.exists(i, i.severity == "MAJOR")"#,
            false,
        ),
        (
            r#"steps.verify.json.issues.exists(i, i.severity in ["BLOCKER", "MAJOR"])"#,
            true,
        ),
        (
            r#"steps.verify.json.issues.filter(i, i.severity == "BLOCKER").all(i, output.patch_plan.exists(p, p.issue == i.id))"#,
            true,
        ),
        (
            "size(state.architecture.diagrams) > 0 && state.architecture.diagrams.all(d, d.approved == true)",
            true,
        ),
        (r#"steps["my-step"].exit_code == 3"#, true),
        ("steps.`my-step`.exit_code == 3", true),
        ("loop.index + 1 < loop.total && item.id == 7", true),
        ("has(state.loop) || !has(state.loop)", true),
        (r#"reply.matches("^try .*n$")"#, true),
        (
            "type(state.n) == int && type(state.big) == uint && type(state.f) == double",
            true,
        ),
        ("!(1 in [2]) && -state.n < 0", true),
    ];
    for (text, expected) in table {
        let trace = parse(text).trace(&scope());
        assert_eq!(trace.holds(), Ok(expected), "{trace}");
    }
}

#[test]
fn set_expressions_give_json_back() {
    let table = [
        ("state.n + 1", json!(2)),
        ("state.big", json!(u64::MAX)),
        ("state.f * 2.0", json!(3.0)),
        ("[]", json!([])),
        ("null", Value::Null),
        ("state.failures + [output.summary]", json!(["f", "s"])),
        (
            r#"{"b": 1, "a": {"x": [true]}}"#,
            json!({"a": {"x": [true]}, "b": 1}),
        ),
        (
            "state.plan.current",
            json!({"tasks": [{"id": "a", "requires_ux_dx_review": false}]}),
        ),
        ("output.issues.map(i, i.id)", json!([1, 2])),
        (
            "output.issues.filter(i, i.id > 1).map(i, i.severity + \"!\")",
            json!(["MINOR!"]),
        ),
        ("size(\"größe\")", json!(5)),
        ("[reply]", json!(["try again"])),
        ("string(1) + 'a'", json!("1a")),
        (r#"'${x} $$ "quoted" \n'"#, json!("${x} $$ \"quoted\" \n")),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text).eval(&scope()), Ok(expected), "{text}");
    }
    let map = parse(r#"{"b": 1, "a": 2}"#).eval(&scope()).unwrap();
    assert_eq!(map.to_string(), r#"{"a":2,"b":1}"#);
}

#[test]
fn a_missing_name_is_named() {
    let table = [
        (
            "outptu.x",
            "`outptu` is not known here",
            Some("did you mean `output`?"),
        ),
        (
            "state.plna == 1",
            "`state.plna` is missing",
            Some("did you mean `plan`?"),
        ),
        (
            "state.plan.current.task == 1",
            "`state.plan.current.task` is missing",
            Some("did you mean `tasks`?"),
        ),
        (
            "steps.decide.json.a.b",
            "`steps.decide.json.a` is missing",
            None,
        ),
        (
            r#"steps["other"].exit_code == 0"#,
            "`steps.other` is missing",
            None,
        ),
        (
            "state.nothing.x == 1",
            "`state.nothing.x` is missing: `state.nothing` is null",
            None,
        ),
        ("has(state.nope.x)", "`state.nope` is missing", None),
        (
            "output.issues.all(i, i.nope)",
            "there is no field `nope`",
            None,
        ),
        ("output.issues[7].id == 1", "the list has no item", None),
        ("reply.x", "`reply.x` is missing: `reply` is text", None),
    ];
    for (text, part, hint) in table {
        let fault = parse(text).holds(&scope()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing, "{text}: {fault:?}");
        assert!(fault.message.contains(part), "{text}: {fault:?}");
        if hint.is_some() {
            assert_eq!(fault.hint.as_deref(), hint, "{text}");
        }
    }
}

#[test]
fn a_wrong_type_is_a_fault_and_not_false() {
    let table = [
        ("1", "a guard must be true or false, and this is 1"),
        ("state.nothing", "this is null"),
        ("state.n + 'a' == ''", "cannot be added"),
        ("state.n && true", "`&&` does not take int and bool"),
        ("1 / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "too large"),
        ("'a' < 1", "does not take string and int"),
        ("0.0 / 0.0", "JSON cannot hold"),
        ("{1: 2}", "key that is not text"),
        ("bytes('a')", "JSON cannot hold"),
        ("'a'.matches('(')", "`matches()`: unclosed group"),
        ("exists('other/*')", "nobody looked"),
        ("reply.all(c, true)", "string where iterable is expected"),
    ];
    for (text, part) in table {
        let fault = parse(text);
        let fault = if text.starts_with("exists") {
            fault.holds(&Scope::new()).unwrap_err()
        } else {
            fault.holds(&scope()).unwrap_err()
        };
        assert!(fault.message.contains(part), "{text}: {fault:?}");
    }
}

#[test]
fn macros_over_maps_are_refused() {
    let fault = Expr::parse("{'a': 1}.all(k, true)").unwrap_err();
    assert!(fault.message.contains("walks over a map"), "{fault:?}");
    for text in [
        "state.plan.all(k, true)",
        "state.plan.map(k, k)",
        "state.plan.exists(k, true) || true",
        "output.issues.all(i, i.exists(k, true) || true)",
    ] {
        let fault = parse(text).eval(&scope()).unwrap_err();
        assert!(
            fault.message.contains("walks over a map"),
            "{text}: {fault:?}"
        );
    }
}

#[test]
fn load_faults_have_a_place_and_a_hint() {
    let table = [
        ("", "empty", None),
        ("  ", "empty", None),
        ("a ==", "it ends too early", Some(4)),
        ("a && # b", "`#` is not understood", Some(5)),
        ("\"open", "`\"open` is not understood", Some(0)),
        ("a b", "`b` is not expected here", Some(2)),
        ("a.?b", "`.?` is not supported", None),
        ("a = b", "`=` is not understood", None),
        ("true && siez(a) == 1", "no function `siez()`", Some(12)),
        ("a.startWith('b')", "no method `.startWith()`", None),
        ("exists(item)", "", None),
        ("exists(string(1))", "known before", Some(6)),
        ("exists('a', 'b')", "known before", Some(6)),
        ("state.l.all(x, exists(x))", "known before", None),
        ("Point{x: 1}", "does not exist", None),
        ("b'abc'", "bytes", None),
        ("_size(a) > 1", "no function `_size()`", None),
        ("now() > 1", "no function `now()`", None),
    ];
    for (text, part, at) in table {
        match Expr::parse(text) {
            Ok(_) => assert!(part.is_empty(), "{text} was taken"),
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Load, "{text}: {fault:?}");
                assert!(fault.message.contains(part), "{text}: {fault:?}");
                if at.is_some() {
                    assert_eq!(fault.at, at, "{text}: {fault:?}");
                }
            }
        }
    }
    let fault = Expr::parse("siez(a) == 1").unwrap_err();
    assert_eq!(fault.hint.as_deref(), Some("did you mean `size`?"));
}

#[test]
fn what_an_expression_names_is_listed() {
    let expr = parse(
        r#"steps.a.json.all(x, x.id in steps["b-c"].json) && visits.d < 2 && loop.index == 0
           && exists(run.files + "/x") && exists("y/*") && type(output) == list && exists("y/*")"#,
    );
    let words = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        *expr.roots(),
        words(&["loop", "output", "run", "steps", "visits"])
    );
    assert_eq!(expr.steps(), words(&["a", "b-c"]));
    assert_eq!(expr.visits(), words(&["d"]));
    let scope = Scope::new().with("run", json!({"files": "f"}));
    assert_eq!(expr.asks_exists(&scope), ["f/x", "y/*"]);
    assert_eq!(expr.asks_exists(&Scope::new()), ["y/*"]);
    assert!(
        expr.paths()
            .contains(&vec!["steps".into(), "a".into(), "json".into()])
    );
}

#[test]
fn a_variable_of_a_macro_hides_a_root() {
    let expr = parse("[{'n': 5}].all(state, state.n == 5) && state.n == 1");
    assert_eq!(expr.holds(&scope()), Ok(true));
}

#[test]
fn an_error_that_cannot_change_the_answer_is_passed_over() {
    let table = [
        ("state.nope == 1 || true", Ok(true)),
        ("state.nope == 1 && false", Ok(false)),
        ("state.nope == 1 || false", Err("`state.nope` is missing")),
        ("state.nope == 1 && true", Err("`state.nope` is missing")),
        ("has(state.nope) && state.nope == 1", Ok(false)),
    ];
    for (text, expected) in table {
        let held = parse(text).holds(&scope()).map_err(|fault| fault.message);
        assert_eq!(held, expected.map_err(str::to_owned), "{text}");
    }
}

#[test]
fn an_expression_can_be_shared_between_threads() {
    let expr = parse("state.n == 1");
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| assert_eq!(expr.holds(&scope()), Ok(true)));
        }
    });
}

#[test]
fn the_trace_is_one_line() {
    let trace = parse("state.n\n   + 1 == 2").trace(&scope());
    assert_eq!(trace.to_string(), "state.n + 1 == 2 => true");
    let trace = parse("state.x == 2").trace(&scope());
    assert_eq!(
        trace.to_string(),
        "state.x == 2 => error: `state.x` is missing"
    );
}

#[test]
fn a_missing_key_is_a_fault_wherever_it_could_change_the_outcome() {
    let scope = Scope::new().with("state", json!({"a": 1}));
    let ask = |text: &str| Expr::parse(text).unwrap().holds(&scope);
    for decided in ["state.b == 1 || true", "true || state.b == 1"] {
        assert_eq!(ask(decided), Ok(true), "{decided}");
    }
    for decided in ["state.b == 1 && false", "false && state.b == 1"] {
        assert_eq!(ask(decided), Ok(false), "{decided}");
    }
    for open in [
        "state.b == 1 || false",
        "false || state.b == 1",
        "state.b == 1 && true",
        "true && state.b == 1",
        "state.b == 1 || state.c == 1",
        "!(state.b == 1) || state.a == 2",
    ] {
        let fault = ask(open).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing, "{open}");
        assert!(fault.message.contains("` is missing"), "{open}: {fault}");
    }
    // The names themselves are listed from every part, so that a check finds those that nobody has.
    let expr = Expr::parse("nobody || true").unwrap();
    assert!(expr.roots().contains("nobody"));
}
