//! Walls of mounts around an agent, beside the rules of Landlock: the helper's own view of the file
//! system, in which everything outside of the scope is read-only.
//!
//! A rule opens a folder whole, and knows nothing of modes, owners, times and attributes. A mount
//! can leave a file out again, and is read-only in every way. What is behind walls cannot be renamed
//! away either: it is a mount itself.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_bind_recursive, mount_change};
use rustix::process::{getgid, getuid};

use super::grants::is_device;
use crate::disk::sys;

/// More openings than this would make a start slow; then only what is closed gets a wall.
const MOST_OPEN: usize = 64;

/// What the walls leave open, and what they close again inside of that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Walls {
    /// Files and folders that are written to, the outer ones first.
    pub open: Vec<PathBuf>,
    /// Files and folders inside of those that are not.
    pub closed: Vec<PathBuf>,
}

impl Walls {
    /// Walls around these.
    pub(super) fn new(open: impl Iterator<Item = PathBuf>, closed: Vec<PathBuf>) -> Walls {
        // What is written to a device goes nowhere, so that it needs no opening.
        let mut open: Vec<PathBuf> = open.filter(|path| !is_device(path)).collect();
        open.sort_unstable();
        open.dedup();
        Walls { open, closed }
    }

    /// Builds them around this process, which must have one thread.
    pub(super) fn build(&self) -> io::Result<()> {
        let cwd = std::env::current_dir()?;
        separate()?;
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )?;
        for path in &self.open {
            mount_bind_recursive(path, path)?;
        }
        for path in &self.closed {
            mount_bind(path, path)?;
            sys::close_mount(&CString::new(path.as_os_str().as_bytes())?)?;
        }
        if self.open.len() <= MOST_OPEN {
            self.close_the_rest()?;
        }
        // Into the mount that is now on top of where we are.
        std::env::set_current_dir(cwd)
    }

    fn close_the_rest(&self) -> io::Result<()> {
        let mounts = fs::read("/proc/self/mountinfo")?;
        for path in writable(&mounts) {
            if self.open.iter().any(|open| path.starts_with(open)) || path.starts_with("/dev/pts") {
                continue;
            }
            let is_all = path == Path::new("/");
            let closed = sys::close_mount(&CString::new(path.into_os_string().into_vec())?);
            // What this user cannot reach, or is covered by another, the agent cannot reach either.
            if is_all {
                closed?;
            }
        }
        Ok(())
    }
}

/// Whether walls can be built: to be tried in a process that is for nothing else.
pub(super) fn can_be_built() -> bool {
    Walls::default().build().is_ok()
}

/// A view of the mounts of our own. An ordinary user needs a user namespace, with the same ids.
fn separate() -> io::Result<()> {
    match sys::own_mounts() {
        Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
        done => return done,
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    sys::own_users_and_mounts()?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Where the mounts are that can be written to, by `/proc/self/mountinfo`.
fn writable(mounts: &[u8]) -> impl Iterator<Item = PathBuf> {
    mounts.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ').skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let is_open = options.split(|&byte| byte == b',').any(|one| one == b"rw");
        is_open.then(|| PathBuf::from(unescaped(point)))
    })
}

/// Blanks and their like are written as three octal digits.
fn unescaped(text: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_that_can_be_written_are_found() {
        let mounts = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:5 / /sys ro,nosuid shared:2 - sysfs sysfs rw\n\
            24 22 0:6 / /mnt/my\\040disk rw,nodev - xfs /dev/vdb rw\n\n";
        let found: Vec<PathBuf> = writable(mounts).collect();
        assert_eq!(found, [Path::new("/"), Path::new("/mnt/my disk")]);
    }

    #[test]
    fn only_what_is_escaped_is_unescaped() {
        for (written, meant) in [
            (&br"a\040b"[..], &b"a b"[..]),
            (br"\134\012", b"\\\n"),
            (br"\9", br"\9"),
            (br"\04", br"\04"),
            (b"", b""),
        ] {
            assert_eq!(unescaped(written).as_bytes(), meant);
        }
    }

    #[test]
    fn outer_openings_come_first_and_devices_need_none() {
        let open = ["/b/c", "/dev/null", "/b", "/dev/shm/a", "/b"].map(PathBuf::from);
        let walls = Walls::new(open.into_iter(), Vec::new());
        assert_eq!(walls.open, ["/b", "/b/c", "/dev/shm/a"].map(PathBuf::from));
    }
}
