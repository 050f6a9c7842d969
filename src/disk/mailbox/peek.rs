//! Reads mailboxes without changing anything: no folder is created, no claim is taken over.
//!
//! A missing folder counts as empty. Everything here is a snapshot that may be out of date at once: check
//! again before you move a file.

use std::io;

use rustix::fs::FileType;

use super::claim::is_held;
use super::scan::{inboxes, list_inbox};
use super::{
    CLAIMED, FAILED, Listing, Part, RECORD, RETIRED_SUFFIXES, Stray, TASK, file_name, read_record,
};
use crate::disk::root::Root;
use crate::disk::safety::{Dir, Meta};
use crate::spec::task::{AgentName, TaskName};

/// The folders of one agent that exist.
#[derive(Debug)]
pub struct Peek {
    /// The agent.
    pub agent: AgentName,
    /// `inbox/<agent>`.
    pub inbox: Option<Dir>,
    /// `artifacts/<agent>`.
    pub artifacts: Option<Dir>,
    /// `processed/<agent>`.
    pub processed: Option<Dir>,
}

/// Where a task is now. Times are in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the inbox since then.
    Waiting(i128),
    /// Worked on since then.
    Running(i128),
    /// Claimed then, by a watcher that died.
    Interrupted(i128),
    /// Retired then, with success.
    Done(i128),
    /// Retired then, without success.
    Failed(i128),
}

/// How many tasks of an agent are retired; earlier ones of the same name do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retirements {
    /// With success.
    pub done: usize,
    /// Without success.
    pub failed: usize,
}

/// All inboxes of a root, agents by name.
#[derive(Debug, Default)]
pub struct Survey {
    /// The agents with an inbox or retired tasks.
    pub agents: Vec<(Peek, Listing)>,
    /// Files that are not tasks.
    pub strays: Vec<Stray>,
}

/// Lists every agent that has a folder.
pub fn survey(root: &Root) -> io::Result<Survey> {
    let mut found = Survey::default();
    let mut names = inboxes(root, &mut found.strays)?;
    names.extend(Peek::agents_in(&root.processed)?);
    names.sort_unstable();
    names.dedup();
    for agent in names {
        let peek = Peek::at(root, &agent)?;
        let listing = match &peek.inbox {
            Some(inbox) => list_inbox(inbox, &agent, &mut found.strays)?,
            None => Listing::default(),
        };
        found.agents.push((peek, listing));
    }
    found.strays.sort_unstable();
    Ok(found)
}

impl Peek {
    /// Opens the folders of an agent that exist.
    pub fn at(root: &Root, agent: &AgentName) -> io::Result<Peek> {
        let folder = |area: &Dir| existing(area, agent.as_str());
        Ok(Peek {
            agent: agent.clone(),
            inbox: folder(&root.inbox)?,
            artifacts: folder(&root.artifacts)?,
            processed: folder(&root.processed)?,
        })
    }

    /// The agents that have a folder here, sorted by name; anything else is ignored.
    pub fn agents_in(area: &Dir) -> io::Result<Vec<AgentName>> {
        let mut agents = Vec::new();
        area.entries(|name, kind| {
            let agent = name
                .to_str()
                .ok()
                .and_then(|name| AgentName::parse(name).ok());
            if matches!(kind, FileType::Directory | FileType::Unknown) {
                agents.extend(agent);
            }
        })?;
        agents.sort_unstable();
        Ok(agents)
    }

    /// Whether a living worker holds this claim, and since when; `None` if it is gone.
    pub fn claim(&self, name: &TaskName) -> io::Result<Option<Place>> {
        let Some(inbox) = &self.inbox else {
            return Ok(None);
        };
        let Some(meta) = plain(inbox, &file_name(name, CLAIMED))? else {
            return Ok(None);
        };
        let held = is_held(inbox, name)?;
        Ok(Some(if held {
            Place::Running(meta.ctime_ns)
        } else {
            Place::Interrupted(meta.ctime_ns)
        }))
    }

    /// The state of a task; `None` if there is no trace of it.
    pub fn place(&self, name: &TaskName) -> io::Result<Option<Place>> {
        if let Some(place) = self.claim(name)? {
            return Ok(Some(place));
        }
        let find = |dir: &Option<Dir>, suffix| match dir {
            Some(dir) => plain(dir, &file_name(name, suffix)),
            None => Ok(None),
        };
        if let Some(meta) = find(&self.inbox, TASK)? {
            return Ok(Some(Place::Waiting(meta.ctime_ns)));
        }
        if let Some(meta) = find(&self.processed, TASK)? {
            return Ok(Some(Place::Done(meta.ctime_ns)));
        }
        if let Some(meta) = find(&self.processed, FAILED)? {
            return Ok(Some(Place::Failed(meta.ctime_ns)));
        }
        self.place_by_record(name)
    }

    /// Somebody removed the retired task, and its record is left.
    fn place_by_record(&self, name: &TaskName) -> io::Result<Option<Place>> {
        let Some(dir) = &self.artifacts else {
            return Ok(None);
        };
        let file = file_name(name, RECORD);
        let Some(meta) = plain(dir, &file)? else {
            return Ok(None);
        };
        Ok(match read_record(dir, &file) {
            Ok(Some(record)) if record.task != name.as_str() => None,
            Ok(Some(record)) if record.status.is_success() => Some(Place::Done(meta.mtime_ns)),
            Ok(Some(_)) => Some(Place::Failed(meta.mtime_ns)),
            Ok(None) | Err(_) => None,
        })
    }

    /// How many tasks are retired: the folder is read once, and no file is looked at.
    pub fn retirements(&self) -> io::Result<Retirements> {
        let mut found = Retirements::default();
        let Some(dir) = &self.processed else {
            return Ok(found);
        };
        dir.entries(|file, _| {
            let part = file
                .to_str()
                .ok()
                .and_then(|file| Part::of(file, RETIRED_SUFFIXES));
            match part.filter(|part| part.earlier.is_none()) {
                Some(part) if part.suffix == TASK => found.done += 1,
                Some(_) => found.failed += 1,
                None => {}
            }
        })?;
        Ok(found)
    }

    /// The names of this agent's tasks, wherever they are, in no order, some twice.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for dir in [&self.inbox, &self.processed].into_iter().flatten() {
            dir.entries(|file, _| {
                let known = file
                    .to_str()
                    .ok()
                    .and_then(|file| Part::of(file, &[TASK, CLAIMED, FAILED]));
                if let Some(part) = known.filter(|part| part.earlier.is_none()) {
                    names.push(part.name.to_owned());
                }
            })?;
        }
        Ok(names)
    }
}

fn existing(area: &Dir, name: &str) -> io::Result<Option<Dir>> {
    match area.sub(name) {
        Ok(dir) => Ok(Some(dir)),
        // Missing, or a file or a link of that name, which is no folder of an agent's.
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn plain(dir: &Dir, file: &str) -> io::Result<Option<Meta>> {
    Ok(dir
        .find(file)?
        .filter(|meta| meta.kind == FileType::RegularFile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_look_finds_every_place_and_makes_no_folder() {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["specs", "inbox/a", "processed/a", "processed/old"] {
            fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        fs::write(temp.path().join("specs/orch.yaml"), "").unwrap();
        for file in [
            "inbox/a/w.task",
            "inbox/a/c.claimed",
            "inbox/a/odd",
            "processed/a/d.task",
        ] {
            fs::write(temp.path().join(file), "x").unwrap();
        }
        for file in [
            "processed/a/d~1.task",
            "processed/a/f.failed",
            "processed/a/note.txt",
        ] {
            fs::write(temp.path().join(file), "x").unwrap();
        }
        let root = Root::open(temp.path()).unwrap();
        let survey = survey(&root).unwrap();
        let agents: Vec<_> = survey
            .agents
            .iter()
            .map(|(peek, _)| peek.agent.as_str())
            .collect();
        assert_eq!(agents, ["a", "old"]);
        assert_eq!(survey.strays.len(), 1);
        let (peek, listing) = &survey.agents[0];
        assert_eq!((listing.waiting.len(), listing.claimed.len()), (1, 1));
        assert_eq!(
            peek.retirements().unwrap(),
            Retirements { done: 1, failed: 1 }
        );
        let place = |name: &str| peek.place(&TaskName::parse(name).unwrap()).unwrap();
        assert!(matches!(place("w"), Some(Place::Waiting(_))));
        assert!(matches!(place("c"), Some(Place::Interrupted(_))));
        assert!(matches!(place("d"), Some(Place::Done(_))));
        assert!(matches!(place("f"), Some(Place::Failed(_))));
        assert_eq!(place("n"), None);
        assert!(!temp.path().join("artifacts/a").exists());
        assert!(!temp.path().join("inbox/old").exists());
    }
}
