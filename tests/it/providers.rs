//! Providers as they really behave: scripts under the names of the real programs, with their
//! output, their exit codes and their lies.

use std::fs;

use serde_json::Value;

use crate::harness::{Bed, write_executable};

/// A root whose programs come from a folder of its own.
fn bed() -> Bed {
    let bed = Bed::new();
    let path = bed.outside.join("bin");
    fs::create_dir(&path).unwrap();
    bed.settings(&format!(
        "path: [{}]\nlimits: {{grace: 200ms, backoff: 20ms, retries: 2}}\n",
        path.display()
    ));
    bed
}

/// Puts a program on PATH. It notes its arguments, its input and that it was called, then runs
/// the script.
fn program(bed: &Bed, name: &str, script: &str) {
    let notes = bed.outside.join(name).display().to_string();
    let text = format!(
        "#!/bin/sh\necho x >> {notes}.calls\nfor a in \"$@\"; do printf '%s\\n' \"$a\"; done > {notes}.argv\n\
         cat > {notes}.stdin\nenv > {notes}.env\n{script}\n"
    );
    let path = bed.outside.join("bin").join(name);
    write_executable(&path, text);
}

/// A program that prints this on stdout and stderr and exits with this code.
fn prints(bed: &Bed, name: &str, stdout: &str, stderr: &str, code: i32) {
    let file = |suffix: &str, text: &str| {
        let path = bed.outside.join(format!("{name}.{suffix}"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (out, err) = (file("out", stdout), file("err", stderr));
    program(bed, name, &format!("cat {out}; cat {err} >&2; exit {code}"));
}

fn noted(bed: &Bed, name: &str, what: &str) -> String {
    fs::read_to_string(bed.outside.join(format!("{name}.{what}"))).unwrap()
}

fn argv(bed: &Bed, name: &str) -> Vec<String> {
    noted(bed, name, "argv")
        .lines()
        .map(str::to_owned)
        .collect()
}

const CLAUDE: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done: fixed","session_id":"s-claude","total_cost_usd":0.25,"usage":{"input_tokens":11,"output_tokens":7},"permission_denials":[]}"#;

/// What each program prints when all goes well: the answer in it, cost, tokens, session.
fn good() -> Vec<(&'static str, &'static str, Value)> {
    use serde_json::json;
    vec![
        (
            "claude",
            CLAUDE,
            json!({"text": "Done: fixed", "cost": 0.25, "in": 11, "out": 7, "session": "s-claude"}),
        ),
        (
            "codex",
            concat!(
                r#"{"type":"thread.started","thread_id":"t-1"}"#,
                "\n",
                r#"{"type":"item.completed","item":{"type":"error","message":"only a warning"}}"#,
                "\n",
                r#"{"type":"item.completed","item":{"type":"agent_message","text":"first thought"}}"#,
                "\n",
                r#"{"type":"item.completed","item":{"type":"agent_message","text":"the answer"}}"#,
                "\n",
                r#"{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":6}}"#,
                "\n",
            ),
            json!({"text": "the answer", "in": 5, "out": 6, "session": "t-1"}),
        ),
        (
            "gemini",
            r#"{"session_id":"g-1","response":"hello","stats":{"models":{"pro":{"tokens":{"prompt":3,"candidates":4}},"flash":{"tokens":{"prompt":10,"candidates":20}}}}}"#,
            json!({"text": "hello", "in": 13, "out": 24, "session": "g-1"}),
        ),
        (
            "opencode",
            concat!(
                r#"{"type":"step_start","sessionID":"o-1"}"#,
                "\n",
                r#"{"type":"text","sessionID":"o-1","part":{"text":"one "}}"#,
                "\n",
                r#"{"type":"step_finish","sessionID":"o-1","part":{"cost":0.5,"tokens":{"input":1,"output":2}}}"#,
                "\n",
                r#"{"type":"text","sessionID":"o-1","part":{"text":"two"}}"#,
                "\n",
                r#"{"type":"step_finish","sessionID":"o-1","part":{"cost":0.25,"tokens":{"input":10,"output":20}}}"#,
                "\n",
            ),
            json!({"text": "one two", "cost": 0.75, "in": 11, "out": 22, "session": "o-1"}),
        ),
        (
            "goose",
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"goose says"}]}],"metadata":{"input_tokens":8,"output_tokens":9}}"#,
            json!({"text": "goose says", "in": 8, "out": 9}),
        ),
        (
            "qwen",
            r#"[{"type":"system"},{"type":"assistant"},{"type":"result","is_error":false,"result":"qwen says","usage":{"input_tokens":1,"output_tokens":2},"session_id":"q-1"}]"#,
            json!({"text": "qwen says", "in": 1, "out": 2, "session": "q-1"}),
        ),
        (
            "copilot",
            concat!(
                r#"{"type":"assistant.message","data":{"content":"thinking"}}"#,
                "\n",
                r#"{"type":"assistant.message","data":{"content":"copilot says"}}"#,
                "\n",
                r#"{"type":"result","sessionId":"c-1","exitCode":0,"usage":{"premiumRequests":1}}"#,
                "\n",
            ),
            json!({"text": "copilot says", "session": "c-1"}),
        ),
        (
            "llm",
            r#"[{"response":"llm says","input_tokens":4,"output_tokens":5,"conversation_id":"l-1"}]"#,
            json!({"text": "llm says", "in": 4, "out": 5, "session": "l-1"}),
        ),
        (
            "cursor-agent",
            r#"{"type":"result","subtype":"success","is_error":false,"result":"cursor says","session_id":"u-1"}"#,
            json!({"text": "cursor says", "session": "u-1"}),
        ),
        (
            "aider",
            "Aider v0.86\nTokens: 218 sent, 1 received.\ndone\n",
            json!({"text": "Aider v0.86\nTokens: 218 sent, 1 received.\ndone\n"}),
        ),
        ("ollama", "ollama says\n", json!({"text": "ollama says\n"})),
    ]
}

#[test]
fn answer_cost_tokens_and_session_of_every_program_are_recorded() {
    let bed = bed();
    for (name, output, _) in good() {
        prints(&bed, name, output, "", 0);
        let front = if name == "ollama" {
            "---\nmodel: small\n---\n"
        } else {
            ""
        };
        bed.drop_task(name, "x", format!("{front}do it"));
    }
    bed.drain().expect(0);
    for (name, output, expected) in good() {
        let record = bed.record(&format!("{name}/x"));
        assert_eq!(record["status"], "succeeded", "{name}: {record}");
        assert_eq!(record["output"], expected["text"], "{name}");
        assert_eq!(
            bed.read(&format!("artifacts/{name}/x.out")),
            expected["text"].as_str().unwrap()
        );
        assert_eq!(record["session_id"], expected["session"], "{name}");
        assert_eq!(record["usage"]["cost_usd"], expected["cost"], "{name}");
        assert_eq!(record["usage"]["input_tokens"], expected["in"], "{name}");
        assert_eq!(record["usage"]["output_tokens"], expected["out"], "{name}");
        assert_eq!(record["provider"], name);
        let raw = format!("artifacts/{name}/x.raw");
        if ["aider", "ollama"].contains(&name) {
            assert!(!bed.has(&raw), "{name}");
        } else {
            assert_eq!(bed.read(&raw), output, "{name}");
        }
        assert_eq!(bed.count_lines(&format!("{name}.calls")), 1, "{name}");
    }
}

#[test]
fn the_prompt_reaches_every_program() {
    let bed = bed();
    for (name, output, _) in good() {
        prints(&bed, name, output, "", 0);
        let front = if name == "ollama" {
            "---\nmodel: small\n---\n"
        } else {
            ""
        };
        bed.drop_task(name, "x", format!("{front}- do \"it\"\n$HOME `id`\n"));
    }
    bed.drain().expect(0);
    for (name, _, _) in good() {
        let stdin = noted(&bed, name, "stdin");
        if name == "aider" {
            let file = argv(&bed, name)
                .into_iter()
                .find(|arg| arg.ends_with(".prompt"))
                .unwrap();
            assert_eq!(
                fs::read_to_string(file).unwrap(),
                "- do \"it\"\n$HOME `id`\n"
            );
            assert_eq!(stdin, "");
        } else {
            assert_eq!(stdin, "- do \"it\"\n$HOME `id`\n", "{name}");
        }
        let command = bed.record(&format!("{name}/x"))["command"].to_string();
        assert!(
            !command.contains("$HOME"),
            "{name}: the prompt is not in {command}"
        );
    }
}

/// What each program does when its service refuses; the kind, and whether asking again may help.
const REFUSALS: [(&str, &str, &str, i32, &str, bool); 17] = [
    (
        "claude",
        r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 bad request"}"#,
        "",
        1,
        "ProviderFailed",
        false,
    ),
    (
        "claude",
        r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"API Error: 529 Overloaded"}"#,
        "",
        1,
        "RateLimited",
        true,
    ),
    (
        "claude",
        r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key · Fix external API key"}"#,
        "",
        1,
        "AuthenticationFailed",
        false,
    ),
    (
        "claude",
        r#"{"type":"result","is_error":true,"result":"You've hit your session limit · resets 8pm (America/New_York)"}"#,
        "",
        1,
        "RateLimited",
        false,
    ),
    ("claude", "", "", 0, "ProviderFailed", false),
    (
        "claude",
        "Welcome! Please choose a theme\n",
        "",
        0,
        "JsonParseError",
        false,
    ),
    (
        "codex",
        "{\"type\":\"turn.failed\",\"error\":{\"message\":\"exceeded retry limit, last status: 429 Too Many Requests\"}}\n",
        "",
        1,
        "RateLimited",
        true,
    ),
    (
        "codex",
        "{\"type\":\"turn.failed\",\"error\":{\"message\":\"unexpected status 401 Unauthorized\"}}\n",
        "",
        1,
        "AuthenticationFailed",
        false,
    ),
    (
        "gemini",
        "",
        "ApiError: 401 API key not valid\n    at stack\n",
        145,
        "AuthenticationFailed",
        false,
    ),
    (
        "gemini",
        r#"{"session_id":"g","response":""}"#,
        "",
        0,
        "ProviderFailed",
        false,
    ),
    (
        "goose",
        r#"{"messages":[{"role":"assistant","content":[{"type":"text","text":"Ran into this error: Authentication error: no key"}]}]}"#,
        "",
        0,
        "AuthenticationFailed",
        false,
    ),
    (
        "qwen",
        r#"[{"type":"result","is_error":false,"result":"[API Error: 401 Incorrect API key]"}]"#,
        "",
        0,
        "AuthenticationFailed",
        false,
    ),
    (
        "opencode",
        "{\"type\":\"error\",\"error\":{\"name\":\"APIError\",\"data\":{\"message\":\"503 high demand\"}}}\n",
        "",
        0,
        "RateLimited",
        true,
    ),
    (
        "aider",
        "litellm.AuthenticationError: AnthropicException\n",
        "",
        0,
        "AuthenticationFailed",
        false,
    ),
    (
        "copilot",
        "",
        "Authentication failed with provider (HTTP 401)\n",
        1,
        "AuthenticationFailed",
        false,
    ),
    (
        "llm",
        "",
        "Error: Error code: 429 - slow down\n",
        1,
        "RateLimited",
        true,
    ),
    (
        "cursor-agent",
        "",
        "Error: not logged in\n",
        1,
        "AuthenticationFailed",
        false,
    ),
];

#[test]
fn a_refusal_is_never_a_success_and_only_what_passes_is_tried_again() {
    for (name, stdout, stderr, code, kind, passes) in REFUSALS {
        let bed = bed();
        prints(&bed, name, stdout, stderr, code);
        bed.drop_task(name, "x", "do it");
        bed.drain().may_say(&["retry "]).expect(1);
        let story = format!("{name}: {stdout}{stderr}");
        let record = bed.record(&format!("{name}/x"));
        assert_eq!(record["status"], "failed", "{story}");
        assert_eq!(record["error"]["kind"], kind, "{story}: {record}");
        assert_eq!(record["exit_code"], code, "{story}");
        let calls = if passes { 3 } else { 1 };
        assert_eq!(bed.count_lines(&format!("{name}.calls")), calls, "{story}");
        assert_eq!(record["attempt"], calls, "{story}");
        let kept = |k: usize| bed.has(&format!("artifacts/{name}/x~{k}.json"));
        assert_eq!(
            (kept(1), kept(2), kept(3)),
            (passes, passes, false),
            "{story}"
        );
    }
}

#[test]
fn a_refused_tool_is_permission_denied_with_a_hint() {
    let bed = bed();
    let output = CLAUDE.replace("[]", r#"[{"tool_name":"Bash"},{"tool_name":"Write"}]"#);
    prints(&bed, "claude", &output, "", 0);
    bed.drop_task("claude", "x", "do it");
    bed.drain().expect(1);
    let error = &bed.record("claude/x")["error"];
    assert_eq!(error["kind"], "PermissionDenied");
    assert!(
        error["message"].as_str().unwrap().contains("Bash"),
        "{error}"
    );
    assert!(
        error["message"].as_str().unwrap().contains("Write"),
        "{error}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("access: full"),
        "{error}"
    );
    assert_eq!(bed.read("artifacts/claude/x.out"), "Done: fixed");
}

#[test]
fn a_rate_limit_is_waited_out_and_the_first_attempt_is_kept() {
    let bed = bed();
    let calls = bed.outside.join("claude.calls");
    let limited = r#"{"type":"result","is_error":true,"result":"API Error: 429 retry after 100ms","session_id":"s-0"}"#;
    program(
        &bed,
        "claude",
        &format!(
            "if [ $(wc -l < {}) = 1 ]; then echo '{limited}'; echo busy >&2; exit 1; fi\necho '{CLAUDE}'",
            calls.display()
        ),
    );
    bed.drop_task("claude", "x", "do it");
    let ran = bed.drain().says("retry ").expect(0);
    assert!(
        ran.stderr.contains("claude/x") && ran.stderr.contains("again in 100ms"),
        "{ran:?}"
    );
    let record = bed.record("claude/x");
    assert_eq!(
        (&record["status"], &record["attempt"]),
        (&"succeeded".into(), &2.into())
    );
    let first = bed.record("claude/x~1");
    assert_eq!(
        (&first["status"], &first["attempt"]),
        (&"failed".into(), &1.into())
    );
    assert_eq!(first["error"]["kind"], "RateLimited");
    assert_eq!(first["uncommitted"], true);
    assert_eq!(bed.read("artifacts/claude/x~1.raw").trim(), limited);
    assert_eq!(bed.read("artifacts/claude/x~1.err"), "busy\n");
    assert_eq!(bed.read("artifacts/claude/x.out"), "Done: fixed");
    assert!(!bed.has("artifacts/claude/x.err"));
    assert_eq!(bed.ls("processed/claude"), ["x.task"]);
    let time = |record: &Value, key: &str| -> jiff::Timestamp {
        record[key].as_str().unwrap().parse().unwrap()
    };
    let pause = time(&record, "start_time").duration_since(time(&first, "end_time"));
    assert!(pause.as_millis() >= 95, "it waited only {pause:?}");
}

#[test]
fn the_wait_between_attempts_doubles() {
    let bed = bed();
    bed.settings(&format!(
        "path: [{}]\nlimits: {{backoff: 100ms, retries: 2}}\n",
        bed.outside.join("bin").display()
    ));
    prints(&bed, "llm", "", "Error: 429\n", 1);
    bed.drop_task("llm", "x", "do it");
    let ran = bed.drain().says("retry ").expect(1);
    assert!(
        ran.stderr.contains("again in 100ms") && ran.stderr.contains("again in 200ms"),
        "{ran:?}"
    );
}

#[test]
fn an_agent_may_allow_no_retries() {
    let bed = bed();
    prints(&bed, "llm", "", "Error: 429\n", 1);
    bed.agent("once", "provider: llm\nretries: 0", "");
    bed.drop_task("once", "x", "do it");
    bed.drain().expect(1);
    assert_eq!(bed.count_lines("llm.calls"), 1);
}

#[test]
fn access_becomes_the_flags_of_each_program() {
    let table = [
        ("claude", "read", vec!["--permission-mode", "plan"]),
        ("claude", "edit", vec!["--permission-mode", "acceptEdits"]),
        (
            "claude",
            "full",
            vec!["--permission-mode", "bypassPermissions"],
        ),
        ("codex", "read", vec!["-s", "read-only"]),
        ("codex", "edit", vec!["-s", "workspace-write"]),
        ("codex", "full", vec!["-s", "danger-full-access"]),
        ("gemini", "read", vec!["--approval-mode", "plan"]),
        ("gemini", "full", vec!["--approval-mode", "yolo"]),
        ("qwen", "edit", vec!["--approval-mode", "auto-edit"]),
        ("copilot", "full", vec!["--allow-all"]),
        ("cursor-agent", "read", vec!["--mode", "plan"]),
        ("opencode", "read", vec!["--agent", "plan"]),
        ("aider", "read", vec!["--chat-mode", "ask"]),
    ];
    let bed = bed();
    for (name, output, _) in good() {
        prints(&bed, name, output, "", 0);
    }
    for (name, access, flags) in table {
        bed.drop_task(name, access, format!("---\naccess: {access}\n---\ndo it"));
        bed.drain().expect(0);
        let given = argv(&bed, name);
        assert!(
            given.windows(flags.len()).any(|part| part == flags),
            "{name} {access}: {given:?}"
        );
    }
    // The default is `edit`, and goose has it in its environment.
    bed.drop_task("claude", "default", "do it");
    bed.drop_task("goose", "default", "do it");
    bed.drop_task("goose", "read", "---\naccess: read\n---\ndo it");
    bed.drain().expect(0);
    assert!(argv(&bed, "claude").contains(&"acceptEdits".to_owned()));
    assert!(noted(&bed, "goose", "env").contains("GOOSE_MODE=chat"));
}

#[test]
fn model_system_prompt_tools_and_parameters_reach_the_command() {
    let bed = bed();
    prints(&bed, "claude", CLAUDE, "", 0);
    bed.agent(
        "a",
        "provider: claude\nmodel: opus\ntools: [Read, Grep]",
        "Be brief.",
    );
    bed.drop_task("a", "x", "do it");
    bed.drain().expect(0);
    let given = argv(&bed, "claude").join(" ");
    for part in [
        "--model opus",
        "--append-system-prompt Be brief.",
        "--tools Read,Grep",
    ] {
        assert!(given.contains(part), "{part}: {given}");
    }
    assert_eq!(
        noted(&bed, "claude", "stdin"),
        "do it",
        "the system prompt has a flag of its own"
    );
    assert!(!bed.has("artifacts/a/x.prompt"));
    bed.drop_task("a", "y", "---\nmodel: haiku\n---\ndo it");
    bed.drain().expect(0);
    assert!(
        argv(&bed, "claude").contains(&"haiku".to_owned()),
        "a task may choose the model"
    );

    program(&bed, "tool", "");
    bed.write(
        "specs/providers.yaml",
        "providers:\n  tool: {command: [tool, \"--level=${level}\", \"${more}\"], defaults: {level: 3, more: [p, q]}}\n",
    );
    bed.drop_task("tool", "x", "do it");
    bed.drain().expect(0);
    assert_eq!(argv(&bed, "tool"), ["--level=3", "p", "q"]);
    bed.drop_task("tool", "y", "---\nparams: {level: high}\n---\ndo it");
    bed.drain().expect(0);
    assert_eq!(argv(&bed, "tool"), ["--level=high", "p", "q"]);
}

#[test]
fn a_placeholder_without_a_value_rejects_the_task() {
    let bed = bed();
    program(&bed, "ollama", "cat");
    bed.drop_task("ollama", "x", "do it");
    bed.drain().expect(1);
    let record = bed.record("ollama/x");
    assert_eq!(record["status"], "rejected");
    assert_eq!(record["error"]["kind"], "MissingTemplateKeyError");
    assert!(
        record["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("model: "),
        "{record}"
    );
    assert_eq!(bed.count_lines("ollama.calls"), 0);
}

/// A provider of the user's own, by each of the three ways.
fn three_ways(bed: &Bed) {
    program(bed, "tool", "echo fine");
    bed.write(
        "specs/providers.yaml",
        "providers:\n\
        \x20 by-stdin: {command: [tool, go], prompt_via: stdin}\n\
        \x20 by-argv: {command: [tool, go], prompt_via: argv}\n\
        \x20 by-flag: {command: [tool, -p, \"${PROMPT}\", --end]}\n\
        \x20 by-file: {command: [tool, go, --file, \"${PROMPT_FILE}\"], prompt_via: temp_file}\n",
    );
}

#[test]
fn the_prompt_goes_in_by_stdin_by_argument_or_by_file() {
    let bed = bed();
    three_ways(&bed);
    let drain = |agent: &str, text: &str| {
        bed.drop_task(agent, "x", text);
        bed.drain().expect(0);
    };
    drain("by-stdin", "--help\n");
    assert_eq!(
        (argv(&bed, "tool"), noted(&bed, "tool", "stdin")),
        (vec!["go".to_owned()], "--help\n".to_owned())
    );
    drain("by-argv", "plain");
    assert_eq!(argv(&bed, "tool"), ["go", "plain"]);
    assert_eq!(noted(&bed, "tool", "stdin"), "");
    drain("by-argv", "--help");
    assert_eq!(
        argv(&bed, "tool"),
        ["go", "--", "--help"],
        "it is no option"
    );
    drain("by-flag", "--help");
    assert_eq!(
        argv(&bed, "tool"),
        ["-p", " --help", "--end"],
        "it is no option"
    );
    drain("by-file", "--help\n");
    let given = argv(&bed, "tool");
    assert_eq!(given[..2], ["go", "--file"]);
    assert_eq!(fs::read_to_string(&given[2]).unwrap(), "--help\n");
    assert_eq!(noted(&bed, "tool", "stdin"), "");
}

#[test]
fn a_prompt_too_long_for_an_argument_is_rejected_and_by_stdin_it_arrives_whole() {
    let bed = bed();
    three_ways(&bed);
    let fits = "y".repeat(128 * 1024 - 1);
    bed.drop_task("by-argv", "fits", &fits);
    bed.drop_task("by-argv", "long", "y".repeat(128 * 1024));
    bed.drain().expect(1);
    assert_eq!(argv(&bed, "tool")[1], fits);
    let record = bed.record("by-argv/long");
    assert_eq!(
        (&record["status"], &record["error"]["kind"]),
        (&"rejected".into(), &"InvalidTask".into())
    );
    assert!(
        record["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("prompt_via: stdin"),
        "{record}"
    );
    let most = "0123456789abcdef".repeat(1 << 16);
    for agent in ["by-stdin", "by-file"] {
        bed.drop_task(agent, "most", &most);
    }
    bed.drain().expect(0);
    assert!(bed.read("artifacts/by-file/most.prompt") == most);
    bed.drop_task("by-stdin", "again", &most);
    bed.drain().expect(0);
    assert!(
        noted(&bed, "tool", "stdin") == most,
        "1 MiB arrives by stdin"
    );
}

#[test]
fn agent_files_of_claude_code_are_read_as_they_are() {
    let bed = bed();
    prints(&bed, "claude", CLAUDE, "", 0);
    bed.settings(&format!(
        "provider: claude\npath: [{}]\n",
        bed.outside.join("bin").display()
    ));
    bed.write(
        "specs/agents/reviewer.md",
        "---\nname: reviewer\ndescription: Reviews: code, after <example>\"changes\"</example>\nmodel: sonnet\n\
         tools: Read, Grep, Bash\ncolor: cyan\npermissionMode: plan\nunheardOf: 1\n---\n\nYou review.\n",
    );
    bed.drop_task("reviewer", "x", "look at it");
    bed.drain().expect(0);
    let given = argv(&bed, "claude").join(" ");
    for part in [
        "--model sonnet",
        "--append-system-prompt You review.",
        "--tools Read,Grep,Bash",
    ] {
        assert!(given.contains(part), "{part}: {given}");
    }
}

#[test]
fn a_task_may_choose_another_provider_but_not_a_shell() {
    let bed = bed();
    prints(&bed, "claude", CLAUDE, "", 0);
    prints(&bed, "llm", r#"[{"response":"llm says"}]"#, "", 0);
    bed.agent("a", "provider: claude", "Be brief.");
    bed.drop_task("a", "x", "---\nprovider: llm\n---\ndo it");
    bed.drop_task("a", "y", "---\nprovider: bash\n---\ntouch pwned");
    bed.drop_task("a", "z", "---\nprovider: claud\n---\ndo it");
    bed.drain().expect(1);
    assert_eq!(
        (
            bed.record("a/x")["provider"].clone(),
            bed.read("artifacts/a/x.out")
        ),
        ("llm".into(), "llm says".to_owned())
    );
    assert_eq!(argv(&bed, "llm"), ["--json", "-s", "Be brief."]);
    assert_eq!(bed.record("a/y")["error"]["kind"], "InvalidTask");
    assert!(!bed.has("pwned"));
    let error = &bed.record("a/z")["error"];
    assert_eq!(error["kind"], "UnknownProvider");
    assert!(
        error["hint"].as_str().unwrap().contains("claude"),
        "{error}"
    );
    assert_eq!(bed.count_lines("claude.calls"), 0);
}

#[test]
fn a_provider_has_an_inbox_of_its_own_except_for_the_shell() {
    let bed = bed();
    bed.drop_task("echo", "x", "---\ntimeout: 5m\n---\nhello\n");
    bed.drop_task("bash", "x", "touch pwned");
    bed.drain().expect(1);
    assert_eq!(bed.read("artifacts/echo/x.out"), "hello\n");
    assert_eq!(bed.record("echo/x")["provider"], "echo");
    assert_eq!(bed.record("bash/x")["error"]["kind"], "UnknownAgent");
    assert!(!bed.has("pwned"));
}

#[test]
fn an_agent_may_be_a_shell_and_its_task_the_script() {
    let bed = bed();
    bed.agent("sh", "provider: bash", "");
    bed.drop_task(
        "sh",
        "x",
        "read line || echo \"no input\"\necho $((6 * 7)); exit 3\n",
    );
    bed.drain().expect(1);
    assert_eq!(bed.read("artifacts/sh/x.out"), "no input\n42\n");
    assert_eq!(bed.record("sh/x")["exit_code"], 3);
}
