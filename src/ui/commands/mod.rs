//! One short file per command. A command reads its words, asks the library, and prints.

mod answer;
mod audit;
mod cancel;
mod check;
mod clean_processed;
mod completions;
mod demo;
mod doctor;
mod drive;
mod graph;
mod guide;
mod init;
mod input;
mod log;
mod questions;
mod reset;
mod resume;
mod retry;
mod run;
mod run_log;
mod run_target;
#[cfg(test)]
mod run_tests;
mod run_view;
mod schema;
mod send;
mod set;
mod show;
mod status;
mod target;
mod update_spec;
mod watch;

use std::path::Path;
use std::sync::Arc;

use crate::agents::process;
use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::text::error::{Fault, Kind, Result};
use crate::ui::cli::{Cli, Command};

/// Runs a command, and gives its exit code.
pub fn run(cli: Cli) -> Result<u8> {
    let root = cli.root.as_deref();
    match cli.command {
        Command::Init(words) => init::run(&words),
        Command::Demo(words) => demo::run(&words),
        Command::Send(words) => send::run(root, words),
        Command::Run(words) => run::run(root, &words),
        Command::Watch(words) => watch::run(root, &words),
        Command::Status(words) => status::run(root, &words),
        Command::Show(words) => show::run(root, &words),
        Command::Log(words) => log::run(root, &words),
        Command::Retry(words) => retry::run(root, &words),
        Command::Cancel(words) => cancel::run(root, &words),
        Command::Approve(words) => answer::approve(root, &words),
        Command::Reject(words) => answer::reject(root, &words),
        Command::Reply(words) => answer::reply(root, &words),
        Command::Resume(words) => resume::run(root, &words),
        Command::Reset(words) => reset::run(root, &words),
        Command::Set(words) => set::run(root, &words),
        Command::Check(words) => check::run(root, &words),
        Command::Graph(words) => graph::run(root, &words),
        Command::Schema => schema::run(),
        Command::Guide(words) => guide::run(&words),
        Command::Audit(words) => audit::run(root, &words),
        Command::CleanProcessed(words) => clean_processed::run(root, &words),
        Command::Doctor(words) => doctor::run(root, &words),
        Command::Completions(words) => completions::run(&words),
        Command::Guard(words) => Ok(process::guard_main(&words.logs, &words.id)),
        Command::GuardLaunch(words) => Ok(process::guard_launch_main(&words.logs, &words.id)),
    }
}

/// What only a person may do is refused to a process that an agent started: an agent does not
/// decide about its own work.
fn refuse_to_agents(what: &str) -> Result<()> {
    if process::is_inside_a_task() {
        return Err(Fault::new(
            Kind::PermissionDenied,
            format!("`orch {what}` was called from inside a task"),
        )
        .hint("this is for a person to do, in a terminal of their own"));
    }
    Ok(())
}

/// The root that the user means, and its mailboxes, for commands that are not a watcher.
fn open(root: Option<&Path>) -> Result<Mailbox> {
    let root = Arc::new(Root::discover(root)?);
    Ok(Mailbox::new(root, Disk::new(Durability::Power)))
}
