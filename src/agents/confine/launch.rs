//! Starting an agent by way of the helper: the parent's side.
//!
//! The helper is orch itself, started the fast way with nothing but the markers in its environment
//! and one end of a socket as its standard input. Through the socket go descriptors: the letter,
//! the agent's own standard input, and one handle for each rule, so that no path is looked up
//! twice. The socket closes when the agent begins; what comes before that is why it did not.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::helper::HELPER;
use super::letter::{Letter, Method, Right};
use super::walls::Walls;
use crate::spec::policy::{Caps, Network};

/// As many descriptors as one message carries; the kernel takes 253.
const PER_MESSAGE: usize = 128;

/// How an attempt is held in, ready to be started.
#[derive(Debug)]
pub struct Launch {
    pub(super) method: Method,
    /// Where bubblewrap is, and what it is told before the agent's environment.
    pub(super) bubblewrap: Option<(PathBuf, Vec<OsString>)>,
    pub(super) grants: Vec<Grant>,
    pub(super) limit_reads: bool,
    pub(super) network: Network,
    pub(super) caps: Caps,
    pub(super) walls: Option<Walls>,
}

/// A place that is open to the agent.
#[derive(Debug)]
pub(super) struct Grant {
    pub fd: OwnedFd,
    pub path: PathBuf,
    pub right: Right,
}

/// What is to be started.
pub(crate) struct Start<'a> {
    pub program: &'a Path,
    pub args: &'a [OsString],
    pub env: Vec<(OsString, OsString)>,
    /// What sweeps know it by, from its first moment.
    pub markers: [(&'a str, &'a str); 2],
    pub cwd: &'a Path,
    pub stdin: File,
    pub stdout: &'a File,
    pub stderr: &'a File,
    /// The limits that nothing else holds.
    pub caps: Caps,
}

/// Why there is no agent.
#[derive(Debug)]
pub enum Refused {
    /// The program could not be started.
    Start(io::Error),
    /// It could not be held in, so it was not started.
    Confine(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Start(error)
    }
}

impl Launch {
    /// How much of the system it may take.
    pub(crate) fn caps(&self) -> Caps {
        self.caps
    }

    /// Starts the agent; it runs when this returns. `helper_waits` is called in between, with the
    /// process that will be the agent, and nothing is executed if it fails.
    pub(crate) fn start(
        &self,
        start: &Start<'_>,
        helper_waits: impl FnOnce(&Child) -> io::Result<()>,
    ) -> Result<Child, Refused> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let letter = unnamed("letter", &self.letter(start).write())?;
        let wrapped = match &self.bubblewrap {
            Some((_, args)) => Some(unnamed("arguments", &bubblewrap_words(args, start)?)?),
            None => None,
        };
        // What it prints to is open to it by name as well: `/dev/stdout` opens the file anew.
        let mut fds = vec![letter.as_fd(), start.stdin.as_fd()];
        fds.extend(wrapped.as_ref().map(AsFd::as_fd));
        fds.extend([start.stdout.as_fd(), start.stderr.as_fd()]);
        fds.extend(self.grants.iter().map(|grant| grant.fd.as_fd()));
        let mut child = self.helper(start, theirs)?;
        let sent = helper_waits(&child).and_then(|()| {
            fds.chunks(PER_MESSAGE)
                .try_for_each(|some| send(&ours, some))
        });
        let why = match sent {
            Ok(()) => {
                let mut said = Vec::new();
                ours.read_to_end(&mut said)?;
                told(&said)
            }
            // It ends when the socket does: without a letter it executes nothing.
            Err(error) => {
                drop(ours);
                Some(Refused::Confine(error.to_string()))
            }
        };
        match why {
            None => Ok(child),
            Some(why) => {
                let _ = child.wait();
                Err(why)
            }
        }
    }

    fn helper(&self, start: &Start<'_>, socket: UnixStream) -> io::Result<Child> {
        // Not by its name: the file may have been replaced since we were started.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("orch")
            .arg(HELPER)
            .env_clear()
            .envs(start.markers)
            .current_dir(start.cwd)
            .process_group(0)
            .stdin(OwnedFd::from(socket))
            .stdout(start.stdout.try_clone()?)
            .stderr(start.stderr.try_clone()?);
        command.spawn()
    }

    fn letter(&self, start: &Start<'_>) -> Letter {
        let (program, env) = match &self.bubblewrap {
            // Bubblewrap sets the agent's environment, and has only the markers itself.
            Some((program, _)) => (program.as_os_str(), own_env(start)),
            None => (start.program.as_os_str(), start.env.clone()),
        };
        let mut rights = vec![Right::Write, Right::Write];
        rights.extend(self.grants.iter().map(|grant| grant.right));
        Letter {
            method: self.method,
            program: program.to_owned(),
            args: match &self.bubblewrap {
                Some(_) => bubblewrap_args(start),
                None => start.args.to_vec(),
            },
            env,
            rights,
            limit_reads: self.limit_reads,
            limit_network: self.network == Network::None,
            caps: start.caps,
            walls: self.walls.clone(),
        }
    }
}

fn own_env(start: &Start<'_>) -> Vec<(OsString, OsString)> {
    let own = |(name, value): (&str, &str)| (name.into(), value.into());
    start.markers.map(own).to_vec()
}

/// `bwrap --args FD -- PROGRAM ...`: the helper puts the descriptor's number in.
fn bubblewrap_args(start: &Start<'_>) -> Vec<OsString> {
    let mut args = vec!["--".into(), start.program.as_os_str().to_owned()];
    args.extend(start.args.iter().cloned());
    args
}

/// What bubblewrap reads: its own arguments and the agent's environment, each ended by a NUL.
fn bubblewrap_words(args: &[OsString], start: &Start<'_>) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut words: Vec<OsString> = args.to_vec();
    words.push("--clearenv".into());
    for (name, value) in &start.env {
        words.extend(["--setenv".into(), name.clone(), value.clone()]);
    }
    let mut out = Vec::new();
    for word in &words {
        if word.as_bytes().contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        out.extend_from_slice(word.as_bytes());
        out.push(0);
    }
    Ok(out)
}

/// A file in memory, to be read from its start.
fn unnamed(name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn send(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    sendmsg(
        socket,
        &[IoSlice::new(&[1])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// What the helper said: nothing is success.
fn told(said: &[u8]) -> Option<Refused> {
    match said.split_first()? {
        (b'E', errno) => {
            let errno = errno
                .try_into()
                .map(i32::from_le_bytes)
                .unwrap_or(libc::EIO);
            Some(Refused::Start(io::Error::from_raw_os_error(errno)))
        }
        (_, text) => Some(Refused::Confine(String::from_utf8_lossy(text).into_owned())),
    }
}
