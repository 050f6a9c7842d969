//! AGENT/NAME, as commands take it.

use crate::agents::process::living_watchers;
use crate::disk::mailbox::Mailbox;
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};

/// A task that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub agent: AgentName,
    pub name: TaskName,
}

impl Target {
    /// Reads `AGENT/NAME`; a path such as `inbox/a/x.task`, as a shell completes it, is fine too.
    pub(super) fn parse(text: &str) -> Result<Target> {
        let usage = |fault: Fault| Fault {
            kind: Kind::Usage,
            ..fault
        };
        let mut parts = text.rsplit('/');
        let (Some(name), Some(agent)) = (parts.next(), parts.next()) else {
            return Err(
                Fault::new(Kind::Usage, format!("`{text}` is not AGENT/NAME"))
                    .hint("for example `engineer/fix`; `orch status` and `orch log` show them"),
            );
        };
        let name = [".task", ".claimed", ".failed", ".json", ".out"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        Ok(Target {
            agent: AgentName::parse(agent).map_err(usage)?,
            name: TaskName::parse(name).map_err(usage)?,
        })
    }
}

/// Whether a living watcher will work on a new task of this agent.
pub(super) fn is_watched(mailbox: &Mailbox, agent: &AgentName) -> bool {
    living_watchers(&mailbox.root.logs).is_ok_and(|all| {
        all.iter()
            .any(|watcher| watcher.duty.covers(agent.as_str()))
    })
}

/// What to say where nobody is there to do the work.
pub(super) fn say_if_nobody_watches(mailbox: &Mailbox, agent: &AgentName) {
    if !is_watched(mailbox, agent) {
        eprintln!(
            "no watcher is running: `orch watch` works on it, `orch watch --drain` does so and ends"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_agent_and_a_name_or_a_path_to_it() {
        for text in [
            "a/x",
            "inbox/a/x.task",
            "/r/processed/a/x.failed",
            "artifacts/a/x.json",
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(
                (target.agent.as_str(), target.name.as_str()),
                ("a", "x"),
                "{text}"
            );
        }
        for text in ["x", "", "A/x", "a/", "a/-x", "a/b c"] {
            assert_eq!(Target::parse(text).unwrap_err().kind, Kind::Usage, "{text}");
        }
    }
}
