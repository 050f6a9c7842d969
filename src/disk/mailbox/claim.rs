//! CLAIM: takes a waiting task, or adopts the claim of a dead owner.
//!
//! A task is opened, locked, checked for completeness and read *before* it is renamed, so that a decision
//! not to take it leaves no trace. Losing a race is normal and never an error.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::finish::has_result;
use super::{AgentBox, CLAIMED, Mailbox, file_name};
use crate::disk::lock::Locked;
use crate::disk::order::{Point, at};
use crate::disk::safety::{Dir, FileId, Meta};
use crate::disk::sys;
use crate::run::record::Record;
use crate::spec::task::{MAX_TASK_BYTES, TaskName};

/// An empty file counts as a task only after it has been empty for this long.
const EMPTY_PATIENCE: Duration = Duration::from_secs(1);
/// Without leases, a task counts as complete when it has not changed for this long.
const QUIET_PATIENCE: Duration = Duration::from_millis(500);

const UNREADABLE: &str = "it may not be read";

/// The state of a waiting task.
#[derive(Debug)]
pub enum Look {
    /// Complete, locked and read.
    Ready(Held),
    /// Someone is writing or holding it: try again soon.
    Busy,
    /// No longer there.
    Gone,
    /// Not a plain file, and never opened; and why.
    Stray(&'static str),
}

/// A waiting task that is locked but not claimed. Dropping it changes nothing.
#[derive(Debug)]
pub struct Held {
    folders: Arc<AgentBox>,
    name: TaskName,
    suffix: &'static str,
    locked: Locked,
    id: FileId,
    /// The task's text; at most one byte longer than allowed.
    pub bytes: Vec<u8>,
}

/// A claimed task, until it is retired or put back.
#[derive(Debug)]
pub struct Claim {
    /// The agent's folders.
    pub folders: Arc<AgentBox>,
    /// The task's name.
    pub name: TaskName,
    /// The task's text.
    pub bytes: Vec<u8>,
    /// There were results of an earlier task of this name.
    pub earlier: bool,
    pub(super) id: FileId,
    locked: Locked,
}

/// The state of a claim whose owner died.
#[derive(Debug)]
pub enum Adoption {
    /// Its owner died after the commit: it only has to be retired.
    Committed(Box<Record>),
    /// Its owner died before the commit.
    Unfinished,
}

impl Mailbox {
    /// Locks and reads a waiting task, if it is complete.
    pub fn look(
        &self,
        folders: &Arc<AgentBox>,
        name: &TaskName,
        suffix: &'static str,
    ) -> io::Result<Look> {
        let file_name = file_name(name, suffix);
        let Some(meta) = folders.inbox.find(&file_name)? else {
            return Ok(Look::Gone);
        };
        // A file that is empty may still be written; one with two names may be a delivery by
        // `link` and `unlink`, between the two.
        let unfinished = meta.kind == FileType::RegularFile && (meta.size == 0 || meta.links > 1);
        if unfinished && !self.unchanged_for(folders, name, &meta, EMPTY_PATIENCE) {
            return Ok(Look::Busy);
        }
        if let Some(why) = why_not_plain(&meta) {
            return Ok(Look::Stray(why));
        }
        at(Point::ClaimOpen)?;
        let file = match folders.inbox.open(&file_name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Look::Stray(UNREADABLE));
            }
            other => other?,
        };
        at(Point::ClaimLock)?;
        let Some(locked) = Locked::try_new(file)? else {
            return Ok(Look::Busy);
        };
        let meta = Meta::of_file(locked.file())?;
        if let Some(why) = why_not_plain(&meta) {
            return Ok(Look::Stray(why));
        }
        at(Point::ClaimLease)?;
        if !self.nobody_writes(locked.file(), folders, name, &meta)? {
            return Ok(Look::Busy);
        }
        let bytes = read_task(locked.file(), meta.size)?;
        Ok(Look::Ready(Held {
            folders: folders.clone(),
            name: name.clone(),
            suffix,
            locked,
            id: meta.id,
            bytes,
        }))
    }

    /// Why a file in an inbox must not be opened; `None` if it may be.
    pub fn why_stray(&self, folders: &AgentBox, file: &str) -> io::Result<Option<&'static str>> {
        let Some(meta) = folders.inbox.find(file)? else {
            return Ok(None);
        };
        if let Some(why) = why_not_plain(&meta) {
            return Ok(Some(why));
        }
        match folders.inbox.open(file) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(Some(UNREADABLE)),
            _ => Ok(None),
        }
    }

    /// Claims a task; `None` if someone else was faster or the claim's name is taken.
    pub fn claim(&self, held: Held) -> io::Result<Option<Claim>> {
        let folders = &held.folders;
        let claimed = file_name(&held.name, CLAIMED);
        at(Point::ClaimAside)?;
        let earlier = has_result(folders, &held.name)?;
        if earlier {
            // While `NAME.claimed` is there, the record may be that of a task not yet retired; and
            // where the task has gone since it was opened, the record is the one it got.
            if folders.inbox.has(&claimed)? || !held.is_waiting()? {
                return Ok(None);
            }
            self.set_aside(folders, &held.name)?;
        }
        at(Point::ClaimRename)?;
        let waiting = file_name(&held.name, held.suffix);
        match folders.inbox.rename_new(&waiting, &folders.inbox, &claimed) {
            Err(e) if is_lost_race(&e) => return Ok(None),
            other => other?,
        }
        // Nothing depends on when the lease ends: closing the file ends it too.
        let _ = sys::drop_lease(held.locked.file());
        self.forget_quiet(folders, &held.name);
        at(Point::ClaimCheck)?;
        match folders.inbox.find(&claimed)? {
            Some(meta) if meta.id == held.id => {}
            // The file was replaced under our feet: what is there now was never looked at. Where it
            // cannot be put back, recovery takes it.
            _ => {
                if let Some(claim) = self.lock_claim(folders, &held.name)? {
                    self.put_back(claim)?;
                }
                return Ok(None);
            }
        }
        Ok(Some(Claim {
            folders: held.folders,
            name: held.name,
            bytes: held.bytes,
            earlier,
            id: held.id,
            locked: held.locked,
        }))
    }

    /// Takes over a claim whose owner is dead; `None` if it lives or the claim is gone.
    ///
    /// The caller must end the owner's processes before it uses the claim.
    pub fn adopt(&self, folders: &Arc<AgentBox>, name: &TaskName) -> io::Result<Option<Claim>> {
        let Some(mut claim) = self.lock_claim(folders, name)? else {
            return Ok(None);
        };
        // The owner may have died right after it renamed a file that is still being written.
        let file = claim.locked.file();
        let meta = Meta::of_file(file)?;
        if !self.nobody_writes(file, folders, name, &meta)? {
            return Ok(None);
        }
        let _ = sys::drop_lease(file);
        claim.bytes = read_task(file, meta.size)?;
        Ok(Some(claim))
    }

    /// Locks a claim that nobody holds, without reading it.
    fn lock_claim(&self, folders: &Arc<AgentBox>, name: &TaskName) -> io::Result<Option<Claim>> {
        let claimed = file_name(name, CLAIMED);
        match folders.inbox.find(&claimed)? {
            Some(meta) if meta.is_plain() => {}
            _ => return Ok(None),
        }
        at(Point::AdoptOpen)?;
        let file = match folders.inbox.open(&claimed) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        at(Point::AdoptLock)?;
        let Some(locked) = Locked::try_new(file)? else {
            return Ok(None);
        };
        let meta = Meta::of_file(locked.file())?;
        match folders.inbox.find(&claimed)? {
            Some(there) if there.id == meta.id && meta.is_plain() => {}
            _ => return Ok(None),
        }
        Ok(Some(Claim {
            folders: folders.clone(),
            name: name.clone(),
            bytes: Vec::new(),
            earlier: true,
            id: meta.id,
            locked,
        }))
    }

    /// Reopens the folders of a claim, if they were removed or replaced during the work.
    pub fn renew(&self, claim: &mut Claim) -> io::Result<()> {
        self.forget(&claim.folders.agent);
        let folders = self.agent(&claim.folders.agent)?;
        let there = folders.inbox.find(&file_name(&claim.name, CLAIMED))?;
        if there.is_some_and(|meta| meta.id == claim.id) {
            claim.folders = folders;
        }
        Ok(())
    }

    /// Whether a living worker holds a claim.
    pub fn is_worked_on(&self, folders: &AgentBox, name: &TaskName) -> io::Result<bool> {
        is_held(&folders.inbox, name)
    }

    fn nobody_writes(
        &self,
        file: &File,
        folders: &Arc<AgentBox>,
        name: &TaskName,
        meta: &Meta,
    ) -> io::Result<bool> {
        match sys::set_read_lease(file) {
            Ok(()) => Ok(true),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::AGAIN) => Ok(false),
            // No leases here, or the file belongs to somebody else.
            Err(_) => Ok(self.unchanged_for(folders, name, meta, QUIET_PATIENCE)),
        }
    }

    /// Whether the content has not changed for at least `patience`, by the monotonic clock.
    fn unchanged_for(
        &self,
        folders: &AgentBox,
        name: &TaskName,
        meta: &Meta,
        patience: Duration,
    ) -> bool {
        let now = Instant::now();
        let seen = Seen {
            id: meta.id,
            size: meta.size,
            mtime_ns: meta.mtime_ns,
            since: now,
        };
        let mut quiet = self.lock_quiet();
        // Now and then, so that files which went away do not stay here for ever.
        if quiet.len() >= 1024 && quiet.len().is_power_of_two() {
            quiet.retain(|_, old| now - old.since < Duration::from_secs(600));
        }
        let entry = quiet
            .entry((folders.agent.clone(), name.clone()))
            .or_insert(seen);
        if (entry.id, entry.size, entry.mtime_ns) != (seen.id, seen.size, seen.mtime_ns) {
            *entry = seen;
        }
        now - entry.since >= patience
    }

    fn forget_quiet(&self, folders: &AgentBox, name: &TaskName) {
        let mut quiet = self.lock_quiet();
        if !quiet.is_empty() {
            quiet.remove(&(folders.agent.clone(), name.clone()));
        }
    }
}

/// A file that may not be complete, and since when it has looked like this.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    id: FileId,
    size: u64,
    mtime_ns: i128,
    since: Instant,
}

impl Held {
    /// The task's name.
    #[must_use]
    pub fn name(&self) -> &TaskName {
        &self.name
    }

    /// The agent's folders.
    #[must_use]
    pub fn folders(&self) -> &Arc<AgentBox> {
        &self.folders
    }

    /// Whether the waiting file is still the one that is locked.
    fn is_waiting(&self) -> io::Result<bool> {
        let there = self
            .folders
            .inbox
            .find(&file_name(&self.name, self.suffix))?;
        Ok(there.is_some_and(|meta| meta.id == self.id))
    }
}

impl Claim {
    /// Whether `NAME.claimed` is still the file that is locked. If not, the task was cancelled.
    pub fn is_ours(&self) -> io::Result<bool> {
        let there = self.folders.inbox.find(&file_name(&self.name, CLAIMED))?;
        Ok(there.is_some_and(|meta| meta.id == self.id))
    }

    /// Opens the task a second time, for a provider, which must not get the locked descriptor.
    pub fn reopen(&self) -> io::Result<File> {
        self.folders.inbox.open(&file_name(&self.name, CLAIMED))
    }

    /// `AGENT/NAME`.
    #[must_use]
    pub fn target(&self) -> String {
        format!("{}/{}", self.folders.agent, self.name)
    }
}

/// Whether the claim of this name in this inbox is held by a living worker.
pub(super) fn is_held(inbox: &Dir, name: &TaskName) -> io::Result<bool> {
    let file = match inbox.open(&file_name(name, CLAIMED)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let free = crate::disk::lock::try_shared(&file)?;
    if free {
        crate::disk::lock::unlock(&file)?;
    }
    Ok(!free)
}

fn why_not_plain(meta: &Meta) -> Option<&'static str> {
    match meta.kind {
        FileType::RegularFile if meta.links == 1 => None,
        FileType::RegularFile => Some("it has a second name (a hard link)"),
        FileType::Directory => Some("it is a folder"),
        FileType::Symlink => Some("it is a link"),
        _ => Some("it is not a regular file"),
    }
}

fn is_lost_race(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
    )
}

fn read_task(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let most = MAX_TASK_BYTES + 1;
    let expected = usize::try_from(size).unwrap_or(most).min(most);
    // One byte more than expected: if it stays unused the end was seen, and one system call is enough.
    let mut bytes = vec![0; (expected + 1).min(most)];
    let first = read_start(file, &mut bytes)?;
    let ended = first == expected && first < bytes.len();
    bytes.truncate(first);
    if !ended {
        file.take((most - first) as u64).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn read_start(mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
