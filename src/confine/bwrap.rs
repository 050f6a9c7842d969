//! What bubblewrap is told: everything read-only, the scope writable, and on top of that what stays
//! closed. Unlike a rule of the kernel, a mount can leave something out again.

use std::ffi::OsString;
use std::path::Path;

use super::launch::Grant;
use super::letter::Right;
use super::wish::Network;

/// What the arguments are made of.
pub(super) struct Walls<'a> {
    pub grants: &'a [Grant],
    /// Files and folders inside of the grants that stay read-only.
    pub closed: &'a [&'a Path],
    pub limit_reads: bool,
    pub network: Network,
    pub cwd: &'a Path,
}

/// The arguments, but for the agent's environment and command.
pub(super) fn arguments(walls: &Walls<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut bind = |how: &str, path: &Path| {
        args.extend([
            how.into(),
            path.as_os_str().to_owned(),
            path.as_os_str().to_owned(),
        ]);
    };
    if walls.limit_reads {
        let reads = walls
            .grants
            .iter()
            .filter(|grant| grant.right == Right::Read);
        reads.for_each(|grant| bind("--ro-bind", &grant.path));
    } else {
        bind("--ro-bind", Path::new("/"));
    }
    bind("--dev-bind", Path::new("/dev"));
    let writes = walls
        .grants
        .iter()
        .filter(|grant| grant.right == Right::Write);
    let outside_dev = writes.filter(|grant| !grant.path.starts_with("/dev"));
    outside_dev.for_each(|grant| bind("--bind", &grant.path));
    walls.closed.iter().for_each(|path| bind("--ro-bind", path));
    args.extend(["--proc".into(), "/proc".into()]);
    args.extend(["--unshare-pid".into(), "--unshare-ipc".into()]);
    args.push("--die-with-parent".into());
    if walls.network == Network::None {
        args.push("--unshare-net".into());
    }
    args.extend(["--chdir".into(), walls.cwd.as_os_str().to_owned()]);
    args
}
