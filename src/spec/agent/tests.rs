//! Our own files, Claude Code's files, and the words for what is wrong in either.

use std::time::Duration;

use super::*;

fn read(text: &str) -> Result<(Agent, Vec<String>), Fault> {
    parse(&AgentName::parse("writer").unwrap(), text)
}

#[test]
fn a_file_without_front_matter_is_a_system_prompt() {
    let (agent, notes) = read("\nYou write.\n\n").unwrap();
    assert_eq!(agent.system, "You write.");
    assert_eq!(
        agent,
        Agent {
            system: "You write.".into(),
            ..Agent::default()
        }
    );
    assert!(notes.is_empty());
}

#[test]
fn every_key_is_read() {
    let (agent, notes) = read(
        "---\nprovider: codex\nmodel: o9\naccess: read\ntimeout: 5m\nidle_timeout: 30s\ndir: app\n\
         then: [a, b]\nwrites: [\"src/**\"]\nreads: [docs]\nnetwork: none\nsandbox: required\nlimits: {processes: 9}\nparams: {effort: high}\nenv: {RUST_LOG: debug, N: 5}\n\
         pass_env: [GH_TOKEN]\nsecrets: [KEY]\ndescription: writes\nretries: 2\n---\nYou write.\n",
    )
    .unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(agent.access, Some(Access::Read));
    assert_eq!(agent.timeout, Some(Time(Duration::from_secs(300))));
    assert_eq!(agent.then.len(), 2);
    assert_eq!(agent.writes, Some(vec!["src/**".to_owned()]));
    assert_eq!(agent.reads, Some(vec!["docs".to_owned()]));
    assert_eq!(agent.limits.processes, Some(9));
    assert!(!agent.policy().is_empty());
    assert_eq!(agent.env["N"], "5");
    assert_eq!(agent.params["effort"], "high");
    assert_eq!(agent.retries, Some(2));
    assert_eq!(agent.secrets, ["KEY"]);
    assert_eq!(agent.system, "You write.");
}

#[test]
fn the_list_of_keys_is_that_of_the_struct() {
    let text: String = KEYS.iter().map(|key| format!("{key}:\n")).collect();
    let fault = yaml::from_str::<StrictFront>(&text).err();
    assert_eq!(fault, None);
}

/// The same fields once more, to be told if one is missing in either place.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the names count")]
struct StrictFront {
    provider: IgnoredAny,
    model: IgnoredAny,
    access: IgnoredAny,
    timeout: IgnoredAny,
    idle_timeout: IgnoredAny,
    dir: IgnoredAny,
    then: IgnoredAny,
    writes: IgnoredAny,
    reads: IgnoredAny,
    network: IgnoredAny,
    sandbox: IgnoredAny,
    limits: IgnoredAny,
    params: IgnoredAny,
    env: IgnoredAny,
    pass_env: IgnoredAny,
    secrets: IgnoredAny,
    description: IgnoredAny,
    tools: IgnoredAny,
    retries: IgnoredAny,
    name: IgnoredAny,
}

#[test]
fn an_unknown_key_of_ours_is_a_mistake() {
    let fault = read("---\nprovider: x\nacess: read\n---\nhi").unwrap_err();
    assert_eq!(
        fault.message,
        "specs/agents/writer.md:3:1: unknown key `acess`"
    );
    assert_eq!(fault.hint.as_deref(), Some("did you mean `access`?"));
}

#[test]
fn faults_name_file_line_and_column() {
    let table = [
        ("---\ntimeout: 5\n---\n", "specs/agents/writer.md:2:10: "),
        (
            "---\nname: writer\ntimeout: 5\n---\n",
            "specs/agents/writer.md:3:10: ",
        ),
        ("---\nprovider: x\nhi", "specs/agents/writer.md:1:1: "),
        (
            "---\nprovider: a: b\n---\n",
            "specs/agents/writer.md:2:12: ",
        ),
        (
            "---\nwrites: [\"a[\"]\n---\n",
            "specs/agents/writer.md: `a[` in `writes`",
        ),
        ("---\njust text\n---\n", "specs/agents/writer.md:2:1: "),
    ];
    for (text, start) in table {
        let fault = read(text).unwrap_err();
        assert!(
            fault.message.starts_with(start),
            "{text}: {}",
            fault.message
        );
    }
}

#[test]
fn a_file_for_claude_code_is_read_as_it_is() {
    let (agent, notes) = read(
        "---\nname: writer\ndescription: Writes things\nmodel: inherit\n\
         tools: Read, Grep, Bash(git log, git diff)\ncolor: blue\nhooks:\n  Stop: []\n---\n\nYou write.\n",
    )
    .unwrap();
    assert_eq!(agent.model, None);
    assert_eq!(agent.tools, ["Read", "Grep", "Bash(git log, git diff)"]);
    assert_eq!(agent.description.as_deref(), Some("Writes things"));
    assert_eq!(
        notes,
        [
            "specs/agents/writer.md: `color` is ignored: orch has no such key",
            "specs/agents/writer.md: `hooks` is ignored: orch has no such key",
        ]
    );
    let (agent, notes) = read("---\nname: other\ntools: [Read]\nmodel: opus\n---\nx").unwrap();
    assert_eq!(
        (agent.model.as_deref(), agent.tools.len()),
        (Some("opus"), 1)
    );
    assert!(notes[0].contains("called `writer`"), "{notes:?}");
    let (_, notes) = read("---\npermissionMode: plan\n---\nx").unwrap();
    assert_eq!(notes.len(), 1);
}

#[test]
fn loose_yaml_of_claude_files_is_read_by_lines() {
    let (agent, notes) = read(
        "---\nname: writer\ndescription: Use this: always. Examples: <example>user: \"hi\"</example>\n  more of it\n\
         tools: Read, Write\nmodel: sonnet\naccess: read\ncolor: red\n---\nYou write.\n",
    )
    .unwrap();
    let description = agent.description.unwrap();
    assert!(
        description.starts_with("Use this: always."),
        "{description}"
    );
    assert!(description.ends_with("more of it"));
    assert_eq!(agent.tools, ["Read", "Write"]);
    assert_eq!(agent.model.as_deref(), Some("sonnet"));
    assert_eq!(agent.access, Some(Access::Read));
    assert!(
        notes[0].starts_with("specs/agents/writer.md:3:"),
        "{notes:?}"
    );
    assert!(notes[1].contains("`color`"));
}

#[test]
fn loose_lists_are_read_too() {
    let (agent, _) =
        read("---\nname: writer\ndescription: a: b\ntools:\n  - Read\n  - Edit\n---\nx").unwrap();
    assert_eq!(agent.tools, ["Read", "Edit"]);
}
