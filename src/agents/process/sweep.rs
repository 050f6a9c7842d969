//! Ending what dead watchers left, before anyone takes over their work.
//!
//! A process is found by its watcher's cgroup, by the marker in its environment, or by an attempt's
//! output file that it has open for writing. This file must never touch a living watcher's
//! processes, nor this process and those above it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::watcher::{Record, boot_id, id_of, lock_path};
use super::{TASK_VARIABLE, WATCHER_VARIABLE, cgroup, procfs};
use crate::disk::lock;

/// How long the killed may take to go away before that is reported.
const STUCK: Duration = Duration::from_secs(10);

/// What else is known to be dead, besides watchers.
#[derive(Debug, Clone, Default)]
pub struct Dead {
    /// Values of `ORCH_TASK`, as `Marker::task` writes them, of tasks whose claim has no owner.
    pub tasks: HashSet<String>,
    /// Device and inode of the output files of their attempts.
    pub files: HashSet<(u64, u64)>,
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
    /// If the lock file cannot be opened or locked.
    pub fn wait(logs_dir: &Path) -> io::Result<SweepLock> {
        let file = SweepLock::open(logs_dir)?;
        lock::wait_exclusive(&file)?;
        Ok(SweepLock(file))
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// If the lock file cannot be opened or locked.
    pub fn take(logs_dir: &Path) -> io::Result<Option<SweepLock>> {
        let file = SweepLock::open(logs_dir)?;
        Ok(lock::try_exclusive(&file)?.then_some(SweepLock(file)))
    }

    fn open(logs_dir: &Path) -> io::Result<File> {
        File::open(logs_dir)
    }
}

impl Drop for SweepLock {
    fn drop(&mut self) {
        let _ = lock::unlock(&self.0);
    }
}

/// A dead watcher, whose lock we hold.
struct DeadWatcher {
    id: String,
    path: PathBuf,
    cgroup: Option<PathBuf>,
    this_boot: bool,
    lock: File,
}

/// Ends whatever is left of all dead watchers and of `extra`, and removes the lock files. The
/// caller holds the [`SweepLock`]. It costs one pass over `/proc`, or none if nobody died.
///
/// # Errors
/// If `logs_dir` or `/proc` cannot be read.
pub fn sweep_dead(logs_dir: &Path, extra: &Dead) -> io::Result<SweepReport> {
    let mut dead = Vec::new();
    for entry in fs::read_dir(logs_dir)? {
        let name = entry?.file_name();
        if let Some(id) = name.to_str().and_then(id_of) {
            dead.extend(DeadWatcher::take(logs_dir, id)?);
        }
    }
    sweep(&dead, extra)
}

/// The guard's sweep: of one watcher that is known to be dying. Nothing to do if its lock file is
/// gone.
pub(super) fn sweep_one(logs_dir: &Path, id: &str) -> io::Result<SweepReport> {
    let Ok(file) = open(&lock_path(logs_dir, id)) else {
        return Ok(SweepReport::default());
    };
    // The pipe may close a moment before the lock does.
    lock::wait_exclusive(&file)?;
    lock::unlock(&file)?;
    let _lock = SweepLock::wait(logs_dir)?;
    let dead: Vec<_> = DeadWatcher::take(logs_dir, id)?.into_iter().collect();
    sweep(&dead, &Dead::default())
}

/// For writing too: some network file systems give exclusive locks to writers only.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl DeadWatcher {
    /// `None` if it lives, or if someone else has swept it.
    fn take(logs_dir: &Path, id: &str) -> io::Result<Option<DeadWatcher>> {
        let path = lock_path(logs_dir, id);
        let mut file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !lock::try_exclusive(&file)? || file.metadata()?.nlink() == 0 {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A record that was never written whole: the id in the name is enough.
        let record: Option<Record> = serde_json::from_slice(&text).ok();
        let boot = boot_id()?;
        Ok(Some(DeadWatcher {
            id: id.to_owned(),
            path,
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
        fs::remove_file(&self.path)
    }
}

impl Drop for DeadWatcher {
    fn drop(&mut self) {
        let _ = lock::unlock(&self.lock);
    }
}

fn sweep(dead: &[DeadWatcher], extra: &Dead) -> io::Result<SweepReport> {
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
        self.by_marker(pid) || (!self.extra.files.is_empty() && self.by_file(pid))
    }

    fn by_marker(&self, pid: i32) -> bool {
        let environ = procfs::environ(pid);
        let value = |name| procfs::variable(&environ, name)?.to_str();
        value(WATCHER_VARIABLE).is_some_and(|id| self.watchers.contains(id))
            || value(TASK_VARIABLE).is_some_and(|task| self.extra.tasks.contains(task))
    }

    fn by_file(&self, pid: i32) -> bool {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        open.flatten().any(|entry| {
            let writes = entry
                .metadata()
                .is_ok_and(|link| link.permissions().mode() & 0o200 != 0);
            writes && self.names_file(&entry.path())
        })
    }

    /// Pipes and sockets have no path, and asking them for one may take long.
    fn names_file(&self, link: &Path) -> bool {
        fs::read_link(link).is_ok_and(|target| target.is_absolute())
            && fs::metadata(link)
                .is_ok_and(|meta| self.extra.files.contains(&(meta.dev(), meta.ino())))
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

    fn record(logs: &Path, id: &str, boot_id: &str) -> File {
        let record = Record {
            id: id.to_owned(),
            boot_id: boot_id.to_owned(),
            pid: 1,
            pid_ns: String::new(),
            cgroup: Some("/sys/fs/cgroup".into()),
            started: String::new(),
            duty: Default::default(),
        };
        let path = lock_path(logs, id);
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        File::open(path).unwrap()
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
        let logs = tempfile::tempdir().unwrap();
        let id = uuid::Uuid::now_v7().to_string();
        record(logs.path(), &id, &boot_id().unwrap());
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let mut other = sleeper().env(WATCHER_VARIABLE, OLD).spawn().unwrap();
        let report = sweep_dead(logs.path(), &Dead::default()).unwrap();
        assert_eq!((report.killed, report.stuck.len()), (1, 0));
        assert_eq!(report.watchers, [id.as_str()]);
        assert!(ended(&mut marked));
        assert!(!ended(&mut other));
        assert!(!lock_path(logs.path(), &id).exists());
        end(other);
    }

    #[test]
    fn a_living_watcher_is_left_alone() {
        let logs = tempfile::tempdir().unwrap();
        let id = uuid::Uuid::now_v7().to_string();
        let held = record(logs.path(), &id, &boot_id().unwrap());
        assert!(lock::try_exclusive(&held).unwrap());
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let report = sweep_dead(logs.path(), &Dead::default()).unwrap();
        assert_eq!(report, SweepReport::default());
        assert!(!ended(&mut marked));
        assert!(lock_path(logs.path(), &id).exists());
        end(marked);
    }

    #[test]
    fn of_another_boot_only_the_file_is_left() {
        let logs = tempfile::tempdir().unwrap();
        let id = uuid::Uuid::now_v7().to_string();
        record(logs.path(), &id, "another");
        let mut marked = sleeper().env(WATCHER_VARIABLE, &id).spawn().unwrap();
        let report = sweep_dead(logs.path(), &Dead::default()).unwrap();
        assert_eq!((report.killed, report.watchers.len()), (0, 1));
        assert!(!ended(&mut marked));
        assert!(!lock_path(logs.path(), &id).exists());
        end(marked);
    }

    #[test]
    fn dead_tasks_are_found_by_name_and_by_their_output_file() {
        let logs = tempfile::tempdir().unwrap();
        let out = File::create(logs.path().join("t.out")).unwrap();
        let meta = out.metadata().unwrap();
        let task = super::super::Marker::task(meta.dev(), meta.ino(), "writer", "t");
        let mut named = sleeper().env(TASK_VARIABLE, &task).spawn().unwrap();
        let mut writes = sleeper().env_clear().stdout(out).spawn().unwrap();
        let reader = File::open(logs.path().join("t.out")).unwrap();
        let mut reads = sleeper().stdin(reader).spawn().unwrap();
        let extra = Dead {
            tasks: [task].into(),
            files: [(meta.dev(), meta.ino())].into(),
        };
        let report = sweep_dead(logs.path(), &extra).unwrap();
        assert_eq!((report.killed, report.spared.len()), (2, 0));
        assert!(ended(&mut named) && ended(&mut writes));
        assert!(!ended(&mut reads));
        end(reads);
    }

    #[test]
    fn one_sweeper_at_a_time() {
        let logs = tempfile::tempdir().unwrap();
        let first = SweepLock::wait(logs.path()).unwrap();
        assert!(SweepLock::take(logs.path()).unwrap().is_none());
        drop(first);
        assert!(SweepLock::take(logs.path()).unwrap().is_some());
    }
}
