//! From paths to open handles, around what must stay closed.
//!
//! A rule of the kernel opens a folder with everything below it and cannot leave anything out. So a
//! folder with something of orch's in it is not opened itself: its entries are, one by one. Then
//! nothing new can be made in the folder itself, which is the safe side.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::launch::Grant;
use super::letter::Right;
use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::spec::policy::scope::{Cover, Pattern, cover, is_named_inbox};
use crate::text::error::{Fault, Kind, Result};

/// More entries than this are not opened one by one.
const MOST: usize = 4096;

/// Opens what a glob of `writes` means; a folder that is missing is made.
pub(super) fn of_pattern(out: &mut Vec<Grant>, root: &Root, pattern: &Pattern) -> Result<()> {
    let path = root.path.join(&pattern.base);
    if is_file(root, pattern)? {
        // Its folder, so that it can be made and replaced; what else changes there is compared.
        let folder = path.parent().unwrap_or(&root.path);
        return match cover(&root.path, folder) {
            Cover::Free => open(out, folder, Right::Write),
            Cover::Own if is_named_inbox(&pattern.base) => open(out, folder, Right::Write),
            _ => open(out, &path, Right::Write),
        };
    }
    match cover(&root.path, &path) {
        Cover::Free => open(out, &path, Right::Write),
        Cover::Own if is_named_inbox(&pattern.base) => open(out, &path, Right::Write),
        Cover::Own => Ok(()),
        Cover::Around => entries(out, &root.path, &path, &|name| pattern.may_match(name)),
    }
}

/// Whether a plain path is that of a file; where nothing is there, a name with a dot in it is one,
/// and anything else is made as a folder.
fn is_file(root: &Root, pattern: &Pattern) -> Result<bool> {
    let told = |e: &io::Error| {
        let message = format!("`{}` in `writes` cannot be used: {e}", pattern.base);
        Fault::new(Kind::SafetyViolation, message)
            .hint("a folder that is written to must be a real folder of the root, not a link")
    };
    let mut parts: Vec<&str> = pattern.base.split('/').filter(|p| !p.is_empty()).collect();
    let last = match (pattern.rest.is_empty(), parts.pop()) {
        (true, Some(last)) => Some(last),
        (_, last) => {
            parts.extend(last);
            None
        }
    };
    let top = root.dir.path().to_path_buf();
    let mut dir = Dir::open_named_by_user(&top).map_err(|e| told(&e))?;
    for part in parts {
        dir = dir.make(part).map_err(|e| told(&e))?;
    }
    let Some(last) = last else {
        return Ok(false);
    };
    match dir.find(last).map_err(|e| told(&e))? {
        Some(meta) if meta.kind == rustix::fs::FileType::Directory => Ok(false),
        Some(meta) if meta.kind == rustix::fs::FileType::Symlink => {
            Err(told(&io::Error::other("it is a link")))
        }
        Some(_) => Ok(true),
        None if last.trim_start_matches('.').contains('.') => Ok(true),
        None => {
            dir.make(last).map_err(|e| told(&e))?;
            Ok(false)
        }
    }
}

/// Opens a folder or file that is outside of the globs, around the root where that is inside it.
pub(super) fn of_path(out: &mut Vec<Grant>, root: &Path, path: &Path, right: Right) -> Result<()> {
    if right == Right::Read {
        return open(out, path, right);
    }
    match cover(root, path) {
        Cover::Free => open(out, path, right),
        Cover::Own => Ok(()),
        Cover::Around if path == root => Ok(()),
        Cover::Around => entries(out, root, path, &|_| true),
    }
}

/// Opens the base of a glob of `reads`.
pub(super) fn of_reads(out: &mut Vec<Grant>, root: &Path, pattern: &Pattern) -> Result<()> {
    open(out, &root.join(&pattern.base), Right::Read)
}

/// Opens the entries of a folder, but for what is orch's.
fn entries(
    out: &mut Vec<Grant>,
    root: &Path,
    folder: &Path,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let told = |e: &io::Error| Fault::io("list", folder, e);
    for entry in fs::read_dir(folder).map_err(|e| told(&e))? {
        let entry = entry.map_err(|e| told(&e))?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let is_root = path == root;
        if is_link || is_root || !wanted(&name.to_string_lossy()) {
            continue;
        }
        match cover(root, &path) {
            Cover::Free => open(out, &path, Right::Write)?,
            Cover::Own => {}
            Cover::Around => entries(out, root, &path, &|_| true)?,
        }
        if out.len() > MOST {
            let message = format!(
                "`{}` has orch's own folders in it and more than {MOST} entries beside them",
                folder.display()
            );
            return Err(Fault::new(Kind::LimitExceeded, message)
                .hint("name the folders that are written to in `writes`"));
        }
    }
    Ok(())
}

/// Where nothing is there is nothing to open.
fn open(out: &mut Vec<Grant>, path: &Path, right: Right) -> Result<()> {
    match handle(path) {
        Ok(fd) => {
            out.push(Grant {
                fd,
                path: path.to_path_buf(),
                right,
            });
            Ok(())
        }
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        // What orch itself cannot reach is closed to the agent as well.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(Fault::io("open", path, &e)),
    }
}

fn handle(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// What every program needs to read, where reads are limited: the system itself.
pub(super) const SYSTEM: &[&str] = &[
    "/bin",
    "/sbin",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/snap",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/run/systemd/resolve",
    "/dev",
    "/proc",
    "/sys",
];

/// What every program may write: devices that keep nothing.
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Whether it is one of those.
pub(super) fn is_device(path: &Path) -> bool {
    DEVICES.iter().any(|device| path == Path::new(device))
}

/// The folders of a program: where its name leads, and where it really is.
pub(super) fn program_folders(program: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(program).ok();
    [Some(program.to_path_buf()), real]
        .into_iter()
        .flatten()
        .filter_map(|path| path.parent().map(Path::to_path_buf))
        .collect()
}
