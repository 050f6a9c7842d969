//! A workflow as it is used: typed, its names resolved.
//!
//! What the dialect forbids has no form here where that can be had cheaply: a target is a step that
//! exists, a step does one thing, rows and handlers exclude each other. Only data and small
//! questions about it; nothing is read or decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use super::work::*;
use crate::spec::policy::{Caps, Network, Sandbox};
use crate::spec::provider::ProviderConfig;
pub use crate::text::yaml::tree::Place;

/// A value and where it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it begins.
    pub place: Place,
}

/// A text with its place.
pub type Text = At<String>;

/// A step of a [`Workflow`]: an index into [`Workflow::steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub usize);

/// A whole workflow.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// Its name.
    pub name: Text,
    /// The version it is written in.
    pub version: Version,
    /// What it is for.
    pub description: Option<String>,
    /// Whether a failure that nothing handles ends the run.
    pub strict_flow: bool,
    /// Variables with their defaults.
    pub context: Map<String, Value>,
    /// The path of the schema of the input.
    pub input_schema: Option<Text>,
    /// Its own providers.
    pub providers: BTreeMap<String, Arc<ProviderConfig>>,
    /// The canonical document at the start.
    pub state: Map<String, Value>,
    /// What a violation leads to.
    pub on_violation: Violation,
    /// Whether `run` resumes an unfinished run with the same input.
    pub singleton: bool,
    /// Where a reply reopens a finished run.
    pub follow_up: Option<StepId>,
    /// The ceiling for any run.
    pub max_transitions: u64,
    /// Every step, those of loop bodies and of parallel steps included.
    pub steps: Vec<Step>,
    /// The steps of the outermost level, in order. Never empty.
    pub order: Vec<StepId>,
    /// Whether anything depends on `context.max_retries`, so that `--max-retries` has a meaning.
    pub uses_max_retries: bool,
}

/// The version of the dialect that a file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Ours.
    V1,
    /// Upstream's.
    V1_1,
    /// Upstream's.
    V1_1_1,
}

/// What forged or early tasks and writes outside the scope lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Violation {
    /// The step fails.
    Reject,
    /// The run is blocked.
    #[default]
    Block,
    /// The run ends.
    Stop,
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// On the outermost level.
    Top,
    /// In the body of this loop.
    Body(StepId),
    /// In this parallel step.
    Parallel(StepId),
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name, unique in the workflow.
    pub name: Text,
    /// What is shown as the phase.
    pub phase: String,
    /// Where it stands.
    pub level: Level,
    /// What it does.
    pub work: Work,
    /// It is skipped unless this holds.
    pub when: Option<When>,
    /// What must hold before.
    pub requires: Vec<Gate>,
    /// What must hold after success.
    pub ensures: Vec<Gate>,
    /// What a person must approve afterwards.
    pub approval: Option<Approval>,
    /// Where it leads.
    pub flow: Flow,
    /// How often it may be entered.
    pub limit: Option<Limit>,
    /// A committed result is never produced again.
    pub once: bool,
    /// Wall-clock limit.
    pub timeout: Option<Timeout>,
    /// Further tries after a failure.
    pub retries: Option<Retries>,
    /// Variables that are set.
    pub env: BTreeMap<String, String>,
    /// Secrets that are passed.
    pub secrets: Vec<Text>,
    /// The only variables that are inherited, if it says so.
    pub inherit_env: Option<Vec<String>>,
    /// What it may write; `None` is the default scope.
    pub writes: Option<Vec<Text>>,
    /// What else it may touch, and how much it may take.
    pub confine: Confine,
    /// The parts of the canonical document that it may change.
    pub updates: Vec<Text>,
    /// Where it works.
    pub home: Home,
    /// Files that it needs.
    pub depends_on: DependsOn,
    /// How its output is read.
    pub capture: Capture,
    /// The path of the schema of its output.
    pub output_schema: Option<Text>,
    /// The file that gets the output.
    pub output_file: Option<Text>,
    /// Whether output that is not JSON is taken as text.
    pub allow_parse_error: bool,
}

/// What a step may touch beside what it writes, and how much it may take.
#[derive(Debug, Clone, Default)]
pub struct Confine {
    /// What it may read; `None` is everything.
    pub reads: Option<Vec<Text>>,
    /// What it can reach by network.
    pub network: Option<Network>,
    /// What holds it in.
    pub sandbox: Option<Sandbox>,
    /// How much it may take of the system.
    pub caps: Caps,
}

/// A condition for a step to run at all.
#[derive(Debug, Clone)]
pub enum When {
    /// Two texts are the same.
    Equals(Text, Text),
    /// A glob matches something.
    Exists(Text),
    /// A glob matches nothing.
    NotExists(Text),
    /// An expression holds.
    If(Text),
}

/// Something that must hold.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The expression.
    pub check: Text,
    /// What is said if it does not hold.
    pub reason: Option<Text>,
    /// Whether that stops the run for good instead of blocking it.
    pub stop: bool,
}

/// A gate for a person.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The name of the gate.
    pub gate: Text,
    /// Globs of what is shown.
    pub evidence: Vec<Text>,
    /// Where a rejection leads; nothing: it stays blocked.
    pub on_reject: Option<Target>,
}

/// Where a transition leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// To this step.
    Step(StepId),
    /// The run is done.
    End,
    /// The run has failed.
    Fail,
    /// The run is blocked.
    Block,
    /// The run is stopped for good: a safety violation.
    Stop,
    /// The item of the loop is done.
    Next,
}

/// Where a step leads.
#[derive(Debug, Clone)]
pub enum Flow {
    /// To the first row that holds; none: blocked.
    Rows {
        /// The rows, never empty.
        rows: Vec<Row>,
        /// Takes failures instead.
        failure: Option<Target>,
        /// After a crash, instead of running again.
        interrupted: Option<Target>,
        /// After orch was told to stop, instead of running again.
        stopped: Option<Target>,
    },
    /// By outcome; without a handler to the following step.
    Handlers {
        /// After success.
        success: Option<Target>,
        /// After a failure.
        failure: Option<Target>,
        /// After a crash, instead of running again.
        interrupted: Option<Target>,
        /// After orch was told to stop, instead of running again.
        stopped: Option<Target>,
        /// Overrides the others.
        always: Option<Target>,
    },
}

/// A row of `next`.
#[derive(Debug, Clone)]
pub struct Row {
    /// The expression.
    pub guard: Text,
    /// Where it leads.
    pub goto: Target,
    /// The snapshot that is stored.
    pub lock: Option<Text>,
    /// Paths under `state.`, without that word, and expressions.
    pub set: Vec<(Text, Text)>,
    /// What is logged.
    pub reason: Option<Text>,
    /// The word of the checkpoint, where it is not how the step itself went.
    pub verdict: Option<Verdict>,
}

/// What a transition says of the work that a step has judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is good.
    Ok,
    /// It is not.
    Fail,
}

impl Verdict {
    /// As the checkpoint says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "OK",
            Verdict::Fail => "FAIL",
        }
    }
}

/// How often a step may be entered.
#[derive(Debug, Clone)]
pub struct Limit {
    /// So often.
    pub max: Number,
    /// Where the entry after that leads.
    pub on_limit: Target,
    /// Entering one of these restarts the count.
    pub per: Vec<StepId>,
}

/// A number, or where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Number {
    /// This number.
    Fixed(u64),
    /// What stands at a path, clamped.
    From {
        /// `context.k` or `input.k`.
        path: String,
        /// Where that is undefined.
        default: Option<u64>,
        /// The least.
        min: Option<u64>,
        /// The most.
        max: Option<u64>,
    },
}

impl Number {
    /// The largest value that it can take, if that is known.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        match self {
            Number::Fixed(number) => Some(*number),
            Number::From { max, .. } => *max,
        }
    }
}

/// A wall-clock limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timeout {
    /// In milliseconds; a value from a variable is a duration with its unit.
    Millis(Number),
    /// In seconds, and so is a value from a variable.
    Seconds(Number),
}

/// Further tries after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// How many.
    pub max: Number,
    /// The pause before each, in milliseconds.
    pub delay_ms: u64,
}

/// Where a step works.
#[derive(Debug, Clone, Default)]
pub enum Home {
    /// Where its agent or the run works.
    #[default]
    Default,
    /// In this folder under the root.
    Cwd(Text),
    /// In this directory of the settings.
    Dir(Text),
}

/// Files that a step needs.
#[derive(Debug, Clone, Default)]
pub struct DependsOn {
    /// Each must match something.
    pub required: Vec<Text>,
    /// Each may match nothing.
    pub optional: Vec<Text>,
    /// How they are put into the prompt, if they are.
    pub inject: Option<Inject>,
}

/// How files are injected into the prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inject {
    /// What is injected of each file.
    pub mode: InjectMode,
    /// The sentence before them, instead of the usual one.
    pub instruction: Option<String>,
    /// Where.
    pub position: Position,
}

/// What is injected of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InjectMode {
    /// Their paths.
    #[default]
    List,
    /// Their contents.
    Content,
}

/// Where the files are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Position {
    /// Before the prompt.
    #[default]
    Prepend,
    /// After it.
    Append,
}

/// How output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capture {
    /// As text.
    #[default]
    Text,
    /// As a list of lines.
    Lines,
    /// As JSON.
    Json,
}

impl Step {
    /// Whose inbox its task goes through.
    #[must_use]
    pub fn inbox(&self) -> &str {
        match &self.work {
            Work::Agent(agent) => match &agent.who {
                Who::Agent { name, .. } => name.value.as_str(),
                Who::Provider(provider) => &provider.value,
            },
            Work::Command(_) => "shell",
            Work::Human(_) | Work::Approval => "human",
            Work::Wait(_) | Work::Parallel(_) | Work::ForEach(_) | Work::Action(_) => "orch",
        }
    }
}

impl Workflow {
    /// The step of this id.
    ///
    /// # Panics
    /// If the id is of another workflow.
    #[must_use]
    pub fn step(&self, id: StepId) -> &Step {
        &self.steps[id.0]
    }

    /// The step of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<StepId> {
        let index = self.steps.iter().position(|step| step.name.value == name)?;
        Some(StepId(index))
    }

    /// Every id, in the order of the file.
    pub fn ids(&self) -> impl Iterator<Item = StepId> + use<> {
        (0..self.steps.len()).map(StepId)
    }

    /// The steps beside this one, in order.
    #[must_use]
    pub fn siblings(&self, id: StepId) -> &[StepId] {
        match self.step(id).level {
            Level::Top => &self.order,
            Level::Body(parent) | Level::Parallel(parent) => self.children(parent),
        }
    }

    /// The steps inside of this one.
    #[must_use]
    pub fn children(&self, id: StepId) -> &[StepId] {
        match &self.step(id).work {
            Work::Parallel(subs) => subs,
            Work::ForEach(each) => &each.body,
            _ => &[],
        }
    }

    /// The loop in whose body a step stands.
    #[must_use]
    pub fn loop_of(&self, id: StepId) -> Option<StepId> {
        match self.step(id).level {
            Level::Top => None,
            Level::Body(parent) => Some(parent),
            Level::Parallel(parent) => self.loop_of(parent),
        }
    }

    /// Where the run goes on after this step if nothing says otherwise.
    #[must_use]
    pub fn following(&self, id: StepId) -> Target {
        let siblings = self.siblings(id);
        let after = siblings.iter().skip_while(|&&sibling| sibling != id).nth(1);
        match (after, self.step(id).level) {
            (Some(&next), _) => Target::Step(next),
            (None, Level::Top) => Target::End,
            (None, Level::Body(_) | Level::Parallel(_)) => Target::Next,
        }
    }

    /// A target as it is written.
    #[must_use]
    pub fn target_name(&self, target: Target) -> &str {
        match target {
            Target::Step(id) => &self.step(id).name.value,
            Target::End => "_end",
            Target::Fail => "_fail",
            Target::Block => "_block",
            Target::Stop => "_stop",
            Target::Next => "_next",
        }
    }
}
