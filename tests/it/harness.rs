//! The test bed: a root in a temporary folder, scripts as providers, and `orch` as its user runs it.

pub mod needs;
mod program;
mod ran;
mod shield;
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use program::{Program, Running, program, shell, write_executable};
pub use ran::{End, Ended, KILLED, Ran};

/// How long anything may take before a test calls it stuck.
/// Long, since nothing is ever wrong with a machine that is slow.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The program under test.
pub fn orch() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orch"))
}

/// A root, and everything that a test does with it.
pub struct Bed {
    _temp: TempDir,
    pub root: PathBuf,
    pub outside: PathBuf,
}

impl Bed {
    /// A root with short limits and no agents.
    pub fn new() -> Bed {
        Bed::in_folder(&std::env::temp_dir())
    }

    /// The same, somewhere else.
    pub fn in_folder(folder: &Path) -> Bed {
        let temp = TempDir::with_prefix_in("orch-test-", folder).unwrap();
        let base = temp.path().canonicalize().unwrap();
        Bed::with_root(base.join("root"), temp)
    }

    /// The same, with the root itself on another file system than the rest.
    pub fn with_root(root: PathBuf, temp: TempDir) -> Bed {
        let bed = Bed {
            root,
            outside: temp.path().canonicalize().unwrap().join("outside"),
            _temp: temp,
        };
        for folder in ["inbox", "specs/agents"] {
            fs::create_dir_all(bed.root.join(folder)).unwrap();
        }
        fs::create_dir(&bed.outside).unwrap();
        bed.settings("limits: {grace: 200ms, backoff: 20ms}\n");
        bed
    }

    /// Writes `specs/orch.yaml`.
    pub fn settings(&self, yaml: &str) {
        self.write("specs/orch.yaml", format!("layout: 1\n{yaml}"));
    }

    /// Writes a file below the root.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// An agent whose provider is a shell script; the prompt is on its standard input.
    pub fn script(&self, agent: &str, script: &str) {
        self.script_with(agent, script, "", "");
    }

    /// The same, with more keys for the provider (YAML, one line each) and for the agent's file.
    pub fn script_with(&self, agent: &str, script: &str, provider: &str, front: &str) {
        let file = self.outside.join(format!("{agent}.sh"));
        write_executable(&file, format!("#!/bin/sh\n{script}\n"));
        let mut entry = format!("  {agent}-script:\n    command: [{}]\n", file.display());
        for line in provider.lines() {
            entry.push_str(&format!("    {line}\n"));
        }
        let path = self.root.join("specs/providers.yaml");
        let known = fs::read_to_string(&path).unwrap_or_else(|_| "providers:\n".to_owned());
        fs::write(path, known + &entry).unwrap();
        self.agent(agent, &format!("provider: {agent}-script\n{front}"), "");
    }

    /// An agent's file.
    pub fn agent(&self, agent: &str, front: &str, system: &str) {
        let text = format!("---\n{}\n---\n{system}", front.trim_end());
        self.write(&format!("specs/agents/{agent}.md"), text);
    }

    /// Drops a task as a user would: written elsewhere, then renamed.
    pub fn drop_task(&self, agent: &str, name: &str, text: impl AsRef<[u8]>) {
        self.write(&format!("inbox/{agent}/{name}.tmp"), text);
        let folder = self.root.join("inbox").join(agent);
        fs::rename(
            folder.join(format!("{name}.tmp")),
            folder.join(format!("{name}.task")),
        )
        .unwrap();
    }

    /// Whether a file is there.
    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }

    /// A file's text.
    pub fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A result record.
    pub fn record(&self, target: &str) -> Value {
        let text = self.read(&format!("artifacts/{target}.json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{target}: {e}: {text}"))
    }

    /// The status in a result record.
    pub fn status(&self, target: &str) -> String {
        self.record(target)["status"].as_str().unwrap().to_owned()
    }

    /// The names in a folder below the root, sorted; none where there is no such folder. Of
    /// `processed/` as `ls` shows it: the seal of a record is there for a moment, and after a kill
    /// right behind the last move.
    pub fn ls(&self, folder: &str) -> Vec<String> {
        let mut names = names(&self.root.join(folder));
        names.retain(|name| !folder.starts_with("processed") || !name.starts_with('.'));
        names
    }

    /// A program in a folder outside of the root, which it is told of.
    pub fn program(&self, path: impl AsRef<OsStr>) -> Program {
        program(path)
            .env("ORCH_ROOT", &self.root)
            .current_dir(&self.outside)
    }

    /// `orch` with these arguments, on this root.
    pub fn orch<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Program {
        self.program(orch()).args(args)
    }

    /// Works on everything and ends. Fast: nothing is synced.
    #[track_caller]
    pub fn drain(&self) -> Ran {
        self.orch(["watch", "--drain", "--durability", "process"])
            .run()
    }

    /// A watcher in the background, which is ended with the test. It has scanned when this returns, and
    /// notices what comes.
    #[track_caller]
    pub fn watch(&self, args: &[&str]) -> Running {
        let mut all = vec!["watch", "--durability", "process"];
        all.extend(args);
        self.orch(all).watch()
    }

    /// What a marker of this root starts with.
    pub fn marker(&self) -> String {
        let meta = fs::metadata(&self.root).unwrap();
        format!("ORCH_TASK={}:{}:", meta.dev(), meta.ino())
    }

    /// The processes that carry this root's marker.
    pub fn agents_alive(&self) -> Vec<i32> {
        let marker = self.marker();
        pids()
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| {
                    env.split(|b| *b == 0)
                        .any(|entry| entry.starts_with(marker.as_bytes()))
                })
            })
            .collect()
    }

    /// Fails if a process of this root is alive after a moment.
    pub fn assert_nothing_runs(&self) {
        wait_for("all agents of the root to end", || {
            self.agents_alive().is_empty()
        });
    }

    /// How many lines a script has added to a file outside the root.
    pub fn count_lines(&self, file: &str) -> usize {
        fs::read_to_string(self.outside.join(file)).map_or(0, |text| text.lines().count())
    }
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    all.sort_unstable();
    all
}

/// All processes.
pub fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Processes, dead ones excluded, whose command line has this word.
pub fn processes_with(word: &str) -> Vec<i32> {
    pids()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
        })
        .filter(|pid| *pid != std::process::id() as i32)
        .collect()
}

/// The children of every process that has some.
fn children() -> HashMap<i32, Vec<i32>> {
    let mut all: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in pids() {
        // One that has gone meanwhile has no children any more.
        if let Some(fields) = stat_of(pid) {
            all.entry(fields[1].parse().unwrap()).or_default().push(pid);
        }
    }
    all
}

/// What the kernel says of a process, from its state on.
fn stat_of(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// The arguments of a process, each with a zero at its end; none of one that is gone.
pub fn command_line_of(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// The letter of a process's state: `T` is stopped, `Z` is dead.
pub fn state_of(pid: i32) -> String {
    stat_of(pid).unwrap().swap_remove(0)
}

/// How much processor time a process has used, in hundredths of a second, with that of the children
/// that it waited for.
pub fn ticks_of(pid: i32) -> u64 {
    let fields = stat_of(pid).unwrap();
    let ticks = fields[11..15].iter().map(|field| field.parse::<u64>());
    ticks.map(Result::unwrap).sum()
}

/// Waits for something to become true; fails the test where it does not.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain for {what}"
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}

/// Lets time pass, where a test is about nothing happening in it.
pub fn let_pass(time: Duration) {
    std::thread::sleep(time);
}
