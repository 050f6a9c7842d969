//! The place where things are measured: fresh folders, fresh roots, watchers, clocks.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::{ClockId, clock_gettime};

/// Whatever went wrong: then something is broken.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The agent whose inbox is used.
pub const AGENT: &str = "worker";

/// A folder in memory that everything happens in.
pub struct Lab {
    dir: tempfile::TempDir,
    made: AtomicU32,
}

impl Lab {
    pub fn new() -> Result<Lab> {
        let dir = match tempfile::tempdir_in("/dev/shm") {
            Ok(dir) => dir,
            Err(e) => {
                println!(
                    "no /dev/shm ({e}): measured in {}",
                    std::env::temp_dir().display()
                );
                tempfile::tempdir()?
            }
        };
        Ok(Lab {
            dir,
            made: AtomicU32::new(0),
        })
    }

    /// A folder that nobody has used.
    pub fn fresh(&self) -> Result<PathBuf> {
        let path = self
            .dir
            .path()
            .join(self.made.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// A root whose only agent runs this command.
    pub fn root(&self, command: &[&str]) -> Result<Root> {
        let root = Root {
            path: self.fresh()?,
        };
        for folder in ["inbox", "artifacts", "processed"] {
            fs::create_dir_all(root.path.join(folder).join(AGENT))?;
        }
        fs::create_dir_all(root.path.join("specs/agents"))?;
        let specs = root.path.join("specs");
        fs::write(specs.join("orch.yaml"), "")?;
        let providers = format!("providers: {{\"bench\": {{command: {command:?}}}}}\n");
        fs::write(specs.join("providers.yaml"), providers)?;
        let agent = specs.join("agents").join(format!("{AGENT}.md"));
        fs::write(agent, "---\nprovider: bench\n---\n")?;
        Ok(root)
    }
}

/// A root of orch.
pub struct Root {
    pub path: PathBuf,
}

impl Root {
    /// The folder of the agent in this area.
    pub fn folder(&self, area: &str) -> PathBuf {
        self.path.join(area).join(AGENT)
    }

    /// Puts this many tasks into the inbox.
    pub fn fill(&self, count: u32) -> Result<()> {
        let inbox = self.folder("inbox");
        for n in 0..count {
            fs::write(inbox.join(format!("t{n:06}.task")), format!("task {n}\n"))?;
        }
        Ok(())
    }

    /// Starts `orch watch`. Its standard output has one line for each finished task.
    pub fn watch(&self, words: &[&str], out: Stdio) -> Result<Watcher> {
        let began = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_orch"))
            .arg("--root")
            .arg(&self.path)
            .arg("watch")
            .args(words)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Watcher { child, began })
    }

    /// Whether all of them have been done.
    pub fn check_done(&self, count: u32) -> Result<()> {
        let done = fs::read_dir(self.folder("processed"))?
            .flatten()
            .filter(|entry| entry.path().extension() == Some(OsStr::new("task")))
            .count();
        if done != count as usize {
            return Err(format!("orch finished {done} of {count} tasks").into());
        }
        Ok(())
    }
}

/// A running `orch watch`.
pub struct Watcher {
    child: Child,
    pub began: Instant,
}

/// What a watcher used, its children excluded.
pub struct Used {
    pub wall: Duration,
    pub cpu: Duration,
}

impl Watcher {
    pub fn lines(&mut self) -> Result<Lines<BufReader<ChildStdout>>> {
        let out = self.child.stdout.take().ok_or("it has no output")?;
        Ok(BufReader::new(out).lines())
    }

    /// Waits for its end. Its times are read while it is a zombie: then they are all there.
    pub fn wait(mut self) -> Result<Used> {
        let pid = Pid::from_child(&self.child);
        waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
        let wall = self.began.elapsed();
        let cpu = self.cpu()?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("orch ended with {status}").into());
        }
        Ok(Used { wall, cpu })
    }

    /// User and system time so far, without its children.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, rest) = stat.rsplit_once(')').ok_or("no stat")?;
        let ticks: u64 = rest
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?)
    }

    /// The most memory that it had at a time, in MiB.
    pub fn peak_memory(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next());
        Ok(kib.ok_or("no VmHWM")?.parse::<f64>()? / 1024.0)
    }

    /// Ends it as a person would.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        match status.code() {
            Some(143) => Ok(()),
            _ => Err(format!("orch ended with {status} on SIGTERM").into()),
        }
    }
}

/// The program that runs when nothing is to be measured but the way there.
pub fn nothing() -> Command {
    let mut command = Command::new("/bin/true");
    quiet(command.env_clear());
    command
}

/// With nothing to read and nowhere to print.
pub fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Runs a command that must succeed.
pub fn must(command: &mut Command) -> Result<()> {
    let status = quiet(command).status()?;
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    Ok(())
}

/// Where a program is, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// The monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The middle one.
pub fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    percentile(values, 50)
}

/// The value that this part of all do not exceed.
pub fn percentile<T: Copy + PartialOrd>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    sorted[(sorted.len() - 1) * percent / 100]
}
