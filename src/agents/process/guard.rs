//! The guard: orch itself, started once per watcher, waiting for the watcher to die.
//!
//! It learns of the death by the end of file on a pipe whose other end only the watcher holds, and
//! then sweeps what the watcher left. It must never act while its watcher lives, never print, and
//! never be the watcher's child: it is started in two steps, before the watcher adopts orphans.

use std::ffi::OsStr;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::signals::go_on;
use super::sweep::sweep_one;
use crate::disk::safety::Dir;
use crate::text::error::exit;

/// The hidden command that is the guard: `guard --logs DIR --id ID`.
pub const GUARD: &str = "guard";
/// The hidden command that starts it: `guard-launch --logs DIR --id ID`.
pub const GUARD_LAUNCH: &str = "guard-launch";

/// The program that this process runs, also when its file was replaced since.
pub(super) fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Starts the guard through a process that is gone when this returns. The guard lives for as long
/// as the answer is held.
pub(super) fn start(program: &Path, logs: &Dir, id: &str) -> io::Result<PipeWriter> {
    let (reader, writer) = io::pipe()?;
    let status = command(program, GUARD_LAUNCH, logs.path(), id)
        .process_group(0)
        .stdin(reader)
        .status()?;
    if !status.success() {
        let said = format!("the guard did not start: {status}");
        return Err(io::Error::other(said));
    }
    Ok(writer)
}

fn command(program: &Path, word: &str, logs_dir: &Path, id: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args([OsStr::new(word), OsStr::new("--logs"), logs_dir.as_os_str()])
        .args(["--id", id])
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The command `guard-launch`: starts the guard with our stdin and goes. Answers the exit code.
#[must_use]
pub fn guard_launch_main(logs_dir: &Path, id: &str) -> u8 {
    let guard = own_program().and_then(|program| command(&program, GUARD, logs_dir, id).spawn());
    match guard {
        Ok(_) => exit::DONE,
        Err(_) => exit::FAILED,
    }
}

/// The command `guard`: waits for the end of stdin, then sweeps what the dead watcher left; after a
/// clean end there is nothing to do. Answers the exit code.
#[must_use]
pub fn guard_main(logs_dir: &Path, id: &str) -> u8 {
    // Away from the terminal, and deaf to what is meant for the watcher.
    let _ = rustix::process::setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let _ = go_on(signal);
    }
    // Opened now, while the watcher holds the folder: later its name may lead elsewhere.
    let Ok(logs) = Dir::open_named_by_user(logs_dir) else {
        return exit::FAILED;
    };
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    match sweep_one(&logs, id) {
        Ok(report) if report.stuck.is_empty() => exit::DONE,
        _ => exit::FAILED,
    }
}
