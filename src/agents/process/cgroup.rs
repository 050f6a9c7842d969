//! Cgroups: the one fence that no process can climb over.
//!
//! A watcher has one of its own, `orch-ID`, and lives in `own` below it. Each of its workers is, as
//! a thread, in a place below that, so that whatever a job starts is born there and can be told from
//! the rest, at no cost for each job. A job that goes through the helper anyway gets a cage: a place
//! where the limits hold for all of it together, and which the kernel empties in one stroke.
//!
//! Everything here is an extra. It must never fail a watcher: where cgroups are missing, read-only
//! or not ours, the markers in the environment do the work alone.

use std::cell::OnceCell;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::spec::policy::Caps;

/// The magic number of the second version's file system: the first has no `cgroup.kill`.
const CGROUP2: i64 = 0x6367_7270;
/// Where the watcher itself is, below its cgroup.
const OWN: &str = "own";

/// A cgroup that was made for a watcher, and where the watcher came from.
#[derive(Debug)]
pub(super) struct Cgroup {
    pub dir: PathBuf,
    home: PathBuf,
}

impl Cgroup {
    /// Makes the cgroup below our own, without entering it; `None` where that is not permitted.
    pub(super) fn create(id: &str) -> Option<Cgroup> {
        let home = own()?;
        let dir = home.join(format!("orch-{id}"));
        fs::create_dir(&dir).ok()?;
        let cgroup = Cgroup { dir, home };
        if fs::create_dir(cgroup.dir.join(OWN)).is_err() {
            remove(&cgroup.dir);
            return None;
        }
        Some(cgroup)
    }

    /// Moves this process, and with it all later children, into the cgroup.
    pub(super) fn enter(&self) -> bool {
        if fs::write(self.dir.join(OWN).join("cgroup.procs"), "0").is_err() {
            return false;
        }
        // What limits jobs as a whole, where the cgroup that we come from offers it.
        for controller in ["+memory", "+pids"] {
            let _ = fs::write(self.dir.join("cgroup.subtree_control"), controller);
        }
        true
    }

    /// Moves this process back to where it came from.
    pub(super) fn leave(&self) -> bool {
        fs::write(self.home.join("cgroup.procs"), "0").is_ok()
    }
}

/// The places of a watcher's jobs, in its cgroup.
#[derive(Debug, Clone)]
pub struct Places {
    dir: Arc<Path>,
    made: Arc<AtomicU64>,
}

thread_local! {
    /// The place of this worker; `None` inside where it could not have one.
    static SLOT: OnceCell<Option<String>> = const { OnceCell::new() };
}

impl Places {
    pub(super) fn new(dir: &Path) -> Places {
        Places {
            dir: dir.into(),
            made: Arc::default(),
        }
    }

    /// The place of the calling thread, in which everything is born that it starts from now on.
    pub(super) fn slot(&self) -> Option<String> {
        SLOT.with(|slot| slot.get_or_init(|| self.new_slot()).clone())
    }

    fn new_slot(&self) -> Option<String> {
        let name = format!("{OWN}/w{}", self.made.fetch_add(1, Ordering::Relaxed));
        let dir = self.dir.join(&name);
        fs::create_dir(&dir).ok()?;
        let entered = fs::write(dir.join("cgroup.type"), "threaded")
            .and_then(|()| fs::write(dir.join("cgroup.threads"), "0"));
        if entered.is_err() {
            remove(&dir);
            return None;
        }
        Some(name)
    }

    /// A place for one job, with as much of its limits as the kernel offers here.
    pub(super) fn cage(&self, caps: Caps) -> Option<Cage> {
        let name = format!("job-{}", self.made.fetch_add(1, Ordering::Relaxed));
        let dir = self.dir.join(&name);
        fs::create_dir(&dir).ok()?;
        let left = cap(&dir, caps);
        Some(Cage { dir, name, left })
    }

    /// Which place a process is in, if it is in one of ours.
    pub(super) fn of(&self, pid: i32) -> Option<String> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        place(&groups, self.dir.file_name()?.to_str()?)
    }
}

/// What stands below the watcher's own name, as far as it is a place of ours.
fn place(groups: &str, watcher: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut parts = path.split('/').skip_while(|part| *part != watcher).skip(1);
    match (parts.next()?, parts.next()) {
        (OWN, slot) => Some(format!("{OWN}/{}", slot?)),
        (cage, _) => Some(cage.to_owned()),
    }
}

/// Limits a cgroup, and answers which limits it cannot hold.
fn cap(dir: &Path, caps: Caps) -> Caps {
    let set = |file: &str, value: u64| {
        // A file that is not there must not be made: in a folder that is no cgroup it could be.
        let path = dir.join(file);
        path.exists() && fs::write(path, value.to_string()).is_ok()
    };
    let mut left = caps;
    left.processes.take_if(|most| set("pids.max", *most));
    left.memory.take_if(|most| {
        let held = set("memory.max", most.0);
        if held {
            // Without these it would swap instead, or lose one process and go on with the rest.
            set("memory.swap.max", 0);
            set("memory.oom.group", 1);
        }
        held
    });
    left
}

/// A place for one job: what is in it ends with it.
#[derive(Debug)]
pub(super) struct Cage {
    dir: PathBuf,
    name: String,
    left: Caps,
}

impl Cage {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The limits that it does not hold.
    pub(super) fn left(&self) -> Caps {
        self.left
    }

    /// Takes a process in, and with it all that it will start.
    pub(super) fn take_in(&self, pid: u32) -> std::io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string())
    }

    /// Ends everything in it at once; `false` where something resists.
    pub(super) fn empty(&self, deadline: Instant) -> bool {
        is_empty(&self.dir) || kill(&self.dir, deadline)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Whether a watcher started now would have a cgroup of its own: tried, and undone.
#[must_use]
pub fn is_available() -> bool {
    let Some(cgroup) = Cgroup::create(&uuid::Uuid::now_v7().to_string()) else {
        return false;
    };
    let works = cgroup.enter() && cgroup.leave();
    remove(&cgroup.dir);
    works
}

/// Where this process is, as a folder.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    folder(&groups, &mounts).filter(|dir| is_cgroup2(dir))
}

/// The line `0::PATH` of `/proc/self/cgroup`, put together with where the second version is
/// mounted; a mount may show only a part of the hierarchy.
fn folder(groups: &str, mounts: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        let dir = Path::new(point).join(below);
        (plain(&dir) && !point.contains('\\')).then_some(dir)
    })
}

/// Absolute, with nothing that leads elsewhere.
fn plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn is_cgroup2(dir: &Path) -> bool {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type differs between architectures"
    )]
    rustix::fs::statfs(dir).is_ok_and(|stat| stat.f_type as i64 == CGROUP2)
}

/// Whether a recorded path may be taken for the cgroup of this dead watcher. The record lies where
/// agents might have written, so it is not believed.
pub(super) fn belongs_to(dir: &Path, id: &str) -> bool {
    plain(dir)
        && dir.file_name().and_then(|name| name.to_str()) == Some(&format!("orch-{id}"))
        && is_cgroup2(dir)
        // We may have been started by one of its agents: then it would end us too.
        && own().is_none_or(|own| !own.starts_with(dir))
}

/// Kills everything in the cgroup and waits until it is empty; `false` if it is not.
pub(super) fn kill(dir: &Path, deadline: Instant) -> bool {
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        return is_empty(dir);
    }
    while !is_empty(dir) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

/// A cgroup that is gone is empty as well.
fn is_empty(dir: &Path) -> bool {
    fs::read_to_string(dir.join("cgroup.events")).map_or(true, |events| {
        events.lines().any(|line| line == "populated 0")
    })
}

/// Removes an empty cgroup and those that agents made in it.
pub(super) fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
40 30 0:36 /part /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";

    #[test]
    fn the_folder_is_found_below_the_mount() {
        let dir = folder("4:memory:/x\n0::/part/a/b\n", MOUNTS).unwrap();
        assert_eq!(dir, Path::new("/sys/fs/cgroup/unified/a/b"));
    }

    #[test]
    fn what_the_mount_does_not_show_is_not_guessed() {
        assert_eq!(folder("0::/other\n", MOUNTS), None);
        assert_eq!(folder("0::/part/../x\n", MOUNTS), None);
        assert_eq!(folder("4:memory:/x\n", MOUNTS), None);
    }

    #[test]
    fn a_place_is_known_by_its_watcher() {
        let of = |path: &str| place(&format!("3:pids:/x\n0::{path}\n"), "orch-7");
        assert_eq!(of("/a/orch-7/own/w1").as_deref(), Some("own/w1"));
        assert_eq!(of("/a/orch-7/own/w1/more").as_deref(), Some("own/w1"));
        assert_eq!(of("/a/orch-7/job-3/more").as_deref(), Some("job-3"));
        for other in ["/", "/a", "/a/orch-7", "/a/orch-7/own", "/a/orch-8/own/w1"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn limits_are_held_where_the_kernel_offers_them() {
        let dir = tempfile::tempdir().unwrap();
        let size = crate::text::units::Size(1 << 20);
        let caps = Caps {
            processes: Some(9),
            memory: Some(size),
            file: Some(size),
        };
        assert_eq!(cap(dir.path(), caps), caps);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for file in ["pids.max", "memory.max", "memory.oom.group"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let left = cap(dir.path(), caps);
        assert_eq!((left.processes, left.memory), (None, None));
        assert_eq!(left.file, Some(size));
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(read("pids.max"), "9");
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("memory.oom.group"), "1");
    }

    #[test]
    fn a_forged_record_is_not_believed() {
        for path in [
            "/sys/fs/cgroup",
            "/tmp/orch-7",
            "/sys/../tmp/orch-7",
            "orch-7",
        ] {
            assert!(!belongs_to(Path::new(path), "7"), "{path}");
        }
    }
}
