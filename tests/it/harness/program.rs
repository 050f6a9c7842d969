//! Programs that a test starts: `orch` or any other, with its output read from the first byte on.
//!
//! Nothing here waits without a deadline. Whatever takes longer is ended with all that it started, and
//! the test fails with what it waited for, the command line, and the output so far.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::ran::Ran;
use super::shield;
use super::{PATIENCE, children, command_line_of, pids, ticks_of};

/// What orch reads from its environment. No test may depend on what its user has set.
const OWN: [&str; 4] = ["ORCH_ROOT", "ORCH_TASK", "ORCH_WATCHER", "ORCH_FAULT"];

/// Held by whoever starts a program, and alone by whoever writes one: a program that somebody has open
/// for writing cannot be started, and for a moment every child has open what its parent has.
static STARTING: RwLock<()> = RwLock::new(());

/// Writes a program or a script.
pub fn write_executable(path: &Path, content: impl AsRef<[u8]>) {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    fs::write(path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that has not been started.
#[must_use = "it has not been started: `run`, `start` or `watch`"]
pub struct Program {
    command: Command,
    patience: Duration,
}

/// A program without a root, and with nothing on its standard input.
pub fn program(path: impl AsRef<OsStr>) -> Program {
    let mut command = Command::new(path);
    for name in OWN {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    Program {
        command,
        patience: PATIENCE,
    }
}

/// A script of a shell that stops at the first command that fails.
pub fn shell(script: &str) -> Program {
    program("sh").args(["-ec", script])
}

impl Program {
    /// More words.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Program {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// Runs in this folder.
    pub fn current_dir(mut self, folder: &Path) -> Program {
        self.command.current_dir(folder);
        self
    }

    /// How long it may take, where that is not the usual.
    pub fn patience(mut self, patience: Duration) -> Program {
        self.patience = patience;
        self
    }

    /// The command itself, for what the builder has no word for.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it in the background.
    #[track_caller]
    pub fn start(mut self) -> Running {
        if shield::is_up() {
            self.command.process_group(0);
        }
        let line = format!("{:?}", self.command);
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = {
            let _together = STARTING.read().unwrap_or_else(PoisonError::into_inner);
            self.command.spawn()
        };
        let mut child = started.unwrap_or_else(|e| panic!("{line}: {e}"));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Running {
            pipes: [pipe_of(&out), pipe_of(&err)],
            out: Stream::of(out),
            err: Stream::of(err),
            child: Some(child),
            is_watch: is_watch(&self.command),
            patience: self.patience,
            line,
        }
    }

    /// Starts a watcher in the background, and waits until it has scanned and notices what comes.
    #[track_caller]
    pub fn watch(self) -> Running {
        let mut running = self.start();
        running.until_it_says("watching ");
        running
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Ran {
        self.start().wait()
    }

    /// Runs it to its end with this on its standard input.
    #[track_caller]
    pub fn run_with_input(mut self, input: &str) -> Ran {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(input.as_bytes()).unwrap();
        file.rewind().unwrap();
        self.command.stdin(file);
        self.run()
    }
}

/// Whether a watcher speaks: `orch watch`, whoever starts it.
fn is_watch(command: &Command) -> bool {
    let mut words = command.get_args().map(OsStr::to_string_lossy);
    words.any(|word| word == "watch" || word.contains(" watch "))
}

/// A program in the background; ended with the test.
#[must_use = "it is ended when this is dropped"]
pub struct Running {
    child: Option<Child>,
    out: Arc<Stream>,
    err: Arc<Stream>,
    /// What the kernel calls the two.
    pipes: [PathBuf; 2],
    is_watch: bool,
    patience: Duration,
    line: String,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        pid_of(self.child.as_ref().unwrap())
    }

    /// Sends it a signal, by its name without `SIG`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let signal = match name {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            "KILL" => Signal::KILL,
            "TERM" => Signal::TERM,
            "STOP" => Signal::STOP,
            "CONT" => Signal::CONT,
            _ => panic!("no test has sent `{name}` before"),
        };
        // It is not waited for yet, so that the number is still its own.
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Waits until these words are on its standard error.
    #[track_caller]
    pub fn until_it_says(&mut self, words: &str) {
        if !self.says_or_ends(words) {
            panic!("it ended before it said `{words}`\n{}", self.story());
        }
    }

    /// Waits until these words are on its standard error, or it has closed that; gives whether they are.
    #[track_caller]
    pub fn says_or_ends(&mut self, words: &str) -> bool {
        let deadline = Instant::now() + self.patience;
        let says = |text: &str| text.contains(words);
        match self.err.holds_by(deadline, says) {
            Some(said) => said,
            None => self.stuck(&format!("it to say `{words}`")),
        }
    }

    /// Waits for its end, and for the end of its output.
    #[track_caller]
    pub fn wait(mut self) -> Ran {
        let deadline = Instant::now() + self.patience;
        if !ends_by(self.child.as_ref().unwrap(), deadline) {
            self.stuck("its end");
        }
        // The dead keep their account until they are waited for.
        let ticks = ticks_of(self.pid());
        let status = self.child.as_mut().unwrap().wait().unwrap();
        self.child = None;
        if !(self.out.ends_by(deadline) && self.err.ends_by(deadline)) {
            let holders = self.holders();
            let lines: Vec<String> = holders.iter().map(|pid| command_line_of(*pid)).collect();
            let lines = lines.join(", ").replace('\0', " ");
            holders.into_iter().for_each(kill);
            self.stuck(&format!(
                "the end of its output: it has ended, and this holds that open: {lines}"
            ));
        }
        let (stdout, stderr) = (self.out.so_far(), self.err.so_far());
        Ran::new(status, stdout, stderr, &self.line)
            .took(ticks)
            .framed(self.is_watch)
    }

    /// Ends it and all that it started, and fails the test.
    #[track_caller]
    fn stuck(&mut self, what: &str) -> ! {
        let story = self.story();
        if let Some(mut child) = self.child.take() {
            end_tree(&mut child);
        }
        panic!("waited {:?} in vain for {what}\n{story}", self.patience);
    }

    /// The processes that have its output open, beside this one.
    fn holders(&self) -> Vec<i32> {
        // A child that is just being started has everything open.
        let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let own = i32::try_from(std::process::id()).unwrap();
        let holds = |pid: &i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd"));
            let mut open = open.into_iter().flatten().flatten();
            open.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| self.pipes.contains(&to)))
        };
        pids().filter(|pid| *pid != own).filter(holds).collect()
    }

    fn story(&self) -> String {
        super::ran::told(&self.line, &self.out.so_far(), &self.err.so_far())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if std::thread::panicking() {
            eprintln!("was still running:\n{}", self.story());
            return end_tree(&mut child);
        }
        // Its guard ends the agents, and clears away.
        let _ = child.kill();
        reap(&mut child);
    }
}

fn pipe_of(fd: &impl AsRawFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// Waits for the end of a child that has not been waited for.
fn ends_by(child: &Child, deadline: Instant) -> bool {
    let pid = Pid::from_raw(pid_of(child)).unwrap();
    let fd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).unwrap();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("cannot wait for a process: {e}"),
        }
    }
}

fn reap(child: &mut Child) {
    // What was killed is gone in a moment, or hangs in the kernel: then nobody can end it.
    match ends_by(child, Instant::now() + PATIENCE) {
        true => drop(child.wait()),
        false => eprintln!("process {} cannot be killed", child.id()),
    }
}

/// Ends a process and everything below it. A guard that is left has nothing more to wait for, and
/// ends by itself when it has cleared away.
fn end_tree(child: &mut Child) {
    let below = descendants(pid_of(child));
    let _ = child.kill();
    let (guards, others): (Vec<i32>, Vec<i32>) = below
        .into_iter()
        .partition(|pid| command_line_of(*pid).contains("\0guard\0"));
    others.into_iter().for_each(kill);
    reap(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_left = |pid: &i32| command_line_of(*pid).contains("\0guard\0");
    while guards.iter().any(is_left) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    guards.into_iter().filter(is_left).for_each(kill);
}

fn kill(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

fn descendants(pid: i32) -> Vec<i32> {
    let children = children();
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        all.extend(children.get(&parent).into_iter().flatten());
        next += 1;
    }
    all.split_off(1)
}

/// What a program writes, as far as it has come.
struct Stream {
    state: Mutex<Written>,
    changed: Condvar,
}

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    is_closed: bool,
}

impl Stream {
    /// Reads on a thread of its own, so that a program never waits for its reader.
    fn of(mut source: impl Read + Send + 'static) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let written = stream.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let read = source.read(&mut buffer).unwrap_or(0);
                let mut state = written.state.lock().unwrap();
                state.bytes.extend(&buffer[..read]);
                state.is_closed = read == 0;
                written.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        stream
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().unwrap().bytes).into_owned()
    }

    fn ends_by(&self, deadline: Instant) -> bool {
        self.wait(deadline, |written| written.is_closed).is_closed
    }

    /// Waits until the text so far is as wanted, or comes to its end without.
    fn holds_by(&self, deadline: Instant, wanted: impl Fn(&str) -> bool) -> Option<bool> {
        let holds = |written: &Written| wanted(&String::from_utf8_lossy(&written.bytes));
        let written = self.wait(deadline, |written| written.is_closed || holds(written));
        match holds(&written) {
            false if !written.is_closed => None,
            holds => Some(holds),
        }
    }

    fn wait(
        &self,
        deadline: Instant,
        enough: impl Fn(&Written) -> bool,
    ) -> std::sync::MutexGuard<'_, Written> {
        let left = deadline.saturating_duration_since(Instant::now());
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, left, |s| !enough(s));
        waited.unwrap().0
    }
}
