//! Agent files: read the same with a byte order mark and twice, and no glob leads out of the root.

use orch::spec::agent::parse;
use orch::spec::task::AgentName;
use orch::text::error::Kind;

use super::place;

const LABEL: &str = "specs/agents/tester.md";

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let name = AgentName::parse("tester").expect("a name");
    let read = parse(&name, text);
    assert_eq!(read, parse(&name, text));
    if !text.starts_with('\u{feff}') {
        assert_eq!(read, parse(&name, &format!("\u{feff}{text}")));
    }
    match read {
        Ok((agent, notes)) => {
            assert!(text.contains(&agent.system));
            assert_eq!(agent.system, agent.system.trim());
            for glob in agent.writes.iter().chain(&agent.reads).flatten() {
                let leaves = |part: &str| part == "..";
                assert!(
                    !glob.starts_with('/') && !glob.split('/').any(leaves),
                    "{glob}"
                );
            }
            assert!(
                notes.iter().all(|note| note.starts_with(LABEL)),
                "{notes:?}"
            );
        }
        Err(fault) => {
            assert_eq!(fault.kind, Kind::YamlParseError);
            let rest = fault.message.strip_prefix(LABEL).expect(&fault.message);
            let line = rest[1..]
                .split(':')
                .next()
                .and_then(|line| line.parse().ok());
            assert!(
                line.is_none_or(|line: usize| line <= place::lines(text)),
                "{fault}"
            );
        }
    }
}
