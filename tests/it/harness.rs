//! The test bed: a root in a temporary folder, scripts as providers, and `orch` as its user runs it.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test calls it stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
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

    /// `orch` with these arguments, on this root.
    pub fn orch<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Orch {
        let mut command = Command::new(orch());
        command
            .args(args)
            .env("ORCH_ROOT", &self.root)
            .env_remove("ORCH_TASK")
            .env_remove("ORCH_WATCHER")
            .env("NO_COLOR", "1")
            .current_dir(&self.outside)
            .stdin(Stdio::null());
        Orch { command }
    }

    /// Works on everything and ends. Fast: nothing is synced.
    pub fn drain(&self) -> Ran {
        self.orch(["watch", "--drain", "--durability", "process"])
            .run()
    }

    /// A watcher in the background, which is ended with the test. It has scanned when this returns.
    pub fn watch(&self, args: &[&str]) -> Running {
        let mut all = vec!["watch", "--durability", "process"];
        all.extend(args);
        let running = self.orch(all).start();
        let before = self.ls("logs").len();
        wait_for("the watcher's lock", || {
            self.ls("logs")
                .iter()
                .any(|name| name.starts_with("watch-"))
                || before > 0
        });
        running
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

/// Waits for something to become true; fails the test where it does not.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// An `orch` that has not been started.
pub struct Orch {
    command: Command,
}

impl Orch {
    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Orch {
        self.command.env(name, value);
        self
    }

    /// Runs in this folder.
    pub fn current_dir(mut self, folder: &Path) -> Orch {
        self.command.current_dir(folder);
        self
    }

    /// The command itself, for what the builder has no word for.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it in the background.
    pub fn start(mut self) -> Running {
        let child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running { child: Some(child) }
    }

    /// Runs it to its end.
    pub fn run(self) -> Ran {
        self.start().wait()
    }

    /// Runs it to its end with this on its standard input.
    pub fn run_with_input(mut self, input: &str) -> Ran {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, input.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        self.command.stdin(file);
        self.run()
    }
}

/// An `orch` in the background; ended with the test.
pub struct Running {
    child: Option<Child>,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// Sends it a signal, by the name that `kill` knows.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ran {
        let mut child = self.child.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut err = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut stderr = Vec::new();
        err.read_to_end(&mut stderr).unwrap();
        let stdout = reader.join().unwrap();
        Ran {
            status: child.wait().unwrap(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process, or to a group if the number is negative.
pub fn signal(pid: i32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, "--", &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let _ = status;
}

/// An `orch` that has ended.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Its exit code; fails the test where a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// Whether SIGKILL ended it.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Fails the test unless it ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }
}
