//! Questions to `/proc` about other processes, and ending one of them without hitting another.
//!
//! Everything here may be out of date when it returns; only a pidfd pins a process. It must never
//! signal by number.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::disk::safety::FileId;

/// Set in the flags of a process that is on its way out and may have lost its memory already.
const PF_EXITING: u64 = 0x4;

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub parent: i32,
    pub group: i32,
    /// A zombie, or as good as one.
    pub dying: bool,
    /// With the number, this names one process and not a later one with the same number.
    pub started: u64,
}

/// Reads `/proc/PID/stat`; `None` if there is no such process any more.
pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may hold anything, so the fields are counted from the last parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let state = *fields.first()?;
    let flags: u64 = fields.get(6)?.parse().ok()?;
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        dying: matches!(state, "Z" | "X") || flags & PF_EXITING != 0,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// The environment that a process was started with. Empty if it has none, if it is in the middle
/// of an exec, or if it may not be read.
pub(super) fn environ(pid: i32) -> Vec<u8> {
    let own = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if !own.is_empty() {
        return own;
    }
    // The leading thread may be gone while others live on: they still have the memory.
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return own;
    };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read(thread.path().join("environ")).ok())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// The value of a variable in an environment as `/proc` shows it.
pub(super) fn variable<'a>(environ: &'a [u8], name: &str) -> Option<&'a OsStr> {
    environ
        .split(|&byte| byte == 0)
        .filter_map(|entry| entry.strip_prefix(name.as_bytes()))
        .find_map(|rest| rest.strip_prefix(b"="))
        .map(OsStr::from_bytes)
}

/// Every process that `/proc` lists.
pub(super) fn all() -> io::Result<Vec<i32>> {
    Ok(fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// A process and everything below it that has not been orphaned, without the process itself.
pub(super) fn descendants(top: i32) -> Vec<i32> {
    let mut found = children(top);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        for child in children(pid) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| parse_pids(&text))
        .collect()
}

/// The numbers in a list that is separated by blanks.
pub(super) fn parse_pids(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// This process and every one above it.
pub(super) fn self_and_ancestors() -> Vec<i32> {
    let mut line = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(above) = line.last().and_then(|&pid| stat(pid)) {
        if above.parent <= 0 || line.contains(&above.parent) {
            break;
        }
        line.push(above.parent);
    }
    line
}

/// The values of a variable that this process and those above it were started with.
pub(super) fn values_above(name: &str) -> Vec<OsString> {
    self_and_ancestors()
        .into_iter()
        .filter_map(|pid| variable(&environ(pid), name).map(OsStr::to_owned))
        .collect()
}

/// Opens a process and then asks again whether it is the wanted one: from here on its number
/// cannot come to mean another.
pub(super) fn pin(pid: i32, still: impl FnOnce() -> bool) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    still().then_some(fd)
}

/// Sends a signal and wakes the process up if it was stopped. A process that is gone is no error.
pub(super) fn signal(fd: &OwnedFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(fd, signal) {
        Ok(()) if signal != Signal::KILL => {
            let _ = pidfd_send_signal(fd, Signal::CONT);
            Ok(())
        }
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the process has ended; `false` if it has not at the deadline.
pub(super) fn wait_end(fd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// What tells this boot of the machine from all others.
pub(super) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

/// The namespace that the ids of processes are of.
pub(super) fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .map(|link| link.display().to_string())
        .unwrap_or_default()
}

/// Whether a process has one of these files open for writing.
pub(super) fn writes_to(pid: i32, files: &HashSet<FileId>) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    open.flatten().any(|entry| {
        let writes = entry
            .metadata()
            .is_ok_and(|link| link.permissions().mode() & 0o200 != 0);
        writes && file_behind(&entry.path()).is_some_and(|id| files.contains(&id))
    })
}

/// The file that a link in `/proc/PID/fd` stands for. Pipes and sockets have no path, and asking them
/// for one may take long.
fn file_behind(link: &Path) -> Option<FileId> {
    fs::read_link(link).ok().filter(|to| to.is_absolute())?;
    let meta = fs::metadata(link).ok()?;
    Some(FileId {
        dev: meta.dev(),
        ino: meta.ino(),
    })
}

/// A duration as `poll` takes it; one that is too long waits for ever, or nearly.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs())
            .unwrap_or(i64::MAX)
            .min(1 << 40),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_move_the_fields() {
        let text = b"7 (a) b) c) S 3 5 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 991 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.group, stat.started), (3, 5, 991));
        assert!(!stat.dying);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = b"XORCH_TASK=no\0ORCH_TASKS=no\0ORCH_TASK=a=b\0";
        assert_eq!(variable(environ, "ORCH_TASK"), Some(OsStr::new("a=b")));
        assert_eq!(variable(environ, "ORCH_WATCHER"), None);
    }

    #[test]
    fn we_are_our_own_first_ancestor() {
        let line = self_and_ancestors();
        assert_eq!(line[0], i32::try_from(std::process::id()).unwrap());
        assert!(line.len() > 1);
    }
}
