//! Task files: the names, the front matter and the body.
//!
//! Bytes in, a [`Task`] or a fault with its place out; and the other way, the text that orch itself
//! drops. It never looks at a file, and never parses a body for front matter a second time.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::spec::access::Access;
use crate::text::error::hinted;
use crate::text::error::{Fault, Kind};
use crate::text::units::{Time, show_size};
use crate::text::yaml;

/// The longest task that is taken.
pub const MAX_TASK_BYTES: usize = 1024 * 1024;
/// How often `then` may hand a task on.
pub const MAX_HOPS: u8 = 16;

const MAX_NAME_BYTES: usize = 200;
const MAX_AGENT_BYTES: usize = 64;
const BOM: char = '\u{feff}';

/// The NAME of `NAME.task`: 1 to 200 bytes of `[A-Za-z0-9._-]`, not starting with a dot or a dash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskName(String);

/// The name of an agent: `[a-z0-9][a-z0-9-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AgentName(String);

impl TaskName {
    /// Takes a name that keeps the rules.
    ///
    /// # Errors
    /// [`Kind::InvalidTask`], with the rule that is broken.
    pub fn parse(name: &str) -> Result<Self, Fault> {
        TaskName::check(name).map(|()| TaskName(name.to_owned()))
    }

    /// Checks a name without keeping it.
    ///
    /// # Errors
    /// As [`TaskName::parse`].
    pub fn check(name: &str) -> Result<(), Fault> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let broken = if name.is_empty() {
            Some("it is empty")
        } else if name.len() > MAX_NAME_BYTES {
            Some("it is longer than 200 bytes")
        } else if name.starts_with(['.', '-']) {
            Some("it starts with a dot or a dash")
        } else if !name.bytes().all(good) {
            Some("only letters, digits, `.`, `_` and `-` may be in it")
        } else {
            None
        };
        match broken {
            None => Ok(()),
            Some(why) => Err(bad_name("a task", name, why).hint("rename it, for example `fix-1`")),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AgentName {
    /// Takes a name that keeps the rules; reserved names are names too.
    ///
    /// # Errors
    /// [`Kind::InvalidTask`], with the rule that is broken.
    pub fn parse(name: &str) -> Result<Self, Fault> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let broken = if name.is_empty() {
            Some("it is empty")
        } else if name.len() > MAX_AGENT_BYTES {
            Some("it is longer than 64 bytes")
        } else if name.starts_with('-') {
            Some("it starts with a dash")
        } else if !name.bytes().all(good) {
            Some("only lower-case letters, digits and `-` may be in it")
        } else {
            None
        };
        match broken {
            None => Ok(AgentName(name.to_owned())),
            Some(why) => {
                Err(bad_name("an agent", name, why).hint("use a name such as `reviewer-2`"))
            }
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether orch keeps this name for itself: `human`, `shell`, `orch`.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        matches!(self.as_str(), "human" | "shell" | "orch")
    }
}

fn bad_name(what: &str, name: &str, why: &str) -> Fault {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    Fault::new(
        Kind::InvalidTask,
        format!("`{shown}` is not a name for {what}: {why}"),
    )
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = AgentName;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the name of an agent")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<AgentName, E> {
                AgentName::parse(text)
                    .map_err(|fault| E::custom(hinted(&fault.message, fault.hint.as_deref())))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// For fields that take one agent or a list of them.
///
/// # Errors
/// Whatever is not a name or a list of names.
pub fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AgentName>, D::Error> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<AgentName>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an agent or a list of agents")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let name = de::value::StrDeserializer::new(text);
            AgentName::deserialize(name).map(|name| vec![name])
        }
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut names = Vec::new();
            while let Some(name) = items.next_element()? {
                names.push(name);
            }
            Ok(names)
        }
    }
    deserializer.deserialize_any(Names)
}

/// The same, where nothing at all differs from an empty list.
fn maybe_one_or_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<AgentName>>, D::Error> {
    #[derive(Deserialize)]
    struct Names(#[serde(deserialize_with = "one_or_many")] Vec<AgentName>);
    Ok(Option::<Names>::deserialize(deserializer)?.map(|names| names.0))
}

/// The front matter of a task. Every key may be missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Start this workflow; the body is its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Variables for the workflow.
    #[serde(default, deserialize_with = "yaml::or_default")]
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// The input of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The provider, instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model, instead of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much may be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The name of the directory to work in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The agents that get request and answer when this is done, one after the other; an empty list
    /// is none, whatever the agent's own file says.
    #[serde(default, deserialize_with = "maybe_one_or_many")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<Vec<AgentName>>,
    /// Wall-clock limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// Limit on silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Time>,
    /// Parameters for the provider's command.
    #[serde(default, deserialize_with = "yaml::or_default")]
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The engine's own: the run that this belongs to. Grants nothing by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The engine's own: the step of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The engine's own: which attempt at that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The engine's own: how often `then` has handed it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u8>,
    /// The engine's own: `agent/NAME` that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl Header {
    /// No key is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Header::default()
    }
}

/// A task as it was dropped: what its front matter says, and the whole text.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What the front matter says.
    pub header: Header,
    text: String,
    body_offset: usize,
}

impl Task {
    /// Reads a task file.
    ///
    /// # Errors
    /// [`Kind::InvalidTask`] with reason, place and hint: empty, too long, not UTF-8, bad front
    /// matter, unknown key.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() > MAX_TASK_BYTES {
            return Err(too_long());
        }
        let text =
            std::str::from_utf8(bytes).map_err(|error| not_text(bytes, error.valid_up_to()))?;
        let parts = split(text).map_err(|()| not_closed())?;
        let header = match parts.front {
            Some(front) => yaml::from_str::<Header>(front)
                .map_err(|fault| bad_front(fault.fault(Kind::InvalidTask, "", 1)))?,
            None => Header::default(),
        };
        let body = &text[parts.body_offset..];
        if header.workflow.is_none() && body.trim().is_empty() {
            return Err(empty(parts.front.is_some()));
        }
        Ok(Task {
            header,
            text: text.to_owned(),
            body_offset: parts.body_offset,
        })
    }

    /// The task of a step, whose prompt orch made itself; it may be empty or longer than a file.
    #[must_use]
    pub(crate) fn made(header: Header, prompt: String) -> Self {
        Task {
            header,
            text: prompt,
            body_offset: 0,
        }
    }

    /// The text below the front matter: the prompt.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.text[self.body_offset..]
    }

    /// Where the body begins in the file, in bytes.
    #[must_use]
    pub fn body_offset(&self) -> usize {
        self.body_offset
    }

    /// The whole text as it was dropped.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A text cut into front matter and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'t> {
    /// The YAML between the two `---` lines; it starts on line 2.
    pub front: Option<&'t str>,
    /// Where the body begins, in bytes.
    pub body_offset: usize,
}

/// Cuts a text into front matter and body. A BOM in front belongs to neither.
///
/// # Errors
/// `Err(())` if the front matter is opened and never closed.
#[expect(
    clippy::result_unit_err,
    reason = "there is one way to fail, and the caller words it"
)]
pub fn split(text: &str) -> Result<Parts<'_>, ()> {
    let start = if text.starts_with(BOM) {
        BOM.len_utf8()
    } else {
        0
    };
    let mut lines = text[start..].split_inclusive('\n');
    let Some(opening) = lines.next().filter(|line| is_fence(line)) else {
        return Ok(Parts {
            front: None,
            body_offset: start,
        });
    };
    let front_start = start + opening.len();
    let mut at = front_start;
    for line in lines {
        if is_fence(line) {
            return Ok(Parts {
                front: Some(&text[front_start..at]),
                body_offset: at + line.len(),
            });
        }
        at += line.len();
    }
    Err(())
}

fn is_fence(line: &str) -> bool {
    line.trim_end_matches([' ', '\t', '\r', '\n']) == "---"
}

/// The text of a task that orch itself drops: [`Task::parse`] gives back this header and body,
/// whatever the body contains.
#[must_use]
pub fn render(header: &Header, body: &str) -> String {
    let opens = body.split_inclusive('\n').next().is_some_and(is_fence);
    if header.is_empty() && !opens && !body.starts_with(BOM) {
        return body.to_owned();
    }
    let mut text = String::from("---\n");
    if let Ok(Value::Object(entries)) = serde_json::to_value(header) {
        for (key, value) in &entries {
            text.push_str(&format!("{key}: {}\n", yaml::flow(value)));
        }
    }
    text.push_str("---\n");
    text.push_str(body);
    text
}

/// How long it is cannot be said: nobody read further.
fn too_long() -> Fault {
    let limit = show_size(MAX_TASK_BYTES as u64);
    Fault::new(
        Kind::InvalidTask,
        format!("the task is longer than {limit}"),
    )
    .hint("put long material in a file and name the file in the task")
}

fn not_text(bytes: &[u8], offset: usize) -> Fault {
    let line = bytes[..offset].iter().filter(|b| **b == b'\n').count() + 1;
    Fault::new(
        Kind::InvalidTask,
        format!("the task is not UTF-8 text: bad byte at offset {offset}, line {line}"),
    )
    .hint("save it as UTF-8")
}

/// There is always something to be done about it.
fn bad_front(fault: Fault) -> Fault {
    match fault.hint {
        Some(_) => fault,
        None => {
            fault.hint("what stands between the two lines `---` is YAML; plain text needs neither")
        }
    }
}

fn not_closed() -> Fault {
    Fault::new(
        Kind::InvalidTask,
        "line 1: the front matter is opened by `---` and never closed",
    )
    .hint("end it with a line `---`; if the text itself is to start with `---`, put two lines `---` above it")
}

fn empty(has_front: bool) -> Fault {
    let message = if has_front {
        "the task has front matter and no text below it"
    } else {
        "the task is empty"
    };
    Fault::new(Kind::InvalidTask, message).hint("write what is to be done as plain text")
}

#[cfg(test)]
mod tests;
