//! What a step does: the eight kinds of work and their own fields.
//!
//! Data only; a step has exactly one of these.

use serde_json::{Map, Value};

use super::model::{At, Number, StepId, Text};
use crate::spec::access::Access;
use crate::spec::provider::PromptVia;
use crate::spec::task::AgentName;

/// What a step does.
#[derive(Debug, Clone)]
pub enum Work {
    /// Runs an agent.
    Agent(Box<AgentWork>),
    /// Runs a program.
    Command(Vec<Text>),
    /// Waits for files.
    Wait(Wait),
    /// Asks a person.
    Human(Human),
    /// Only asks for the step's approval.
    Approval,
    /// Runs these side by side.
    Parallel(Vec<StepId>),
    /// Repeats a body.
    ForEach(Box<ForEach>),
    /// Does something itself.
    Action(Action),
}

/// Who runs.
#[derive(Debug, Clone)]
pub enum Who {
    /// An agent, with another provider if one is named.
    Agent {
        /// Its name.
        name: At<AgentName>,
        /// Instead of its own.
        provider: Option<Text>,
    },
    /// A provider alone.
    Provider(Text),
}

/// The work of an agent.
#[derive(Debug, Clone)]
pub struct AgentWork {
    /// Who runs.
    pub who: Who,
    /// Values for the provider's placeholders.
    pub params: Map<String, Value>,
    /// What is asked.
    pub prompt: Option<Text>,
    /// A file that comes first.
    pub input_file: Option<Text>,
    /// How the prompt goes in.
    pub transport: Option<Transport>,
    /// How much it may do.
    pub access: Option<Access>,
}

/// How the prompt reaches the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    /// The way.
    pub mode: PromptVia,
    /// The flag before it.
    pub argv_template: Option<String>,
}

/// Waiting for files.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Which.
    pub glob: Text,
    /// How long, in seconds.
    pub timeout_sec: u64,
    /// How often it looks, in milliseconds.
    pub poll_ms: u64,
    /// How many.
    pub min_count: u64,
}

/// A question to a person.
#[derive(Debug, Clone)]
pub struct Human {
    /// What is asked.
    pub prompt: Option<Text>,
    /// A file that comes first.
    pub input_file: Option<Text>,
    /// The reply must start with one of these, if there are any.
    pub choices: Vec<String>,
}

/// A loop.
#[derive(Debug, Clone)]
pub struct ForEach {
    /// What it goes over.
    pub items: Items,
    /// The name of the item.
    pub name: String,
    /// The field that identifies an item.
    pub key: Option<String>,
    /// The field with the keys of what must be done before.
    pub needs: Option<String>,
    /// The field whose entries may not be shared within a wave.
    pub conflicts: Option<String>,
    /// How many at once.
    pub max_parallel: Number,
    /// Whether the others go on after one failed.
    pub on_error: OnError,
    /// The body, in order. Never empty.
    pub body: Vec<StepId>,
}

/// What a loop goes over.
#[derive(Debug, Clone)]
pub enum Items {
    /// These.
    List(Vec<Value>),
    /// The list at this path.
    From(Text),
}

/// What a failing item does to its loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Fails it.
    #[default]
    Fail,
    /// Nothing.
    Continue,
}

/// What orch does itself.
#[derive(Debug, Clone)]
pub enum Action {
    /// Reads the plan in this folder.
    LoadPlan {
        /// The folder.
        dir: Text,
        /// Whose ticks are taken.
        ticks: Ticks,
    },
    /// Ticks the current phase of the plan.
    MarkPlan {
        /// The folder.
        dir: Text,
        /// As what.
        mark: Mark,
    },
    /// Writes the files that a step printed.
    ApplyFiles {
        /// The step.
        from: StepId,
        /// The folder.
        into: Text,
    },
}

/// Whose ticks of a plan are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ticks {
    /// Anybody's.
    #[default]
    Any,
    /// Only those that orch has made in this run.
    Own,
}

/// What a phase of the plan becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// Done.
    #[default]
    Done,
    /// Skipped.
    Skipped,
}

impl Work {
    /// What it is called.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Work::Agent(_) => "agent",
            Work::Command(_) => "command",
            Work::Wait(_) => "wait_for",
            Work::Human(_) => "human",
            Work::Approval => "approval",
            Work::Parallel(_) => "parallel",
            Work::ForEach(_) => "for_each",
            Work::Action(_) => "action",
        }
    }
}
