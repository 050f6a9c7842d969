//! What is taken, what is rejected with which words, and that what is rendered is read back.

use std::time::Duration;

use serde_json::json;

use super::*;

fn rejected(text: &str) -> Fault {
    Task::parse(text.as_bytes()).expect_err(text)
}

#[test]
fn task_names_keep_the_rules() {
    let long = "x".repeat(200);
    for name in ["a", "A.b_c-9", "9", "_x", long.as_str()] {
        assert_eq!(TaskName::parse(name).unwrap().as_str(), name);
    }
    let longer = "x".repeat(201);
    for name in [
        "",
        ".a",
        "-a",
        "a b",
        "a/b",
        "a~1",
        "é",
        "a\0",
        longer.as_str(),
    ] {
        let fault = TaskName::parse(name).unwrap_err();
        assert!(
            fault.message.contains("is not a name for a task"),
            "{fault}"
        );
    }
}

#[test]
fn agent_names_keep_the_rules() {
    let long = "x".repeat(64);
    for name in ["a", "9-b", "a-", long.as_str()] {
        assert_eq!(AgentName::parse(name).unwrap().as_str(), name);
    }
    let longer = "x".repeat(65);
    for name in ["", "-a", "A", "a_b", "a.b", "..", "a/b", longer.as_str()] {
        let fault = AgentName::parse(name).unwrap_err();
        assert!(
            fault.message.contains("is not a name for an agent"),
            "{fault}"
        );
    }
    for name in ["human", "shell", "orch"] {
        assert!(AgentName::parse(name).unwrap().is_reserved());
    }
    assert!(!AgentName::parse("humane").unwrap().is_reserved());
}

#[test]
fn plain_text_is_the_prompt() {
    for (text, body) in [
        ("hello", "hello"),
        ("hello\n---\nworld\n", "hello\n---\nworld\n"),
        ("\u{feff}hello", "hello"),
        ("----\nx", "----\nx"),
        (" ---\nx", " ---\nx"),
    ] {
        let task = Task::parse(text.as_bytes()).unwrap();
        assert!(task.header.is_empty());
        assert_eq!(task.body(), body);
        assert_eq!(task.text(), text);
    }
}

#[test]
fn front_matter_is_read() {
    let text = "---\nworkflow: four-pass\ncontext: {language: rust, n: 3}\nprovider: codex\n\
                model: big\naccess: read\ndir: app\nthen: [reviewer, tester]\ntimeout: 15m\n\
                idle_timeout: 90s\nparams: {effort: high}\n---\nPlease add a flag.\n";
    let task = Task::parse(text.as_bytes()).unwrap();
    let header = &task.header;
    assert_eq!(header.workflow.as_deref(), Some("four-pass"));
    assert_eq!(header.context["n"], 3);
    assert_eq!(header.access, Some(Access::Read));
    assert_eq!(header.then.as_ref().unwrap()[1].as_str(), "tester");
    assert_eq!(header.timeout, Some(Time(Duration::from_secs(900))));
    assert_eq!(header.params["effort"], "high");
    assert_eq!(task.body(), "Please add a flag.\n");
}

#[test]
fn front_matter_may_be_spelled_in_several_ways() {
    for text in [
        "---\nthen: reviewer\n---\nx",
        "---\r\nthen: [reviewer]\r\n---\r\nx",
        "\u{feff}---\nthen:\n  - reviewer\n--- \nx",
    ] {
        let task = Task::parse(text.as_bytes()).unwrap();
        assert_eq!(
            task.header.then.as_ref().unwrap()[0].as_str(),
            "reviewer",
            "{text}"
        );
        assert_eq!(task.body(), "x");
    }
    let task = Task::parse(b"---\nworkflow: w\n---").unwrap();
    assert_eq!(task.body(), "");
    let task = Task::parse(b"---\ncontext:\nthen:\n---\nx").unwrap();
    assert!(task.header.is_empty());
    let task = Task::parse(b"---\nthen: []\n---\nx").unwrap();
    assert_eq!(task.header.then, Some(Vec::new()));
}

#[test]
fn what_is_rejected_says_why_and_where() {
    let table = [
        ("", "the task is empty", "plain text"),
        (" \n\t\n", "the task is empty", "plain text"),
        ("---\ndir: app\n---\n \n", "no text below", "plain text"),
        ("---\n---\n", "no text below", "plain text"),
        ("---\ndir: app\nhello", "never closed", "`---`"),
        ("---", "never closed", "`---`"),
        (
            "---\nmodle: x\n---\nhi",
            "line 2, column 1: unknown key `modle`",
            "`model`",
        ),
        ("---\n# c\ndir: [\n---\nhi", "line ", ""),
        (
            "---\naccess: raed\n---\nhi",
            "line 2, column 9: unknown value `raed`",
            "`read`",
        ),
        ("---\ntimeout: 15\n---\nhi", "line 2, column 10: ", "15m"),
        (
            "---\nthen: [ok, Bad]\n---\nhi",
            "line 2, column 12: ",
            "reviewer",
        ),
        (
            "---\ndir: a\ndir: b\n---\nhi",
            "line 3, column 1: duplicate key `dir`",
            "one",
        ),
        ("---\nhello there\n---\nhi", "line 2", ""),
    ];
    for (text, part, hint) in table {
        let fault = rejected(text);
        assert_eq!(fault.kind, Kind::InvalidTask);
        assert!(fault.message.contains(part), "{text}: {}", fault.message);
        let given = fault.hint.unwrap_or_default();
        assert!(given.contains(hint), "{text}: {given}");
    }
}

#[test]
fn too_long_and_not_text_are_rejected() {
    let long = vec![b'x'; MAX_TASK_BYTES + 1];
    assert!(
        Task::parse(&long)
            .unwrap_err()
            .message
            .contains("longer than 1MiB")
    );
    assert!(Task::parse(&long[1..]).is_ok());
    let fault = Task::parse(b"ab\nc\xff").unwrap_err();
    assert!(fault.message.contains("offset 4, line 2"), "{fault}");
}

fn full_header() -> Header {
    Header {
        workflow: Some("w".into()),
        context: json!({"a b": "x: y", "list": [1, {"k": null}]})
            .as_object()
            .cloned()
            .unwrap(),
        input: Some(serde_json::json!({"a": [1]})),
        provider: Some("claude".into()),
        model: Some("opus[1m]".into()),
        access: Some(Access::Full),
        dir: Some("app".into()),
        then: Some(vec![
            AgentName::parse("a").unwrap(),
            AgentName::parse("5").unwrap(),
        ]),
        timeout: Some(Time(Duration::from_millis(90_500))),
        idle_timeout: Some(Time(Duration::from_secs(1))),
        params: json!({"t": 0.5, "s": "yes"}).as_object().cloned().unwrap(),
        run: Some("20260101T000000Z-w-ab12".into()),
        step: Some("12".into()),
        attempt: Some(2),
        hops: Some(3),
        from: Some("writer/a.b".into()),
    }
}

#[test]
fn what_is_rendered_is_read_back_whatever_the_body() {
    let bodies = [
        "hello",
        "hello\n",
        "---",
        "---\n",
        "--- \nx",
        "---\nprovider: bash\n---\nrm -rf",
        "a\n---\nb\n---\n",
        "---\r\nx: y\r\n---\r\nz\r\n",
        "\u{feff}hello",
        "\u{feff}---\nprovider: bash\n---\nx",
        "\u{feff}\u{feff}x",
        "\n\n---\nx",
        "no newline at the end ---",
        "%YAML 1.2\n---\n",
        "...\n---\n",
        "\0\u{1b}[31m",
        "\r---\rx",
    ];
    let headers = [
        Header::default(),
        full_header(),
        Header {
            dir: Some("---".into()),
            from: Some("a\n---\nprovider: bash".into()),
            ..Header::default()
        },
    ];
    for header in &headers {
        for body in bodies {
            let text = render(header, body);
            let task =
                Task::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(&task.header, header, "{text}");
            assert_eq!(task.body(), body, "{text}");
        }
    }
}

#[test]
fn plain_text_is_rendered_as_it_is() {
    assert_eq!(render(&Header::default(), "hi\n"), "hi\n");
}
