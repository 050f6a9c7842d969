//! Ending tasks from outside: those that wait, those that a living worker holds, those of the dead.
//!
//! The record is committed first. A living owner then finds its claim gone and ends the agent; where
//! the owner is dead, what is left of it is ended here.

use std::io;
use std::sync::Arc;

use crate::agents::process::{Dead, Marker, SweepLock, sweep_dead};
use crate::disk::mailbox::{AgentBox, CLAIMED, Commit, Look, Mailbox, TASK, file_name};
use crate::disk::store::{PATIENCE, RunDir};
use crate::run::record::{Record, Status};
use crate::run::state::Pending;
use crate::spec::task::{AgentName, TaskName};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Result};
use crate::work::clock::now;

/// Ends the tasks of steps that nothing waits for any more; gives how many were there.
///
/// # Errors
/// As [`cancel`].
pub fn cancel_tasks(
    mailbox: &Mailbox,
    run: &str,
    pending: &[Pending],
    why: &Fault,
) -> Result<usize> {
    let mut ended = 0;
    for Pending {
        agent, task, step, ..
    } in pending
    {
        let name = TaskName::parse(task)?;
        let cancelled = mailbox
            .agent(&AgentName::parse(agent)?)
            .and_then(|folders| {
                let mut record = record(&folders, &name, why);
                record.run = Some(run.to_owned());
                record.step = Some(step.clone());
                end(mailbox, &folders, &name, &record)
            })
            .map_err(|e| Fault::io("cancel", format!("{agent}/{task}"), &e))?;
        ended += usize::from(!matches!(
            cancelled,
            Cancelled::NotThere | Cancelled::Finished
        ));
    }
    Ok(ended)
}

/// Ends a run for good because it cannot be trusted, and its tasks, all but the one that found out.
/// Whether that was necessary: one that has ended already stays as it is.
///
/// # Errors
/// Where the disk refuses, or the run is busy: it is then not stopped, or some of its tasks are not.
pub fn stop_run(
    mailbox: &Mailbox,
    run: &RunDir,
    workflow: Option<&Workflow>,
    fault: &Fault,
    own: Option<&str>,
) -> Result<bool> {
    let Some(before) = run.lock(PATIENCE)?.stop(workflow, &now(), fault)? else {
        return Ok(false);
    };
    let is_name = |pending: &Pending| TaskName::parse(&pending.task).is_ok();
    let others = before.pending.into_iter();
    let others: Vec<Pending> = others
        .filter(|pending| own != Some(&pending.task) && is_name(pending))
        .collect();
    cancel_tasks(mailbox, run.id(), &others, fault)?;
    Ok(true)
}

/// How a task stood that was to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited.
    Waiting,
    /// A living worker held it, and ends the agent now.
    Running,
    /// A dead one did.
    Dead,
    /// There is no such task.
    NotThere,
    /// It was done first.
    Finished,
}

/// Ends one task; its record says why.
///
/// # Errors
/// Where the disk refuses, or somebody holds it all the time.
pub fn cancel(
    mailbox: &Mailbox,
    folders: &Arc<AgentBox>,
    name: &TaskName,
    why: &Fault,
) -> io::Result<Cancelled> {
    end(mailbox, folders, name, &record(folders, name, why))
}

fn end(
    mailbox: &Mailbox,
    folders: &Arc<AgentBox>,
    name: &TaskName,
    record: &Record,
) -> io::Result<Cancelled> {
    // A claim that comes or goes between two looks is found by the next round.
    for _ in 0..100 {
        if let Some(claim) = mailbox.adopt(folders, name)? {
            end_the_dead(mailbox, folders, name)?;
            return Ok(match mailbox.commit(&claim, record, &[], None)? {
                Commit::Done => {
                    mailbox.retire(&claim, Status::Cancelled)?;
                    Cancelled::Dead
                }
                Commit::Lost => Cancelled::Finished,
            });
        }
        if folders.inbox.has(&file_name(name, CLAIMED))? {
            return Ok(match mailbox.cancel_running(folders, name, record)? {
                Commit::Done => Cancelled::Running,
                Commit::Lost => Cancelled::Finished,
            });
        }
        match mailbox.look(folders, name, TASK)? {
            Look::Ready(held) => {
                if let Some(claim) = mailbox.claim(held)? {
                    if mailbox.commit(&claim, record, &[], None)? == Commit::Done {
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

fn end_the_dead(mailbox: &Mailbox, folders: &AgentBox, name: &TaskName) -> io::Result<()> {
    let root = &mailbox.root;
    let _lock = SweepLock::wait(&root.logs)?;
    let mut dead = Dead::default();
    let (agent, name) = (folders.agent.as_str(), name.as_str());
    dead.tasks
        .insert(Marker::task(root.id.dev, root.id.ino, agent, name));
    sweep_dead(&root.logs, &dead).map(|_| ())
}

fn record(folders: &AgentBox, name: &TaskName, why: &Fault) -> Record {
    let now = now();
    let mut record = Record::new(folders.agent.as_str(), name.as_str(), 1, Status::Cancelled);
    record.start_time.clone_from(&now);
    record.end_time = now;
    record.error = Some(why.clone());
    record
}
