//! The mailbox: what each file of a task means, and the moves between those states.
//!
//! | files | state |
//! |---|---|
//! | `inbox/A/N.task` | waiting |
//! | `inbox/A/N.claimed`, locked | being worked on by a living watcher |
//! | `inbox/A/N.claimed`, not locked, no `artifacts/A/N.json` | its owner died: to be adopted and run |
//! | `inbox/A/N.claimed`, not locked, with `artifacts/A/N.json` | committed; its owner died: to be retired |
//! | `artifacts/A/N.out` or `.raw`, no `N.json` | an attempt was started |
//! | `artifacts/A/N.json` | committed: this file's appearance *is* the commit |
//! | `processed/A/.N.json`, the same as `artifacts/A/N.json` | orch's seal on a record: only a sealed record of a dead owner counts |
//! | `artifacts/A/N.next` | the next task of a chain, not dropped yet |
//! | `processed/A/N.task`, `N.failed` | retired |
//! | `N~1.*`, `N~2.*` | earlier attempts and earlier tasks of the same name |
//!
//! Only this module moves these files. It runs nothing and decides nothing about results.

mod claim;
mod finish;
mod names;
mod peek;
mod retention;
mod scan;
mod submit;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::disk::order::Disk;
use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::spec::task::{AgentName, TaskName};

pub use claim::{Adoption, Claim, Held, Look};
pub use finish::{
    Attempt, Commit, ERR, NEXT, Next, OUT, PROMPT, RAW, RECORD, Retired, STATE, Setback,
    read_record,
};
pub use names::{Part, RESULT_SUFFIXES, RETIRED_SUFFIXES};
pub use peek::{Peek, Place, Retirements, Survey, survey};
pub use retention::{Area, Old, OldFile, OldTask, Removal};
pub use scan::{AgentListing, Answer, Listing, Names, Refused, Scan, Stray, scan};
pub use submit::fresh_name;

/// The suffix of a waiting task.
pub const TASK: &str = ".task";
/// The suffix of a claimed task.
pub const CLAIMED: &str = ".claimed";
/// The suffix of a failed task in `processed/`.
pub const FAILED: &str = ".failed";
/// The suffixes of a person's answers.
pub const ANSWERS: [(&str, Answer); 3] = [
    (".reply", Answer::Reply),
    (".approved", Answer::Approved),
    (".rejected", Answer::Rejected),
];

/// The three folders of one agent, held by handle.
#[derive(Debug)]
pub struct AgentBox {
    /// The agent.
    pub agent: AgentName,
    /// `inbox/<agent>`.
    pub inbox: Dir,
    /// `artifacts/<agent>`.
    pub artifacts: Dir,
    /// `processed/<agent>`.
    pub processed: Dir,
}

impl AgentBox {
    /// Its folders, each with the name of the area that it lies in.
    fn areas(&self) -> [(&'static str, &Dir); 3] {
        [
            ("inbox", &self.inbox),
            ("artifacts", &self.artifacts),
            ("processed", &self.processed),
        ]
    }

    /// The folder that is not writable, if there is one.
    pub fn read_only(&self) -> Option<&Dir> {
        let folders = self.areas().into_iter().map(|(_, dir)| dir);
        folders.into_iter().find(|dir| !dir.is_writable())
    }
}

/// All mailboxes of a root.
#[derive(Debug)]
pub struct Mailbox {
    /// The root.
    pub root: Arc<Root>,
    disk: Disk,
    boxes: Mutex<HashMap<AgentName, Arc<AgentBox>>>,
    quiet: Mutex<HashMap<(AgentName, TaskName), claim::Seen>>,
}

impl Mailbox {
    /// The mailboxes of this root.
    #[must_use]
    pub fn new(root: Arc<Root>, disk: Disk) -> Self {
        Mailbox {
            root,
            disk,
            boxes: Mutex::default(),
            quiet: Mutex::default(),
        }
    }

    /// The folders of an agent, created if missing.
    pub fn agent(&self, agent: &AgentName) -> io::Result<Arc<AgentBox>> {
        if let Some(found) = self.cached(agent) {
            return Ok(found);
        }
        // From the root down each time, so that a folder that was moved away and created again is found.
        let folder = |area: &str| {
            let area = self.root.dir.make(area)?;
            let opened = area
                .make(agent.as_str())
                .map_err(|e| at_place(&area, agent, e))?;
            if opened.meta()?.id.dev != self.root.id.dev {
                return Err(at_place(&area, agent, Errno::XDEV.into()));
            }
            Ok(opened)
        };
        let opened = Arc::new(AgentBox {
            agent: agent.clone(),
            inbox: folder("inbox")?,
            artifacts: folder("artifacts")?,
            processed: folder("processed")?,
        });
        self.lock_boxes().insert(agent.clone(), opened.clone());
        Ok(opened)
    }

    /// How it writes.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.disk
    }

    /// Forgets all handles, so that folders that were moved or created again are found.
    pub fn forget_handles(&self) {
        self.lock_boxes().clear();
    }

    /// Forgets the handles of one agent.
    fn forget(&self, agent: &AgentName) {
        self.lock_boxes().remove(agent);
    }

    /// Forgets the handles of folders that are no longer where they were: a handle follows a folder that
    /// is moved, and would then read and write in another agent's name.
    ///
    /// Returns whether there were any: they must be watched again.
    fn forget_replaced(&self) -> io::Result<bool> {
        for area in ["inbox", "artifacts", "processed"] {
            self.root.dir.make(area)?;
        }
        let mut boxes = self.lock_boxes();
        let before = boxes.len();
        boxes.retain(|_, folders| self.is_in_place(folders));
        Ok(boxes.len() < before)
    }

    /// Whether the folders of an agent are still those of its name.
    pub fn is_in_place(&self, folders: &AgentBox) -> bool {
        folders.areas().into_iter().all(|(area, handle)| {
            let there = self
                .root
                .dir
                .look_below(&format!("{area}/{}", folders.agent));
            matches!((there, handle.meta()), (Ok(there), Ok(own)) if there.id == own.id)
        })
    }

    fn cached(&self, agent: &AgentName) -> Option<Arc<AgentBox>> {
        self.lock_boxes().get(agent).cloned()
    }

    fn lock_quiet(&self) -> MutexGuard<'_, HashMap<(AgentName, TaskName), claim::Seen>> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_boxes(&self) -> MutexGuard<'_, HashMap<AgentName, Arc<AgentBox>>> {
        // Every operation leaves the map consistent, so a panic elsewhere does no harm.
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error about one agent's folder, with its path; other errors stay as they are.
fn at_place(area: &Dir, agent: &AgentName, error: io::Error) -> io::Error {
    let why = match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => "it is a link",
        Some(Errno::NOTDIR) => "it is not a folder",
        Some(Errno::XDEV) => "it is on another file system",
        Some(Errno::ACCESS | Errno::PERM) => "it may not be read or written",
        Some(Errno::ROFS) => "it is read-only",
        _ => return error,
    };
    let path = area.path().join(agent.as_str());
    io::Error::new(error.kind(), format!("`{}`: {why}", path.display()))
}

/// `NAME` with a suffix.
#[must_use]
pub fn file_name(name: &TaskName, suffix: &str) -> String {
    let mut file = String::with_capacity(name.as_str().len() + suffix.len());
    file.push_str(name.as_str());
    file.push_str(suffix);
    file
}

/// `NAME~K` with a suffix: an earlier attempt or an earlier task of the same name.
#[must_use]
pub fn aside_name(name: &TaskName, k: u32, suffix: &str) -> String {
    format!("{name}~{k}{suffix}")
}

/// The first free `k`, counted from 1, with few lookups however many are taken.
///
/// Assumes that the taken numbers have no gaps. If someone removed some, any free number will do.
fn first_free(mut taken: impl FnMut(u32) -> io::Result<bool>) -> io::Result<u32> {
    let mut high = 1;
    while taken(high)? {
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if taken(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_number_is_found_in_few_looks() {
        for used in [0_u32, 1, 2, 3, 7, 8, 9, 1000] {
            let mut looks = 0;
            let k = first_free(|k| {
                looks += 1;
                Ok(k <= used)
            });
            assert_eq!(k.unwrap(), used + 1);
            assert!(looks <= 24, "{looks} looks for {used}");
        }
    }
}
