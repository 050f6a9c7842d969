//! A cgroup of its own for a watcher: the one fence that no process can climb over.
//!
//! Everything here is an extra. It must never fail a watcher: where cgroups are missing, read-only
//! or not ours, the markers in the environment do the work alone.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The magic number of the second version's file system: the first has no `cgroup.kill`.
const CGROUP2: i64 = 0x6367_7270;

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
        Some(Cgroup { dir, home })
    }

    /// Moves this process, and with it all later children, into the cgroup.
    pub(super) fn enter(&self) -> bool {
        fs::write(self.dir.join("cgroup.procs"), "0").is_ok()
    }

    /// Moves this process back to where it came from.
    pub(super) fn leave(&self) -> bool {
        fs::write(self.home.join("cgroup.procs"), "0").is_ok()
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
