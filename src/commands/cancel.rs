//! `orch cancel`: a task or a run is ended, and is recorded as cancelled.
//!
//! The cancellation is committed first. A living owner then finds its claim gone and ends the
//! agent; where the owner is dead, what is left of it is ended here.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::run_target::{self, RunStep};
use super::target::Target;
use crate::cli;
use crate::error::{Fault, Kind, Result, exit};
use crate::mailbox::{AgentBox, CLAIMED, Commit, Look, Mailbox, TASK, file_name};
use crate::process::{Dead, Marker, SweepLock, sweep_dead};
use crate::record::{Record, Status};
use crate::report::count;
use crate::runs;
use crate::state::{Event, Pending};
use crate::store::RunDir;
use crate::task::{AgentName, TaskName};

pub(super) fn run(root: Option<&Path>, words: &cli::Cancel) -> Result<u8> {
    let mailbox = super::open(root)?;
    if let Some(RunStep { run, step }) = run_target::parse(&mailbox.root, &words.target)? {
        return cancel_run(&mailbox, &run, step.as_deref());
    }
    let target = Target::parse(&words.target)?;
    let (agent, name) = (&target.agent, &target.name);
    let folders = mailbox
        .agent(agent)
        .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    let cancelled = cancel(&mailbox, &folders, &target)
        .map_err(|e| Fault::io("cancel", format!("{agent}/{name}"), &e))?;
    match cancelled {
        Cancelled::Waiting => println!("{agent}/{name} was waiting and is cancelled"),
        Cancelled::Running => println!("{agent}/{name} is cancelled; its agent is being ended"),
        Cancelled::Dead => println!("{agent}/{name} is cancelled; its watcher had died"),
        Cancelled::NotThere => {
            return Err(Fault::new(
                Kind::FileNotFound,
                format!("`{agent}/{name}` neither waits nor runs"),
            )
            .hint("`orch status` shows what does"));
        }
        Cancelled::Finished => {
            return Err(Fault::new(
                Kind::Busy,
                format!("`{agent}/{name}` finished just now"),
            ));
        }
    }
    Ok(exit::DONE)
}

/// Ends a run: that is committed first, so that no step is dropped any more, then its tasks go.
fn cancel_run(mailbox: &Mailbox, run: &RunDir, step: Option<&str>) -> Result<u8> {
    let id = run.id();
    if let Some(step) = step {
        let message = format!("`{step}` cannot be cancelled without its run `{id}`");
        return Err(
            Fault::new(Kind::Usage, message).hint(format!("`orch cancel {id}` ends all of it"))
        );
    }
    let workflow = runs::pinned(run)?;
    let mut pending = Vec::new();
    runs::apply_with(run, &workflow, |state| {
        if state.status.is_final() {
            let message = format!("run `{id}` has ended already: {}", state.status.as_str());
            return Err(Fault::new(Kind::Usage, message));
        }
        pending.clone_from(&state.pending);
        Ok(Event::Cancelled)
    })?;
    match cancel_tasks(mailbox, &pending)? {
        0 => println!("{id} is cancelled"),
        ended => println!("{id} is cancelled; {} ended", count(ended, "step")),
    }
    Ok(exit::DONE)
}

/// Ends the tasks of steps that nothing waits for any more; gives how many were there.
pub(super) fn cancel_tasks(mailbox: &Mailbox, pending: &[Pending]) -> Result<usize> {
    let mut ended = 0;
    for Pending { agent, task, .. } in pending {
        let target = Target {
            agent: AgentName::parse(agent)?,
            name: TaskName::parse(task)?,
        };
        let cancelled = mailbox
            .agent(&target.agent)
            .and_then(|folders| cancel(mailbox, &folders, &target))
            .map_err(|e| Fault::io("cancel", format!("{agent}/{task}"), &e))?;
        ended += usize::from(!matches!(
            cancelled,
            Cancelled::NotThere | Cancelled::Finished
        ));
    }
    Ok(ended)
}

enum Cancelled {
    Waiting,
    Running,
    Dead,
    NotThere,
    Finished,
}

fn cancel(mailbox: &Mailbox, folders: &Arc<AgentBox>, target: &Target) -> io::Result<Cancelled> {
    let name = &target.name;
    // A claim that comes or goes between two looks is found by the next round.
    for _ in 0..100 {
        if let Some(claim) = mailbox.adopt(folders, name)? {
            end_the_dead(mailbox, target)?;
            let record = record(target);
            return Ok(match mailbox.commit(&claim, &record, &[], None)? {
                Commit::Done => {
                    mailbox.retire(&claim, Status::Cancelled)?;
                    Cancelled::Dead
                }
                Commit::Lost => Cancelled::Finished,
            });
        }
        if folders.inbox.has(&file_name(name, CLAIMED))? {
            return Ok(
                match mailbox.cancel_running(folders, name, &record(target))? {
                    Commit::Done => Cancelled::Running,
                    Commit::Lost => Cancelled::Finished,
                },
            );
        }
        match mailbox.look(folders, name, TASK)? {
            Look::Ready(held) => {
                if let Some(claim) = mailbox.claim(held)? {
                    if mailbox.commit(&claim, &record(target), &[], None)? == Commit::Done {
                        mailbox.retire(&claim, Status::Cancelled)?;
                    }
                    return Ok(Cancelled::Waiting);
                }
            }
            Look::Gone => return Ok(Cancelled::NotThere),
            Look::Stray(why) => return Err(io::Error::other(why)),
            Look::Busy => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
    Err(io::Error::other("somebody else holds it"))
}

fn end_the_dead(mailbox: &Mailbox, target: &Target) -> io::Result<()> {
    let root = &mailbox.root;
    let _lock = SweepLock::wait(root.logs.path())?;
    let mut dead = Dead::default();
    let (agent, name) = (target.agent.as_str(), target.name.as_str());
    dead.tasks
        .insert(Marker::task(root.id.dev, root.id.ino, agent, name));
    sweep_dead(root.logs.path(), &dead).map(|_| ())
}

fn record(target: &Target) -> Record {
    let now = format!("{:.3}", Timestamp::now());
    let mut record = Record::new(
        target.agent.as_str(),
        target.name.as_str(),
        1,
        Status::Cancelled,
    );
    record.start_time.clone_from(&now);
    record.end_time = now;
    record.error = Some(Fault::new(Kind::Cancelled, "cancelled by `orch cancel`"));
    record
}
