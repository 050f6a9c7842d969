//! What bubblewrap is told: everything read-only, the scope writable, and on top of that what stays
//! closed. Unlike a rule of the kernel, a mount can leave something out again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::launch::Grant;
use super::letter::Right;
use super::wish::Network;

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
}

/// The arguments, but for the agent's environment and command.
pub(super) fn arguments(plan: &Plan<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut bind = |how: &str, path: &Path| {
        args.extend([
            how.into(),
            path.as_os_str().to_owned(),
            path.as_os_str().to_owned(),
        ]);
    };
    if plan.limit_reads {
        let reads = plan
            .grants
            .iter()
            .filter(|grant| grant.right == Right::Read);
        reads.for_each(|grant| bind("--ro-bind", &grant.path));
    } else {
        bind("--ro-bind", Path::new("/"));
    }
    bind("--dev-bind", Path::new("/dev"));
    let writes = plan
        .grants
        .iter()
        .filter(|grant| grant.right == Right::Write);
    let outside_dev = writes.filter(|grant| !grant.path.starts_with("/dev"));
    outside_dev.for_each(|grant| bind("--bind", &grant.path));
    plan.pinned.iter().for_each(|path| bind("--bind", path));
    plan.closed.iter().for_each(|path| bind("--ro-bind", path));
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
