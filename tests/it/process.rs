//! Nothing outlives orch, however it ends: a watcher is killed, or ends cleanly, with a job running.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use orch::agents::process::{
    Duty, Execution, Limits, Processes, Runner, Stdin, Tree, Wake, Watcher,
};
use orch::disk::safety::Dir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::harness::{PATIENCE, Running, command_line_of, pids, program, wait_for};

/// Set in the process that plays the watcher, to its root.
const ROOT: &str = "ORCH_TEST_WATCHER_ROOT";
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(3600);

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
    watcher: Running,
    /// The agent waits for a line here.
    go: File,
    /// The agent, its child, its daemon and the guard.
    others: Vec<OwnedFd>,
}

/// Starts a watcher and waits until its agent runs.
fn play() -> Played {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("logs")).unwrap();
    for fifo in ["up", "go"] {
        let path = root.path().join(fifo);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
    }
    // Held open for both, so that neither side waits for the other to come.
    let both = OpenOptions::new().read(true).write(true).clone();
    let go = both.open(root.path().join("go")).unwrap();
    let watcher = program(std::env::current_exe().unwrap())
        .args(["--exact", "process::play_the_watcher", "--nocapture"])
        .env(ROOT, root.path())
        .start();
    wait_for("the agent to be ready", || {
        root.path().join("ready").exists()
    });
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
        go,
    }
}

/// The guard has the folder of its watcher in its arguments.
fn guard_of(root: &Path) -> i32 {
    let logs = root.join("logs").display().to_string();
    pids()
        .find(|pid| {
            let line = command_line_of(*pid);
            line.contains("\0guard\0") && line.contains(&logs)
        })
        .expect("the guard runs")
}

fn wait_end(fd: &OwnedFd) {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let time = Timespec::try_from(PATIENCE).unwrap();
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
    let played = play();
    let lock = locks(played.root.path()).remove(0);
    let cgroup = cgroup(&lock);
    played.watcher.signal("KILL");
    played.watcher.wait().killed();
    for fd in &played.others {
        wait_end(fd);
    }
    assert!(locks(played.root.path()).is_empty());
    assert!(cgroup.is_none_or(|dir| !dir.exists()));
}

#[test]
fn after_a_clean_end_nothing_is_left_either() {
    let mut played = play();
    let lock = locks(played.root.path()).remove(0);
    let cgroup = cgroup(&lock);
    played.go.write_all(b"\n").unwrap();
    played.watcher.wait().expect(0);
    assert!(locks(played.root.path()).is_empty());
    assert!(cgroup.is_none_or(|dir| !dir.exists()));
    for fd in &played.others {
        wait_end(fd);
    }
}
