//! Configurations: presets, what extends them, and what is refused at load.

use super::*;
use crate::spec::access::Access;

fn process(name: &str, user: &UserProviders) -> Arc<ProviderConfig> {
    match lookup(name, user) {
        Ok(Provider::Process(config)) => config,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn every_preset_is_valid_and_complete() {
    for name in presets::names() {
        let config = process(name, &UserProviders::new());
        assert_eq!(config.program(), name);
        if !matches!(name, "bash" | "aider" | "ollama") {
            assert!(config.result.text.is_some(), "{name}");
        }
        if name != "bash" {
            assert!(config.success.require_output, "{name}");
            assert!(
                !config.transient.is_empty() && !config.fatal.is_empty(),
                "{name}"
            );
        }
    }
    assert_eq!(presets::names().count(), 12);
}

#[test]
fn what_orch_plays_itself_needs_no_process() {
    let none = UserProviders::new();
    assert!(matches!(lookup("echo", &none), Ok(Provider::Echo)));
    assert!(matches!(lookup("replay", &none), Ok(Provider::Replay)));
    assert!(matches!(lookup("human", &none), Ok(Provider::Human)));
    assert_eq!(names().count(), 15);
}

#[test]
fn an_unknown_provider_comes_with_the_nearest_name() {
    let fault = lookup("cluade", &UserProviders::new()).unwrap_err();
    assert_eq!(fault.kind, Kind::UnknownProvider);
    assert!(fault.hint.unwrap().starts_with("did you mean `claude`?"));
    let user = parse("providers: {mine: {command: [x]}}").unwrap();
    assert!(
        lookup("mien", &user)
            .unwrap_err()
            .hint
            .unwrap()
            .contains("`mine`")
    );
}

#[test]
fn an_entry_without_a_command_extends_the_preset_of_its_name() {
    let user = parse(
        "providers:\n  claude:\n    args: [--verbose]\n    defaults: {model: opus}\n    set_env: {X: \"1\"}\n  \
         cheap:\n    preset: claude\n    defaults: {model: haiku}\n  codex:\n    command: [my-codex]\n",
    )
    .unwrap();
    let claude = process("claude", &user);
    assert_eq!(claude.program(), "claude");
    assert_eq!(claude.args.len(), 1);
    assert_eq!(claude.defaults["model"], "opus");
    assert_eq!(claude.set_env.len(), 2);
    assert!(claude.access.of(Access::Read).is_some());
    assert_eq!(process("cheap", &user).defaults["model"], "haiku");
    let codex = process("codex", &user);
    assert!(codex.result.text.is_none() && codex.model.is_empty());
}

#[test]
fn a_description_of_ones_own_is_read() {
    let user = parse(
        r#"
providers:
  mine:
    command: [claude, -p, --output-format, json, --model, "${model}"]
    defaults: {model: sonnet}
    input_mode: stdin
    result: {text: /result, failed: /is_error, cost_usd: /total_cost_usd, session: /session_id}
    success: {require_output: true, fail_if_match: ["^API Error"]}
    transient: ["overloaded", "rate.?limit"]
    fatal: ["invalid api key"]
    access: {read: [--plan], edit: [], full: [--yolo]}
    env: [ANTHROPIC_API_KEY]
    also_writes: ["~/.claude", "/tmp"]
  argv:
    command: [tool, "${PROMPT}"]
  file:
    command: [tool, --in, "${PROMPT_FILE}"]
  plain:
    command: [tool, 5]
"#,
    )
    .unwrap();
    let mine = process("mine", &user);
    assert_eq!(mine.output, OutputKind::Json);
    assert_eq!(mine.success.exit_codes, [0]);
    assert!(mine.transient.matches(b"OVERLOADED"));
    assert!(!mine.success.fail_if_match.matches(b"api error"));
    assert_eq!(process("argv", &user).prompt_via, PromptVia::Argv);
    assert_eq!(process("file", &user).prompt_via, PromptVia::TempFile);
    let plain = process("plain", &user);
    assert_eq!(
        (plain.prompt_via, plain.output),
        (PromptVia::Stdin, OutputKind::Text)
    );
}

#[test]
fn an_empty_file_has_no_providers() {
    for text in ["", "providers:\n", "# none"] {
        assert!(parse(text).unwrap().is_empty());
    }
}

#[test]
fn what_is_wrong_is_refused_at_load() {
    let table = [
        (
            "{m: {comand: [x]}}",
            "unknown key `comand` in `providers.m`",
            "`command`",
        ),
        (
            "{m: {command: []}}",
            "provider `m`: there is no program",
            "command",
        ),
        ("{m: {}}", "provider `m`: there is no program", "command"),
        (
            "{m: {command: [x, \"${PROMT}\"]}}",
            "unknown placeholder `${PROMT}`",
            "`PROMPT`",
        ),
        ("{m: {command: [x, \"${model\"]}}", "never closed", "$$"),
        (
            "{m: {command: [x, \"${SYSTEM}\"]}}",
            "`${SYSTEM}` in `command`",
            "system",
        ),
        (
            "{m: {command: [x], prompt_via: temp_file}}",
            "no `${PROMPT_FILE}`",
            "path",
        ),
        (
            "{m: {command: [x, \"${PROMPT}\"], prompt_via: stdin}}",
            "`${PROMPT}`",
            "one of",
        ),
        (
            "{m: {command: [x], prompt_via: stdni}}",
            "unknown value `stdni`",
            "`stdin`",
        ),
        (
            "{m: {command: [x], fatal: [\"(\"]}}",
            "not a regular expression",
            "look-around",
        ),
        (
            "{m: {command: [x], result: {text: result}}}",
            "not a JSON pointer",
            "`/result`",
        ),
        (
            "{m: {command: [x], success: {fail_if_match: [\"a(?=b)\"]}}}",
            "not a regular",
            "",
        ),
        ("{m: {preset: cluade}}", "no preset `cluade`", "`claude`"),
        (
            "{echo: {command: [x]}}",
            "`echo` is built in",
            "another name",
        ),
    ];
    for (entry, part, hint) in table {
        let fault = parse(&format!("providers: {entry}")).expect_err(entry);
        assert!(fault.message.starts_with(FILE), "{}", fault.message);
        assert!(fault.message.contains(part), "{entry}: {}", fault.message);
        let given = fault.hint.clone().unwrap_or_default();
        assert!(given.contains(hint), "{entry}: {given}");
        assert_eq!(fault.exit_code(), 65, "{entry}");
    }
    let fault = parse("providers:\n  m:\n    command: [x]\n    fatal: [ok, '(']").unwrap_err();
    assert!(
        fault.message.starts_with("specs/providers.yaml:4:17: "),
        "{}",
        fault.message
    );
}
