//! COMMIT and RETIRE, and what happens to attempts that were not committed.
//!
//! Every operation can be repeated after it failed half-way: this is how orch survives a full disk, and
//! how recovery finishes the work of a dead owner.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use rustix::fs::FileType;

use super::{AgentBox, CLAIMED, Claim, FAILED, Mailbox, TASK, aside_name, file_name, first_free};
use crate::disk::mailbox::claim::Adoption;
use crate::disk::order::{COMMIT, Point, at};
use crate::disk::safety::{Dir, Meta};
use crate::run::record::{Record, Status};
use crate::spec::task::{AgentName, TaskName};

/// The live output of a provider that prints text.
pub const OUT: &str = ".out";
/// The live output of a provider that prints JSON.
pub const RAW: &str = ".raw";
/// What a provider wrote to stderr.
pub const ERR: &str = ".err";
/// The prompt that was sent, if it is more than the task's text.
pub const PROMPT: &str = ".prompt";
/// The copy of the canonical document that a step of a run was given.
pub const STATE: &str = ".state";
/// The result record.
pub const RECORD: &str = ".json";
/// The next task of a chain, before it is dropped.
pub const NEXT: &str = ".next";

/// A file that an agent wrote under the name of a record.
const FOREIGN: &str = ".json.foreign";

/// The files that are set aside together, the record last: while it exists, the others belong to a task
/// that was committed.
pub(super) const RESULTS: [&str; 6] = [OUT, RAW, ERR, PROMPT, STATE, RECORD];

/// A committed record is at most this large: 8 KiB of output, escaped, and its surroundings.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// Whether a commit took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// The record exists and is ours.
    Done,
    /// The claim was taken from us (cancelled, replaced): the result is not committed.
    Lost,
}

/// Whether a claim reached `processed/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retired {
    /// It did.
    Done,
    /// Somebody removed it first.
    Gone,
}

/// The files of one attempt, created when it starts.
#[derive(Debug)]
pub struct Attempt {
    /// Where stdout goes. Shared with the result, which syncs it.
    pub output: Arc<File>,
    /// Its suffix: [`OUT`] or [`RAW`].
    pub suffix: &'static str,
}

/// How many attempts at a task had no result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setback {
    /// Attempts that a crash ended.
    pub interrupted: u32,
    /// All attempts that were not committed.
    pub attempts: u32,
}

/// The next task of a chain.
#[derive(Debug, Clone)]
pub struct Next {
    /// Whose inbox.
    pub agent: AgentName,
    /// The whole text.
    pub text: String,
}

impl Mailbox {
    /// Creates the output file of an attempt. Its existence proves that there was one.
    pub fn begin(&self, claim: &Claim, suffix: &'static str) -> io::Result<Attempt> {
        let folders = &claim.folders;
        let name = file_name(&claim.name, suffix);
        at(Point::RunCreate)?;
        let output = match folders.artifacts.create_new(&name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.set_aside(folders, &claim.name)?;
                folders.artifacts.create_new(&name)?
            }
            other => other?,
        };
        Ok(Attempt {
            output: Arc::new(output),
            suffix,
        })
    }

    /// Moves the results of this name to `NAME~k.*`, and returns `k`.
    pub fn set_aside(&self, folders: &AgentBox, name: &TaskName) -> io::Result<u32> {
        let dir = &folders.artifacts;
        at(Point::RunAside)?;
        // A crash may have left it, and what it sealed must not become a record again.
        ignore_missing(folders.processed.remove(&seal_of(name)))?;
        let k = first_free(|k| {
            for suffix in RESULTS {
                if dir.has(&aside_name(name, k, suffix))? {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        for suffix in RESULTS {
            let from = file_name(name, suffix);
            ignore_missing(dir.rename_new(&from, dir, &aside_name(name, k, suffix)))?;
        }
        // Never dropped, and made again by the next attempt.
        ignore_missing(dir.remove(&file_name(name, NEXT)))?;
        Ok(k)
    }

    /// Sets aside what a dead owner's attempt left, if there was one.
    pub fn set_aside_leftovers(&self, claim: &Claim) -> io::Result<()> {
        for suffix in RESULTS {
            if claim
                .folders
                .artifacts
                .has(&file_name(&claim.name, suffix))?
            {
                self.set_aside(&claim.folders, &claim.name)?;
                break;
            }
        }
        Ok(())
    }

    /// Keeps an attempt that does not count, as `NAME~k.*` with a record of how it ended.
    pub fn keep_attempt(&self, claim: &Claim, record: &Record) -> io::Result<()> {
        let k = self.set_aside(&claim.folders, &claim.name)?;
        let record = Record {
            uncommitted: true,
            ..record.clone()
        };
        self.publish_record(
            &claim.folders.artifacts,
            &claim.name,
            &aside_name(&claim.name, k, RECORD),
            &to_bytes(&record),
        )
    }

    /// Whether the output of the task's name is this file, and not that of a later task.
    pub fn is_output(&self, claim: &Claim, file: &File) -> io::Result<bool> {
        let id = Meta::of_file(file)?.id;
        for suffix in [OUT, RAW] {
            let there = claim
                .folders
                .artifacts
                .find(&file_name(&claim.name, suffix))?;
            if there.is_some_and(|meta| meta.id == id) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How often this task has been tried since the last committed result of its name.
    pub fn setbacks(&self, folders: &AgentBox, name: &TaskName) -> io::Result<Setback> {
        let dir = &folders.artifacts;
        let taken = |k: u32| -> io::Result<bool> {
            Ok(dir.has(&aside_name(name, k, OUT))?
                || dir.has(&aside_name(name, k, RAW))?
                || dir.has(&aside_name(name, k, RECORD))?)
        };
        let mut found = Setback::default();
        let mut k = first_free(taken)? - 1;
        while k > 0 {
            match read_record(dir, &aside_name(name, k, RECORD)) {
                Ok(None) => found.interrupted += 1,
                Ok(Some(record)) if record.uncommitted => {}
                Ok(Some(_)) => break,
                // Whatever this file is, it is not a result.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => found.interrupted += 1,
                Err(e) => return Err(e),
            }
            found.attempts += 1;
            k -= 1;
        }
        Ok(found)
    }

    /// Whether an adopted claim had been committed. The agent may have written a record itself: only one
    /// with orch's seal, or with the note of `orch cancel`, counts.
    pub fn look_at_adopted(&self, claim: &Claim) -> io::Result<Adoption> {
        at(Point::AdoptLook)?;
        let (dir, name) = (&claim.folders.artifacts, file_name(&claim.name, RECORD));
        if !dir.has(&name)? {
            return Ok(Adoption::Unfinished);
        }
        // Compared by content, not by identity: not every file system has hard links.
        let seal = bytes_of(&claim.folders.processed, &seal_of(&claim.name))?;
        let is_sealed = seal.is_some() && seal == bytes_of(dir, &name)?;
        let is_cancel = || claim.folders.inbox.has(&cancel_note(&claim.name));
        match read_record(dir, &name)? {
            Some(record) if is_sealed || record.status == Status::Cancelled && is_cancel()? => {
                Ok(Adoption::Committed(Box::new(record)))
            }
            _ => {
                self.set_foreign_aside(claim, &name)?;
                Ok(Adoption::Unfinished)
            }
        }
    }

    /// Moves a file aside that has the name of a record and is none.
    fn set_foreign_aside(&self, claim: &Claim, name: &str) -> io::Result<()> {
        let dir = &claim.folders.artifacts;
        let k = first_free(|k| dir.has(&aside_name(&claim.name, k, FOREIGN)))?;
        dir.rename_new(name, dir, &aside_name(&claim.name, k, FOREIGN))
    }

    /// Writes an output file again whose name was removed during the work, with its folder or by the agent:
    /// the answer is not lost.
    pub fn restore(&self, claim: &Claim, suffix: &str, output: &File) -> io::Result<()> {
        if Meta::of_file(output)?.links > 0 {
            return Ok(());
        }
        let mut from = output.try_clone()?;
        from.seek(SeekFrom::Start(0))?;
        let mut to = claim
            .folders
            .artifacts
            .create_anew(&file_name(&claim.name, suffix))?;
        io::copy(&mut from, &mut to)?;
        self.disk.sync_file(Point::CommitSyncOutput, &to)
    }

    /// Makes outputs and their names durable, before a log relies on them.
    pub fn sync_outputs(
        &self,
        claim: &Claim,
        outputs: &[(&'static str, Arc<File>)],
    ) -> io::Result<()> {
        for (_, output) in outputs {
            self.disk.sync_file(Point::CommitSyncOutput, output)?;
        }
        match outputs {
            [] => Ok(()),
            _ => self
                .disk
                .sync_dir(Point::CommitSyncOutput, &claim.folders.artifacts),
        }
    }

    /// COMMIT: the output is made durable, then the record appears.
    ///
    /// May be called again after an error, with the same record.
    pub fn commit(
        &self,
        claim: &Claim,
        record: &Record,
        outputs: &[(&'static str, Arc<File>)],
        next: Option<&Next>,
    ) -> io::Result<Commit> {
        for (suffix, output) in outputs {
            self.disk.sync_file(Point::CommitSyncOutput, output)?;
            self.restore(claim, suffix, output)?;
        }
        if let Some(next) = next {
            self.write_next(claim, next)?;
        }
        if !claim.is_ours()? {
            return Ok(Commit::Lost);
        }
        let bytes = to_bytes(record);
        let name = file_name(&claim.name, RECORD);
        match self.publish_sealed(claim, &name, &bytes) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.already_committed(claim, &name, &bytes)
            }
            other => other.map(|()| Commit::Done),
        }
    }

    fn publish_sealed(&self, claim: &Claim, name: &str, bytes: &[u8]) -> io::Result<()> {
        let folders = &claim.folders;
        let seal = seal_of(&claim.name);
        let (from, to) = (&folders.processed, &folders.artifacts);
        self.disk
            .publish_sealed(&COMMIT, from, &seal, to, name, bytes)
    }

    /// Seals a record that exists and is ours.
    fn seal(&self, claim: &Claim, bytes: &[u8]) -> io::Result<()> {
        let seal = seal_of(&claim.name);
        let mut file = claim.folders.processed.create_anew(&seal)?;
        file.write_all(bytes)?;
        self.disk.sync_file(Point::CommitSync, &file)
    }

    /// Publishes a record while the owner may be publishing its own: through a file without a name,
    /// as the owner's temporary file is not ours to touch.
    fn publish_beside_owner(&self, dir: &Dir, name: &TaskName, record: &Record) -> io::Result<()> {
        at(COMMIT.create)?;
        let mut file = dir.create_unnamed()?;
        at(COMMIT.write)?;
        file.write_all(&to_bytes(record))?;
        self.disk.sync_file(COMMIT.sync, &file)?;
        at(COMMIT.rename)?;
        dir.give_name(&file, &file_name(name, RECORD))?;
        self.disk.sync_dir(COMMIT.sync_folder, dir)
    }

    fn publish_record(
        &self,
        dir: &Dir,
        task: &TaskName,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.disk
            .publish(&COMMIT, dir, &format!(".{task}.json"), dir, name, bytes)
    }

    /// A record exists already: ours, from an attempt to commit that failed later; one of `orch cancel`; or
    /// a file that the agent wrote under this name, which is moved aside.
    fn already_committed(&self, claim: &Claim, name: &str, bytes: &[u8]) -> io::Result<Commit> {
        let dir = &claim.folders.artifacts;
        let there = bytes_of(dir, name)?.unwrap_or_default();
        if there == bytes {
            self.seal(claim, bytes)?;
            self.disk.sync_dir(Point::CommitSyncFolder, dir)?;
            return Ok(Commit::Done);
        }
        let record = serde_json::from_slice::<Record>(&there);
        // A canceller leaves its word in the inbox, where no confined agent can write.
        let said = || claim.folders.inbox.has(&cancel_note(&claim.name));
        if record.is_ok_and(|record| record.status == Status::Cancelled)
            && (said()? || !claim.is_ours()?)
        {
            return Ok(Commit::Lost);
        }
        self.set_foreign_aside(claim, name)?;
        self.publish_sealed(claim, name, bytes)?;
        Ok(Commit::Done)
    }

    fn write_next(&self, claim: &Claim, next: &Next) -> io::Result<()> {
        let dir = &claim.folders.artifacts;
        let temp = format!(".{}.next", claim.name);
        at(Point::CommitNext)?;
        let mut file = dir.create_anew(&temp)?;
        file.write_all(next.text.as_bytes())?;
        self.disk.sync_file(Point::CommitNext, &file)?;
        dir.make_way(&file_name(&claim.name, NEXT))?;
        dir.rename_over(&temp, &file_name(&claim.name, NEXT))
    }

    /// Drops the next task of a committed one into its inbox, unless that was done already.
    pub fn drop_next(&self, claim: &Claim, agent: &AgentName) -> io::Result<()> {
        let from = &claim.folders.artifacts;
        let next = file_name(&claim.name, NEXT);
        if !from.has(&next)? {
            return Ok(());
        }
        let to = self.agent(agent)?;
        let mut name = file_name(&claim.name, TASK);
        let mut k = 1;
        at(Point::CommitDrop)?;
        loop {
            match from.rename_new(&next, &to.inbox, &name) {
                // A task of that name is waiting there already: this one gets a number.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    k += 1;
                    name = format!("{}.{k}{TASK}", shortened(&claim.name));
                }
                other => break other?,
            }
        }
        self.disk.sync_dir(Point::CommitSyncDrop, &to.inbox)
    }

    /// RETIRE: the claim moves to `processed/`. May be called again after an error.
    pub fn retire(&self, claim: &Claim, status: Status) -> io::Result<Retired> {
        let (inbox, processed) = (&claim.folders.inbox, &claim.folders.processed);
        let claimed = file_name(&claim.name, CLAIMED);
        let done = file_name(&claim.name, if status.is_success() { TASK } else { FAILED });
        if !claim.is_ours()? {
            let there = processed.find(&done)?;
            return Ok(match there {
                Some(meta) if meta.id == claim.id => Retired::Done,
                _ => Retired::Gone,
            });
        }
        if claim.earlier {
            set_aside_processed(processed, &claim.name)?;
        }
        at(Point::RetireRename)?;
        match inbox.rename_new(&claimed, processed, &done) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                set_aside_processed(processed, &claim.name)?;
                inbox.rename_new(&claimed, processed, &done)?;
            }
            // Missing: the claim, or the folder that it goes to.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !claim.is_ours()? => {
                return Ok(Retired::Gone);
            }
            other => other?,
        }
        if status == Status::Cancelled {
            // An `orch cancel` that died may have left its note.
            ignore_missing(inbox.remove(&cancel_note(&claim.name)))?;
        }
        // Without a claim it is of no use any more.
        ignore_missing(processed.remove(&seal_of(&claim.name)))?;
        self.disk.sync_dir(Point::RetireSyncProcessed, processed)?;
        self.disk.sync_dir(Point::RetireSyncInbox, inbox)?;
        at(Point::RetireUnlock)?;
        Ok(Retired::Done)
    }

    /// Cancels a task that a living worker holds: writes a note, then the record, then removes the claim.
    /// The worker notices that and ends the agent. A record without a note could be the agent's own, and
    /// does not count.
    pub fn cancel_running(
        &self,
        folders: &AgentBox,
        name: &TaskName,
        record: &Record,
    ) -> io::Result<Commit> {
        let claimed = file_name(name, CLAIMED);
        let (inbox, processed) = (&folders.inbox, &folders.processed);
        let word = cancel_note(name);
        drop(inbox.create_anew(&word)?);
        match self.publish_beside_owner(&folders.artifacts, name, record) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                ignore_missing(inbox.remove(&word))?;
                return Ok(Commit::Lost);
            }
            other => other?,
        }
        set_aside_processed(processed, name)?;
        // The owner may have seen the record first, and retired the claim itself.
        ignore_missing(inbox.rename_new(&claimed, processed, &file_name(name, FAILED)))?;
        ignore_missing(inbox.remove(&word))?;
        self.disk.sync_dir(Point::RetireSyncProcessed, processed)?;
        self.disk.sync_dir(Point::RetireSyncInbox, inbox)?;
        Ok(Commit::Done)
    }

    /// Replaces a committed record: for a start that turned out to be impossible.
    pub fn replace_record(&self, claim: &Claim, record: &Record) -> io::Result<()> {
        let dir = &claim.folders.artifacts;
        let temp = format!(".{}.json", claim.name);
        ignore_missing(dir.remove(&temp))?;
        let mut file = dir.create_new(&temp)?;
        let bytes = to_bytes(record);
        file.write_all(&bytes)?;
        self.disk.sync_file(Point::CommitSync, &file)?;
        dir.rename_over(&temp, &file_name(&claim.name, RECORD))?;
        self.seal(claim, &bytes)?;
        self.disk.sync_dir(Point::CommitSyncFolder, dir)
    }

    /// Takes a step's task out of its inbox: the run drops it again when it is due.
    pub fn withdraw(&self, claim: &Claim) -> io::Result<()> {
        if claim.is_ours()? {
            ignore_missing(claim.folders.inbox.remove(&file_name(&claim.name, CLAIMED)))?;
        }
        Ok(())
    }

    /// Gives a claim back unfinished. If its name is taken meanwhile, it stays a claim without an owner,
    /// which the next watcher adopts.
    pub fn put_back(&self, claim: Claim) -> io::Result<()> {
        if !claim.is_ours()? {
            return Ok(());
        }
        let inbox = &claim.folders.inbox;
        at(Point::PutBack)?;
        let (from, to) = (
            file_name(&claim.name, CLAIMED),
            file_name(&claim.name, TASK),
        );
        match inbox.rename_new(&from, inbox, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }
}

/// The bytes of a file, up to the size of a record; `None` if there is no regular file of this name.
fn bytes_of(dir: &Dir, name: &str) -> io::Result<Option<Vec<u8>>> {
    let is_file = |meta: &Meta| meta.kind == FileType::RegularFile;
    if !dir.find(name)?.as_ref().is_some_and(is_file) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let file = dir.open(name)?;
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The record of this name, or `None` if there is none.
pub fn read_record(dir: &Dir, name: &str) -> io::Result<Option<Record>> {
    let file = match dir.open(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "`{}` is not a result record: {e}",
                dir.path().join(name).display()
            ),
        )
    })
}

pub(super) fn has_result(folders: &AgentBox, name: &TaskName) -> io::Result<bool> {
    folders.artifacts.has(&file_name(name, RECORD))
}

fn set_aside_processed(processed: &Dir, name: &TaskName) -> io::Result<()> {
    let k = first_free(|k| {
        Ok(processed.has(&aside_name(name, k, TASK))?
            || processed.has(&aside_name(name, k, FAILED))?)
    })?;
    for suffix in [TASK, FAILED] {
        let from = file_name(name, suffix);
        ignore_missing(processed.rename_new(&from, processed, &aside_name(name, k, suffix)))?;
    }
    Ok(())
}

/// The name, shortened so that a number fits after it.
fn shortened(name: &TaskName) -> &str {
    let text = name.as_str();
    &text[..text.len().min(190)]
}

/// The seal of a record: a copy in `processed/` until the claim is gone. Agents may write beside their
/// results, but not there.
pub(super) fn seal_of(name: impl std::fmt::Display) -> String {
    format!(".{name}.json")
}

/// The note that `orch cancel` leaves in the inbox until the claim is gone.
fn cancel_note(name: &TaskName) -> String {
    format!(".{name}.cancel")
}

fn to_bytes(record: &Record) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(record).expect("a record has string keys only");
    bytes.push(b'\n');
    bytes
}

pub(super) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
