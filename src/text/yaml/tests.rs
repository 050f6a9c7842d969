//! One table per gap that is closed, and the places that faults give.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Outer {
    #[serde(default)]
    name: String,
    #[serde(default)]
    inner: Vec<Inner>,
    #[serde(default, deserialize_with = "or_default")]
    free: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Inner {
    timeout: u32,
    #[serde(default)]
    mode: Mode,
}

#[derive(Debug, Deserialize, PartialEq, Default)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Stdin,
    Argv,
}

fn fault(text: &str) -> YamlFault {
    from_str::<Value>(text).expect_err(text)
}

#[test]
fn what_would_be_read_in_silence_is_refused_with_its_place() {
    let table = [
        ("if: !x", 1, 5, "tag"),
        ("a: 1\nb: !!str 5", 2, 4, "tag"),
        ("a: !!binary aGk=", 1, 4, "tag"),
        ("a: !<tag:yaml.org,2002:int> 5", 1, 18, "tag"),
        ("a: ! 5", 1, 4, "tag"),
        ("!x {a: 1}", 1, 1, "tag"),
        ("a: [1, !y 2]", 1, 8, "tag"),
        ("!k a: 1", 1, 1, "tag"),
        ("%TAG ! tag:x,2000:\n---\na: !b c", 1, 1, "directives"),
        ("a: 1\na: 2", 2, 1, "duplicate key `a`"),
        ("x:\n  b: 1\n  c: 2\n  b: 3", 4, 3, "duplicate key `b`"),
        ("x: {b: 1, b: 2}", 1, 11, "duplicate key `b`"),
        ("1: a\n\"1\": b", 2, 1, "duplicate key `1`"),
        ("a: .nan", 1, 4, ".nan"),
        ("a: [.inf]", 1, 5, ".inf"),
        ("a: -.INF", 1, 4, ".inf"),
        ("b: &b {x: 1}\na:\n  <<: *b", 3, 3, "merge key"),
        ("a: 1\n---\nb: 2", 2, 1, "more than one YAML document"),
        ("---\na: 1\n---\nb: 2", 3, 1, "more than one YAML document"),
        ("a:\n\tb: 1", 2, 1, "tab"),
        ("a:\n  b: 1\n  \tc: 2", 3, 3, "tab"),
        ("a: b: c", 1, 5, "`:`"),
        ("? [a]\n: 1", 1, 3, "plain key"),
        ("a: *nobody", 1, 4, "alias"),
    ];
    for (text, line, column, part) in table {
        let fault = fault(text);
        assert!(fault.message.contains(part), "{text}: {fault:?}");
        assert_eq!(
            (fault.line, fault.column),
            (line, column),
            "{text}: {fault:?}"
        );
    }
}

#[test]
fn what_only_looks_doubtful_is_read() {
    let table = [
        ("a: \"!x\"", json!({"a": "!x"})),
        ("a: wow !!", json!({"a": "wow !!"})),
        (
            "a: |\n  echo !!str\n  x !<y>",
            json!({"a": "echo !!str\nx !<y>"}),
        ),
        ("on: push", json!({"on": "push"})),
        ("a: \".nan\"", json!({"a": ".nan"})),
        ("\u{feff}a: 1", json!({"a": 1})),
        ("a: &x 1\nb: *x", json!({"a": 1, "b": 1})),
        ("---\na: 1\n", json!({"a": 1})),
        ("", json!({})),
        ("# only this\n", json!({})),
        ("a:\r\n  - 1\r\n", json!({"a": [1]})),
        ("a: |\n  x\n  \ttabbed", json!({"a": "x\n\ttabbed"})),
    ];
    for (text, expected) in table {
        assert_eq!(from_str::<Value>(text), Ok(expected), "{text}");
    }
}

#[test]
fn unknown_words_come_with_path_place_and_suggestion() {
    let table = [
        (
            "nmae: x",
            1,
            1,
            "unknown key `nmae`",
            "did you mean `name`?",
        ),
        (
            "inner:\n  - timeout: 1\n    tiemout: 2",
            3,
            5,
            "unknown key `tiemout` in `inner[0]`",
            "did you mean `timeout`?",
        ),
        (
            "inner: [{timeout: 1, zebra: 2}]",
            1,
            22,
            "unknown key `zebra` in `inner[0]`",
            "known here: `timeout`, `mode`",
        ),
        (
            "inner: [{timeout: 1, mode: stdni}]",
            1,
            28,
            "unknown value `stdni` in `inner[0].mode`",
            "did you mean `stdin`?",
        ),
    ];
    for (text, line, column, message, hint) in table {
        let fault = from_str::<Outer>(text).unwrap_err();
        assert_eq!(fault.message, message);
        assert_eq!(fault.hint.as_deref(), Some(hint), "{text}");
        assert_eq!((fault.line, fault.column), (line, column), "{text}");
    }
}

#[test]
fn the_path_of_an_unknown_key_is_whole() {
    type Nested = BTreeMap<String, BTreeMap<String, Inner>>;
    let fault = from_str::<Nested>("top: {data: {a: 1}}").unwrap_err();
    assert_eq!(fault.message, "unknown key `a` in `top.data`");
}

#[test]
fn a_wrong_type_says_where() {
    let fault = from_str::<Outer>("name: x\ninner:\n  - timeout: soon").unwrap_err();
    assert_eq!((fault.line, fault.column), (3, 14));
    assert!(fault.message.starts_with("inner[0].timeout: "), "{fault:?}");
}

#[test]
fn a_key_without_a_value_is_the_default() {
    assert_eq!(
        from_str::<Outer>("free:"),
        Ok(Outer {
            name: String::new(),
            inner: vec![],
            free: BTreeMap::new()
        })
    );
}

#[test]
fn hostile_texts_are_refused_quickly() {
    let deep_block: String = (0..200).map(|n| " ".repeat(n) + "a:\n").collect();
    let bomb: String = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let before = n - 1;
        text + &format!("a{n}: &a{n} [*a{before}, *a{before}, *a{before}]\n")
    });
    let long = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(60_000),
        "*a, ".repeat(40_000)
    );
    let table = [
        ("[".repeat(100_000), "64 levels"),
        ("{".repeat(100_000), "64 levels"),
        ("{a: [".repeat(40_000), "64 levels"),
        (format!("{}{}", "[".repeat(70), "]".repeat(70)), "64 levels"),
        ("- ".repeat(120_000), "64 levels"),
        ("? ".repeat(120_000), ""),
        (deep_block, "64 levels"),
        (bomb, "too much data"),
        (long, "too much data"),
        ("a: &a [*a]".to_owned(), ""),
        ("x".repeat(MAX_BYTES + 1), "over the limit"),
        (format!("a: \"{}", "x\n".repeat(100_000)), ""),
        ("&a ".repeat(80_000), ""),
        ("a: ".repeat(80_000), ""),
    ];
    for (text, part) in table {
        let start = Instant::now();
        let fault = fault(&text);
        let head: String = text.chars().take(20).collect();
        assert!(fault.message.contains(part), "{head}: {}", fault.message);
        assert!(
            start.elapsed().as_secs() < 10,
            "{head}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn sixty_levels_are_fine() {
    let text = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    assert!(from_str::<Value>(&text).is_ok());
}

#[test]
fn a_fault_names_the_file_and_the_line_in_it() {
    let fault = || from_str::<Outer>("name: x\nnaem: y").unwrap_err();
    let shown = fault().fault(Kind::YamlParseError, "specs/agents/a.md", 1);
    assert_eq!(shown.message, "specs/agents/a.md:3:1: unknown key `naem`");
    let shown = fault().fault(Kind::InvalidTask, "", 1);
    assert_eq!(shown.message, "line 3, column 1: unknown key `naem`");
}

#[test]
fn flow_style_is_read_back_whatever_the_text() {
    let texts = [
        "",
        "plain",
        "two words",
        "yes",
        "null",
        "5",
        "1.5",
        "-",
        "a: b",
        "# no",
        "it's",
        "\"q\"",
        "a\nb\r\nc",
        "\t",
        "\u{0}\u{1}\u{7f}\u{85}\u{2028}\u{feff}\u{ffff}",
        "😀 é",
        "!x",
        "*a",
        "&a",
        "<<",
        "~",
        "{}",
        "[",
        "%",
        "@",
        "`",
        "2026-01-01",
        "0x1f",
        ".nan",
        "\\",
    ];
    for text in texts {
        let value =
            json!({"k": text, "list": [text, {"k": [text]}], "n": [1, -2, 2.5, true, null]});
        let shown = flow(&value);
        assert_eq!(from_str::<Value>(&shown), Ok(value), "{shown}");
        if text != "<<" {
            let keyed = json!({text: 1});
            assert_eq!(from_str::<Value>(&flow(&keyed)), Ok(keyed), "{text}");
        }
    }
}

#[test]
fn a_key_that_is_long_when_written_is_read_back() {
    let key = format!("a{}", "\n".repeat(600));
    for value in [json!({&key: 1}), json!({"b": {&key: [&key]}, "c": null})] {
        let text = format!("v: {}", flow(&value));
        let read: Value = from_str(&text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        assert_eq!(read["v"], value);
        let (node, faults) = tree::tree(&text);
        assert_eq!((node.unwrap().to_value(), faults), (read, Vec::new()));
    }
}

#[test]
fn what_is_missing_at_the_end_is_told_in_the_last_line() {
    for (text, line, column) in [
        ("a: 1\nb: {c: 1", 2, 9),
        ("a: 1\nbü", 2, 3),
        ("a: 1\nb: {c: 1\n", 3, 1),
        ("a: {", 1, 5),
    ] {
        let fault = fault(text);
        assert_eq!((fault.line, fault.column), (line, column), "{fault:?}");
    }
}

#[test]
fn a_control_character_is_told_with_its_place() {
    for (text, line, column, part) in [
        ("#\na: b\nü\u{10}: c\n", 3, 2, "U+0010"),
        ("a: \u{1b}[31m", 1, 4, "U+001B"),
        ("a: \"\u{ffff}\"", 1, 5, "U+FFFF"),
    ] {
        let fault = fault(text);
        assert_eq!((fault.line, fault.column), (line, column), "{fault:?}");
        assert!(fault.message.contains(part), "{fault:?}");
        assert!(fault.hint.is_some());
    }
}

#[test]
fn the_tree_and_the_reader_agree() {
    let texts = [
        "a: 1\nb: -1\nc: 0x10\nd: 010\ne: 1e3\nf: 1.5\ng: +7\nh: 99999999999999999999\ni: -0",
        "a: true\nb: True\nc: yes\nd: on\ne: ~\nf: null\ng:\nh: 'true'\ni: \"1\"",
        "a: |\n  x\n   y\n\nb: >\n  x\n  y\n\n  z\nc: |-\n  x\n",
        "a: plain text\n  goes on\nb: 'it''s'\nc: \"a\\tb\\u00e9\"",
        "- [1, {a: b, c: [d]}]\n- {e: , f}\n-\n- - x\n  - y",
        "a: &x {b: 1}\nc: *x\nd: [*x, *x]",
        "1: a\ntrue: b\n1.5: c",
        "a: 12:30\nb: 2024-01-01\nc: .5\nd: -.5\ne: 1_000\nf: 0b11\ng: 0o7\nh: .\ni: -",
        "a: 'x # y' # z\nb: x#y",
    ];
    for text in texts {
        let (node, faults) = tree::tree(text);
        let strict = from_str::<Value>(text);
        match strict {
            Ok(value) => {
                assert!(faults.is_empty(), "{text}: {faults:?}");
                assert_eq!(node.map(|node| node.to_value()), Some(value), "{text}");
            }
            Err(_) => assert!(!faults.is_empty(), "{text}"),
        }
    }
}
