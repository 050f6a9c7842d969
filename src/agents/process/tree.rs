//! What left a process group: daemons, and everything else that an agent leaves behind.
//!
//! orch is a subreaper, so orphans below it become its children, and the kernel gives them to the
//! main thread, while an agent belongs to the worker thread that started it. The children of the
//! main thread are therefore exactly the orphans, and an empty list, which is one system call, says
//! that there is nothing to do.
//!
//! This file must never end a process that may belong to another running job. Orphans are reaped
//! under the lock only, so that a number in the list cannot come to mean another process.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::{Marker, Places, TASK_VARIABLE, WATCHER_VARIABLE, procfs};

/// How long leftovers may resist before that is reported.
const STUCK: Duration = Duration::from_secs(10);
/// How often an empty environment is read again: it is empty in the middle of an exec as well.
const REREADS: u32 = 5;

/// Makes this process the parent of all orphans below it.
///
/// # Errors
/// If the kernel refuses.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// The orphans of this process and the jobs that they may belong to.
#[derive(Debug)]
pub struct Tree {
    /// `None` where the kernel was built without it: then all of `/proc` is read.
    children: Option<File>,
    catalogue: Mutex<Catalogue>,
}

#[derive(Debug, Default)]
struct Catalogue {
    next: u64,
    running: HashMap<u64, Running>,
    /// Orphans that carry no marker, with the jobs that were running when each was first seen.
    strays: HashMap<i32, HashSet<u64>>,
    /// Orphans that did not die of SIGKILL, or may not be killed: reported once.
    given_up: HashSet<i32>,
}

#[derive(Debug)]
struct Running {
    marker: Marker,
    /// Where everything is born that it starts, if the kernel keeps jobs apart.
    places: Vec<String>,
    /// Known only where it is needed to tell agents from orphans.
    agent: Option<i32>,
}

/// A job's place among the running ones, from before its start until after its end.
#[derive(Debug)]
pub(super) struct Member<'t> {
    tree: &'t Tree,
    number: u64,
    known: Option<&'t Places>,
}

/// An orphan that belongs to the asking job, pinned.
struct Leftover {
    pid: i32,
    fd: OwnedFd,
}

/// Whose an orphan is, seen from one job.
enum Owner {
    This,
    Other,
    /// It has no environment, which may be so for a moment only.
    Unclear,
}

impl Tree {
    /// The tree of this process, which must be a subreaper for it to see anything.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn new() -> io::Result<Tree> {
        let main = rustix::process::getpid().as_raw_nonzero();
        let children = match File::open(format!("/proc/self/task/{main}/children")) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                procfs::all()?;
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Tree {
            children,
            catalogue: Mutex::default(),
        })
    }

    /// A tree on a kernel that has no list of children.
    #[cfg(test)]
    pub(super) fn without_list() -> Tree {
        Tree {
            children: None,
            catalogue: Mutex::default(),
        }
    }

    /// Takes a job in. This comes before its start, so that whatever it leaves behind finds it.
    pub(super) fn enter<'t>(
        &'t self,
        marker: &Marker,
        known: Option<&'t Places>,
        places: Vec<String>,
    ) -> Member<'t> {
        let mut catalogue = self.lock();
        let number = catalogue.next;
        catalogue.next += 1;
        let running = Running {
            marker: marker.clone(),
            places,
            agent: None,
        };
        catalogue.running.insert(number, running);
        Member {
            tree: self,
            number,
            known,
        }
    }

    /// A worker that panicked leaves nothing half-done in the catalogue.
    fn lock(&self) -> MutexGuard<'_, Catalogue> {
        self.catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The orphans of this process, dead or alive.
    fn orphans(&self, catalogue: &Catalogue) -> Vec<i32> {
        let Some(children) = &self.children else {
            return scan_orphans(catalogue);
        };
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = children.read_at(&mut chunk, text.len() as u64) {
            text.extend_from_slice(&chunk[..length]);
        }
        procfs::parse_pids(&String::from_utf8_lossy(&text))
    }

    /// The fast path: one system call says that there are no orphans at all.
    fn is_empty(&self) -> bool {
        let Some(children) = &self.children else {
            return false;
        };
        matches!(children.read_at(&mut [0; 16], 0), Ok(0))
    }
}

/// Children that are nobody's agent.
fn scan_orphans(catalogue: &Catalogue) -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let agents: HashSet<i32> = catalogue.running.values().filter_map(|r| r.agent).collect();
    let pids = procfs::all().unwrap_or_default();
    pids.into_iter()
        .filter(|pid| !agents.contains(pid))
        .filter(|&pid| procfs::stat(pid).is_some_and(|stat| stat.parent == own))
        .collect()
}

impl Member<'_> {
    /// Starts the job's agent. Without the list of children an agent can be told from an orphan
    /// only by its number, so then nobody may look between the start and its being noted.
    pub(super) fn adopt<E>(&mut self, start: impl FnOnce() -> Result<Child, E>) -> Result<Pid, E> {
        if self.tree.children.is_some() {
            return Ok(Pid::from_child(&start()?));
        }
        let mut catalogue = self.tree.lock();
        let pid = Pid::from_child(&start()?);
        if let Some(running) = catalogue.running.get_mut(&self.number) {
            running.agent = Some(pid.as_raw_nonzero().get());
        }
        Ok(pid)
    }

    /// Ends every orphan of this job, and those that they leave in turn. The agent must be a
    /// zombie and its group killed. What does not die in time is reported and given up.
    pub(super) fn end_leftovers(&self, group: Pid) {
        let deadline = Instant::now() + STUCK;
        let mut rereads = REREADS;
        while !self.tree.is_empty() {
            let (leftovers, again) = self.find(group, rereads == 0);
            if leftovers.is_empty() && !again {
                return;
            }
            rereads = rereads.saturating_sub(u32::from(again));
            let mut stuck = self.kill(&leftovers, deadline);
            if Instant::now() >= deadline {
                stuck.extend(leftovers.iter().map(|left| left.pid));
            }
            self.give_up(&stuck);
            if leftovers.is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            if Instant::now() >= deadline + STUCK {
                tracing::warn!("what an agent left behind multiplies faster than it can be ended");
                return;
            }
        }
    }

    /// Signals what is not in the group: the agent's living descendants, and its orphans.
    pub(super) fn signal_outside(&self, group: Pid, signal: Signal) {
        let top = group.as_raw_nonzero().get();
        for pid in procfs::descendants(top) {
            let outside = || procfs::stat(pid).is_some_and(|stat| stat.group != top);
            if !outside() {
                continue;
            }
            // The number may have gone to someone else since it was listed.
            let still = || outside() && procfs::descendants(top).contains(&pid);
            if let Some(fd) = procfs::pin(pid, still) {
                let _ = procfs::signal(&fd, signal);
            }
        }
        for left in self.find(group, true).0 {
            let _ = procfs::signal(&left.fd, signal);
        }
    }

    /// One living orphan of this job, to be waited for.
    pub(super) fn first_leftover(&self, group: Pid) -> Option<OwnedFd> {
        if self.tree.is_empty() {
            return None;
        }
        let (leftovers, _) = self.find(group, true);
        leftovers.into_iter().next().map(|left| left.fd)
    }

    /// One pass over the orphans: the dead are reaped, ours are pinned. The flag says that another
    /// pass is needed: one's owner may be known in a moment (if `decide`, it is decided now), or
    /// one could not be pinned.
    fn find(&self, group: Pid, decide: bool) -> (Vec<Leftover>, bool) {
        let mut catalogue = self.tree.lock();
        let mut found = Vec::new();
        let mut again = false;
        for pid in self.tree.orphans(&catalogue) {
            if reaped(pid) {
                catalogue.forget(pid);
                continue;
            }
            let place = self.known.and_then(|known| known.of(pid));
            match catalogue.owner(pid, place.as_deref(), self.number, group, decide) {
                Owner::Other => {}
                Owner::Unclear => again = true,
                Owner::This => match pinned(pid) {
                    Some(left) => found.push(left),
                    None => again = true,
                },
            }
        }
        (found, again)
    }

    /// Kills, waits and reaps; answers those that may not be killed.
    fn kill(&self, leftovers: &[Leftover], deadline: Instant) -> Vec<i32> {
        let mut refused = Vec::new();
        for left in leftovers {
            if procfs::signal(&left.fd, Signal::KILL).is_err() {
                refused.push(left.pid);
            }
        }
        for left in leftovers {
            if !refused.contains(&left.pid) && procfs::wait_end(&left.fd, deadline) {
                let mut catalogue = self.tree.lock();
                let fd = WaitId::PidFd(left.fd.as_fd());
                let _ = waitid(fd, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                catalogue.forget(left.pid);
            }
        }
        refused
    }

    fn give_up(&self, stuck: &[i32]) {
        let mut catalogue = self.tree.lock();
        for &pid in stuck {
            if procfs::stat(pid).is_none() || !catalogue.given_up.insert(pid) {
                continue;
            }
            let task = &catalogue.running[&self.number].marker.task;
            tracing::warn!(
                pid,
                task,
                "a process that the agent left behind cannot be ended"
            );
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut catalogue = self.tree.lock();
        catalogue.running.remove(&self.number);
        for candidates in catalogue.strays.values_mut() {
            candidates.remove(&self.number);
        }
    }
}

impl Catalogue {
    fn owner(
        &mut self,
        pid: i32,
        place: Option<&str>,
        number: u64,
        group: Pid,
        decide: bool,
    ) -> Owner {
        if self.given_up.contains(&pid) {
            return Owner::Other;
        }
        if let Some(place) = place {
            return self.by_place(place, number);
        }
        let group = group.as_raw_nonzero().get();
        if procfs::stat(pid).is_some_and(|stat| stat.group == group) {
            return Owner::This;
        }
        let environ = procfs::environ(pid);
        if environ.is_empty() && !decide && !self.strays.contains_key(&pid) {
            return Owner::Unclear;
        }
        self.by_marker(&environ, number)
            .unwrap_or_else(|| self.by_elimination(pid, number))
    }

    /// What is in a place whose job is over can only be a leftover, whoever finds it.
    fn by_place(&self, place: &str, number: u64) -> Owner {
        let is_in = |running: &Running| running.places.iter().any(|own| own == place);
        let own = self.running.get(&number).is_some_and(is_in);
        match own || !self.running.values().any(is_in) {
            true => Owner::This,
            false => Owner::Other,
        }
    }

    /// A marker of ours whose job is over can only be a leftover, whoever finds it.
    fn by_marker(&self, environ: &[u8], number: u64) -> Option<Owner> {
        let watcher = procfs::variable(environ, WATCHER_VARIABLE)?;
        let task = procfs::variable(environ, TASK_VARIABLE)?;
        let own = &self.running.get(&number)?.marker;
        if watcher != own.watcher.as_str() {
            return None;
        }
        let others = self.running.iter().filter(|&(&other, _)| other != number);
        let mut others = others.map(|(_, running)| &running.marker);
        if task != own.task.as_str() && others.any(|marker| task == marker.task.as_str()) {
            return Some(Owner::Other);
        }
        Some(Owner::This)
    }

    /// Without a marker it may be anyone's that was running when it was first seen: the last of
    /// them ends it.
    fn by_elimination(&mut self, pid: i32, number: u64) -> Owner {
        let running = self.running.keys().copied();
        let candidates = self.strays.entry(pid).or_insert_with(|| running.collect());
        if candidates.iter().any(|&candidate| candidate != number) {
            return Owner::Other;
        }
        Owner::This
    }

    fn forget(&mut self, pid: i32) {
        self.strays.remove(&pid);
        self.given_up.remove(&pid);
    }
}

/// Reaps an orphan if it is dead. Only under the lock.
fn reaped(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else {
        return false;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// An unreaped child keeps its number, so there is nothing to check again. Only under the lock.
fn pinned(pid: i32) -> Option<Leftover> {
    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    Some(Leftover { pid, fd })
}
