//! `orch cancel`: a task that waits or runs is ended, and is recorded as cancelled.
//!
//! The cancellation is committed first. A living owner then finds its claim gone and ends the
//! agent; where the owner is dead, what is left of it is ended here.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::target::Target;
use crate::cli;
use crate::error::{Fault, Kind, Result, exit};
use crate::mailbox::{AgentBox, CLAIMED, Commit, Look, Mailbox, TASK, file_name};
use crate::process::{Dead, Marker, SweepLock, sweep_dead};
use crate::record::{Record, Status};

pub(super) fn run(root: Option<&Path>, words: &cli::Target) -> Result<u8> {
    let mailbox = super::open(root)?;
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
