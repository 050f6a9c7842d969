//! What the tests of running agents share: gates that hold a script back, and unique words that
//! find a process again.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::harness::{Bed, wait_for};

/// A fifo that scripts wait at: `read x < PATH`.
pub struct Gate {
    pub path: PathBuf,
    file: File,
}

impl Gate {
    /// A gate outside the root. It is held open, so that neither side waits for the other to come.
    pub fn new(bed: &Bed, name: &str) -> Gate {
        let path = bed.outside.join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        Gate { path, file }
    }

    /// Lets this many through, now or later.
    pub fn let_through(&mut self, how_many: usize) {
        self.file
            .write_all("\n".repeat(how_many).as_bytes())
            .unwrap();
    }

    /// The line of a script that waits here, after it has said so in the file `started`.
    pub fn wait_here(&self, bed: &Bed) -> String {
        let started = bed.outside.join("started");
        format!(
            "echo $$ >> {}; read x < {}",
            started.display(),
            self.path.display()
        )
    }
}

/// Waits until this many scripts have come to their gates.
pub fn wait_for_started(bed: &Bed, how_many: usize) {
    wait_for("the scripts to start", || {
        bed.count_lines("started") >= how_many
    });
}

impl Bed {
    /// Waits until the agents of all tasks but this one have ended.
    pub fn assert_only_runs(&self, target: &str) {
        let marker = format!("{}{target}", self.marker());
        wait_for("the other agents to end", || {
            self.agents_alive().iter().all(|pid| {
                fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| {
                    env.split(|byte| *byte == 0)
                        .any(|entry| entry == marker.as_bytes())
                })
            })
        });
    }
}

/// Whether the kernel tells this process what happens in a folder.
pub fn is_watching(pid: i32, folder: &Path) -> bool {
    let ino = format!(" ino:{:x} ", fs::metadata(folder).unwrap().ino());
    let open = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let mut infos = open.filter_map(|fd| fs::read_to_string(fd.ok()?.path()).ok());
    infos.any(|info| info.contains("inotify wd:") && info.contains(&ino))
}

/// A length of sleep that no other test uses, so that its sleeper is known by it.
pub fn nap(bed: &Bed, number: u32) -> String {
    let inode = fs::metadata(&bed.root).unwrap().ino();
    format!("{}.{number:03}", 100_000 + inode % 10_000_000)
}
