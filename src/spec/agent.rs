//! Agent files, `specs/agents/<agent>.md`: front matter and a system prompt.
//!
//! Files written for Claude Code are read as they are, foreign keys and loose YAML included; in a
//! file of our own an unknown key is a mistake and is said so. It never looks at a file.

mod loose;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::spec::access::Access;
use crate::spec::policy::{Caps, Network, Policy, Sandbox, check_glob};
use crate::spec::task::{self, AgentName};
use crate::text::error::{Fault, Kind};
use crate::text::units::Time;
use crate::text::yaml;

/// The keys of an agent file.
pub const KEYS: &[&str] = &[
    "provider",
    "model",
    "access",
    "timeout",
    "idle_timeout",
    "dir",
    "then",
    "writes",
    "reads",
    "network",
    "sandbox",
    "limits",
    "params",
    "env",
    "pass_env",
    "secrets",
    "description",
    "tools",
    "retries",
    "name",
];

/// Keys that show that a file was written for Claude Code.
const CLAUDE: &[&str] = &[
    "name",
    "tools",
    "disallowedTools",
    "color",
    "permissionMode",
    "skills",
    "hooks",
    "mcpServers",
    "memory",
    "maxTurns",
    "background",
    "isolation",
    "effort",
    "initialPrompt",
];

/// An agent as its file describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Agent {
    /// The provider; the root's default if none.
    pub provider: Option<String>,
    /// The model; the provider's default if none.
    pub model: Option<String>,
    /// How much it may do; `edit` if none.
    pub access: Option<Access>,
    /// Wall-clock limit.
    pub timeout: Option<Time>,
    /// Limit on silence.
    pub idle_timeout: Option<Time>,
    /// The name of the directory to work in.
    pub dir: Option<String>,
    /// The agents that get request and answer.
    pub then: Vec<AgentName>,
    /// Globs of what it may write; `None` is the default scope.
    pub writes: Option<Vec<String>>,
    /// Globs of what it may read; `None` is everything.
    pub reads: Option<Vec<String>>,
    /// What it can reach by network.
    pub network: Option<Network>,
    /// What holds it in.
    pub sandbox: Option<Sandbox>,
    /// How much it may take of the system.
    pub limits: Caps,
    /// Parameters for the provider's command.
    pub params: Map<String, Value>,
    /// Variables that it gets.
    pub env: BTreeMap<String, String>,
    /// Variables that it gets from orch's own environment.
    pub pass_env: Vec<String>,
    /// Variables that it gets from orch's own environment, and that are masked wherever they appear.
    pub secrets: Vec<String>,
    /// What it is for.
    pub description: Option<String>,
    /// The tools that it may use; empty is the provider's own choice.
    pub tools: Vec<String>,
    /// Retries of transient failures.
    pub retries: Option<u32>,
    /// The system prompt, trimmed.
    pub system: String,
}

impl Agent {
    /// What it says about what it may touch.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            sandbox: self.sandbox,
            writes: self.writes.clone(),
            reads: self.reads.clone(),
            network: self.network,
            caps: self.limits,
        }
    }
}

/// Reads an agent file; the notes say what in it was ignored.
///
/// # Errors
/// [`Kind::YamlParseError`] with `specs/agents/<agent>.md:line:column`.
pub fn parse(agent: &AgentName, text: &str) -> Result<(Agent, Vec<String>), Fault> {
    let label = format!("specs/agents/{agent}.md");
    let parts = task::split(text).map_err(|()| not_closed(&label))?;
    let system = text[parts.body_offset..].trim().to_owned();
    let Some(front) = parts.front else {
        let agent = Agent {
            system,
            ..Agent::default()
        };
        return Ok((agent, Vec::new()));
    };
    let (front, mut notes) = read_front(front, &label)?;
    check_globs(&front, &label)?;
    if let Some(name) = front.name.as_deref().filter(|name| *name != agent.as_str()) {
        notes.push(format!(
            "{label}: `name: {name}` is ignored: the agent is called `{agent}`, after its file"
        ));
    }
    Ok((front.into_agent(system), notes))
}

fn read_front(text: &str, label: &str) -> Result<(Front, Vec<String>), Fault> {
    let located = |fault: yaml::YamlFault| fault.fault(Kind::YamlParseError, label, 1);
    let keys = match yaml::from_str::<Map<String, Value>>(text) {
        Ok(keys) => keys,
        Err(fault) if loose::is_candidate(text) => {
            let strict = located(fault);
            return loose::read(text, label, &strict);
        }
        Err(fault) => return Err(located(fault)),
    };
    if !keys.keys().any(|key| CLAUDE.contains(&key.as_str())) {
        yaml::from_str::<KnownKeys>(text).map_err(located)?;
    }
    let front = yaml::from_str::<Front>(text).map_err(located)?;
    Ok((front, foreign(keys.keys(), label)))
}

/// A note for every key that is not ours.
fn foreign<'k>(keys: impl Iterator<Item = &'k String>, label: &str) -> Vec<String> {
    keys.filter(|key| !KEYS.contains(&key.as_str()))
        .map(|key| format!("{label}: `{key}` is ignored: orch has no such key"))
        .collect()
}

fn not_closed(label: &str) -> Fault {
    let message = format!("{label}:1:1: the front matter is opened by `---` and never closed");
    Fault::new(Kind::YamlParseError, message).hint("end it with a line `---`")
}

fn check_globs(front: &Front, label: &str) -> Result<(), Fault> {
    for (field, globs) in [("writes", &front.writes), ("reads", &front.reads)] {
        for glob in globs.iter().flatten() {
            check_glob(field, glob).map_err(|fault| Fault {
                kind: Kind::YamlParseError,
                message: format!("{label}: {}", fault.message),
                hint: fault.hint,
            })?;
        }
    }
    Ok(())
}

/// The front matter; unknown keys are judged before, by [`KnownKeys`].
#[derive(Debug, Default, Deserialize)]
struct Front {
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    access: Option<Access>,
    #[serde(default)]
    timeout: Option<Time>,
    #[serde(default)]
    idle_timeout: Option<Time>,
    #[serde(default)]
    dir: Option<String>,
    #[serde(default, deserialize_with = "task::one_or_many")]
    then: Vec<AgentName>,
    #[serde(default)]
    writes: Option<Vec<String>>,
    #[serde(default)]
    reads: Option<Vec<String>>,
    #[serde(default)]
    network: Option<Network>,
    #[serde(default)]
    sandbox: Option<Sandbox>,
    #[serde(default, deserialize_with = "yaml::or_default")]
    limits: Caps,
    #[serde(default, deserialize_with = "yaml::or_default")]
    params: Map<String, Value>,
    #[serde(default, deserialize_with = "yaml::or_default")]
    env: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "yaml::or_default")]
    pass_env: Vec<String>,
    #[serde(default, deserialize_with = "yaml::or_default")]
    secrets: Vec<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, deserialize_with = "list_or_commas")]
    tools: Vec<String>,
    #[serde(default)]
    retries: Option<u32>,
    #[serde(default)]
    name: Option<String>,
}

impl Front {
    fn into_agent(self, system: String) -> Agent {
        Agent {
            provider: self.provider,
            model: self.model.filter(|model| model != "inherit"),
            access: self.access,
            timeout: self.timeout,
            idle_timeout: self.idle_timeout,
            dir: self.dir,
            then: self.then,
            writes: self.writes,
            reads: self.reads,
            network: self.network,
            sandbox: self.sandbox,
            limits: self.limits,
            params: self.params,
            env: self.env,
            pass_env: self.pass_env,
            secrets: self.secrets,
            description: self.description,
            tools: self.tools,
            retries: self.retries,
            system,
        }
    }
}

/// Fails at the first key that is not [`KEYS`], with its place.
struct KnownKeys;

impl<'de> Deserialize<'de> for KnownKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KnownKeys)
    }
}

impl<'de> Visitor<'de> for KnownKeys {
    type Value = KnownKeys;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a map of keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<KnownKeys, A::Error> {
        while entries.next_key_seed(KnownKey)?.is_some() {
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(KnownKeys)
    }
}

struct KnownKey;

impl<'de> DeserializeSeed<'de> for KnownKey {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownKey {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        if KEYS.contains(&key) {
            return Ok(());
        }
        Err(E::unknown_field(key, KEYS))
    }
}

/// `[Read, Grep]` or `Read, Grep`. A comma inside of parentheses separates nothing.
fn list_or_commas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list, or words with commas between them")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(split_commas(text))
        }
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_any(List)
}

fn split_commas(text: &str) -> Vec<String> {
    let mut depth = 0i32;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    })
    .map(str::trim)
    .filter(|word| !word.is_empty())
    .map(str::to_owned)
    .collect()
}

#[cfg(test)]
mod tests;
