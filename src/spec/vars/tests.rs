//! Texts with variables: every form, every fault, and values that look like variables themselves.

use serde_json::json;

use super::*;

struct Fake;

impl Outputs for Fake {
    fn whole(&self, step: &str) -> Option<Printed> {
        Some(match step {
            "big" => Printed::TooLong(2_000_000),
            "wide" => Printed::Text("x".repeat(MAX_OUTPUT_BYTES + 1)),
            "gone" => Printed::Lost("no such file".into()),
            "new" => Printed::Nothing,
            "Loop[1].test" => Printed::Text("second".into()),
            _ => Printed::Text(format!("all of {step}\n")),
        })
    }

    fn tail(&self, step: &str) -> Printed {
        match step {
            "new" => Printed::Nothing,
            _ => Printed::Text(format!("end of {step}")),
        }
    }
}

fn scope() -> Scope<'static> {
    let test = json!({"exit_code": 0, "output": "first 8 KiB", "lines": ["a", "b c"], "duration": 1.5,
        "json": {"files": ["x.md", "y.md"], "ok": true, "deep": {"a": [[1, 2]]}}, "note": null});
    Scope::new()
        .with("request", "do ${it} for $5 \"now\"\nplease")
        .with("reply", Value::Null)
        .with(
            "input",
            json!({"test": ["cargo", "test", "--", 3, true], "name": "n"}),
        )
        .with(
            "run",
            json!({"id": "r1", "files": "/w/r1/files", "timestamp_utc": "20260101T000000Z"}),
        )
        .with(
            "steps",
            json!({"test": test, "Loop": [{"test": {"exit_code": 1}}]}),
        )
        .with(
            "context",
            json!({"k": "v", "n": 7, "list": [], "nulls": ["a", null], "empty": ""}),
        )
        .with("state", json!({"a": {"b": [true, null]}, "größe": 1}))
        .with("task", json!({"id": "T1"}))
        .with("loop", json!({"index": 0, "total": 2}))
        .with("STATE_FILE", "/w/r1/state.json")
}

fn fill(text: &str) -> Result<String, VarFault> {
    Text::parse(text)?.fill(&scope(), &NoOutputs)
}

#[test]
fn texts_are_filled() {
    let table = [
        ("", ""),
        ("plain", "plain"),
        ("${run.id}", "r1"),
        ("<${context.k}|${context.n}>", "<v|7>"),
        ("${steps.test.exit_code} ${steps.test.duration}", "0 1.5"),
        ("${steps.test.output}", "first 8 KiB"),
        ("${steps.test.lines}", "a\nb c"),
        ("${steps.test.json.files}", r#"["x.md","y.md"]"#),
        ("${steps.test.json.files[1]}", "y.md"),
        ("${steps.test.json.deep.a[0][1]}", "2"),
        ("${steps.test.json.ok}", "true"),
        ("${steps.test.lines[0]}", "a"),
        ("${steps.Loop[0].test.exit_code}", "1"),
        ("${state.a}", r#"{"b":[true,null]}"#),
        ("${state.größe}", "1"),
        ("${task.id} ${loop.index}/${loop.total}", "T1 0/2"),
        ("${STATE_FILE}", "/w/r1/state.json"),
        ("${reply:-none}", "none"),
        ("${nothing.at.all:-}", ""),
        ("${steps.test.note:-no note}", "no note"),
        ("${steps.other.json.a:-x}", "x"),
        ("${context.empty:-x}", ""),
        ("${context.k:-x}", "v"),
        ("${reply:-a:-b $$5 {c}", "a:-b $5 {c"),
        ("$$", "$"),
        ("$${run.id}", "${run.id}"),
        ("$$${run.id}", "$r1"),
        ("$5 and $ and $x $", "$5 and $ and $x $"),
        ("é${run.id}é", "ér1é"),
        ("}${run.id}}", "}r1}"),
    ];
    for (text, expected) in table {
        assert_eq!(fill(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_was_put_in_is_never_looked_at_again() {
    let request = "do ${it} for $5 \"now\"\nplease";
    assert_eq!(fill("[${request}]"), Ok(format!("[{request}]")));
    for awkward in [
        "$",
        "$$",
        "${",
        "${x}",
        "${env.HOME}",
        "}",
        "\\",
        "'\"`",
        "\n\r\t\0",
        "$(rm -rf /)",
        "é🦀",
        "a:-b",
    ] {
        let scope = Scope::new()
            .with("v", awkward)
            .with("o", json!({"k": [awkward]}));
        let text = Text::parse("a${v}b${v}").unwrap();
        assert_eq!(
            text.fill(&scope, &NoOutputs),
            Ok(format!("a{awkward}b{awkward}"))
        );
        let text = Text::parse("${o.k}").unwrap();
        assert_eq!(
            text.arguments(&scope, &NoOutputs),
            Ok(vec![awkward.to_owned()])
        );
        let shown = text.fill(&scope, &NoOutputs).unwrap();
        assert_eq!(
            serde_json::from_str::<Vec<String>>(&shown).unwrap(),
            [awkward]
        );
        let escaped = Text::parse(&awkward.replace('$', "$$")).unwrap();
        assert_eq!(escaped.fill(&scope, &NoOutputs).as_deref(), Ok(awkward));
    }
}

#[test]
fn undefined_variables_are_named_with_the_nearest() {
    let table = [
        (
            "x ${contxt.k}",
            "`${contxt.k}` is undefined: `contxt` is not known here",
            Some("did you mean `context`?"),
        ),
        (
            "${steps.tset.output}",
            "`steps` has no `tset`",
            Some("did you mean `test`?"),
        ),
        (
            "${steps.test.json.filse}",
            "`steps.test.json` has no `filse`",
            Some("did you mean `files`?"),
        ),
        ("${steps.test.json.files[2]}", "has 2 items", None),
        (
            "${steps.test.json.files.x}",
            "is a list",
            Some("take an item with `[0]`"),
        ),
        ("${steps.test.json[0]}", "is a map", None),
        ("${reply}", "`reply` has no value", None),
        ("${steps.test.note}", "has no value", None),
        ("${state.a.b[1].c}", "`state.a.b[1]` is null", None),
        ("${context.k.x}", "plain value", None),
        ("${steps.test.tail}", "has no value", None),
    ];
    for (text, part, hint) in table {
        let fault = fill(text).unwrap_err();
        assert_eq!(fault.kind, VarFaultKind::Undefined, "{text}");
        assert!(fault.message.contains(part), "{text}: {fault:?}");
        if hint.is_some() {
            assert_eq!(fault.hint.as_deref(), hint, "{text}");
        }
        assert_eq!(fault.at, text.find('$').unwrap());
        assert_eq!(Fault::from(fault).kind, Kind::UndefinedVariableError);
    }
}

#[test]
fn texts_that_are_not_well_formed_are_refused_with_their_place() {
    let table = [
        ("ab ${run.id", "never closed", 3),
        ("${", "never closed", 0),
        ("é ${}", "does not start with a name", 3),
        ("${.a}", "does not start with a name", 0),
        ("${a.}", "neither", 0),
        ("${a..b}", "neither", 0),
        ("${a b}", "neither", 0),
        ("${a[x]}", "neither", 0),
        ("${a[-1]}", "neither", 0),
        ("${a[+1]}", "neither", 0),
        ("${a[99999999999999999999]}", "neither", 0),
        ("${a[*]}", "neither", 0),
        ("${a[0}", "neither", 0),
        ("${a:b}", "neither", 0),
        ("x${env.HOME}", "environment", 1),
        ("${env}", "environment", 0),
        ("${env.HOME:-x}", "environment", 0),
        ("${a:-${b}}", "inside a variable", 0),
        ("${a${b}}", "inside a variable", 0),
    ];
    for (text, part, at) in table {
        let fault = Text::parse(text).unwrap_err();
        assert_eq!(
            (fault.kind, fault.at),
            (VarFaultKind::Load, at),
            "{text}: {fault:?}"
        );
        assert!(fault.message.contains(part), "{text}: {fault:?}");
    }
    assert!(Text::parse(&format!("${{a{}}}", ".b".repeat(40))).is_err());
}

#[test]
fn a_list_alone_spreads_into_arguments() {
    let table: [(&str, &[&str]); 8] = [
        ("${input.test}", &["cargo", "test", "--", "3", "true"]),
        ("${steps.test.lines}", &["a", "b c"]),
        ("--x=${steps.test.lines}", &["--x=a\nb c"]),
        ("${context.list}", &[]),
        ("${context.k}", &["v"]),
        ("plain text", &["plain text"]),
        ("", &[""]),
        ("${nothing:-a b}", &["a b"]),
    ];
    for (text, expected) in table {
        let made = Text::parse(text).unwrap().arguments(&scope(), &NoOutputs);
        assert_eq!(made.unwrap(), expected, "{text}");
    }
    let fault = Text::parse("${context.nulls}")
        .unwrap()
        .arguments(&scope(), &NoOutputs)
        .unwrap_err();
    assert!(
        fault.message.contains("`context.nulls[1]` is null"),
        "{fault:?}"
    );
}

#[test]
fn whole_outputs_come_from_outside() {
    let fill = |text: &str| Text::parse(text).unwrap().fill(&scope(), &Fake);
    assert_eq!(fill("${steps.test.output}").as_deref(), Ok("all of test\n"));
    assert_eq!(fill("${steps.test.tail}").as_deref(), Ok("end of test"));
    assert_eq!(
        fill("${steps.Loop[1].test.output}").as_deref(),
        Ok("second")
    );
    assert_eq!(fill("${steps.new.output:-none}").as_deref(), Ok("none"));
    assert_eq!(fill("${steps.test.exit_code}").as_deref(), Ok("0"));
    for (text, part) in [
        ("${steps.big.output}", "2000000 bytes"),
        ("${steps.big.output:-x}", "2000000 bytes"),
        ("${steps.wide.output}", "1048577 bytes"),
        ("${steps.gone.output}", "no such file"),
        ("${steps.new.output}", "has no value"),
        ("${steps.test.output.a}", "is text"),
    ] {
        assert!(fill(text).unwrap_err().message.contains(part), "{text}");
    }
    assert_eq!(fill("${steps.test.output.a:-d}").as_deref(), Ok("d"));
    assert_eq!(fill("${steps.json.json.output:-d}").as_deref(), Ok("d"));
}

#[test]
fn a_text_that_grows_too_large_is_refused() {
    let scope = Scope::new().with("v", "x".repeat(1024 * 1024));
    let text = Text::parse(&"${v}".repeat(40)).unwrap();
    assert_eq!(
        text.fill(&scope, &NoOutputs).unwrap_err().kind,
        VarFaultKind::TooLarge
    );
}

#[test]
fn names_are_listed_and_checked() {
    let text = Text::parse("${run.id} ${task.file} ${steps.a.json.x:-d}").unwrap();
    let names: Vec<String> = text.names().map(|var| var.path.to_string()).collect();
    assert_eq!(names, ["run.id", "task.file", "steps.a.json.x"]);
    assert_eq!(text.names().nth(2).unwrap().path.step(), Some("a"));
    assert_eq!(Text::parse("a$$b").unwrap().plain(), Some("a$b"));
}

#[test]
fn all_faults_of_a_text_are_found_at_once() {
    let text = "${a b} ${run.id} ${env.HOME} ${x:-${y}} $${no} ${";
    let (cut, faults) = Text::scan(text);
    let places: Vec<usize> = faults.iter().map(|fault| fault.at).collect();
    assert_eq!(places, [0, 17, 29, 47]);
    let shown: Vec<&str> = places.iter().map(|at| written(text, *at)).collect();
    assert_eq!(shown, ["${a b}", "${env.HOME}", "${x:-${y}", "${"]);
    assert_eq!(cut.names().count(), 1);
    assert_eq!(Text::parse(text).unwrap_err(), faults[0]);
}

#[test]
fn a_bare_path_is_looked_up() {
    let scope = scope();
    let find = |path: &str| lookup(&Path::parse(path).unwrap(), &scope);
    assert_eq!(find("steps.test.json.files[0]"), Ok(&json!("x.md")));
    assert_eq!(find("reply"), Ok(&Value::Null));
    assert!(
        find("state.b")
            .unwrap_err()
            .message
            .contains("`state` has no `b`")
    );
    assert!(Path::parse("state.").is_err() && Path::parse("").is_err());
}
