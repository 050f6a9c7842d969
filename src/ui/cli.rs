//! The words of the command line, and nothing else: no look at the system, no decision.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::disk::order::Durability;
use crate::spec::workflow::graph::Format;
use crate::text::units::parse_duration;

/// Runs command-line agents out of plain folders.
///
/// Drop a file in `inbox/<agent>/NAME.task`; orch runs the agent's provider on it, writes the answer
/// to `artifacts/<agent>/NAME.out` and how it ended to NAME.json, and moves the task to processed/.
/// `ls` and `cat` show everything.
#[derive(Debug, Parser)]
#[command(
    name = "orch",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 safety violation, 3 state corrupted, 4 waiting for a person,\n64 bad usage, 65 invalid workflow, task or settings, 75 something else holds it, 130 SIGINT, 143 SIGTERM"
)]
pub struct Cli {
    /// The root to work in [default: the nearest parent folder with inbox/ and specs/orch.yaml]
    #[arg(long, global = true, value_name = "DIR", env = "ORCH_ROOT")]
    pub root: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a root: settings, five workflows, their agents and prompts
    Init(Init),
    /// Show all of it on a scratch root, with nothing installed
    Demo(Demo),
    /// Put a task in an agent's inbox
    Send(Send),
    /// Start a run of a workflow, and see it through
    Run(Run),
    /// Work on the tasks in the inboxes, now and as they come
    Watch(Watch),
    /// Show what waits, runs, is done and failed, or how one run stands
    Status(Status),
    /// Show one task, with its answer and earlier attempts, or a run, or a step of one
    Show(Show),
    /// List finished tasks, or the transitions of a run, the latest last
    Log(Log),
    /// Run a finished task again
    Retry(Target),
    /// Cancel a waiting or running task, or a run
    Cancel(Cancel),
    /// Approve what a run asks about
    Approve(Approve),
    /// Reject what a run asks about
    Reject(Reject),
    /// Answer a run's question, or have more to say to one that is done
    Reply(Reply),
    /// Go on with a run that is blocked or was interrupted
    Resume(Resume),
    /// Correct the canonical document of a blocked run
    Set(Set),
    /// Start a run over: its files, results and decisions go, its log stays
    Reset(RunWord),
    /// Check workflows: every fault with its place, and the proof that a run ends
    Check(Check),
    /// Draw a workflow, or the course of a run
    Graph(Graph),
    /// Print the JSON Schema of workflow files, for editors
    Schema,
    /// Compare a run with its log, and verify every hash
    Audit(RunWords),
    /// Remove finished tasks that are older than a while, with their results
    CleanProcessed(CleanProcessed),
    /// Check the root, the providers and what this system offers
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
    /// Where [default: here]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The provider that agents use unless they name one [default: the first one found on PATH]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
}

/// `orch demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the scratch root, and say where it is
    #[arg(long)]
    pub keep: bool,
}

/// `orch send`.
#[derive(Debug, Args)]
pub struct Send {
    /// Whose inbox
    pub agent: String,
    /// The task's text; `-` reads it from standard input
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// Take the task's text from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The task's name [default: the time]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Wait for the result, print the answer, and exit as the task did
    #[arg(long)]
    pub wait: bool,
    /// Give up waiting after this long; the task goes on
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Work in this folder, by its name in `dirs` of specs/orch.yaml
    #[arg(long, value_name = "NAME")]
    pub dir: Option<String>,
    /// Use this provider instead of the agent's own
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// When done, send request and answer to this agent; may be repeated
    #[arg(long, value_name = "AGENT")]
    pub then: Vec<String>,
    /// A variable of the task, for later steps
    #[arg(long, value_name = "K=V")]
    pub context: Vec<String>,
    /// With --wait and no watcher: keep the answer for the replay provider
    #[arg(long, requires = "wait")]
    pub record: bool,
    /// Print the result record as JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A name in specs/, or a path in it
    pub workflow: String,
    /// What is asked for, `${request}`; `-` reads it from standard input
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// Take the request from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A YAML or JSON document, `${input}`; it must match the workflow's schema
    #[arg(long, visible_alias = "spec", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Set a variable, in the type of its default in `context`; may be repeated
    #[arg(long, value_name = "K=V")]
    pub context: Vec<String>,
    /// Set variables from a YAML or JSON map; --context goes before it
    #[arg(long, value_name = "FILE")]
    pub context_file: Option<PathBuf>,
    /// Only print every step, what it would do and where it may lead
    #[arg(long)]
    pub dry_run: bool,
    /// Print the run's id and end; a watcher works on it
    #[arg(long, conflicts_with_all = ["dry_run", "timeout", "record"])]
    pub detach: bool,
    /// How many steps at once, where no watcher runs
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// Set `context.max_retries`, for a workflow that uses it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_retries: Option<i64>,
    /// Where no watcher runs: keep every answer for the replay provider
    #[arg(long)]
    pub record: bool,
    /// Give up waiting after this long; `orch resume` goes on
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// One JSON object per line instead of text
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
    /// A word about it
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
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub note: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch reply`.
#[derive(Debug, Args)]
pub struct Reply {
    /// RUN, or RUN/STEP where there are several questions; RUN is any unique part of its id, or `last`
    #[arg(value_name = "RUN")]
    pub target: String,
    /// What you say; `-`, or nothing, reads it from standard input
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
    /// Make the state anew from the log first
    #[arg(long)]
    pub repair: bool,
    /// Go on with `specs/` as it is now, instead of the copy that the run began with
    #[arg(long)]
    pub update_spec: bool,
    /// Print the run's id and end; a watcher works on it
    #[arg(long, conflicts_with_all = ["timeout", "record"])]
    pub detach: bool,
    /// How many steps at once, where no watcher runs
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// Where no watcher runs: keep every answer for the replay provider
    #[arg(long)]
    pub record: bool,
    /// Give up waiting after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// One JSON object per line instead of text
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
    /// What is set: a path under `state.` and a JSON value; all of them, or none
    #[arg(value_name = "PATH=JSON", required = true)]
    pub values: Vec<String>,
    /// Why; the log keeps it
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
    /// How many tasks at once
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub jobs: u16,
    /// Only this agent's tasks; may be repeated
    #[arg(long, value_name = "AGENT")]
    pub agent: Vec<String>,
    /// Look every so often instead of waiting for events
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub poll: Option<Duration>,
    /// What a finished task must survive
    #[arg(long, value_name = "WHAT", default_value = "power")]
    pub durability: Durability,
    /// Allow a root on NFS, SMB or FUSE, where locks may not hold; polls
    #[arg(long)]
    pub any_fs: bool,
    /// Keep every answer for the replay provider
    #[arg(long)]
    pub record: bool,
    /// One JSON object per line instead of text
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
    /// Only this agent's tasks, or AGENT/NAME with its earlier attempts; or a run
    pub target: Option<String>,
    /// Only what ended within this time, such as `2h`, or since a time such as 2026-05-01T12:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what did not succeed
    #[arg(long)]
    pub failed: bool,
    /// Go on printing as tasks end
    #[arg(long, short)]
    pub follow: bool,
    /// One JSON record per line
    #[arg(long)]
    pub json: bool,
}

/// `orch check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Names in specs/, or paths [default: every workflow in specs/]
    #[arg(value_name = "WORKFLOW")]
    pub workflows: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `orch graph`.
#[derive(Debug, Args)]
pub struct Graph {
    /// A name in specs/, or a path; or a run
    pub workflow: String,
    /// The language of the drawing
    #[arg(long, value_name = "FORMAT", default_value = "mermaid")]
    pub format: Format,
}

/// `orch clean-processed`.
#[derive(Debug, Args)]
pub struct CleanProcessed {
    /// Only tasks that ended longer ago than this [default: `retention` in specs/orch.yaml, else 7d]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub older_than: Option<Duration>,
    /// Put everything into this new archive first
    #[arg(long, value_name = "FILE.tar.gz")]
    pub archive: Option<PathBuf>,
    /// Only say what would be removed
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
