//! Who a watcher is, on disk: `logs/watch-<id>.lock`, locked for as long as it lives.
//!
//! A lock that is free means a dead watcher, whatever the file says; the record in it only helps to
//! find what is left of it. The order of `start` is the point of this file and must not change:
//! the guard first, so that it is neither our child nor in our cgroup.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cgroup::{self, Cgroup, Places};
use super::{Marker, become_subreaper, guard};
use crate::disk::lock;

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
pub fn living_watchers(logs_dir: &Path) -> io::Result<Vec<Record>> {
    let mut living = Vec::new();
    for entry in fs::read_dir(logs_dir)? {
        let entry = entry?;
        if entry.file_name().to_str().and_then(id_of).is_none() {
            continue;
        }
        let file = match File::open(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
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

/// A living watcher: this process. Dropped without [`Watcher::finish`] it counts as dead, and its
/// guard sweeps what it left.
#[derive(Debug)]
pub struct Watcher {
    id: String,
    path: PathBuf,
    lock: File,
    root: (u64, u64),
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
    pub fn start(logs_dir: &Path, root: &Path, duty: &Duty) -> io::Result<Watcher> {
        Watcher::start_with_guard(&guard::own_program()?, logs_dir, root, duty)
    }

    /// The same, with another program as the guard: for a watcher that is not the orch binary.
    ///
    /// # Errors
    /// As [`Watcher::start`].
    pub fn start_with_guard(
        program: &Path,
        logs_dir: &Path,
        root: &Path,
        duty: &Duty,
    ) -> io::Result<Watcher> {
        let logs_dir = fs::canonicalize(logs_dir)?;
        let root = fs::metadata(root)?;
        let (id, lock) = claim_id(&logs_dir)?;
        let path = lock_path(&logs_dir, &id);
        let cgroup = Cgroup::create(&id);
        let started = write_record(&lock, &id, cgroup.as_ref(), duty)
            .and_then(|()| guard::start(program, &logs_dir, &id))
            .and_then(|guard| become_subreaper().map(|()| guard));
        match started {
            Ok(guard) => Ok(Watcher {
                id,
                path,
                lock,
                root: (root.dev(), root.ino()),
                cgroup: cgroup.and_then(entered),
                _guard: guard,
            }),
            Err(error) => {
                if let Some(cgroup) = cgroup {
                    cgroup::remove(&cgroup.dir);
                }
                let _ = fs::remove_file(&path);
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
            task: Marker::task(self.root.0, self.root.1, agent, name),
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
        fs::remove_file(&self.path)
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

/// Where a watcher's lock file is.
pub(super) fn lock_path(logs_dir: &Path, id: &str) -> PathBuf {
    logs_dir.join(format!("watch-{id}.lock"))
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
fn claim_id(logs_dir: &Path) -> io::Result<(String, File)> {
    loop {
        let id = Uuid::now_v7().to_string();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(lock_path(logs_dir, &id))?;
        if lock::try_exclusive(&file)? && file.metadata()?.nlink() > 0 {
            return Ok((id, file));
        }
    }
}

fn write_record(mut file: &File, id: &str, cgroup: Option<&Cgroup>, duty: &Duty) -> io::Result<()> {
    let record = Record {
        id: id.to_owned(),
        boot_id: boot_id()?,
        pid: std::process::id(),
        pid_ns: pid_namespace(),
        cgroup: cgroup.map(|cgroup| cgroup.dir.clone()),
        started: jiff::Timestamp::now().to_string(),
        duty: duty.clone(),
    };
    file.write_all(&serde_json::to_vec(&record)?)?;
    file.write_all(b"\n")
}

/// What tells this boot of the machine from all others.
pub(super) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .map(|link| link.display().to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_watchers_are_taken_for_them() {
        let (id, _) = claim_id(tempfile::tempdir().unwrap().path()).unwrap();
        assert_eq!(id_of(&format!("watch-{id}.lock")), Some(id.as_str()));
        for name in ["watch-.lock", "watch-x.lock", "watch.lock", "run.lock"] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_lock_file_says_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (id, file) = claim_id(dir.path()).unwrap();
        write_record(&file, &id, None, &Duty::default()).unwrap();
        let path = lock_path(dir.path(), &id);
        let record: Record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((record.id, record.pid), (id, std::process::id()));
        assert_eq!(record.boot_id, boot_id().unwrap());
        assert!(record.pid_ns.starts_with("pid:"));
        let second = File::open(path).unwrap();
        assert!(!lock::try_exclusive(&second).unwrap());
    }
}
