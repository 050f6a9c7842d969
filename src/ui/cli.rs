//! The words of the command line, and nothing else: no look at the system, no decision.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::disk::order::Durability;
use crate::spec::workflow::graph::Format;
use crate::text::units::parse_duration;

/// Runs command-line agents from plain folders.
///
/// Drop a file in `inbox/<agent>/NAME.task`. orch runs the agent's provider on it, writes the answer
/// to `artifacts/<agent>/NAME.out` and the result record to `NAME.json`, and moves the task to
/// `processed/`. `ls` and `cat` show everything.
#[derive(Debug, Parser)]
#[command(
    name = "orch",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(
    after_help = "`orch guide` shows the documentation.\n\nExit codes: 0 done, 1 failed, 2 safety violation, 3 state corrupted, 4 waiting for a person,\n64 bad usage, 65 invalid workflow, spec or task, 75 something else holds what is needed,\n130 SIGINT, 143 SIGTERM"
)]
pub struct Cli {
    /// The root to work in [default: the nearest one, from the current folder upwards]
    #[arg(long, global = true, value_name = "DIR", env = "ORCH_ROOT")]
    pub root: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a root: settings, and five workflows with their agents and prompts
    Init(Init),
    /// Show everything in a scratch root; needs nothing installed
    Demo(Demo),
    /// Show the documentation
    Guide(Guide),
    /// Put a task in an agent's inbox
    Send(Send),
    /// Start a run of a workflow, and follow it to its end
    Run(Run),
    /// Work on the tasks in the inboxes, and on new ones as they arrive
    Watch(Watch),
    /// Show what is waiting, running, done and failed, or one run
    Status(Status),
    /// Show one task with its answer and earlier attempts, or a run, or one of its steps
    Show(Show),
    /// List finished tasks, or the transitions of a run; the latest comes last
    Log(Log),
    /// Run a finished task again
    Retry(Target),
    /// Cancel a waiting or running task, or a run
    Cancel(Cancel),
    /// Approve what a run asks about
    Approve(Approve),
    /// Reject what a run asks about
    Reject(Reject),
    /// Answer a run's question, or ask a finished run for more
    Reply(Reply),
    /// Continue a run that is blocked or was interrupted
    Resume(Resume),
    /// Correct the document of a blocked run
    Set(Set),
    /// Start a run over: remove its files, results and decisions, keep its log
    Reset(RunWord),
    /// Check workflows: report every error with its location, and prove that a run ends
    Check(Check),
    /// Draw a workflow, or the way that a run took
    Graph(Graph),
    /// Print the JSON Schema of workflow files, for editors
    Schema,
    /// Compare a run with its log and verify every hash
    Audit(RunWords),
    /// Remove old finished tasks with their results
    CleanProcessed(CleanProcessed),
    /// Check the root, the providers and the system
    Doctor(Json),
    /// Print the completion script for a shell
    Completions(Completions),
    /// Wait for a watcher to die, then end what it leaves.
    #[command(hide = true)]
    Guard(Guard),
    /// Start a guard that is nobody's child.
    #[command(hide = true)]
    GuardLaunch(Guard),
}

/// `orch init`.
#[derive(Debug, Args)]
pub struct Init {
    /// The folder [default: the current one]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The provider for agents that name none [default: the first one found on PATH]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
}

/// `orch demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the scratch root, and print its path
    #[arg(long)]
    pub keep: bool,
}

/// `orch guide`.
#[derive(Debug, Args)]
pub struct Guide {
    /// The page [default: list the pages]
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}

/// `orch send`.
#[derive(Debug, Args)]
pub struct Send {
    /// The agent that gets the task
    pub agent: String,
    /// The text of the task; `-` reads it from standard input
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// Read the text from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The name of the task [default: the current time]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Wait for the answer, print it, and exit with the result of the task
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time; the task stays
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Work in this folder, named in `dirs` of specs/orch.yaml
    #[arg(long, value_name = "NAME")]
    pub dir: Option<String>,
    /// Use this provider instead of the agent's own
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// When done, pass request and answer to this agent; can be repeated
    #[arg(long, value_name = "AGENT")]
    pub then: Vec<String>,
    /// Put a variable in the front matter of the task, under `context`; can be repeated
    #[arg(long, value_name = "K=V")]
    pub context: Vec<String>,
    /// With --wait, if no watcher runs: keep the answer for the provider `replay`
    #[arg(long, requires = "wait")]
    pub record: bool,
    /// Print the result record as JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The name of a workflow in specs/, or its path
    pub workflow: String,
    /// The request, `${request}`; `-` reads it from standard input
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// Read the request from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A YAML or JSON document, `${input}`; it must match the workflow's schema
    #[arg(long, visible_alias = "spec", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Set a variable of the workflow, in the type of its default; can be repeated
    #[arg(long, value_name = "K=V")]
    pub context: Vec<String>,
    /// Set variables from a YAML or JSON map; --context overrides it
    #[arg(long, value_name = "FILE")]
    pub context_file: Option<PathBuf>,
    /// Print every step, what it would do and where it may lead; run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the run's id and leave the work to a watcher
    #[arg(long, conflicts_with_all = ["dry_run", "timeout", "record"])]
    pub detach: bool,
    /// How many steps run at once, if no watcher runs
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// Set `context.max_retries`, for workflows that use it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_retries: Option<i64>,
    /// If no watcher runs: keep every answer for the provider `replay`
    #[arg(long)]
    pub record: bool,
    /// Stop waiting after this time; `orch resume` continues
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `orch approve`.
#[derive(Debug, Args)]
pub struct Approve {
    /// Any unique part of a run's id, or `last`
    pub run: String,
    /// The name of the gate, or of the step that asks
    pub gate: String,
    /// A note for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch reject`.
#[derive(Debug, Args)]
pub struct Reject {
    /// Any unique part of a run's id, or `last`
    pub run: String,
    /// The name of the gate, or of the step that asks
    pub gate: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    pub note: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch reply`.
#[derive(Debug, Args)]
pub struct Reply {
    /// RUN, or RUN/STEP if there are several questions; RUN is any unique part of its id, or `last`
    #[arg(value_name = "RUN")]
    pub target: String,
    /// The reply; `-`, or nothing, reads it from standard input
    pub text: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// Any unique part of a run's id, or `last`
    pub run: String,
    /// Rebuild the state from the log first
    #[arg(long)]
    pub repair: bool,
    /// Adopt `specs/` as it is now, instead of the copy that the run started with
    #[arg(long)]
    pub update_spec: bool,
    /// Print the run's id and leave the work to a watcher
    #[arg(long, conflicts_with_all = ["timeout", "record"])]
    pub detach: bool,
    /// How many steps run at once, if no watcher runs
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// If no watcher runs: keep every answer for the provider `replay`
    #[arg(long)]
    pub record: bool,
    /// Stop waiting after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `orch status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Any unique part of a run's id, or `last` [default: everything]
    pub run: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch cancel`.
#[derive(Debug, Args)]
pub struct Cancel {
    /// AGENT/NAME, or any unique part of a run's id, or `last`
    pub target: String,
}

/// A command on one run.
#[derive(Debug, Args)]
pub struct RunWord {
    /// Any unique part of a run's id, or `last`
    pub run: String,
}

/// `orch set`.
#[derive(Debug, Args)]
pub struct Set {
    /// Any unique part of a run's id, or `last`
    pub run: String,
    /// A path under `state.` and a JSON value; either all are set, or none
    #[arg(value_name = "PATH=JSON", required = true)]
    pub values: Vec<String>,
    /// The reason; the log keeps it
    #[arg(long)]
    pub note: String,
}

/// A command that tells of one run.
#[derive(Debug, Args)]
pub struct RunWords {
    /// Any unique part of a run's id, or `last`
    pub run: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Stop when nothing is left to do
    #[arg(long)]
    pub drain: bool,
    /// How many tasks run at once
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// Work on this agent's tasks only; can be repeated
    #[arg(long, value_name = "AGENT")]
    pub agent: Vec<String>,
    /// Poll at this interval instead of waiting for events
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub poll: Option<Duration>,
    /// What a finished task survives
    #[arg(long, value_name = "WHAT", default_value = "power")]
    pub durability: Durability,
    /// Allow a root on NFS, SMB or FUSE, where locks may not hold; polls
    #[arg(long)]
    pub any_fs: bool,
    /// Keep every answer for the provider `replay`
    #[arg(long)]
    pub record: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// A command whose only option is the form of its output.
#[derive(Debug, Args)]
pub struct Json {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch show`.
#[derive(Debug, Args)]
pub struct Show {
    /// AGENT/NAME, RUN or RUN/STEP
    pub target: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A command on one task.
#[derive(Debug, Args)]
pub struct Target {
    /// AGENT/NAME
    pub target: String,
}

/// `orch log`.
#[derive(Debug, Args)]
pub struct Log {
    /// An agent, a task (AGENT/NAME) with its earlier attempts, or a run [default: all tasks]
    pub target: Option<String>,
    /// Only what ended within this time, such as `2h`, or after a time such as 2026-05-01T12:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what did not succeed
    #[arg(long)]
    pub failed: bool,
    /// Keep printing as tasks end
    #[arg(long, short)]
    pub follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `orch check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Names of workflows in specs/, or paths [default: every workflow in specs/]
    #[arg(value_name = "WORKFLOW")]
    pub workflows: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch graph`.
#[derive(Debug, Args)]
pub struct Graph {
    /// The name or path of a workflow, or a run
    pub workflow: String,
    /// The format of the drawing
    #[arg(long, value_name = "FORMAT", default_value = "mermaid")]
    pub format: Format,
}

/// `orch clean-processed`.
#[derive(Debug, Args)]
pub struct CleanProcessed {
    /// Only tasks that ended longer ago than this [default: `retention` in specs/orch.yaml, or 7d]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub older_than: Option<Duration>,
    /// Write everything to this new archive first
    #[arg(long, value_name = "FILE.tar.gz")]
    pub archive: Option<PathBuf>,
    /// Print what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// The hidden guard commands.
#[derive(Debug, Args)]
pub struct Guard {
    /// The folder with the watchers' locks.
    #[arg(long)]
    pub logs: PathBuf,
    /// The watcher.
    #[arg(long)]
    pub id: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}
