//! What an agent may touch: pure data, with no look at the system.
//!
//! The root, the provider, the agent and the step each declare a part; [`Policy::over`] merges them.
//! `scope` turns globs into paths. Enforcing a policy is the task of `agents::confine`.

pub(crate) mod scope;

pub use scope::check_glob;

use serde::Deserialize;

use crate::text::units::Size;

/// What holds an agent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// The kernel's Landlock, where it is there; else the comparison alone, with a warning.
    Landlock,
    /// Bubblewrap, where it is installed; else Landlock, with a warning.
    Bwrap,
    /// The kernel is not asked; only the comparison is made.
    None,
    /// The kernel, or nothing is run.
    Required,
}

impl Sandbox {
    /// The words of it.
    pub const WORDS: &'static [&'static str] = &["landlock", "bwrap", "none", "required"];

    /// The one that a word means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Sandbox> {
        Some(match word {
            "landlock" => Sandbox::Landlock,
            "bwrap" => Sandbox::Bwrap,
            "none" => Sandbox::None,
            "required" => Sandbox::Required,
            _ => return None,
        })
    }
}

/// What an agent can reach by network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    None,
    /// Whatever the machine can.
    All,
}

impl Network {
    /// The words of it.
    pub const WORDS: &'static [&'static str] = &["none", "all"];

    /// The one that a word means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Network> {
        match word {
            "none" => Some(Network::None),
            "all" => Some(Network::All),
            _ => None,
        }
    }
}

/// How much of the system an agent's processes may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// Processes and threads of the user who runs orch, all together.
    pub processes: Option<u64>,
    /// Memory of each process, in bytes.
    pub memory: Option<Size>,
    /// The largest file that it may write, in bytes.
    pub file: Option<Size>,
}

impl Caps {
    /// These, and from the other what these do not say.
    #[must_use]
    pub fn or(self, other: Caps) -> Caps {
        Caps {
            processes: self.processes.or(other.processes),
            memory: self.memory.or(other.memory),
            file: self.file.or(other.file),
        }
    }
}

/// Everything that was declared about what an attempt may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// What holds it in.
    pub sandbox: Option<Sandbox>,
    /// Globs of what it may write, relative to the root; `None` is the default scope.
    pub writes: Option<Vec<String>>,
    /// Globs of what it may read, relative to the root; `None` is everything.
    pub reads: Option<Vec<String>>,
    /// What it can reach.
    pub network: Option<Network>,
    /// How much it may take.
    pub caps: Caps,
}

impl Policy {
    /// This policy, and from a wider one what this does not say. `required` cannot be taken back.
    #[must_use]
    pub fn over(self, wider: Policy) -> Policy {
        Policy {
            sandbox: match wider.sandbox {
                Some(Sandbox::Required) => Some(Sandbox::Required),
                other => self.sandbox.or(other),
            },
            writes: self.writes.or(wider.writes),
            reads: self.reads.or(wider.reads),
            network: self.network.or(wider.network),
            caps: self.caps.or(wider.caps),
        }
    }

    /// Whether files or the network are confined at all.
    #[must_use]
    pub fn confines(&self) -> bool {
        let asked = matches!(
            self.sandbox,
            Some(Sandbox::Landlock | Sandbox::Bwrap | Sandbox::Required)
        );
        asked
            || self.writes.is_some()
            || self.reads.is_some()
            || self.network == Some(Network::None)
    }

    /// Whether there is nothing to do: then the attempt is started the fast way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.confines() && self.caps == Caps::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_goes_before_its_agent_and_required_stays() {
        let root = Policy {
            sandbox: Some(Sandbox::Required),
            ..Policy::default()
        };
        let agent = Policy {
            sandbox: Some(Sandbox::None),
            writes: Some(vec!["a/**".into()]),
            network: Some(Network::None),
            ..Policy::default()
        };
        let step = Policy {
            writes: Some(vec![]),
            caps: Caps {
                processes: Some(9),
                ..Caps::default()
            },
            ..Policy::default()
        };
        let all = step.over(agent.over(root));
        assert_eq!(all.sandbox, Some(Sandbox::Required));
        assert_eq!(all.writes, Some(vec![]));
        assert_eq!(all.network, Some(Network::None));
        assert_eq!(all.caps.processes, Some(9));
    }

    #[test]
    fn what_declares_nothing_keeps_the_fast_start() {
        assert!(Policy::default().is_empty());
        let said = |sandbox| Policy {
            sandbox: Some(sandbox),
            ..Policy::default()
        };
        assert!(said(Sandbox::None).is_empty());
        assert!(!said(Sandbox::Landlock).is_empty());
        let open = Policy {
            network: Some(Network::All),
            ..Policy::default()
        };
        assert!(open.is_empty());
        let small = Policy {
            caps: Caps {
                memory: Some(Size(1)),
                ..Caps::default()
            },
            ..Policy::default()
        };
        assert!(!small.is_empty() && !small.confines());
    }
}
