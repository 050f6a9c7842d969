//! Outputs as the real programs print them, and what each of them means.

use super::*;
use crate::spec::provider::{Provider, UserProviders, lookup, parse};

fn run(name: &str, code: i32, stdout: &str, stderr: &str) -> Verdict {
    with(
        &UserProviders::new(),
        name,
        Exit::Code(code),
        stdout,
        stderr,
    )
}

fn with(user: &UserProviders, name: &str, exit: Exit, stdout: &str, stderr: &str) -> Verdict {
    let Ok(Provider::Process(config)) = lookup(name, user) else {
        panic!("{name}");
    };
    let seen = Observed {
        exit,
        stdout: stdout.as_bytes(),
        stderr: stderr.as_bytes(),
    };
    judge(name, &config, &seen)
}

const CLAUDE_OK: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.\n","session_id":"s-1","total_cost_usd":0.25,"usage":{"input_tokens":10,"output_tokens":4},"permission_denials":[]}"#;
const CODEX_OK: &str = r#"{"type":"thread.started","thread_id":"t-1"}
{"type":"item.completed","item":{"type":"error","message":"a warning"}}
{"type":"item.completed","item":{"type":"agent_message","text":"thinking"}}
{"type":"item.completed","item":{"type":"command_execution","command":"ls","exit_code":0}}
{"type":"item.completed","item":{"type":"agent_message","text":"Done."}}
{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":50,"output_tokens":7}}
"#;
const GEMINI_OK: &str = r#"Loaded cached credentials.
{
  "session_id": "g-1",
  "response": "Done.",
  "stats": {"models": {"a": {"tokens": {"prompt": 5, "candidates": 2}}, "b": {"tokens": {"prompt": 1, "candidates": 1}}}}
}"#;
const OPENCODE_OK: &str = r#"{"type":"step_start","sessionID":"o-1"}
{"type":"text","sessionID":"o-1","part":{"text":"Do"}}
{"type":"step_finish","sessionID":"o-1","part":{"tokens":{"input":3,"output":1},"cost":0.5}}
{"type":"text","sessionID":"o-1","part":{"text":"ne."}}
{"type":"step_finish","sessionID":"o-1","part":{"tokens":{"input":4,"output":2},"cost":0.25}}"#;
const GOOSE_OK: &str = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"toolRequest"}]},{"role":"assistant","content":[{"type":"text","text":"Do"},{"type":"text","text":"ne."}]}],"metadata":{"total_tokens":9,"input_tokens":6,"output_tokens":3,"status":"completed"}}"#;
const QWEN_OK: &str = r#"[{"type":"system"},{"type":"assistant"},{"type":"result","is_error":false,"result":"Done.","usage":{"input_tokens":8,"output_tokens":2},"session_id":"q-1"}]"#;
const COPILOT_OK: &str = r#"{"type":"assistant.message","data":{"content":"Done."}}
{"type":"assistant.message","data":{"content":""}}
{"type":"result","sessionId":"c-1","exitCode":0,"usage":{"premiumRequests":1}}"#;
const LLM_OK: &str =
    r#"[{"response":"Done.","input_tokens":5,"output_tokens":1,"conversation_id":"l-1"}]"#;
const CURSOR_OK: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"u-1","request_id":"r"}"#;

#[test]
fn the_answer_of_every_preset_is_found() {
    let table = [
        (
            "claude",
            CLAUDE_OK,
            Some("Done.\n"),
            Some("s-1"),
            (Some(10), Some(4), Some(0.25)),
        ),
        (
            "codex",
            CODEX_OK,
            Some("Done."),
            Some("t-1"),
            (Some(100), Some(7), None),
        ),
        (
            "gemini",
            GEMINI_OK,
            Some("Done."),
            Some("g-1"),
            (Some(6), Some(3), None),
        ),
        (
            "opencode",
            OPENCODE_OK,
            Some("Done."),
            Some("o-1"),
            (Some(7), Some(3), Some(0.75)),
        ),
        (
            "goose",
            GOOSE_OK,
            Some("Done."),
            None,
            (Some(6), Some(3), None),
        ),
        (
            "qwen",
            QWEN_OK,
            Some("Done."),
            Some("q-1"),
            (Some(8), Some(2), None),
        ),
        (
            "copilot",
            COPILOT_OK,
            Some("Done."),
            Some("c-1"),
            (None, None, None),
        ),
        (
            "llm",
            LLM_OK,
            Some("Done."),
            Some("l-1"),
            (Some(5), Some(1), None),
        ),
        (
            "cursor-agent",
            CURSOR_OK,
            Some("Done."),
            Some("u-1"),
            (None, None, None),
        ),
        (
            "aider",
            "Aider v0.86\nDone.\nTokens: 218 sent, 1 received.\n",
            None,
            None,
            (None, None, None),
        ),
        ("ollama", "Done.\n", None, None, (None, None, None)),
        ("bash", "", None, None, (None, None, None)),
    ];
    for (name, stdout, text, session, (input, output, cost)) in table {
        let verdict = run(name, 0, stdout, "");
        assert_eq!(verdict.error, None, "{name}");
        assert_eq!(verdict.status, Status::Succeeded, "{name}");
        assert_eq!(verdict.text.as_deref(), text, "{name}");
        assert_eq!(verdict.session_id.as_deref(), session, "{name}");
        let usage = verdict.usage.unwrap_or_default();
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.cost_usd),
            (input, output, cost),
            "{name}"
        );
        assert_eq!(verdict.retry, Retry::No);
    }
}

#[test]
fn failures_of_every_preset_are_told_apart() {
    use Kind::{
        AuthenticationFailed as Auth, JsonParseError, PermissionDenied, ProviderFailed, RateLimited,
    };
    let again = Retry::After(None);
    #[rustfmt::skip]
    let table = [
        ("claude", 1, r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: 429 rate limited"}"#, "", RateLimited, again, "429 rate limited"),
        ("claude", 1, r#"{"type":"result","is_error":true,"result":"API Error: 529 Overloaded"}"#, "", RateLimited, again, "Overloaded"),
        ("claude", 1, r#"{"type":"result","is_error":true,"result":"Invalid API key · Fix external API key"}"#, "", Auth, Retry::No, "Invalid API key"),
        ("claude", 0, r#"{"type":"result","is_error":true,"result":"Credit balance is too low"}"#, "", RateLimited, Retry::No, "Credit balance"),
        ("claude", 1, r#"{"type":"result","is_error":true,"result":"You've hit your session limit · resets 8pm (America/New_York)"}"#, "", RateLimited, Retry::No, "resets 8pm"),
        ("claude", 1, r#"{"type":"result","is_error":true,"result":"Prompt is too long"}"#, "", Kind::PromptTooLong, Retry::No, "too long"),
        ("claude", 1, r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true}"#, "", ProviderFailed, Retry::No, "error_max_budget_usd"),
        ("claude", 0, r#"{"type":"result","is_error":false,"result":"I could not.","permission_denials":[{"tool_name":"Write"},{"tool_name":"Write"},{"tool_name":"Bash"}]}"#, "", PermissionDenied, Retry::No, "Write, Bash"),
        ("claude", 0, "", "", ProviderFailed, Retry::No, "no answer"),
        ("claude", 0, "Invalid API key", "", Auth, Retry::No, "Invalid API key"),
        ("claude", 0, "something odd", "", JsonParseError, Retry::No, "something odd"),
        ("codex", 1, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"unexpected status 401 Unauthorized\"}}\n", "", Auth, Retry::No, "401"),
        ("codex", 1, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"exceeded retry limit, last status: 429 Too Many Requests\"}}\n", "", RateLimited, again, "429"),
        ("codex", 0, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"We're currently experiencing high demand\"}}\n", "", RateLimited, again, "high demand"),
        ("codex", 1, "", "Not inside a trusted directory", ProviderFailed, Retry::No, "exit code 1: Not inside"),
        ("gemini", 145, "", "Error: API key not valid, status 401\n    at foo (x.js:1:2)\n", Auth, Retry::No, "API key not valid"),
        ("gemini", 247, "", "ApiError: 503 unavailable\n    at x\n", RateLimited, again, "503"),
        ("gemini", 1, "", "TerminalQuotaError: You have exhausted your daily quota", RateLimited, Retry::No, "quota"),
        ("gemini", 0, "", "", ProviderFailed, Retry::No, "no answer"),
        ("opencode", 0, r#"{"type":"error","sessionID":"o","error":{"name":"APIError","data":{"message":"invalid x-api-key","statusCode":401,"isRetryable":false}}}"#, "\u{1b}[0m", Auth, Retry::No, "invalid x-api-key"),
        ("opencode", 1, r#"{"type":"error","error":{"name":"ProviderOverloadedError"}}"#, "", RateLimited, again, "Overloaded"),
        ("goose", 0, r#"{"messages":[{"role":"assistant","content":[{"type":"text","text":"Ran into this error: Authentication error: bad key.\n\nPlease retry if you think this is a transient error."}]}]}"#, "", Auth, Retry::No, "Authentication error"),
        ("goose", 0, "Ran into this error: Rate limit exceeded: slow down.\n\nPlease retry\n", "", RateLimited, again, "Rate limit"),
        ("qwen", 0, r#"[{"type":"result","is_error":false,"result":"[API Error: 401 Incorrect API key provided]"}]"#, "", Auth, Retry::No, "[API Error: 401"),
        ("copilot", 1, "", "Authentication failed with provider (HTTP 401)", Auth, Retry::No, "HTTP 401"),
        ("copilot", 1, "", "Failed: retried 5 times. Last error: 429 Too many requests", RateLimited, again, "429"),
        ("copilot", 0, "{\"type\":\"assistant.message\",\"data\":{\"content\":\"x\"}}\n{\"type\":\"result\",\"exitCode\":1}", "", ProviderFailed, Retry::No, "failed"),
        ("aider", 0, "Aider v0.86\nlitellm.AuthenticationError: AnthropicException - invalid x-api-key\n", "", Auth, Retry::No, "litellm.AuthenticationError"),
        ("llm", 1, "", "Error: Error code: 429 - {'error': 'slow'}", RateLimited, again, "Error code: 429"),
        ("cursor-agent", 1, "", "Error: not logged in. Run login.", Auth, Retry::No, "not logged in"),
        ("ollama", 1, "", "Error: model 'x' not found", ProviderFailed, Retry::No, "model 'x' not found"),
        ("bash", 3, "", "x.sh: line 1: rate limit 429\n", ProviderFailed, Retry::No, "exit code 3"),
        ("bash", 127, "", "x.sh: line 1: foo: command not found\n", ProviderFailed, Retry::No, "foo"),
        ("bash", 1, "", "", ProviderFailed, Retry::No, "no error message"),
    ];
    for (name, code, stdout, stderr, kind, retry, part) in table {
        let verdict = run(name, code, stdout, stderr);
        let fault = verdict.error.unwrap_or_else(|| panic!("{name}: {stdout}"));
        assert_eq!(fault.kind, kind, "{name}: {}", fault.message);
        assert_eq!(verdict.retry, retry, "{name}: {}", fault.message);
        assert_eq!(verdict.status, Status::Failed, "{name}");
        assert!(fault.message.contains(part), "{name}: {}", fault.message);
    }
}

#[test]
fn an_answer_about_authentication_is_no_authentication_failure() {
    let text = r#"{"type":"result","is_error":false,"result":"I fixed the 401 authentication bug, rate limit 429"}"#;
    assert_eq!(run("claude", 0, text, "").status, Status::Succeeded);
    let lines = "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"authentication 401\"}}\n";
    let verdict = run("codex", 1, lines, "something broke");
    assert_eq!(verdict.error.unwrap().kind, Kind::ProviderFailed);
    let quoted = r#"[{"type":"result","is_error":false,"result":"The log says:\n[API Error: 401]\nI fixed it."}]"#;
    assert_eq!(run("qwen", 0, quoted, "").status, Status::Succeeded);
}

#[test]
fn the_answer_is_kept_when_something_was_denied() {
    let text = r#"{"type":"result","is_error":false,"result":"I could not.","permission_denials":[{"tool_name":"Write"}]}"#;
    let verdict = run("claude", 0, text, "");
    assert_eq!(verdict.text.as_deref(), Some("I could not."));
    assert!(
        verdict
            .error
            .unwrap()
            .hint
            .unwrap()
            .contains("access: edit")
    );
}

#[test]
fn limits_and_signals_are_failures_whatever_was_printed() {
    let none = UserProviders::new();
    let minute = Duration::from_secs(60);
    let table = [
        (
            Exit::TimedOut {
                idle: false,
                after: minute,
            },
            Status::TimedOut,
            Kind::TimeoutExpired,
            "took longer than 1m",
        ),
        (
            Exit::TimedOut {
                idle: true,
                after: minute,
            },
            Status::TimedOut,
            Kind::TimeoutExpired,
            "nothing for 1m",
        ),
        (
            Exit::OutputTooLarge { limit: 1 << 20 },
            Status::Failed,
            Kind::OutputTooLargeError,
            "more than 1MiB",
        ),
        (
            Exit::Signal(9),
            Status::Failed,
            Kind::ProviderFailed,
            "SIGKILL",
        ),
        (
            Exit::Signal(15),
            Status::Failed,
            Kind::ProviderFailed,
            "SIGTERM",
        ),
        (
            Exit::Signal(40),
            Status::Failed,
            Kind::ProviderFailed,
            "signal 40",
        ),
    ];
    for (exit, status, kind, part) in table {
        let verdict = with(&none, "claude", exit, CLAUDE_OK, "");
        let fault = verdict.error.unwrap();
        assert_eq!(
            (verdict.status, fault.kind, verdict.retry),
            (status, kind, Retry::No)
        );
        assert!(fault.message.contains(part), "{}", fault.message);
        assert_eq!(verdict.session_id.as_deref(), Some("s-1"));
    }
}

#[test]
fn the_wait_that_a_provider_asks_for_is_read() {
    let table = [
        ("429 retry-after: 20", Some(20_000)),
        ("429: please retry after 5 seconds", Some(5_000)),
        ("429 Retry-After=2.5", Some(2_500)),
        ("overloaded, try again in 3 minutes", Some(180_000)),
        ("429 {\"retry_after\": 7}", Some(7_000)),
        ("429 retry after 250ms", Some(250)),
        ("429 too many requests", None),
    ];
    for (stderr, millis) in table {
        let verdict = run("llm", 1, "", stderr);
        assert_eq!(
            verdict.retry,
            Retry::After(millis.map(Duration::from_millis)),
            "{stderr}"
        );
    }
}

#[test]
fn a_program_of_ones_own_follows_its_own_rules() {
    let user = parse(
        "providers:\n  m: {command: [x], success: {exit_codes: [0, 3], require_output: true, fail_if_match: ['^BAD']}}\n",
    )
    .unwrap();
    let table = [
        (3, "fine", true),
        (1, "fine", false),
        (0, "  \n", false),
        (0, "ok\nBAD luck", false),
        (0, "not BAD", true),
    ];
    for (code, stdout, good) in table {
        let verdict = with(&user, "m", Exit::Code(code), stdout, "");
        assert_eq!(verdict.status.is_success(), good, "{stdout}");
        assert_eq!(verdict.text, None);
    }
}

#[test]
fn control_characters_never_reach_a_message() {
    let verdict = run("bash", 1, "", "\u{1b}[31mbad\u{1b}]0;t\u{7} thing\u{0}\r\n");
    assert_eq!(
        verdict.error.unwrap().message,
        "`bash` failed: exit code 1: bad thing"
    );
}

#[test]
fn what_does_not_fit_is_not_called_a_login() {
    let table = [
        (
            "claude",
            1,
            r#"{"type":"result","is_error":true,"result":"Prompt is too long: 250000 tokens > 200000 maximum"}"#,
            "",
        ),
        (
            "gemini",
            144,
            "",
            "[API Error: The input token count (250000) exceeds the maximum number of tokens allowed (200000).]",
        ),
        (
            "llm",
            1,
            "",
            "Error: This model's maximum context length is 128000 tokens. However, your messages resulted in 250000 tokens.",
        ),
        (
            "codex",
            1,
            r#"{"type":"turn.failed","error":{"message":"Your input exceeds the context window of this model."}}"#,
            "",
        ),
    ];
    for (name, code, stdout, stderr) in table {
        let verdict = run(name, code, stdout, stderr);
        let fault = verdict.error.unwrap();
        assert_eq!(fault.kind, Kind::PromptTooLong, "{name}: {fault}");
        assert_eq!(verdict.retry, Retry::No, "{name}");
    }
}

#[test]
fn a_success_that_is_none_is_found() {
    let goose = |text: &str| {
        format!(
            r#"{{"messages":[{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}]}}"#
        )
    };
    for (name, stdout) in [
        ("goose", goose("Network error: Could not connect to the service")),
        ("goose", goose("Ran into this error trying to compact: too much")),
        ("qwen", r#"[{"type":"result","is_error":false,"result":"half an answer [API Error: Model stream ended without a finish reason.]"}]"#.to_owned()),
    ] {
        let verdict = run(name, 0, &stdout, "");
        assert_eq!(verdict.status, Status::Failed, "{name}: {stdout}");
    }
}

#[test]
fn the_reason_is_the_message_and_a_used_up_quota_is_not_tried_again() {
    let copilot = r#"{"type":"session.error","data":{"message":"Authentication failed (HTTP 401)"}}
{"type":"result","sessionId":"c","exitCode":1}"#;
    let fault = run("copilot", 1, copilot, "").error.unwrap();
    assert_eq!(fault.kind, Kind::AuthenticationFailed);
    assert!(fault.message.contains("HTTP 401"), "{fault}");

    let gemini = "{\n  \"error\": {\n    \"type\": \"Error\",\n    \"message\": \"it broke\",\n    \"code\": 1\n  }\n}\n";
    let fault = run("gemini", 1, "", gemini).error.unwrap();
    assert!(fault.message.ends_with("it broke"), "{fault}");

    let quota =
        "Error: You exceeded your current quota, please check your plan and billing details.";
    assert_eq!(run("llm", 1, "", quota).retry, Retry::No);
    for passing in ["Error: Connection refused", "500 Internal Server Error"] {
        assert!(
            matches!(run("llm", 1, "", passing).retry, Retry::After(_)),
            "{passing}"
        );
    }
    let own = "litellm.RateLimitError: slow down\nRetrying in 0.2 seconds...\n";
    assert_eq!(run("aider", 0, own, "").retry, Retry::After(None));
    let stuck = r#"{"type":"error","message":"Reconnecting... 4/5"}"#;
    let late = Exit::TimedOut {
        idle: false,
        after: Duration::from_secs(60),
    };
    let fault = with(&UserProviders::new(), "codex", late, stuck, "")
        .error
        .unwrap();
    assert!(fault.message.ends_with("Reconnecting... 4/5"), "{fault}");
}
