//! Command lines of every preset, and what cannot become one.

use serde_json::json;

use super::*;
use crate::spec::provider::{Provider, UserProviders, lookup, parse};

struct Ask<'a> {
    prompt: &'a str,
    system: Option<&'a str>,
    model: Option<&'a str>,
    access: Access,
    params: Value,
    tools: &'a [&'a str],
    file: Option<&'a str>,
    confined: Confined,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask {
            prompt: "do it",
            system: None,
            model: None,
            access: Access::Edit,
            params: json!({}),
            tools: &[],
            file: Some("/p"),
            confined: Confined::No,
        }
    }
}

fn ask(name: &str, user: &UserProviders, ask: &Ask<'_>) -> Result<Invocation, Fault> {
    let Ok(Provider::Process(config)) = lookup(name, user) else {
        panic!("{name}");
    };
    let tools: Vec<String> = ask.tools.iter().map(|tool| (*tool).to_owned()).collect();
    build(&Request {
        provider_name: name,
        config: &config,
        prompt: ask.prompt,
        system: ask.system,
        model: ask.model,
        access: ask.access,
        confined: ask.confined,
        params: ask.params.as_object().unwrap(),
        tools: &tools,
        prompt_file: ask.file,
        prompt_via: None,
    })
}

fn one(command: &str) -> UserProviders {
    parse(&format!("providers: {{m: {{{command}}}}}")).expect(command)
}

#[test]
fn every_preset_is_called_with_its_real_flags() {
    let table = [
        (
            "claude",
            "claude -p --output-format stream-json --verbose --model M --permission-mode acceptEdits",
        ),
        (
            "codex",
            "codex exec --skip-git-repo-check --json - -m M -s workspace-write",
        ),
        (
            "gemini",
            "gemini --skip-trust -o json -m M --approval-mode auto_edit",
        ),
        ("opencode", "opencode run --format json -m M"),
        (
            "goose",
            "goose run --no-session -q --output-format json -i - --model M",
        ),
        ("qwen", "qwen -o json -m M --approval-mode auto-edit"),
        (
            "copilot",
            "copilot -s --no-color --output-format json --model M --allow-tool write",
        ),
        (
            "aider",
            "aider --yes-always --no-stream --no-pretty --no-check-update --analytics-disable --no-git --no-show-release-notes \
             --message-file /p --model M --no-auto-commits --no-suggest-shell-commands",
        ),
        ("llm", "llm --json -m M"),
        (
            "cursor-agent",
            "cursor-agent -p --output-format json --trust --model M --force --sandbox enabled",
        ),
        ("ollama", "ollama run M"),
        ("bash", "bash /p"),
    ];
    for (name, expected) in table {
        let asked = Ask {
            model: Some("M"),
            ..Ask::default()
        };
        let made = ask(name, &UserProviders::new(), &asked).unwrap();
        assert_eq!(made.argv.join(" "), expected);
        let by_file = matches!(name, "aider" | "bash");
        assert_eq!(made.wants_prompt_file, by_file, "{name}");
        assert_eq!(made.stdin == StdinPlan::Null, by_file, "{name}");
        assert_eq!(made.prompt_sent, "do it");
    }
}

#[test]
fn access_is_said_in_the_providers_own_words() {
    let table = [
        ("claude", Access::Read, "--permission-mode plan"),
        (
            "claude",
            Access::Full,
            "--permission-mode bypassPermissions",
        ),
        ("codex", Access::Read, "-s read-only"),
        ("codex", Access::Full, "-s danger-full-access"),
        ("gemini", Access::Full, "--approval-mode yolo"),
        ("opencode", Access::Full, "--auto"),
        ("copilot", Access::Full, "--allow-all"),
    ];
    for (name, access, end) in table {
        let asked = Ask {
            access,
            ..Ask::default()
        };
        let made = ask(name, &UserProviders::new(), &asked).unwrap();
        assert!(made.argv.join(" ").ends_with(end), "{:?}", made.argv);
    }
    let made = ask(
        "goose",
        &UserProviders::new(),
        &Ask {
            access: Access::Read,
            ..Ask::default()
        },
    );
    assert_eq!(made.unwrap().set_env["GOOSE_MODE"], "chat");
}

#[test]
fn the_system_prompt_goes_by_flag_or_in_front() {
    let asked = Ask {
        system: Some("Be brief.\n"),
        ..Ask::default()
    };
    let none = UserProviders::new();
    let claude = ask("claude", &none, &asked).unwrap();
    assert_eq!(claude.prompt_sent, "do it");
    assert!(
        claude
            .argv
            .ends_with(&["--append-system-prompt".into(), "Be brief.".into()])
    );
    assert_eq!(claude.shown.last().unwrap(), "${SYSTEM}");
    let codex = ask("codex", &none, &asked).unwrap();
    assert_eq!(codex.prompt_sent, "Be brief.\n\ndo it");
    let bash = ask("bash", &none, &asked).unwrap();
    assert_eq!(bash.prompt_sent, "do it");
    assert_eq!(bash.notes.len(), 1);
}

#[test]
fn tools_are_passed_on_where_there_is_a_flag() {
    let asked = Ask {
        tools: &["Read", "Grep"],
        ..Ask::default()
    };
    let claude = ask("claude", &UserProviders::new(), &asked).unwrap();
    assert!(
        claude
            .argv
            .ends_with(&["--tools", "Read,Grep", "--allowedTools", "Read,Grep"].map(String::from))
    );
    let codex = ask("codex", &UserProviders::new(), &asked).unwrap();
    assert!(codex.notes[0].contains("`tools`"));
}

#[test]
fn values_come_from_the_task_then_from_the_defaults() {
    let user =
        one("command: [x, \"--e=${effort}\", \"${model}\"], defaults: {effort: low, model: a}");
    let made = ask("m", &user, &Ask::default()).unwrap();
    assert_eq!(made.argv, ["x", "--e=low", "a"]);
    let asked = Ask {
        params: json!({"effort": 3}),
        model: Some("b"),
        ..Ask::default()
    };
    assert_eq!(ask("m", &user, &asked).unwrap().argv, ["x", "--e=3", "b"]);
    let asked = Ask {
        params: json!({"model": "c"}),
        ..Ask::default()
    };
    assert_eq!(ask("m", &user, &asked).unwrap().argv, ["x", "--e=low", "c"]);
}

#[test]
fn a_list_becomes_several_arguments() {
    let user = one("command: [x, \"${files}\", end]");
    let asked = Ask {
        params: json!({"files": ["a", 1]}),
        ..Ask::default()
    };
    assert_eq!(
        ask("m", &user, &asked).unwrap().argv,
        ["x", "a", "1", "end"]
    );
    let asked = Ask {
        params: json!({"files": []}),
        ..Ask::default()
    };
    assert_eq!(ask("m", &user, &asked).unwrap().argv, ["x", "end"]);
}

#[test]
fn what_was_put_in_is_never_read_again() {
    let user = one("command: [x, \"${a}\", \"$$5\", \"p=${PROMPT}\"]");
    let asked = Ask {
        prompt: "${model} $$ ${PROMPT}",
        params: json!({"a": "${b} $$"}),
        ..Ask::default()
    };
    let made = ask("m", &user, &asked).unwrap();
    assert_eq!(made.argv, ["x", "${b} $$", "$5", "p=${model} $$ ${PROMPT}"]);
    assert_eq!(made.shown, ["x", "${b} $$", "$5", "p=${PROMPT}"]);
}

#[test]
fn a_missing_value_says_where_to_put_it() {
    let table = [
        (
            "command: [x, \"${model}\"]",
            json!({}),
            "`${model}` in `command` of provider `m`",
            "`model: ...`",
        ),
        (
            "command: [x, \"${model}\"]",
            json!({"model": ""}),
            "`${model}`",
            "`model: ...`",
        ),
        (
            "command: [x], args: [\"${effort}\"]",
            json!({}),
            "`${effort}` in `args`",
            "params: {effort",
        ),
        (
            "command: [x, \"${a}\"]",
            json!({"a": null}),
            "`${a}`",
            "defaults: {a",
        ),
    ];
    for (command, params, part, hint) in table {
        let fault = ask(
            "m",
            &one(command),
            &Ask {
                params,
                ..Ask::default()
            },
        )
        .unwrap_err();
        assert_eq!(fault.kind, Kind::MissingTemplateKeyError);
        assert!(fault.message.contains(part), "{}", fault.message);
        assert!(
            fault.hint.as_ref().unwrap().contains(hint),
            "{:?}",
            fault.hint
        );
    }
    let fault = ask("ollama", &UserProviders::new(), &Ask::default()).unwrap_err();
    assert_eq!(fault.kind, Kind::MissingTemplateKeyError);
}

#[test]
fn a_prompt_that_looks_like_a_flag_is_shielded() {
    let table = [
        ("command: [x], prompt_via: argv", vec!["x", "--", "-h"]),
        (
            "command: [x], prompt_via: argv, args: [-q]",
            vec!["x", "-q", "--", "-h"],
        ),
        (
            "command: [x, \"${PROMPT}\"], args: [-q]",
            vec!["x", "-q", "--", "-h"],
        ),
        (
            "command: [x, --, \"${PROMPT}\"], args: [-q]",
            vec!["x", "-q", "--", "-h"],
        ),
        (
            "command: [x, -p, \"${PROMPT}\"], args: [-q]",
            vec!["x", "-p", " -h", "-q"],
        ),
        ("command: [x, \"--p=${PROMPT}\"]", vec!["x", "--p=-h"]),
    ];
    for (command, expected) in table {
        let made = ask(
            "m",
            &one(command),
            &Ask {
                prompt: "-h",
                ..Ask::default()
            },
        )
        .unwrap();
        assert_eq!(made.argv, expected, "{command}");
        assert_eq!(made.stdin, StdinPlan::Null);
    }
    let plain = ask("m", &one("command: [x, \"${PROMPT}\"]"), &Ask::default()).unwrap();
    assert_eq!(plain.argv, ["x", "do it"]);
    assert_eq!(plain.shown, ["x", "${PROMPT}"]);
}

#[test]
fn what_no_argument_can_carry_is_refused() {
    let argv = one("command: [x, \"${PROMPT}\"]");
    let long = "x".repeat(MAX_ARG_BYTES);
    let table = [
        (long.as_str(), "128KiB at most"),
        ("a\0b", "NUL byte at offset 1"),
    ];
    for (prompt, part) in table {
        let fault = ask(
            "m",
            &argv,
            &Ask {
                prompt,
                ..Ask::default()
            },
        )
        .unwrap_err();
        assert_eq!(fault.kind, Kind::InvalidTask);
        assert!(fault.message.starts_with("the prompt"), "{}", fault.message);
        assert!(fault.message.contains(part), "{}", fault.message);
        assert!(fault.hint.unwrap().contains("prompt_via: stdin"));
        assert!(
            ask(
                "claude",
                &UserProviders::new(),
                &Ask {
                    prompt,
                    ..Ask::default()
                }
            )
            .is_ok()
        );
    }
    assert!(
        ask(
            "m",
            &argv,
            &Ask {
                prompt: &long[1..],
                ..Ask::default()
            }
        )
        .is_ok()
    );
}

#[test]
fn the_file_is_named_once_it_is_there() {
    let made = ask(
        "bash",
        &UserProviders::new(),
        &Ask {
            file: None,
            ..Ask::default()
        },
    )
    .unwrap();
    assert_eq!(made.argv, ["bash", "${PROMPT_FILE}"]);
    assert!(made.wants_prompt_file);
}

#[test]
fn a_program_that_the_kernel_holds_is_not_held_twice() {
    let table = [
        ("claude", "--permission-mode bypassPermissions"),
        ("codex", "-s danger-full-access"),
        ("gemini", "--approval-mode yolo"),
        ("qwen", "--approval-mode yolo"),
        ("copilot", "--allow-all"),
        ("opencode", "--auto"),
        ("cursor-agent", "--force --sandbox disabled"),
    ];
    for (name, flags) in table {
        let asked = |confined| {
            let asked = Ask {
                confined,
                ..Ask::default()
            };
            ask(name, &UserProviders::new(), &asked).unwrap()
        };
        let line = |confined| asked(confined).argv.join(" ");
        assert!(line(Confined::Yes).ends_with(flags), "{name}");
        assert!(!line(Confined::No).ends_with(flags), "{name}");
    }
    let root = Ask {
        confined: Confined::Yes,
        access: Access::Full,
        ..Ask::default()
    };
    let claude = ask("claude", &UserProviders::new(), &root).unwrap();
    assert_eq!(
        claude.set_env.get("IS_SANDBOX").map(String::as_str),
        Some("1")
    );
}

#[test]
fn a_prompt_is_never_a_command_of_the_program() {
    for (name, prompt) in [
        ("claude", "/help me"),
        ("claude", "  /clear"),
        ("aider", "!rm -rf x"),
        ("aider", "/run ls"),
        ("gemini", "/quit"),
        ("qwen", "/quit"),
    ] {
        let asked = Ask {
            prompt,
            ..Ask::default()
        };
        let sent = ask(name, &UserProviders::new(), &asked)
            .unwrap()
            .prompt_sent;
        assert_eq!(sent, format!("Task:\n{prompt}"), "{name}");
    }
    let plain = ask("claude", &UserProviders::new(), &Ask::default()).unwrap();
    assert_eq!(plain.prompt_sent, "do it");
}

#[test]
fn patterns_of_tools_are_allowed_and_their_tools_are_there() {
    let asked = Ask {
        tools: &["Read", "Bash(git *)", "Bash(make test)"],
        ..Ask::default()
    };
    let argv = ask("claude", &UserProviders::new(), &asked).unwrap().argv;
    let tools = [
        "--tools",
        "Read,Bash",
        "--allowedTools",
        "Read,Bash(git *),Bash(make test)",
    ];
    assert!(argv.ends_with(&tools.map(str::to_owned)), "{argv:?}");
}
