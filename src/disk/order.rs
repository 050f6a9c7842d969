//! The order of operations on disk: each is a [`Point`], and this module decides what is synced.
//!
//! With `--durability power` what a point promises survives a power cut: files and folders are synced in
//! this order. With `process` it survives the death of any process, which needs no sync.
//!
//! In builds with debug assertions `ORCH_FAULT=MODE:POINT[:NTH[:COUNT]]` makes a point fail: the
//! modes are `kill` (SIGKILL to this process), `stop` (SIGSTOP), `enospc`, `eio`, `emfile`. The
//! fault happens *before* the operation of that point. Release builds have no fault injection.

use std::fs::File;
use std::io::{self, Write};

use rustix::io::Errno;

use crate::disk::safety::Dir;

/// What a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Durability {
    /// A power cut.
    #[default]
    Power,
    /// The death of any process, `kill -9` included.
    Process,
}

macro_rules! points {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One step of the order on disk.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Point { $($(#[$doc])* $variant,)* }

        impl Point {
            /// Every point, in order.
            pub const ALL: &[Point] = &[$(Point::$variant,)*];

            /// Its name, as `ORCH_FAULT` takes it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Point::$variant => $name,)* }
            }
        }
    };
}

points! {
    /// A new task's temporary file is made.
    SubmitCreate = "submit.create",
    /// Its text is written.
    SubmitWrite = "submit.write",
    /// Its text is made durable.
    SubmitSync = "submit.sync",
    /// It gets its name: the task is accepted.
    SubmitRename = "submit.rename",
    /// Its name is made durable.
    SubmitSyncFolder = "submit.sync-folder",
    /// A waiting task is opened.
    ClaimOpen = "claim.open",
    /// It is locked.
    ClaimLock = "claim.lock",
    /// It is checked that nobody is writing it.
    ClaimLease = "claim.lease",
    /// The results of an earlier task of its name are set aside.
    ClaimAside = "claim.aside",
    /// It becomes `NAME.claimed`.
    ClaimRename = "claim.rename",
    /// It is checked that the claim is the file that was locked.
    ClaimCheck = "claim.check",
    /// What an earlier attempt left is set aside.
    RunAside = "run.aside",
    /// The prompt gets a file of its own, if it is more than the task's text.
    RunPrompt = "run.prompt",
    /// The output file is made: the record of the attempt.
    RunCreate = "run.create",
    /// A step's copy of the canonical document is made.
    RunDocument = "run.document",
    /// The file for stderr is made.
    RunStderr = "run.stderr",
    /// The provider is started.
    RunSpawn = "run.spawn",
    /// The provider has ended, and all of its processes with it.
    RunEnded = "run.ended",
    /// stderr gets its name.
    CommitStderr = "commit.stderr",
    /// The answer found in JSON output gets a file of its own.
    CommitAnswer = "commit.answer",
    /// The output is made durable.
    CommitSyncOutput = "commit.sync-output",
    /// The next task of a chain is written beside the result.
    CommitNext = "commit.next",
    /// The record's temporary file is made.
    CommitCreate = "commit.create",
    /// The record is written.
    CommitWrite = "commit.write",
    /// The record is made durable.
    CommitSync = "commit.sync",
    /// The record gets its name: the task is committed.
    CommitRename = "commit.rename",
    /// Its name is made durable.
    CommitSyncFolder = "commit.sync-folder",
    /// The next task of a chain is moved into its inbox.
    CommitDrop = "commit.drop",
    /// That inbox is made durable.
    CommitSyncDrop = "commit.sync-drop",
    /// The claim moves to `processed/`.
    RetireRename = "retire.rename",
    /// `processed/` is made durable.
    RetireSyncProcessed = "retire.sync-processed",
    /// The inbox is made durable.
    RetireSyncInbox = "retire.sync-inbox",
    /// The lock is released.
    RetireUnlock = "retire.unlock",
    /// A claim goes back to `NAME.task`.
    PutBack = "put-back.rename",
    /// A claim with no lock on it is opened.
    AdoptOpen = "adopt.open",
    /// It is locked.
    AdoptLock = "adopt.lock",
    /// What is left of its owner's processes is ended.
    AdoptSweep = "adopt.sweep",
    /// It is checked whether it was committed.
    AdoptLook = "adopt.look",
    /// The folder of a new run is made.
    RunMake = "run.make",
    /// Its lock is made.
    RunLock = "run.lock",
    /// A file of its spec is written.
    RunSpec = "run.spec",
    /// That file, or a folder of the spec, is made durable.
    RunSpecSync = "run.spec-sync",
    /// The spec that a run had is moved out of the way for another.
    RunSpecAside = "run.spec-aside",
    /// The new one takes its place.
    RunSpecRename = "run.spec-rename",
    /// Both names are made durable.
    RunSpecSyncFolder = "run.spec-sync-folder",
    /// Its log is made, empty.
    RunLogMake = "run.log-make",
    /// The names of the run's folder and log are made durable.
    RunMakeSync = "run.make-sync",
    /// The file of a decision that is about to be locked is made.
    RunSnapshotCreate = "run.snapshot-create",
    /// It is written.
    RunSnapshotWrite = "run.snapshot-write",
    /// It is made durable.
    RunSnapshotSync = "run.snapshot-sync",
    /// It gets its name.
    RunSnapshotRename = "run.snapshot-rename",
    /// Its name is made durable.
    RunSnapshotSyncFolder = "run.snapshot-sync-folder",
    /// An event is appended to a run's log.
    RunLogAppend = "run.log-append",
    /// The event is made durable: it has happened.
    RunLogSync = "run.log-sync",
    /// An incomplete line at the end of the log is removed.
    RunLogCut = "run.log-cut",
    /// A file of a plan is written beside the old one.
    PlanWrite = "plan.write",
    /// It is made durable, or its name is.
    PlanSync = "plan.sync",
    /// It takes the place of the old one.
    PlanRename = "plan.rename",
    /// The intended changes of printed files are recorded.
    ApplyJournal = "apply.journal",
    /// That record, a file of it or a folder is made durable.
    ApplySync = "apply.sync",
    /// A printed file is written beside the old one.
    ApplyWrite = "apply.write",
    /// It takes the place of the old one, or a file is removed.
    ApplyRename = "apply.rename",
    /// The new state is written beside the old one.
    RunStateWrite = "run.state-write",
    /// It takes the place of the old one.
    RunStateRename = "run.state-rename",
}

/// Called before the operation of a point; returns an injected fault, if there is one.
pub fn at(point: Point) -> io::Result<()> {
    fault::strike(point)
}

/// Operations that sync if the durability asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Disk {
    durability: Durability,
}

impl Disk {
    /// A disk with this durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Disk { durability }
    }

    /// Makes a file's content durable.
    pub fn sync_file(self, point: Point, file: &File) -> io::Result<()> {
        match self.durability {
            Durability::Power => {
                at(point)?;
                file.sync_all()
            }
            Durability::Process => Ok(()),
        }
    }

    /// Makes a folder's names durable.
    pub fn sync_dir(self, point: Point, dir: &Dir) -> io::Result<()> {
        match self.durability {
            Durability::Power => {
                at(point)?;
                dir.sync()
            }
            Durability::Process => Ok(()),
        }
    }

    /// Writes a file that appears under its name complete or not at all, and never replaces another.
    ///
    /// The temporary file starts with a dot and replaces what a dead process left. It is removed on
    /// failure.
    pub fn publish(
        self,
        points: &Publish,
        temp_dir: &Dir,
        temp: &str,
        to_dir: &Dir,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.write_and(points, temp_dir, temp, bytes, || {
            temp_dir.rename_new(temp, to_dir, name)
        })?;
        self.sync_dir(points.sync_folder, to_dir)
    }

    /// The same, but the temporary file stays: in a folder that only orch writes to, as proof that orch
    /// published it. The caller removes it.
    pub fn publish_sealed(
        self,
        points: &Publish,
        seal_dir: &Dir,
        seal: &str,
        to_dir: &Dir,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.write_and(points, seal_dir, seal, bytes, || {
            match seal_dir.link_new(seal, to_dir, name) {
                Err(e) if has_no_links(&e) => {
                    let temp = format!(".{name}");
                    self.publish(points, to_dir, &temp, to_dir, name, bytes)
                }
                other => other,
            }
        })?;
        self.sync_dir(points.sync_folder, to_dir)
    }

    fn write_and(
        self,
        points: &Publish,
        dir: &Dir,
        temp: &str,
        bytes: &[u8],
        name_it: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let named = self.write_temp(points, dir, temp, bytes).and_then(|()| {
            at(points.rename)?;
            name_it()
        });
        if named.is_err() {
            // Best effort: a leftover is replaced by the next try.
            let _ = dir.remove(temp);
        }
        named
    }

    fn write_temp(self, points: &Publish, dir: &Dir, temp: &str, bytes: &[u8]) -> io::Result<()> {
        at(points.create)?;
        let mut file = dir.create_anew(temp)?;
        at(points.write)?;
        file.write_all(bytes)?;
        self.sync_file(points.sync, &file)
    }
}

/// Whether a file system has no hard links, such as FAT and many network file systems.
fn has_no_links(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)
    )
}

/// The points of one [`Disk::publish`].
#[derive(Debug)]
pub struct Publish {
    /// Before the temporary file is made.
    pub create: Point,
    /// Before it is written.
    pub write: Point,
    /// Before it is synced.
    pub sync: Point,
    /// Before it gets its name.
    pub rename: Point,
    /// Before the name is synced.
    pub sync_folder: Point,
}

/// A new task.
pub const SUBMIT: Publish = Publish {
    create: Point::SubmitCreate,
    write: Point::SubmitWrite,
    sync: Point::SubmitSync,
    rename: Point::SubmitRename,
    sync_folder: Point::SubmitSyncFolder,
};

/// A result record.
pub const COMMIT: Publish = Publish {
    create: Point::CommitCreate,
    write: Point::CommitWrite,
    sync: Point::CommitSync,
    rename: Point::CommitRename,
    sync_folder: Point::CommitSyncFolder,
};

#[cfg(not(debug_assertions))]
mod fault {
    use super::Point;

    #[inline(always)]
    pub fn strike(_: Point) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(debug_assertions)]
mod fault {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::process::{Signal, getpid, kill_process};

    use super::Point;

    struct Plan {
        mode: Mode,
        point: String,
        first: u32,
        count: u32,
        seen: AtomicU32,
    }

    enum Mode {
        Signal(Signal),
        Error(Errno),
    }

    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

    pub fn strike(point: Point) -> io::Result<()> {
        let Some(plan) = PLAN.get_or_init(read_plan) else {
            return Ok(());
        };
        if plan.point != point.name() {
            return Ok(());
        }
        let nth = plan.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if nth < plan.first || nth - plan.first >= plan.count {
            return Ok(());
        }
        match plan.mode {
            Mode::Signal(signal) => {
                kill_process(getpid(), signal).map_err(io::Error::from)?;
                // Another thread may receive the signal: this one waits until then.
                std::thread::sleep(std::time::Duration::from_millis(20));
                Ok(())
            }
            Mode::Error(errno) => Err(errno.into()),
        }
    }

    fn read_plan() -> Option<Plan> {
        let text = std::env::var("ORCH_FAULT").ok()?;
        let mut parts = text.split(':');
        let mode = match parts.next()? {
            "kill" => Mode::Signal(Signal::KILL),
            "stop" => Mode::Signal(Signal::STOP),
            "enospc" => Mode::Error(Errno::NOSPC),
            "eio" => Mode::Error(Errno::IO),
            "emfile" => Mode::Error(Errno::MFILE),
            _ => return None,
        };
        let point = parts.next()?.to_owned();
        let mut number = || parts.next().and_then(|n| n.parse().ok()).unwrap_or(1);
        Some(Plan {
            mode,
            point,
            first: number(),
            count: number(),
            seen: AtomicU32::new(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_names_of_their_own() {
        let mut names: Vec<_> = Point::ALL.iter().map(|p| p.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Point::ALL.len());
    }

    #[test]
    fn publishing_replaces_nothing_and_leaves_no_temporary_file() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        let disk = Disk::new(Durability::Power);
        disk.publish(&COMMIT, &dir, ".t", &dir, "a", b"one")
            .unwrap();
        let again = disk.publish(&COMMIT, &dir, ".t", &dir, "a", b"two");
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(temp.path().join("a")).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
