//! What others do with the same work: each does it the way that its manual says.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{Lab, Result, find, must, quiet};
use crate::throughput::TASKS;

/// Starts a peer that waits for work.
pub type StartIdle = fn(&Lab, &[&str]) -> Result<Box<dyn Idle>>;

/// Another program that runs a queue of commands.
pub struct Peer {
    pub name: &'static str,
    needs: &'static str,
    /// Does all the tasks, and says how long it took.
    pub all: fn(&Lab) -> Result<Duration>,
    /// Whether a command that was handed in is taken by one and no other, and is not lost where
    /// nobody is looking. What does not do that is measured too, but is no peer.
    pub is_queue: bool,
    /// What takes one command at a time while it waits for them, where it is such a program.
    pub idle: Option<StartIdle>,
}

/// A peer that waits for work.
pub trait Idle {
    /// Hands in the command; it may be running before this returns.
    fn hand_in(&mut self) -> Result<()>;
}

pub const PEERS: [Peer; 6] = [
    Peer {
        name: "xargs -P2 -n1",
        needs: "xargs",
        all: xargs,
        is_queue: true,
        idle: None,
    },
    Peer {
        name: "task-spooler, 2 slots",
        needs: "tsp",
        all: spooler,
        is_queue: true,
        idle: Some(|lab, command| Ok(Box::new(Spooler::start(lab, command)?))),
    },
    Peer {
        name: "inotifywait, a loop without a claim",
        needs: "inotifywait",
        all: |lab| inotifywait(lab, BARE),
        is_queue: false,
        idle: Some(|lab, command| Ok(Box::new(Loop::start(lab, BARE, command)?))),
    },
    Peer {
        name: "inotifywait, a loop that claims by mv",
        needs: "inotifywait",
        all: |lab| inotifywait(lab, CLAIMING),
        is_queue: true,
        idle: Some(|lab, command| Ok(Box::new(Loop::start(lab, CLAIMING, command)?))),
    },
    Peer {
        name: "GNU parallel -j2",
        needs: "parallel",
        all: parallel,
        is_queue: true,
        idle: None,
    },
    Peer {
        name: "nq",
        needs: "nq",
        all: nq,
        is_queue: true,
        idle: Some(|lab, command| Ok(Box::new(Nq::start(lab, command)?))),
    },
];

/// Whether it can take part.
pub fn is_installed(peer: &Peer) -> bool {
    find(peer.needs).is_some()
}

fn xargs(_: &Lab) -> Result<Duration> {
    from_list(Command::new("xargs").args(["-P2", "-n1", "/bin/true"]))
}

fn parallel(lab: &Lab) -> Result<Duration> {
    let home = lab.fresh()?;
    from_list(
        Command::new("parallel")
            .env("HOME", &home)
            .env("PARALLEL_HOME", &home)
            .args(["--will-cite", "-j2", "/bin/true"]),
    )
}

/// Gives the program one line for each task.
fn from_list(command: &mut Command) -> Result<Duration> {
    let began = Instant::now();
    let mut child = quiet(command).stdin(Stdio::piped()).spawn()?;
    let list: String = (0..TASKS).map(|n| format!("{n}\n")).collect();
    child
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(list.as_bytes())?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    Ok(began.elapsed())
}

fn nq(lab: &Lab) -> Result<Duration> {
    let began = Instant::now();
    let mut nq = Nq::start(lab, &["/bin/true"])?;
    (0..TASKS).try_for_each(|_| nq.hand_in())?;
    must(Command::new("nq").arg("-w").env("NQDIR", &nq.dir))?;
    Ok(began.elapsed())
}

struct Nq {
    dir: PathBuf,
    command: Vec<String>,
}

impl Nq {
    fn start(lab: &Lab, command: &[&str]) -> Result<Nq> {
        Ok(Nq {
            dir: lab.fresh()?,
            command: owned(command),
        })
    }
}

impl Idle for Nq {
    fn hand_in(&mut self) -> Result<()> {
        must(
            Command::new("nq")
                .args(&self.command)
                .env("NQDIR", &self.dir),
        )
    }
}

fn spooler(lab: &Lab) -> Result<Duration> {
    let mut spooler = Spooler::start(lab, &["/bin/true"])?;
    let began = Instant::now();
    (0..TASKS).try_for_each(|_| spooler.hand_in())?;
    must(spooler.tsp().arg("-w"))?;
    Ok(began.elapsed())
}

struct Spooler {
    socket: PathBuf,
    command: Vec<String>,
}

impl Spooler {
    fn start(lab: &Lab, command: &[&str]) -> Result<Spooler> {
        let spooler = Spooler {
            socket: lab.fresh()?.join("socket"),
            command: owned(command),
        };
        must(spooler.tsp().args(["-S", "2"]))?;
        Ok(spooler)
    }

    fn tsp(&self) -> Command {
        let mut command = Command::new("tsp");
        command.env("TS_SOCKET", &self.socket);
        command
    }
}

impl Idle for Spooler {
    fn hand_in(&mut self) -> Result<()> {
        must(self.tsp().arg("-n").args(&self.command))
    }
}

impl Drop for Spooler {
    fn drop(&mut self) {
        // Its server would outlive us.
        let _ = must(self.tsp().arg("-K"));
    }
}

fn inotifywait(lab: &Lab, script: &str) -> Result<Duration> {
    let mut queue = Loop::start(lab, script, &["/bin/true"])?;
    let began = Instant::now();
    (0..TASKS).try_for_each(|_| queue.hand_in())?;
    queue.wait_done()?;
    Ok(began.elapsed())
}

/// The loop that people write: watch a folder, run the command on each file, move it away.
struct Loop {
    dir: PathBuf,
    watch: Child,
    shell: Child,
    handed_in: u32,
}

/// The least that works: after a crash it cannot say what was begun.
const BARE: &str = r#"
while read -r name; do
    "$@" < "in/$name"
    mv "in/$name" "done/$name"
done
"#;

/// Takes the file out of the way first, as every queue does with more than one reader.
const CLAIMING: &str = r#"
while read -r name; do
    mv "in/$name" "claimed/$name" || continue
    "$@" < "claimed/$name"
    mv "claimed/$name" "done/$name"
done
"#;

impl Loop {
    fn start(lab: &Lab, script: &str, command: &[&str]) -> Result<Loop> {
        let dir = lab.fresh()?;
        for folder in ["in", "claimed", "done"] {
            fs::create_dir(dir.join(folder))?;
        }
        let mut watch = quiet(&mut Command::new("inotifywait"))
            .args(["-m", "-q", "-e", "moved_to", "--format", "%f", "in"])
            .current_dir(&dir)
            .stdout(Stdio::piped())
            .spawn()?;
        let names = watch.stdout.take().ok_or("inotifywait has no output")?;
        let shell = quiet(&mut Command::new("/bin/sh"))
            .args(["-c", script, "loop"])
            .args(command)
            .current_dir(&dir)
            .stdin(names)
            .spawn()?;
        let mut started = Loop {
            dir,
            watch,
            shell,
            handed_in: 0,
        };
        started.wait_watching()?;
        Ok(started)
    }

    /// It says nothing when it is ready, so it is tried until a file gets through.
    fn wait_watching(&mut self) -> Result<()> {
        for _ in 0..500 {
            self.hand_in()?;
            thread::sleep(Duration::from_millis(10));
            if self.last_done().exists() {
                return Ok(());
            }
        }
        Err("the inotifywait loop does not work".into())
    }

    fn last_done(&self) -> PathBuf {
        self.dir.join("done").join(self.handed_in.to_string())
    }

    fn wait_done(&self) -> Result<()> {
        for _ in 0..30_000 {
            if self.last_done().exists() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err("the inotifywait loop lost a task".into())
    }
}

impl Idle for Loop {
    fn hand_in(&mut self) -> Result<()> {
        self.handed_in += 1;
        drop_by_rename(
            &self.dir,
            &self.dir.join("in").join(self.handed_in.to_string()),
        )
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The loop ends when there are no more names.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
        let _ = self.shell.wait();
    }
}

/// Makes a small file elsewhere and renames it into place.
pub fn drop_by_rename(elsewhere: &Path, to: &Path) -> Result<()> {
    let temp = elsewhere.join("next");
    fs::write(&temp, "task\n")?;
    Ok(fs::rename(&temp, to)?)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
