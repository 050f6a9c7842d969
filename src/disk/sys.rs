//! The system calls that neither std nor rustix offers, each behind a safe function.
//!
//! This is the only file with `unsafe`: leases, `close_range`, namespaces, the attributes of a mount
//! and the version of Landlock exist nowhere else as safe calls.
//! No state, no decisions: one call in, one result out.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Takes a read lease on an open file: refused with `EAGAIN` while anyone has the file open for writing.
/// When the lease is broken the process gets SIGIO, for which the caller must have a handler.
///
/// # Errors
/// Whatever `fcntl(F_SETLEASE)` says; `EAGAIN` means a writer, others mean "no leases here".
pub fn set_read_lease(fd: impl AsFd) -> io::Result<()> {
    setlease(fd.as_fd(), libc::F_RDLCK)
}

/// Releases a lease.
///
/// # Errors
/// Whatever `fcntl(F_SETLEASE)` says.
pub fn drop_lease(fd: impl AsFd) -> io::Result<()> {
    setlease(fd.as_fd(), libc::F_UNLCK)
}

fn setlease(fd: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: F_SETLEASE takes an int and touches no memory of ours; the descriptor is borrowed.
    let answer = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Marks every descriptor above stderr as close-on-exec, so that nothing that the parent of orch
/// left open reaches an agent.
///
/// # Errors
/// If neither `close_range` nor `/proc/self/fd` works.
pub fn cloexec_all_inherited() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: with CLOSE_RANGE_CLOEXEC no descriptor is closed, only a flag is set on each, so no
    // owner loses what it owns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            last,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    cloexec_one_by_one()
}

/// The version of Landlock that the kernel offers; 0 where it has none, or has it turned off.
#[must_use]
pub fn landlock_version() -> i32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with no attributes, no size and this flag the call only answers a number.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    i32::try_from(answer).unwrap_or(0).max(0)
}

/// Gives this process a view of the mounts that is its own.
///
/// # Errors
/// If that is not permitted.
pub fn own_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)
}

/// The same for an ordinary user, who needs a user namespace for it.
///
/// # Errors
/// If the system does not let users have namespaces, or this process has more than one thread.
pub fn own_users_and_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: neither of these two flags touches the table of descriptors.
    unsafe { Ok(unshare_unsafe(flags)?) }
}

/// Makes the mount at this path read-only, and only that one.
///
/// # Errors
/// If there is none, or it may not be changed.
pub fn close_mount(path: &CStr) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path and the attributes outlive the call, and the size is that of the attributes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// For kernels before 5.11 and sandboxes that refuse `close_range`.
fn cloexec_one_by_one() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if fd < 3 {
            continue;
        }
        // SAFETY: the descriptor was open a moment ago; if it is gone by now the call answers
        // EBADF, and setting the flag on whatever reused the number is what is wanted anyway.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Ok(flags) = fcntl_getfd(fd) {
            let _ = fcntl_setfd(fd, flags | FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_refused_while_a_writer_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let writer = fs::File::create(&path).unwrap();
        let reader = fs::File::open(&path).unwrap();
        let refused = set_read_lease(&reader).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        drop(writer);
        set_read_lease(&reader).unwrap();
        drop_lease(&reader).unwrap();
    }

    #[test]
    fn both_ways_set_close_on_exec() {
        let dir = tempfile::tempdir().unwrap();
        for mark in [cloexec_all_inherited, cloexec_one_by_one] {
            let file = fs::File::create(dir.path().join("f")).unwrap();
            fcntl_setfd(&file, FdFlags::empty()).unwrap();
            mark().unwrap();
            assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
        }
    }
}
