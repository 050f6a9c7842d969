//! Nothing outlives orch, however it ends: a watcher is killed, or ends cleanly, with a job running.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use orch::agents::process::{
    Duty, Execution, Limits, Processes, Runner, Stdin, Tree, Wake, Watcher,
};
use orch::disk::safety::Dir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Set in the process that plays the watcher, to its root.
const ROOT: &str = "ORCH_TEST_WATCHER_ROOT";
const LONG: Duration = Duration::from_secs(20);

/// An agent with a child in its group and a daemon outside it.
const AGENT: &str = "
sleep 1000 & echo $! > child
(setsid sh -c 'echo $$ > daemon; echo > up; exec sleep 1000' &); read x < up
echo $$ > agent
echo > ready
read x < go";

/// Not a test by itself: the watcher of the tests below, which start it.
#[test]
fn play_the_watcher() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else {
        return;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_orch"));
    let dir = Dir::open_named_by_user(&root).unwrap();
    let watcher = Watcher::start_with_guard(program, &dir, &Duty::default()).unwrap();
    let processes = Processes::new(Tree::new().unwrap(), None);
    let job = || run(&root, &watcher, &processes);
    thread::scope(|scope| scope.spawn(job).join().unwrap());
    watcher.finish().unwrap();
}

fn run(root: &Path, watcher: &Watcher, processes: &Processes) {
    let out = File::create(root.join("out")).unwrap();
    let args = ["-c".into(), AGENT.into()];
    let env = [("PATH".into(), std::env::var_os("PATH").unwrap())];
    let job = Execution {
        program: Path::new("/bin/sh"),
        args: &args,
        env: &env,
        cwd: root,
        stdin: Stdin::Null,
        stdout: &out,
        stderr: &out,
        limits: Limits {
            wall: LONG,
            idle: None,
            output: 1 << 20,
            grace: LONG,
        },
        markers: watcher.marker("writer", "t"),
        confine: None,
    };
    let wake = Wake::new().unwrap();
    processes.run(&job, &wake, &mut || true).unwrap();
}

struct Played {
    root: tempfile::TempDir,
    watcher: Child,
    /// The agent, its child, its daemon and the guard.
    others: Vec<OwnedFd>,
}

/// Starts a watcher and waits until its agent runs.
fn play() -> Played {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("logs")).unwrap();
    for fifo in ["up", "ready", "go"] {
        let path = root.path().join(fifo);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
    }
    let watcher = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::play_the_watcher", "--nocapture"])
        .env(ROOT, root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut ready = File::open(root.path().join("ready")).unwrap();
    ready.read_to_string(&mut said).unwrap();
    let mut pids: Vec<i32> = ["agent", "child", "daemon"]
        .map(|name| fs::read_to_string(root.path().join(name)).unwrap())
        .iter()
        .map(|text| text.trim().parse().unwrap())
        .collect();
    pids.push(guard_of(root.path()));
    let open = |pid| pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    Played {
        others: pids.into_iter().map(open).collect(),
        root,
        watcher,
    }
}

/// The guard has the folder of its watcher in its arguments.
fn guard_of(root: &Path) -> i32 {
    let logs = root.join("logs").display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("\0guard\0") && line.contains(&logs)
    })
    .expect("the guard runs")
}

fn wait_end(fd: &OwnedFd) {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let time = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut fds, Some(&time)).unwrap(), 1, "it still lives");
}

fn locks(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("logs")).unwrap().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().contains("watch-"))
        .collect()
}

fn cgroup(lock: &Path) -> Option<PathBuf> {
    let record: serde_json::Value = serde_json::from_slice(&fs::read(lock).unwrap()).unwrap();
    record["cgroup"].as_str().map(PathBuf::from)
}

#[test]
fn the_guard_ends_what_a_killed_watcher_left() {
    let mut played = play();
    let lock = locks(played.root.path()).remove(0);
    let cgroup = cgroup(&lock);
    played.watcher.kill().unwrap();
    played.watcher.wait().unwrap();
    let deadline = Instant::now() + LONG;
    for fd in &played.others {
        wait_end(fd);
    }
    assert!(Instant::now() < deadline);
    assert!(locks(played.root.path()).is_empty());
    assert!(cgroup.is_none_or(|dir| !dir.exists()));
}

#[test]
fn after_a_clean_end_nothing_is_left_either() {
    let mut played = play();
    let lock = locks(played.root.path()).remove(0);
    let cgroup = cgroup(&lock);
    fs::write(played.root.path().join("go"), "\n").unwrap();
    assert!(played.watcher.wait().unwrap().success());
    assert!(locks(played.root.path()).is_empty());
    assert!(cgroup.is_none_or(|dir| !dir.exists()));
    for fd in &played.others {
        wait_end(fd);
    }
}
