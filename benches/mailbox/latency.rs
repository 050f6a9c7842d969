//! How long from handing in a task until its program runs, with everybody idle.
//!
//! The program says that it runs with its first instructions: no library, no loader, only a word into
//! a fifo, so that what is measured is the way to its start and not its own. Where there is no C
//! compiler to make it, a shell does the same. What it takes to start stands in the first line.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::lab::{Lab, Result, Root, Watcher, find, must, now_ns, percentile};
use crate::peers::{self, Idle, PEERS, Peer, drop_by_rename};
use crate::table::{self, Goal};

const SAMPLES: usize = 200;
/// What the program says.
const WORD: &str = "up";
/// Between two samples, for everybody to come to rest.
const REST: Duration = Duration::from_millis(6);

/// Where the program says when it started.
struct Stamps {
    path: PathBuf,
    fifo: File,
}

impl Stamps {
    fn new(lab: &Lab) -> Result<Stamps> {
        let path = lab.fresh()?.join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        // Open for both, so that it never ends.
        let fifo = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Stamps { path, fifo })
    }

    /// Hands in one task after the other.
    fn sample(&mut self, mut hand_in: impl FnMut() -> Result<()>) -> Result<Vec<u64>> {
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let before = now_ns();
            hand_in()?;
            samples.push(self.next()?.saturating_sub(before));
            thread::sleep(REST);
        }
        Ok(samples)
    }

    /// When the program said that it runs.
    fn next(&mut self) -> Result<u64> {
        let mut word = [0; WORD.len()];
        self.fifo.read_exact(&mut word)?;
        Ok(now_ns())
    }
}

/// An idle `orch watch`.
struct Orch {
    root: Root,
    watcher: Watcher,
    handed_in: u32,
}

impl Orch {
    fn start(lab: &Lab, command: &[&str]) -> Result<Orch> {
        let root = lab.root(command)?;
        let watcher = root.watch(&["--jobs", "2", "--durability", "process"], Stdio::null())?;
        Ok(Orch {
            root,
            watcher,
            handed_in: 0,
        })
    }

    fn next(&mut self) -> PathBuf {
        self.handed_in += 1;
        self.root
            .folder("inbox")
            .join(format!("t{:06}.task", self.handed_in))
    }
}

/// The program in C, on system calls alone.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <sys/syscall.h>
long syscall(long, ...);
void _start(void) {
    long fifo = syscall(SYS_openat, AT_FDCWD, FIFO, O_WRONLY);
    syscall(SYS_write, fifo, WORD, sizeof WORD - 1);
    syscall(SYS_exit_group, 0);
}
"#;

/// What is started: the program, or a shell where it cannot be made.
fn program(lab: &Lab, fifo: &Path) -> Result<Vec<String>> {
    let dir = lab.fresh()?;
    let (source, made) = (dir.join("up.c"), dir.join("up"));
    fs::write(&source, SOURCE)?;
    let built = find("cc").is_some_and(|cc| {
        let mut command = Command::new(cc);
        command
            .args(["-O2", "-static", "-nostartfiles", "-o"])
            .args([&made, &source])
            .arg(format!("-DFIFO=\"{}\"", fifo.display()))
            .arg(format!("-DWORD=\"{WORD}\""));
        must(&mut command).is_ok()
    });
    if built {
        return Ok(vec![made.display().to_string()]);
    }
    println!("no C compiler: a shell is started instead of the smallest program");
    let script = format!("printf {WORD} > {}", fifo.display());
    Ok(["/bin/sh", "-c", &script].map(str::to_owned).to_vec())
}

pub fn run(lab: &Lab) -> Result<()> {
    let mut stamps = Stamps::new(lab)?;
    let program = program(lab, &stamps.path)?;
    let words: Vec<&str> = program.iter().map(String::as_str).collect();

    let floor = stamps.sample(|| must(Command::new(words[0]).args(&words[1..])))?;
    let mut orch = Orch::start(lab, &words)?;
    let elsewhere = orch.root.path.clone();
    drop_by_rename(&elsewhere, &orch.next())?;
    stamps.next()?;
    thread::sleep(Duration::from_millis(200));
    let renamed = stamps.sample(|| drop_by_rename(&elsewhere, &orch.next()))?;
    let written = stamps.sample(|| Ok(fs::write(orch.next(), "task\n")?))?;
    orch.watcher.stop()?;

    let mut others = Vec::new();
    for peer in &PEERS {
        if let Some(start) = peer.idle.filter(|_| peers::is_installed(peer)) {
            let mut idle: Box<dyn Idle> = start(lab, &words)?;
            thread::sleep(Duration::from_millis(200));
            stamps.settle()?;
            others.push((peer, stamps.sample(|| idle.hand_in())?));
        }
    }
    show(&floor, &renamed, &written, &others);
    Ok(())
}

impl Stamps {
    /// Forgets what came in while a peer was started.
    fn settle(&mut self) -> Result<()> {
        while rustix::io::ioctl_fionread(&self.fifo)? > 0 {
            self.next()?;
        }
        Ok(())
    }
}

fn show(floor: &[u64], renamed: &[u64], written: &[u64], others: &[(&Peer, Vec<u64>)]) {
    table::heading(
        "drop to start, idle, 200 samples",
        ["p50 ms", "p99 ms", "of best queue"],
    );
    let best = others
        .iter()
        .filter(|(peer, _)| peer.is_queue)
        .map(|(_, samples)| percentile(samples, 50))
        .min();
    let line = |name: &str, samples: &[u64], goal: bool| {
        let (half, most) = (percentile(samples, 50), percentile(samples, 99));
        let share = best.map(|best| half as f64 / best as f64);
        let goal = share.filter(|_| goal).map(|share| {
            Goal::at_most(
                share,
                0.5,
                "half of the best queue's; a loop that claims nothing is left out",
            )
        });
        let share = share.map(|share| format!("{share:.2}")).unwrap_or_default();
        table::line(name, [millis(half), millis(most), share], goal);
    };
    line("the program alone", floor, false);
    line("orch, renamed into the inbox", renamed, true);
    line("orch, written in the inbox", written, true);
    for (peer, samples) in others {
        line(peer.name, samples, false);
    }
}

fn millis(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e6)
}
