//! Expressions and values that are meant to break the engine: each ends in a fault, soon, and the
//! process lives on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

fn refused(text: &str) -> ExprFault {
    Expr::parse(text).expect_err("it should be refused")
}

/// As many of `unit` as the limit of tokens or of bytes lets through.
fn chain(unit: &str, end: &str) -> String {
    let count = |text: &str| limits::check(text).is_ok();
    let mut n = 1;
    while count(&format!("{}{end}", unit.repeat(n + 1))) {
        n += 1;
    }
    format!("{}{end}", unit.repeat(n))
}

#[test]
fn long_and_deep_texts_are_refused_before_parsing() {
    let start = Instant::now();
    let long = "a".repeat(100 * 1024);
    assert!(refused(&long).message.contains("102400 bytes"));
    assert!(refused(&"(".repeat(20_000)).message.contains("20000 bytes"));
    assert!(refused(&"(".repeat(1024)).message.contains("16 brackets"));
    assert!(
        refused(&format!("{}1{}", "[".repeat(17), "]".repeat(17)))
            .message
            .contains("16")
    );
    assert!(
        refused(&vec!["1"; 300].join("+"))
            .message
            .contains("320 words")
    );
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn brackets_inside_texts_do_not_count() {
    let table = [
        r#""((((((((((((((((((((" == """#,
        r#"'[[[[[[[[[[[[[[[[[[[[\'[[' == ''"#,
        r#"r"[[[[[[[[[[[[[[[[[[[[\" == """#,
        r#""""(((((("((((((((((((((""" == """#,
        "true // ((((((((((((((((((((((",
    ];
    for text in table {
        Expr::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
    }
    assert_eq!(
        refused(&format!("'(' == {}", "(".repeat(17))).kind,
        FaultKind::Limit
    );
}

#[test]
fn the_longest_chains_that_pass_do_not_overflow() {
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(16), close.repeat(16));
    let texts = [
        chain("1+", "1"),
        chain("!", "true"),
        chain("- ", "1"),
        chain("true?1:", "2"),
        chain("true||", "true"),
        chain("1<", "2"),
        format!("state{}", chain(".a", "")),
        format!("state{}", chain("[0]", "")),
        format!("state{}", chain("[0].a", "")),
        nested("(", ")"),
        nested("[", "]"),
        nested("{'a':", "}"),
        nested("(1+", ")"),
        nested("[1].map(a,", ")"),
        nested("[true?[", "]:1]").replace("[true?[", "[true?"),
        chain("true?(true?(1):2):", "2"),
        format!("{}{}", chain("1 in [", "1"), "]".repeat(16)),
    ];
    for text in texts {
        let Ok(expr) = Expr::parse(&text) else {
            continue;
        };
        let _ = expr.eval(&Scope::new().with("state", json!({})));
    }
}

#[test]
fn texts_that_a_scanner_could_misread_do_not_overflow() {
    for start in [
        "\"\n", "'\r", "`\n", "`a", "r'\n", "\"\"\"", "'''\n", "//\n", "//\r", "\"\\\n", "b'\n",
        "\u{2028}", "\u{c}",
    ] {
        for unit in ["(", "[", "!", "-", "{1:", "a?", "1+(", "a.b(", "`(`"] {
            let text: String = start
                .chars()
                .chain(unit.chars().cycle())
                .take(1000)
                .collect();
            assert!(Expr::parse(&text).is_err(), "{text}");
        }
    }
}

#[test]
fn a_long_chain_within_the_limits_works() {
    let text = vec!["1"; 40].join("+");
    assert_eq!(
        Expr::parse(&text).unwrap().eval(&Scope::new()),
        Ok(json!(40))
    );
    let nested = format!("{}1{}", "(".repeat(16), ")".repeat(16));
    assert_eq!(
        Expr::parse(&nested).unwrap().eval(&Scope::new()),
        Ok(json!(1))
    );
    let ternary = format!("{}9", "false ? 1 : ".repeat(12));
    assert_eq!(
        Expr::parse(&ternary).unwrap().eval(&Scope::new()),
        Ok(json!(9))
    );
}

#[test]
fn json_that_is_too_deep_or_too_large_is_a_fault() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let fault = Expr::parse("size(state.l) == 1")
        .unwrap()
        .holds(&Scope::new().with("state", json!({"l": deep, "n": 1})))
        .unwrap_err();
    assert!(fault.message.contains("128 levels"), "{fault:?}");
    // What is made is kept, and has to be read back.
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let wrap = |levels| {
        let scope = Scope::new().with("state", json!({"l": nested(levels)}));
        Expr::parse("[state.l]").unwrap().eval(&scope)
    };
    assert_eq!(wrap(63), Ok(nested(64)));
    assert!(wrap(64).unwrap_err().message.contains("64 levels"));

    let wide = Value::Array(vec![json!(0); MAX_VALUES]);
    let scope = Scope::new().with("state", json!({"l": wide, "n": 1}));
    let fault = Expr::parse("size(state.l) == 1")
        .unwrap()
        .holds(&scope)
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Limit);
    assert_eq!(Expr::parse("state.n == 1").unwrap().holds(&scope), Ok(true));
}

#[test]
fn work_beyond_the_budget_ends() {
    let lines: Vec<Value> = (0..10_000).map(|n| json!(format!("line {n}"))).collect();
    let scope = Scope::new()
        .with("l", lines)
        .with("s", "x".repeat(1024 * 1024))
        .with("t", "y".repeat(4096));
    let table = [
        "l.all(a, l.all(b, l.all(c, l.all(d, a != b + c + d))))",
        "l.all(a, l.exists(b, b == a))",
        "l.all(a, a in l)",
        "l.map(a, s)",
        "l.all(a, s == s)",
        "l.map(a, [s, s, s])",
        "l.map(a, {'k': s})",
        "l.exists(a, s + 1 == 2)",
        "l.exists(a, l.exists(b, false)) || true",
        "l.all(a, !s.contains('z'))",
        "l.exists(a, s.matches('(x+x+)+y'))",
        "[t+t].map(a,[a+a].map(b,[b+b].map(c,[c+c].map(d,[d+d].map(e,[e+e].map(f,[f+f].map(g,[g+g].map(h,[h+h].map(i,[i+i].map(j,[j+j].map(k,[k+k].map(m,[m+m].map(n,n+n)))))))))))))",
    ];
    for text in table {
        let expr = Expr::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        let start = Instant::now();
        let fault = expr.eval(&scope).expect_err(text);
        assert_eq!(fault.kind, FaultKind::Limit, "{text}: {fault:?}");
        assert!(fault.message.contains("steps"), "{text}: {fault:?}");
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{text}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn ordinary_work_over_large_output_is_within_the_budget() {
    let lines: Vec<Value> = (0..10_000)
        .map(|n| json!(format!("line {n} of the log")))
        .collect();
    let scope = Scope::new().with("output", lines);
    let table = [
        ("size(output.filter(l, l.contains('99'))) > 0", true),
        ("output.exists(l, l.matches('^line [0-9]+ of'))", true),
        ("output.all(l, l.startsWith('line'))", true),
        ("size(output.map(l, l + '!')) == 10000", true),
    ];
    for (text, expected) in table {
        assert_eq!(
            Expr::parse(text).unwrap().holds(&scope),
            Ok(expected),
            "{text}"
        );
    }
}

#[test]
fn patterns_are_bounded() {
    let scope = Scope::new().with("s", "a".repeat(50_000));
    let bomb = Expr::parse(r#"s.matches("(a*)*b|(a|aa)+$|(.*)(.*)(.*)[^a]")"#).unwrap();
    assert_eq!(bomb.holds(&scope), Ok(true));
    let huge = Expr::parse(r#"s.matches("(((a{100}){100}){100})")"#).unwrap();
    assert!(huge.holds(&scope).unwrap_err().message.contains("matches"));
}

#[test]
fn unicode_is_taken_in_texts_and_refused_as_names() {
    let scope = Scope::new().with("s", "größe 🦀");
    assert_eq!(
        Expr::parse("s == 'größe 🦀'").unwrap().holds(&scope),
        Ok(true)
    );
    assert_eq!(
        Expr::parse("'größe' + 'ä'").unwrap().eval(&scope),
        Ok(json!("größeä"))
    );
    assert_eq!(refused("größe == 1").kind, FaultKind::Load);
    assert_eq!(refused("'ä' == ü").at, Some(8));
    assert_eq!(refused("\u{0}").kind, FaultKind::Load);
    assert_eq!(refused("a \u{202e} b").kind, FaultKind::Load);
}

#[test]
fn texts_in_every_shape_never_panic() {
    let parts = [
        "(", ")", "'", "\"", "\\", "[", "{", "?", ":", "a", ".", "1", "//", "`", "é", "!", "r'",
        "+", "$",
    ];
    let mut seed = 7u32;
    for _ in 0..300 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.push_str(parts[(seed >> 16) as usize % parts.len()]);
        }
        if let Ok(expr) = Expr::parse(&text) {
            let _ = expr.eval(&Scope::new());
        }
    }
}
