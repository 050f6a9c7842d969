//! `orch cancel`: a task or a run is ended, and is recorded as cancelled.

use std::path::Path;

use super::run_target::{self, RunStep};
use super::target::Target;
use crate::disk::mailbox::Mailbox;
use crate::disk::store::RunDir;
use crate::run::state::Event;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::count;
use crate::work::cancel::{Cancelled, cancel, cancel_tasks};
use crate::work::pinned;

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
    let cancelled = cancel(&mailbox, &folders, name, &by_a_person())
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
    let workflow = pinned::workflow(run)?;
    let mut pending = Vec::new();
    pinned::apply_with(run, &workflow, |state| {
        if state.status.is_final() {
            let message = format!("run `{id}` has ended already: {}", state.status.as_str());
            return Err(Fault::new(Kind::Usage, message));
        }
        pending.clone_from(&state.pending);
        Ok(Event::Cancelled)
    })?;
    match cancel_tasks(mailbox, id, &pending, &by_a_person())? {
        0 => println!("{id} is cancelled"),
        ended => println!("{id} is cancelled; {} ended", count(ended, "step")),
    }
    Ok(exit::DONE)
}

/// What the record of a cancelled task says.
pub(super) fn by_a_person() -> Fault {
    Fault::new(Kind::Cancelled, "cancelled by `orch cancel`")
}
