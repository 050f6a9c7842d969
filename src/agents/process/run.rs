//! A process from its start to its end, on the thread that started it.
//!
//! The child stays unreaped until everything of it is ended: the zombie pins its number, so that no
//! signal to its group can hit another. This file must never reap earlier, and never wait with a
//! signal handler: a pidfd in `poll` is all that it needs.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::cgroup::{Cage, Places};
use super::pace::Pace;
use super::procfs::timespec;
use super::spawn;
use super::tree::{Member, Tree};
use super::{Ending, Execution, Runner, SpawnError, Wake};

/// How long a killed process may take to go away before that is reported.
const STUCK: Duration = Duration::from_secs(10);

/// Runs jobs as real processes. One for the whole of orch, shared by its workers.
#[derive(Debug)]
pub struct Processes {
    tree: Tree,
    places: Option<Places>,
}

impl Processes {
    /// With a tree that belongs to this process, and the places of its cgroup, if it has one.
    #[must_use]
    pub fn new(tree: Tree, places: Option<Places>) -> Processes {
        Processes { tree, places }
    }
}

impl Runner for Processes {
    /// # Panics
    /// On the main thread: orphans are adopted by it, so it must have no children of its own.
    fn run(
        &self,
        exec: &Execution<'_>,
        wake: &Wake,
        still_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Ending, SpawnError> {
        assert_ne!(
            rustix::thread::gettid(),
            rustix::process::getpid(),
            "jobs run on worker threads: the main thread's children are orphans"
        );
        if wake.stopped() {
            return Ok(Ending::Stopped);
        }
        let places = self.places.as_ref();
        let slot = places.and_then(Places::slot);
        let cage = places
            .zip(exec.confine)
            .and_then(|(places, launch)| places.cage(launch.caps()));
        let born = slot
            .into_iter()
            .chain(cage.as_ref().map(|cage| cage.name().to_owned()));
        let mut member = self.tree.enter(&exec.markers, places, born.collect());
        let agent = Agent::start(exec, &mut member, cage.as_ref())?;
        let verdict = agent.watch(exec, wake, still_wanted);
        agent.end(&member, cage.as_ref(), verdict, exec.limits.grace, wake);
        Ok(agent.reap(exec, verdict))
    }
}

/// What a worker found when it woke up.
enum Seen {
    Exited,
    Stop,
    Poke,
    Nothing,
}

/// A started program that has not been reaped.
struct Agent {
    pid: Pid,
    fd: OwnedFd,
}

impl Agent {
    fn start(
        exec: &Execution<'_>,
        member: &mut Member<'_>,
        cage: Option<&Cage>,
    ) -> Result<Agent, SpawnError> {
        let pid = member.adopt(|| spawn::spawn(exec, cage))?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Agent { pid, fd }),
            Err(error) => {
                // It cannot be waited for properly, so it is as if it had never been.
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                Err(SpawnError::of(exec, error.into()))
            }
        }
    }

    /// Waits until it exits (`None`) or has to be ended for a reason.
    fn watch(
        &self,
        exec: &Execution<'_>,
        wake: &Wake,
        still_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<Ending> {
        let mut pace = Pace::new(exec.limits, Instant::now());
        loop {
            let poked = match self.wait(wake, pace.wait(Instant::now())) {
                Seen::Exited => return None,
                Seen::Stop => return Some(Ending::Stopped),
                Seen::Poke => true,
                Seen::Nothing => false,
            };
            let now = Instant::now();
            let over = pace.look(now, printed(exec));
            if over.is_some() {
                return over;
            }
            if (pace.ask(now) || poked) && !still_wanted() {
                return Some(Ending::Cancelled);
            }
        }
    }

    /// An exit that came first wins over a stop.
    fn wait(&self, wake: &Wake, time: Duration) -> Seen {
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::new(wake.stop_fd(), PollFlags::IN),
            PollFd::new(wake.poke_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, Some(&timespec(time))).is_err() {
            return Seen::Nothing;
        }
        let [exit, stop, poke] = fds.map(|fd| !fd.revents().is_empty());
        match (exit, stop, poke) {
            (true, _, _) => Seen::Exited,
            (_, true, _) => Seen::Stop,
            (_, _, true) => {
                wake.settle();
                Seen::Poke
            }
            _ => Seen::Nothing,
        }
    }

    /// Ends the group and what left it. Afterwards it is a zombie, with nothing behind it.
    fn end(
        &self,
        member: &Member<'_>,
        cage: Option<&Cage>,
        verdict: Option<Ending>,
        grace: Duration,
        wake: &Wake,
    ) {
        let asked = matches!(
            verdict,
            Some(Ending::TimedOut { .. } | Ending::Stopped | Ending::Cancelled)
        );
        if asked && !grace.is_zero() {
            self.ask(member, grace, wake);
        }
        self.signal_group(Signal::KILL);
        if verdict.is_some() {
            self.wait_killed(wake);
        }
        if let Some(cage) = cage
            && !cage.empty(Instant::now() + STUCK)
        {
            tracing::warn!("what an agent left behind does not die of SIGKILL");
        }
        member.end_leftovers(self.pid);
    }

    /// SIGTERM to all of it, and time to follow.
    fn ask(&self, member: &Member<'_>, grace: Duration, wake: &Wake) {
        let deadline = Instant::now() + grace;
        // First what left the group: it is found through its parents, which may exit at once.
        member.signal_outside(self.pid, Signal::TERM);
        self.signal_group(Signal::TERM);
        self.signal_group(Signal::CONT);
        if !ended(&self.fd, wake.hurry_fd(), deadline) {
            return;
        }
        // A launcher may be gone while the real agent is still saving its work.
        while let Some(left) = member.first_leftover(self.pid) {
            if !ended(&left, wake.hurry_fd(), deadline) {
                return;
            }
        }
    }

    /// A group of which only the zombie is left, or nothing, is no error.
    fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Even a killed process can hang in the kernel. Its task is not over before it is, except
    /// when orch itself is to stop.
    fn wait_killed(&self, wake: &Wake) {
        while !super::procfs::wait_end(&self.fd, Instant::now() + STUCK) {
            let pid = self.pid.as_raw_nonzero().get();
            tracing::warn!(pid, "the agent does not die of SIGKILL");
            if wake.stopped() {
                return;
            }
        }
    }

    /// Takes the zombie away and says how it ended.
    fn reap(&self, exec: &Execution<'_>, verdict: Option<Ending>) -> Ending {
        let options = match verdict {
            None => WaitIdOptions::EXITED,
            Some(_) => WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        };
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(self.fd.as_fd()), options));
        if let Some(ending) = verdict {
            return ending;
        }
        let limit = exec.limits.output;
        if printed(exec) > limit {
            return Ending::OutputTooLarge { limit };
        }
        let status = status.ok().flatten();
        match status.map(|status| (status.exit_status(), status.terminating_signal())) {
            Some((Some(code), _)) => Ending::Exited(code),
            Some((_, Some(signal))) => Ending::Signalled(signal),
            // Someone else reaped it: its code is lost, and that is no success.
            _ => Ending::Signalled(0),
        }
    }
}

/// Waits until a process has ended; `false` at the deadline or when told to hurry.
fn ended(fd: &OwnedFd, hurry: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [
            PollFd::new(fd, PollFlags::IN),
            PollFd::new(hurry, PollFlags::IN),
        ];
        let _ = poll(&mut fds, Some(&timespec(left)));
        let [exit, hurry] = fds.map(|fd| !fd.revents().is_empty());
        if exit || hurry || left.is_zero() {
            return exit;
        }
    }
}

/// Everything printed so far.
fn printed(exec: &Execution<'_>) -> u64 {
    size(exec.stdout).unwrap_or(0) + size(exec.stderr).unwrap_or(0)
}

fn size(file: &File) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}
