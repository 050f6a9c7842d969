//! What this system offers: the file system under the root, the kernel, the limits.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, Access, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};

use super::Checks;
use crate::agents::confine;
use crate::agents::process;
use crate::disk::lock;
use crate::disk::root::{RUNTIME_FOLDERS, Root};
use crate::disk::safety::Dir;
use crate::disk::sys;
use crate::ui::report::size;

/// Names of file systems by their magic numbers.
const FILE_SYSTEMS: [(u64, &str); 15] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
];

/// Free space below which a disk is about to be full.
const LITTLE: u64 = 1 << 30;
const TOO_LITTLE: u64 = 64 << 20;
const FEW_INODES: u64 = 10_000;
const TOO_FEW_INODES: u64 = 100;

/// The root's own folders.
pub(super) fn check_root(checks: &mut Checks, root: &Root) {
    checks.good(
        "layout",
        format!(
            "{} are folders on one file system",
            RUNTIME_FOLDERS.join(", ")
        ),
    );
    let is_writable = |name: &&str| {
        let dir = root.dir.sub(name);
        dir.is_ok_and(|dir| {
            fs::accessat(
                dir.as_fd(),
                ".",
                Access::WRITE_OK | Access::EXEC_OK,
                AtFlags::EACCESS,
            )
            .is_ok()
        })
    };
    let (_, locked): (Vec<&str>, Vec<&str>) =
        RUNTIME_FOLDERS.iter().partition(|name| is_writable(name));
    if locked.is_empty() {
        checks.good("writable", "all of them");
    } else {
        let folders = locked.join(", ");
        checks.bad(
            "writable",
            format!("you may not write in {folders}"),
            format!("`chown` or `chmod u+rwx` {folders}"),
        );
    }
    check_space(checks, root);
    check_file_system(checks, root);
}

fn check_space(checks: &mut Checks, root: &Root) {
    let Ok(stat) = fs::fstatvfs(root.dir.as_fd()) else {
        return checks.note("disk", "the file system does not tell how much is free");
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let mut detail = format!("{} free", size(free));
    // Some file systems make inodes as they go, and say 0.
    let inodes = (stat.f_files > 0).then_some(stat.f_favail);
    if let Some(inodes) = inodes {
        detail.push_str(&format!(", {inodes} inodes"));
    }
    let inodes = inodes.unwrap_or(u64::MAX);
    let todo = "make room; `orch clean-processed --archive FILE.tar.gz` removes old tasks";
    if free < TOO_LITTLE || inodes < TOO_FEW_INODES {
        checks.bad("disk", detail, todo);
    } else if free < LITTLE || inodes < FEW_INODES {
        checks.advise("disk", detail, todo);
    } else {
        checks.good("disk", detail);
    }
}

fn check_file_system(checks: &mut Checks, root: &Root) {
    let kind = fs::fstatfs(root.dir.as_fd()).map_or(0, |stat| stat.f_type as u64 & 0xffff_ffff);
    let known = FILE_SYSTEMS.iter().find(|(number, _)| *number == kind);
    let name = known.map_or_else(
        || format!("unknown kind {kind:#x}"),
        |(_, name)| (*name).to_owned(),
    );
    if root.remote {
        checks.advise(
            "file system",
            format!("{name}: locks and renames may not hold"),
            "move the root to a local disk, or start `orch watch --any-fs`, which polls",
        );
    } else {
        checks.good("file system", name);
    }
    let temp = format!(".doctor-{}", uuid::Uuid::now_v7());
    match root.logs.create_new(&temp) {
        Ok(file) => try_file(checks, &root.logs, &temp, &file),
        Err(e) => checks.bad(
            "a file in logs/",
            format!("cannot be made: {e}"),
            "make logs/ writable, and see whether the disk is full",
        ),
    }
    let _ = root.logs.remove(&temp);
    match root.logs.create_unnamed() {
        Ok(_) => checks.good("unnamed files (O_TMPFILE)", "work"),
        Err(e) => checks.note(
            "unnamed files (O_TMPFILE)",
            format!("{e}; hidden files with a name are used instead"),
        ),
    }
}

fn try_file(checks: &mut Checks, dir: &Dir, name: &str, file: &File) {
    match lock::try_exclusive(file) {
        Ok(true) => checks.good("locks (flock)", "work"),
        Ok(false) => checks.bad(
            "locks (flock)",
            "a new file is locked already",
            "move the root to another file system",
        ),
        Err(e) => checks.bad(
            "locks (flock)",
            e.to_string(),
            "without locks two watchers could take one task: move the root to another file system",
        ),
    }
    match lease(dir, name) {
        Ok(()) => checks.good(
            "leases",
            "work: a task is taken as soon as its writer closes it",
        ),
        Err(e) => checks.note(
            "leases",
            format!("{e}; a task is taken when it has not changed for 500 ms"),
        ),
    }
    match rename(dir, name) {
        Ok(()) => checks.good("rename without replacing", "works"),
        Err(e) => checks.note(
            "rename without replacing",
            format!("{e}; link and unlink are used instead"),
        ),
    }
}

/// On a file that nobody has open for writing.
fn lease(dir: &Dir, name: &str) -> io::Result<()> {
    let other = format!("{name}-lease");
    drop(dir.create_new(&other)?);
    let tried = dir.open(&other).and_then(|file| {
        sys::set_read_lease(&file)?;
        sys::drop_lease(&file)
    });
    dir.remove(&other)?;
    tried
}

/// There and back.
fn rename(dir: &Dir, name: &str) -> io::Result<()> {
    let other = format!("{name}-renamed");
    let flags = RenameFlags::NOREPLACE;
    fs::renameat_with(dir.as_fd(), name, dir.as_fd(), &other, flags)?;
    fs::renameat_with(dir.as_fd(), &other, dir.as_fd(), name, flags)?;
    Ok(())
}

/// The kernel, whatever the root.
pub(super) fn check(checks: &mut Checks, root: Option<&Root>) {
    checks.area("system");
    check_openat2(checks);
    check_inotify(checks, root);
    match process::become_subreaper() {
        Ok(()) => checks.good(
            "orphans",
            "are adopted (subreaper), and ended with their task",
        ),
        Err(e) => checks.bad(
            "orphans",
            format!("cannot be adopted: {e}"),
            "`orch watch` needs a kernel of 3.4 or later",
        ),
    }
    check_sandbox(checks);
    if process::cgroup_is_available() {
        checks.good(
            "cgroup",
            "each watcher has one, with a place for each job: nothing escapes it",
        );
    } else {
        checks.note(
            "cgroup",
            "not available: a process that clears its environment and closes its output can escape",
        );
    }
}

/// What holds agents to their `writes`, `reads` and `network`.
fn check_sandbox(checks: &mut Checks) {
    let kernel = confine::kernel();
    let version = kernel.landlock;
    let lacks = [
        (kernel.holds_network(), "the network"),
        (kernel.holds_signals(), "signals to orch"),
    ];
    let lacks: Vec<&str> = lacks
        .into_iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, what)| what)
        .collect();
    if !kernel.holds_writes() {
        checks.note(
            "sandbox",
            match version {
                0 => "this kernel has no Landlock: writes outside of `writes` are only found afterwards, and `sandbox: required` is refused".to_owned(),
                _ => format!("Landlock {version} is too old to hold writes (Linux 6.2 or later does): they are compared as well, and `sandbox: required` is refused"),
            },
        );
    } else if lacks.is_empty() {
        checks.good(
            "sandbox",
            format!("Landlock {version}: writes, reads, TCP and signals are held by the kernel"),
        );
    } else {
        checks.note(
            "sandbox",
            format!(
                "Landlock {version}: writes and reads are held by the kernel, but not {}",
                lacks.join(" and ")
            ),
        );
    }
    if confine::has_walls() {
        checks.good("mounts of its own", "a confined agent has them: modes, owners and times are held too, and `.git/config` and `.git/hooks` of a checkout");
    } else {
        checks.note("mounts of its own", "a confined agent cannot have them here (no user namespaces): modes, owners and times of files are not held, and changes of `.git/config` and `.git/hooks` are only found afterwards");
    }
    match confine::bubblewrap() {
        Some(path) => checks.good("bubblewrap", format!("{}", path.display())),
        None => checks.note(
            "bubblewrap",
            "not installed: `sandbox: bwrap` falls back on Landlock",
        ),
    }
}

fn check_openat2(checks: &mut Checks) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat2(fs::CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(_) => checks.good("openat2", "works"),
        Err(e) => checks.note(
            "openat2",
            format!("{e}; folders are opened one by one without following links, which is as safe"),
        ),
    }
}

fn check_inotify(checks: &mut Checks, root: Option<&Root>) {
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let shown = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let (watches, instances) = (limit("max_user_watches"), limit("max_user_instances"));
    let detail = format!(
        "{} watches, {} instances for each user",
        shown(watches),
        shown(instances)
    );
    let tried = root.map_or(Ok(()), try_watch);
    match tried {
        Ok(()) => checks.good("inotify", detail),
        Err(e) => checks.advise("inotify", format!("does not work: {e} ({detail})"), "raise fs.inotify.max_user_watches and max_user_instances with `sysctl`, or start `orch watch --poll 1s`"),
    }
}

fn try_watch(root: &Root) -> notify::Result<()> {
    use notify::Watcher;
    let mut watcher = notify::recommended_watcher(|_: notify::Result<notify::Event>| {})?;
    watcher.watch(root.inbox.path(), notify::RecursiveMode::NonRecursive)
}
