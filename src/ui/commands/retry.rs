//! `orch retry`: a finished task goes back to its inbox, with the same bytes.

use std::io;
use std::path::Path;

use super::target::{Target, say_if_nobody_watches};
use crate::disk::mailbox::{FAILED, TASK, file_name};
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;

pub(super) fn run(root: Option<&Path>, words: &cli::Target) -> Result<u8> {
    super::refuse_to_agents("retry")?;
    let mailbox = super::open(root)?;
    let target = Target::parse(&words.target)?;
    let (agent, name) = (&target.agent, &target.name);
    let folders = mailbox
        .agent(agent)
        .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    let waiting = file_name(name, TASK);
    for suffix in [FAILED, TASK] {
        let from = file_name(name, suffix);
        match folders
            .processed
            .rename_new(&from, &folders.inbox, &waiting)
        {
            Ok(()) => {
                let synced = folders.inbox.sync().and_then(|()| folders.processed.sync());
                synced.map_err(|e| Fault::io("make durable", folders.inbox.path(), &e))?;
                println!("{agent}/{name} waits in its inbox again");
                say_if_nobody_watches(&mailbox, agent);
                return Ok(exit::DONE);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Fault::new(
                    Kind::Busy,
                    format!("a task `{agent}/{name}` waits already"),
                ));
            }
            Err(e) => return Err(Fault::io("move", folders.processed.path().join(from), &e)),
        }
    }
    Err(Fault::new(
        Kind::FileNotFound,
        format!("there is no finished task `{agent}/{name}`"),
    )
    .hint("`orch log` lists the finished tasks, `orch status` the others"))
}
