//! `orch reset`: a run starts over. Its log, artifacts and finished tasks stay.
//!
//! Everything happens under the run's lock, the files first: a crash on the way leaves a run that
//! can be reset again, never one that goes on with files of before.

use std::io;
use std::path::Path;

use rustix::fs::FileType;

use super::run_target::{self, Named};
use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::safety::{Dir, Meta};
use crate::disk::store::{PATIENCE, RunDir};
use crate::run::state::{Event, Pending};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::print_line;
use crate::work::{
    cancel::cancel_tasks,
    dispatch::Dispatcher,
    pinned::{self, PinnedRun},
};

/// Folders deeper than this are not cleared.
const MAX_DEPTH: usize = 256;

pub(super) fn run(root: Option<&Path>, words: &cli::RunWord) -> Result<u8> {
    super::refuse_to_agents("reset")?;
    let Named { root, run } = run_target::open(root, &words.run)?;
    let mailbox = Mailbox::new(root, Disk::new(Durability::Power));
    let workflow = pinned::workflow(&run)?;
    let mut before = Vec::new();
    pinned::apply_with(&run, &workflow, |state| {
        refuse_while_worked_on(&mailbox, run.id(), &state.pending)?;
        before.clone_from(&state.pending);
        clear_folders(&run)?;
        Ok(Event::Reset)
    })?;
    // What was dropped before is nothing's any more; the new first step has another name.
    let why = Fault::new(Kind::Cancelled, "its run was started over by `orch reset`");
    cancel_tasks(&mailbox, run.id(), &before, &why)?;
    let pinned = PinnedRun::with(run, workflow)?;
    let locked = pinned.run.lock(PATIENCE)?;
    let state = locked.load(&pinned.workflow)?;
    let dispatcher = Dispatcher {
        mailbox: &mailbox,
        pinned: &pinned,
    };
    dispatcher.drop_pending(&locked, state, 0)?;
    drop(locked);
    let id = pinned.run.id();
    print_line(&format!(
        "{id} starts over: `orch resume {id}`, or a watcher, goes on"
    ))?;
    Ok(exit::DONE)
}

pub(super) fn refuse_while_worked_on(
    mailbox: &Mailbox,
    id: &str,
    pending: &[Pending],
) -> Result<()> {
    for Pending {
        agent, task, step, ..
    } in pending
    {
        let (agent, name) = (AgentName::parse(agent)?, TaskName::parse(task)?);
        let worked_on = mailbox
            .agent(&agent)
            .and_then(|folders| mailbox.is_worked_on(&folders, &name));
        if worked_on.map_err(|e| Fault::io("look at", format!("{agent}/{name}"), &e))? {
            let message = format!("step `{step}` of run `{id}` is being worked on");
            return Err(Fault::new(Kind::Busy, message)
                .hint(format!("wait for it, or end it with `orch cancel {id}`")));
        }
    }
    Ok(())
}

/// Empties what the run itself made; the folders stay.
fn clear_folders(run: &RunDir) -> Result<()> {
    for name in ["files", "snapshots"] {
        let cleared = make_folder(run.dir(), name).and_then(|dir| clear(&dir, MAX_DEPTH));
        cleared.map_err(|e| Fault::io("empty", run.dir().path().join(name), &e))?;
    }
    Ok(())
}

/// The folder of this name; what else has the name is removed, and not followed.
fn make_folder(dir: &Dir, name: &str) -> io::Result<Dir> {
    let is_other = |meta: Meta| meta.kind != FileType::Directory;
    if dir.find(name)?.is_some_and(is_other) {
        dir.remove(name)?;
    }
    dir.make(name)
}

/// Removes everything in a folder. A link is removed and not followed.
fn clear(dir: &Dir, depth: usize) -> io::Result<()> {
    let mut names = Vec::new();
    let mut odd = false;
    dir.entries(|name, _| match name.to_str() {
        Ok(name) => names.push(name.to_owned()),
        Err(_) => odd = true,
    })?;
    for name in names {
        if dir.look(&name)?.kind != FileType::Directory {
            dir.remove(&name)?;
        } else if depth > 0 {
            clear(&dir.sub(&name)?, depth - 1)?;
            dir.remove_dir(&name)?;
        } else {
            return Err(io::Error::other("folders lie too deep in each other"));
        }
    }
    match odd {
        true => Err(io::Error::other(
            "a name in it is not UTF-8: remove that by hand",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_and_a_link_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, outside) = (temp.path().join("in"), temp.path().join("out"));
        std::fs::create_dir_all(inner.join("a/b/c")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        std::fs::write(inner.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, inner.join("a/link")).unwrap();
        clear(&Dir::open_named_by_user(&inner).unwrap(), MAX_DEPTH).unwrap();
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
        assert!(outside.join("kept").exists());
    }
}
