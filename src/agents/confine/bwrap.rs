//! What bubblewrap is told: everything read-only, the scope writable, and on top of that what stays
//! closed. Unlike a rule of the kernel, a mount can leave something out again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::grants::is_device;
use super::launch::Grant;
use super::letter::Right;
use crate::spec::policy::Network;

const SHARED_MEMORY: &str = "/dev/shm";

/// What the arguments are made of.
pub(super) struct Plan<'a> {
    pub grants: &'a [Grant],
    /// Folders inside of the grants that nobody can put another in the place of.
    pub pinned: &'a [PathBuf],
    /// Files and folders inside of the grants that stay read-only.
    pub closed: &'a [PathBuf],
    pub limit_reads: bool,
    pub network: Network,
    pub cwd: &'a Path,
    pub root: &'a Path,
}

/// The arguments, but for the agent's environment and command.
pub(super) fn arguments(plan: &Plan<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let bind = |args: &mut Vec<OsString>, how: &str, path: &Path| {
        let path = path.as_os_str();
        args.extend([how.into(), path.to_owned(), path.to_owned()]);
    };
    if !plan.limit_reads {
        bind(&mut args, "--ro-bind", Path::new("/"));
    }
    // Devices that keep nothing, and shared memory of its own: ours is a folder like any other.
    args.extend(["--dev".into(), "/dev".into()]);
    if !plan.limit_reads && plan.root.starts_with(SHARED_MEMORY) {
        bind(&mut args, "--ro-bind", Path::new(SHARED_MEMORY));
    }
    let granted = |right: Right| {
        let grants = plan.grants.iter();
        let grants = grants.filter(move |grant| grant.right == right);
        grants.map(|grant| grant.path.as_path())
    };
    if plan.limit_reads {
        granted(Right::Read)
            .filter(|path| *path != Path::new("/dev"))
            .for_each(|path| bind(&mut args, "--ro-bind", path));
    }
    granted(Right::Write)
        .filter(|path| !is_device(path))
        .for_each(|path| bind(&mut args, "--bind", path));
    let (pinned, closed) = (plan.pinned.iter(), plan.closed.iter());
    pinned.for_each(|path| bind(&mut args, "--bind", path));
    closed.for_each(|path| bind(&mut args, "--ro-bind", path));
    args.extend(["--proc".into(), "/proc".into()]);
    args.extend(["--unshare-pid".into(), "--unshare-ipc".into()]);
    args.push("--die-with-parent".into());
    args.extend(powers());
    if plan.network == Network::None {
        args.push("--unshare-net".into());
    }
    args.extend(["--chdir".into(), plan.cwd.as_os_str().to_owned()]);
    args
}

/// What root keeps: its way with files, and none of what goes past a wall. An ordinary user has
/// nothing to give up.
fn powers() -> Vec<OsString> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let mut args: Vec<OsString> = ["--cap-drop", "ALL"].map(OsString::from).to_vec();
    for kept in [
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "SETGID",
        "SETUID",
    ] {
        args.extend(["--cap-add".into(), format!("CAP_{kept}").into()]);
    }
    args
}
