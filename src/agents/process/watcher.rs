//! Who a watcher is, on disk: `logs/watch-<id>.lock`, locked for as long as it lives.
//!
//! A lock that is free means a dead watcher, whatever the file says; the record in it only helps to
//! find what is left of it. The order of `start` is the point of this file and must not change:
//! the guard first, so that it is neither our child nor in our cgroup.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cgroup::{self, Cgroup, Places};
use super::{Marker, become_subreaper, guard, procfs};
use crate::disk::lock;
use crate::disk::safety::{Dir, FileId, Meta};

/// What stands in a watcher's lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id, which is in the file's name too.
    pub id: String,
    /// What tells the boot that it ran in from all others.
    pub boot_id: String,
    /// Its process id.
    pub pid: u32,
    /// The namespace of that id.
    pub pid_ns: String,
    /// Its cgroup, where it may have one.
    pub cgroup: Option<PathBuf>,
    /// When it started.
    pub started: String,
    /// What it works on.
    #[serde(flatten)]
    pub duty: Duty,
}

/// What a watcher works on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duty {
    /// How many tasks at once.
    #[serde(default)]
    pub jobs: u16,
    /// Only these agents, where there are any.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Only this task, `AGENT/NAME`, or this run, by its id.
    #[serde(default)]
    pub only: Option<String>,
}

impl Duty {
    /// Whether a new task of this agent will be worked on.
    #[must_use]
    pub fn covers(&self, agent: &str) -> bool {
        self.only.is_none() && (self.agents.is_empty() || self.agents.iter().any(|a| a == agent))
    }
}

/// The watchers of a root that are alive.
///
/// # Errors
/// If the folder or a lock file in it cannot be read.
pub fn living_watchers(logs: &Dir) -> io::Result<Vec<Record>> {
    let mut living = Vec::new();
    for id in lock_ids(logs)? {
        let Some(file) = lock_file(logs.open(&lock_name(&id)))? else {
            continue;
        };
        if lock::try_shared(&file)? {
            lock::unlock(&file)?;
            continue;
        }
        // One that is just starting has not written its record yet.
        if let Ok(record) = serde_json::from_reader(io::BufReader::new(file)) {
            living.push(record);
        }
    }
    Ok(living)
}

/// The ids in the names of the lock files in the folder.
pub(super) fn lock_ids(logs: &Dir) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    logs.entries(|name, _| ids.extend(name.to_str().ok().and_then(id_of).map(str::to_owned)))?;
    Ok(ids)
}

/// A lock file that was opened; `None` where there is none any more, or where something else has its
/// name: a link, a folder or a fifo is no watcher.
pub(super) fn lock_file(opened: io::Result<File>) -> io::Result<Option<File>> {
    let not_ours = [Errno::NOENT, Errno::LOOP, Errno::ISDIR];
    match opened {
        Err(e) if Errno::from_io_error(&e).is_some_and(|errno| not_ours.contains(&errno)) => {
            Ok(None)
        }
        Err(e) => Err(e),
        Ok(file) => {
            let is_file = Meta::of_file(&file)?.kind == FileType::RegularFile;
            Ok(is_file.then_some(file))
        }
    }
}

/// A living watcher: this process. Dropped without [`Watcher::finish`] it counts as dead, and its
/// guard sweeps what it left.
#[derive(Debug)]
pub struct Watcher {
    id: String,
    logs: Dir,
    lock: File,
    root: FileId,
    cgroup: Option<Cgroup>,
    /// Closed by the kernel when we die, however we die.
    _guard: PipeWriter,
}

impl Watcher {
    /// Makes this process a watcher: lock file, guard, subreaper, cgroup. Call it once, on the main
    /// thread, before any other thread or child is started.
    ///
    /// # Errors
    /// If the lock file cannot be made, the guard does not start, or orphans cannot be adopted.
    pub fn start(root: &Dir, duty: &Duty) -> io::Result<Watcher> {
        Watcher::start_with_guard(&guard::own_program()?, root, duty)
    }

    /// The same, with another program as the guard: for a watcher that is not the orch binary.
    ///
    /// # Errors
    /// As [`Watcher::start`].
    pub fn start_with_guard(program: &Path, root: &Dir, duty: &Duty) -> io::Result<Watcher> {
        let logs = root.sub("logs")?;
        let root = root.meta()?.id;
        let (id, lock) = claim_id(&logs)?;
        let cgroup = Cgroup::create(&id);
        let started = write_record(&lock, &id, cgroup.as_ref(), duty)
            .and_then(|()| guard::start(program, &logs, &id))
            .and_then(|guard| become_subreaper().map(|()| guard));
        match started {
            Ok(guard) => Ok(Watcher {
                id,
                logs,
                lock,
                root,
                cgroup: cgroup.and_then(entered),
                _guard: guard,
            }),
            Err(error) => {
                if let Some(cgroup) = cgroup {
                    cgroup::remove(&cgroup.dir);
                }
                let _ = logs.remove(&lock_name(&id));
                Err(error)
            }
        }
    }

    /// The id of this watcher.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The cgroup of this watcher, where one was permitted.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(|cgroup| cgroup.dir.as_path())
    }

    /// The places in it for jobs.
    #[must_use]
    pub fn places(&self) -> Option<Places> {
        self.cgroup().map(Places::new)
    }

    /// The marker of a task of this watcher's root.
    #[must_use]
    pub fn marker(&self, agent: &str, name: &str) -> Marker {
        Marker {
            watcher: self.id.clone(),
            task: Marker::task(self.root.dev, self.root.ino, agent, name),
        }
    }

    /// The clean end: nothing of this watcher is left, and its guard goes too.
    ///
    /// # Errors
    /// If the lock file cannot be removed; a later sweep will do it.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(cgroup) = self.cgroup.take()
            && cgroup.leave()
        {
            cgroup::kill(&cgroup.dir, Instant::now() + Duration::from_secs(10));
            cgroup::remove(&cgroup.dir);
        }
        self.logs.remove(&lock_name(&self.id))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The guard is about to kill the cgroup; we may still have something to say.
        if let Some(cgroup) = &self.cgroup {
            cgroup.leave();
        }
        let _ = lock::unlock(&self.lock);
    }
}

fn entered(cgroup: Cgroup) -> Option<Cgroup> {
    if cgroup.enter() {
        return Some(cgroup);
    }
    cgroup::remove(&cgroup.dir);
    None
}

/// The name of a watcher's lock file.
pub(super) fn lock_name(id: &str) -> String {
    format!("watch-{id}.lock")
}

/// Whether this is the path of a watcher's lock file.
#[must_use]
pub fn is_watcher_lock(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| id_of(name.to_str()?))
        .is_some()
}

/// The id in the name of a lock file.
pub(super) fn id_of(file_name: &str) -> Option<&str> {
    let id = file_name.strip_prefix("watch-")?.strip_suffix(".lock")?;
    Uuid::try_parse(id).ok().map(|_| id)
}

/// Between the creation and the lock a sweep may take the file for a dead watcher's and remove
/// it: then another id is tried.
fn claim_id(logs: &Dir) -> io::Result<(String, File)> {
    loop {
        let id = Uuid::now_v7().to_string();
        let file = logs.create_new(&lock_name(&id))?;
        if lock::try_exclusive(&file)? && Meta::of_file(&file)?.links > 0 {
            return Ok((id, file));
        }
    }
}

fn write_record(mut file: &File, id: &str, cgroup: Option<&Cgroup>, duty: &Duty) -> io::Result<()> {
    let record = Record {
        id: id.to_owned(),
        boot_id: procfs::boot_id()?,
        pid: std::process::id(),
        pid_ns: procfs::pid_namespace(),
        cgroup: cgroup.map(|cgroup| cgroup.dir.clone()),
        started: jiff::Timestamp::now().to_string(),
        duty: duty.clone(),
    };
    file.write_all(&serde_json::to_vec(&record)?)?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn only_names_of_watchers_are_taken_for_them() {
        let (id, _) = claim_id(&logs().1).unwrap();
        assert_eq!(id_of(&lock_name(&id)), Some(id.as_str()));
        for name in ["watch-.lock", "watch-x.lock", "watch.lock", "run.lock"] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_lock_file_says_who_holds_it() {
        let (_temp, dir) = logs();
        let (id, file) = claim_id(&dir).unwrap();
        write_record(&file, &id, None, &Duty::default()).unwrap();
        let living = living_watchers(&dir).unwrap();
        let [record] = living.as_slice() else {
            panic!("{living:?}");
        };
        assert_eq!((&record.id, record.pid), (&id, std::process::id()));
        assert_eq!(record.boot_id, procfs::boot_id().unwrap());
        assert!(record.pid_ns.starts_with("pid:"));
        drop(file);
        assert_eq!(living_watchers(&dir).unwrap(), []);
    }

    #[test]
    fn what_is_not_a_file_is_no_watcher() {
        let (temp, dir) = logs();
        let name = || lock_name(&Uuid::now_v7().to_string());
        let outside = tempfile::NamedTempFile::new().unwrap();
        lock::wait_exclusive(outside.as_file()).unwrap();
        std::os::unix::fs::symlink(outside.path(), temp.path().join(name())).unwrap();
        std::fs::create_dir(temp.path().join(name())).unwrap();
        let fifo = temp.path().join(name());
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, fifo, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(lock_ids(&dir).unwrap().len(), 3);
        assert_eq!(living_watchers(&dir).unwrap(), []);
    }
}
