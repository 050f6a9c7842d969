//! What a test needs and not every machine has. A test that is skipped says so, past the capture of
//! its output: `skipped: TEST: REASON`. With `ORCH_TEST_STRICT=1`, what could be had is required.

use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};

use super::program::program;

/// Says that a test, or a part of it, is skipped for want of something that can be installed or granted;
/// fails it where nothing may be skipped.
#[track_caller]
pub fn skip(reason: &str) {
    say(reason);
    assert!(!is_strict(), "skipped: {reason}");
}

/// The same for what this machine cannot have, whoever asks for it: that is never a failure. Only for
/// its kernel, and for what a container withholds even from root: mounts, devices and loop devices.
#[track_caller]
pub fn skip_here(reason: &str) {
    say(reason);
}

fn is_strict() -> bool {
    std::env::var_os("ORCH_TEST_STRICT").is_some_and(|value| value == "1")
}

#[track_caller]
fn say(reason: &str) {
    let place = Location::caller();
    let thread = std::thread::current();
    let test = match thread.name() {
        Some("main") | None => format!("{}:{}", place.file(), place.line()),
        Some(name) => name.to_owned(),
    };
    let line = format!("skipped: {test}: {reason}\n");
    // `eprintln!` would be captured, and shown of a failed test only.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether these tests are root's.
#[track_caller]
pub fn root(what_for: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(&format!("only root can {what_for}"));
    }
    is_root
}

/// Where a program is.
#[track_caller]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("there is no `{name}`"));
    }
    found
}

/// Whether there are all of these programs.
#[track_caller]
pub fn programs(names: &[&str]) -> bool {
    for name in names {
        if find(name).is_none() {
            return false;
        }
    }
    true
}

/// Whether this folder of the system is there.
#[track_caller]
pub fn folder(path: &str) -> bool {
    let is_there = Path::new(path).is_dir();
    if !is_there {
        skip_here(&format!("there is no `{path}`"));
    }
    is_there
}

/// Whether root may mount here: a container can withhold it.
#[track_caller]
pub fn mounts() -> bool {
    if !(root("mount file systems") && programs(&["unshare", "mount"])) {
        return false;
    }
    let words = ["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"];
    let can = program("unshare").args(words).run().noisy().succeeds();
    if !can {
        skip_here("nothing can be mounted here");
    }
    can
}

/// Whether bubblewrap is there, and works.
#[track_caller]
pub fn bubblewrap() -> bool {
    if !programs(&["bwrap"]) {
        return false;
    }
    let words = ["--ro-bind", "/", "/", "--unshare-pid", "true"];
    let works = program("bwrap").args(words).run().noisy().succeeds();
    if !works {
        skip_here("bubblewrap may have no namespaces here");
    }
    works
}
