//! Ending what dead watchers left, before anyone takes over their work.
//!
//! A process is found by its watcher's cgroup, by the marker in its environment, or by an attempt's
//! output file that it has open for writing. This file must never touch a living watcher's
//! processes, nor this process and those above it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::watcher::{Record, lock_file, lock_ids, lock_name};
use super::{TASK_VARIABLE, WATCHER_VARIABLE, cgroup, procfs};
use crate::disk::lock;
use crate::disk::safety::{Dir, FileId, Meta};

/// How long the killed may take to go away before that is reported.
const STUCK: Duration = Duration::from_secs(10);

/// What else is known to be dead, besides watchers.
#[derive(Debug, Clone, Default)]
pub struct Dead {
    /// Values of `ORCH_TASK`, as `Marker::task` writes them, of tasks whose claim has no owner.
    pub tasks: HashSet<String>,
    /// The output files of their attempts.
    pub files: HashSet<FileId>,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The dead watchers whose lock files are gone now.
    pub watchers: Vec<String>,
    /// How many processes were ended one by one; those of cgroups are not counted.
    pub killed: usize,
    /// Processes that could not be ended: their claims must not be taken over.
    pub stuck: Vec<i32>,
    /// Processes that should be ended but are this one or above it.
    pub spared: Vec<i32>,
}

/// The root-wide lock that everyone holds who sweeps or recovers. It is on the folder `logs/`
/// itself, so that it leaves no file.
#[derive(Debug)]
pub struct SweepLock(File);

impl SweepLock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// If the folder cannot be opened or locked.
    pub fn wait(logs: &Dir) -> io::Result<SweepLock> {
        let file = logs.reopen()?;
        lock::wait_exclusive(&file)?;
        Ok(SweepLock(file))
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// If the folder cannot be opened or locked.
    pub fn take(logs: &Dir) -> io::Result<Option<SweepLock>> {
        let file = logs.reopen()?;
        Ok(lock::try_exclusive(&file)?.then_some(SweepLock(file)))
    }
}

impl Drop for SweepLock {
    fn drop(&mut self) {
        let _ = lock::unlock(&self.0);
    }
}

/// A dead watcher, whose lock we hold.
struct DeadWatcher<'l> {
    id: String,
    logs: &'l Dir,
    cgroup: Option<PathBuf>,
    this_boot: bool,
    lock: File,
}

/// Ends whatever is left of all dead watchers and of `extra`, and removes the lock files. The
/// caller holds the [`SweepLock`]. It costs one pass over `/proc`, or none if nobody died.
///
/// # Errors
/// If `logs` or `/proc` cannot be read.
pub fn sweep_dead(logs: &Dir, extra: &Dead) -> io::Result<SweepReport> {
    let mut dead = Vec::new();
    for id in lock_ids(logs)? {
        dead.extend(DeadWatcher::take(logs, &id)?);
    }
    sweep(&dead, extra)
}

/// The guard's sweep: of one watcher that is known to be dying. Nothing to do if its lock file is
/// gone.
pub(super) fn sweep_one(logs: &Dir, id: &str) -> io::Result<SweepReport> {
    let Ok(Some(file)) = open(logs, id) else {
        return Ok(SweepReport::default());
    };
    // The pipe may close a moment before the lock does.
    lock::wait_exclusive(&file)?;
    lock::unlock(&file)?;
    let _lock = SweepLock::wait(logs)?;
    let dead: Vec<_> = DeadWatcher::take(logs, id)?.into_iter().collect();
    sweep(&dead, &Dead::default())
}

/// For writing too: some network file systems give exclusive locks to writers only.
fn open(logs: &Dir, id: &str) -> io::Result<Option<File>> {
    lock_file(logs.open_append(&lock_name(id)))
}

impl<'l> DeadWatcher<'l> {
    /// `None` if it lives, or if someone else has swept it.
    fn take(logs: &'l Dir, id: &str) -> io::Result<Option<Self>> {
        let Some(mut file) = open(logs, id)? else {
            return Ok(None);
        };
        if !lock::try_exclusive(&file)? || Meta::of_file(&file)?.links == 0 {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A record that was never written whole: the id in the name is enough.
        let record: Option<Record> = serde_json::from_slice(&text).ok();
        let boot = procfs::boot_id()?;
        Ok(Some(DeadWatcher {
            id: id.to_owned(),
            logs,
            this_boot: record.as_ref().is_none_or(|record| record.boot_id == boot),
            cgroup: record
                .and_then(|record| record.cgroup)
                .filter(|dir| cgroup::belongs_to(dir, id)),
            lock: file,
        }))
    }

    fn remove(&self) -> io::Result<()> {
        if let Some(dir) = &self.cgroup {
            cgroup::remove(dir);
        }
        self.logs.remove(&lock_name(&self.id))
    }
}

impl Drop for DeadWatcher<'_> {
    fn drop(&mut self) {
        let _ = lock::unlock(&self.lock);
    }
}

fn sweep(dead: &[DeadWatcher<'_>], extra: &Dead) -> io::Result<SweepReport> {
    let deadline = Instant::now() + STUCK;
    let this_boot = || dead.iter().filter(|watcher| watcher.this_boot);
    for dir in this_boot().filter_map(|watcher| watcher.cgroup.as_deref()) {
        cgroup::kill(dir, deadline);
    }
    let wanted = Wanted {
        watchers: this_boot().map(|watcher| watcher.id.as_str()).collect(),
        extra,
    };
    let mut report = SweepReport::default();
    if !wanted.is_empty() {
        end_all(&wanted, deadline, &mut report)?;
    }
    // What is left must be found again by the next sweep.
    if report.stuck.is_empty() {
        for watcher in dead {
            watcher.remove()?;
            report.watchers.push(watcher.id.clone());
        }
    }
    Ok(report)
}

/// Kills pass after pass until one finds nothing: a process may fork while it is looked for.
fn end_all(wanted: &Wanted<'_>, deadline: Instant, report: &mut SweepReport) -> io::Result<()> {
    let above = procfs::self_and_ancestors();
    report.spared = above
        .iter()
        .copied()
        .filter(|&pid| wanted.has(pid))
        .collect();
    loop {
        let targets: Vec<(i32, OwnedFd)> = procfs::all()?
            .into_iter()
            .filter(|pid| !above.contains(pid) && !report.stuck.contains(pid))
            .filter(|&pid| wanted.has(pid))
            .filter_map(|pid| Some((pid, procfs::pin(pid, || wanted.has(pid))?)))
            .collect();
        if targets.is_empty() {
            return Ok(());
        }
        for (pid, fd) in &targets {
            if procfs::signal(fd, Signal::KILL).is_err() {
                report.stuck.push(*pid);
            }
        }
        for (pid, fd) in &targets {
            if report.stuck.contains(pid) {
            } else if procfs::wait_end(fd, deadline) {
                report.killed += 1;
            } else {
                report.stuck.push(*pid);
            }
        }
    }
}

/// What makes a process one to be ended.
struct Wanted<'a> {
    watchers: HashSet<&'a str>,
    extra: &'a Dead,
}

impl Wanted<'_> {
    fn is_empty(&self) -> bool {
        self.watchers.is_empty() && self.extra.tasks.is_empty() && self.extra.files.is_empty()
    }

    fn has(&self, pid: i32) -> bool {
        self.by_marker(pid) || self.by_file(pid)
    }

    fn by_marker(&self, pid: i32) -> bool {
        let environ = procfs::environ(pid);
        let value = |name| procfs::variable(&environ, name)?.to_str();
        value(WATCHER_VARIABLE).is_some_and(|id| self.watchers.contains(id))
            || value(TASK_VARIABLE).is_some_and(|task| self.extra.tasks.contains(task))
    }

    fn by_file(&self, pid: i32) -> bool {
        !self.extra.files.is_empty() && procfs::writes_to(pid, &self.extra.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    const OLD: &str = "01890000-0000-7000-8000-000000000001";

    fn sleeper() -> Command {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").stdout(Stdio::null());
        command
    }

    fn logs() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        (temp, dir)
    }

    fn record(logs: &Dir, id: &str, boot_id: &str) -> File {
        let record = Record {
            id: id.to_owned(),
            boot_id: boot_id.to_owned(),
            pid: 1,
            pid_ns: String::new(),
            cgroup: Some("/sys/fs/cgroup".into()),
            started: String::new(),
            duty: Default::default(),
        };
        let mut file = logs.create_new(&lock_name(id)).unwrap();
        serde_json::to_writer(&mut file, &record).unwrap();
        file
    }

    fn ended(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_some()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_dead_watcher_left_is_ended_and_its_lock_file_goes() {
        let (_temp, logs) = logs();
        let id = uuid::Uuid::now_v7().to_string();
        record(&logs, &id, &procfs::boot_id().unwrap());
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let mut other = sleeper().env(WATCHER_VARIABLE, OLD).spawn().unwrap();
        let report = sweep_dead(&logs, &Dead::default()).unwrap();
        assert_eq!((report.killed, report.stuck.len()), (1, 0));
        assert_eq!(report.watchers, [id.as_str()]);
        assert!(ended(&mut marked));
        assert!(!ended(&mut other));
        assert!(!logs.has(&lock_name(&id)).unwrap());
        end(other);
    }

    #[test]
    fn a_living_watcher_is_left_alone() {
        let (_temp, logs) = logs();
        let id = uuid::Uuid::now_v7().to_string();
        let held = record(&logs, &id, &procfs::boot_id().unwrap());
        assert!(lock::try_exclusive(&held).unwrap());
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let report = sweep_dead(&logs, &Dead::default()).unwrap();
        assert_eq!(report, SweepReport::default());
        assert!(!ended(&mut marked));
        assert!(logs.has(&lock_name(&id)).unwrap());
        end(marked);
    }

    #[test]
    fn of_another_boot_only_the_file_is_left() {
        let (_temp, logs) = logs();
        let id = uuid::Uuid::now_v7().to_string();
        record(&logs, &id, "another");
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let report = sweep_dead(&logs, &Dead::default()).unwrap();
        assert_eq!((report.killed, report.watchers.len()), (0, 1));
        assert!(!ended(&mut marked));
        assert!(!logs.has(&lock_name(&id)).unwrap());
        end(marked);
    }

    #[test]
    fn dead_tasks_are_found_by_name_and_by_their_output_file() {
        let (_temp, logs) = logs();
        let out = logs.create_new("t.out").unwrap();
        let id = Meta::of_file(&out).unwrap().id;
        let task = super::super::Marker::task(id.dev, id.ino, "writer", "t");
        let mut named = sleeper().env(TASK_VARIABLE, &task).spawn().unwrap();
        let mut writes = sleeper().env_clear().stdout(out).spawn().unwrap();
        let reader = logs.open("t.out").unwrap();
        let mut reads = sleeper().stdin(reader).spawn().unwrap();
        let extra = Dead {
            tasks: [task].into(),
            files: [id].into(),
        };
        let report = sweep_dead(&logs, &extra).unwrap();
        assert_eq!((report.killed, report.spared.len()), (2, 0));
        assert!(ended(&mut named) && ended(&mut writes));
        assert!(!ended(&mut reads));
        end(reads);
    }

    #[test]
    fn one_sweeper_at_a_time() {
        let (_temp, logs) = logs();
        let first = SweepLock::wait(&logs).unwrap();
        assert!(SweepLock::take(&logs).unwrap().is_none());
        drop(first);
        assert!(SweepLock::take(&logs).unwrap().is_some());
    }
}
