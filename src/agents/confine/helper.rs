//! The helper: orch itself, started to hold itself in and then become the agent.
//!
//! It does as little as it can, in one thread: it takes what it was sent, sets the limits, builds
//! the walls, gives the rules to the kernel and executes the program. It must never print, never read the command
//! line beyond its own name, and never execute anything when a single step has failed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

use super::letter::{Letter, Method, Right};
use super::walls;
use crate::spec::policy::Caps;

/// The word on the command line by which orch is the helper.
pub const HELPER: &str = "confined-exec";
/// The word after it by which it only says whether it could build walls.
pub(super) const TRY_WALLS: &str = "walls";

/// The newest version of Landlock whose rules are meant here; older kernels do what they can.
const MEANT: ABI = ABI::V6;

/// Why the agent was not executed.
enum Failure {
    Exec(io::Error),
    Confine(String),
}

/// Runs the helper where this process was started as one; it returns only if it was not.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != HELPER {
        return None;
    }
    if words.next().is_some_and(|word| word == TRY_WALLS) {
        return Some(ExitCode::from(u8::from(!walls::can_be_built())));
    }
    let Ok(socket) = socket() else {
        return Some(ExitCode::from(crate::text::error::exit::USAGE));
    };
    let failure = match become_agent(&socket) {
        Err(failure) => failure,
        Ok(never) => match never {},
    };
    let mut said = Vec::new();
    match failure {
        Failure::Exec(error) => {
            said.push(b'E');
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            said.extend_from_slice(&errno.to_le_bytes());
        }
        Failure::Confine(why) => {
            said.push(b'C');
            said.extend_from_slice(why.as_bytes());
        }
    }
    let _ = (&socket).write_all(&said);
    Some(ExitCode::from(crate::text::error::exit::FAILED))
}

/// The socket that is our standard input, under a number of its own.
fn socket() -> io::Result<UnixStream> {
    let fd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let kind = rustix::fs::fstat(&fd)?.st_mode;
    if FileType::from_raw_mode(kind) != FileType::Socket {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(UnixStream::from(fd))
}

enum Never {}

fn become_agent(socket: &UnixStream) -> Result<Never, Failure> {
    let confine = |what: &str, e: &dyn std::fmt::Display| Failure::Confine(format!("{what}: {e}"));
    let mut fds = Vec::new();
    receive(socket, &mut fds).map_err(|e| confine("no letter came", &e))?;
    let mut taken = fds.into_iter();
    let lost = || Failure::Confine("the letter was not whole".to_owned());
    let mut letter = File::from(taken.next().ok_or_else(lost)?);
    let mut letter = Letter::read(&mut letter).map_err(|e| confine("a bad letter came", &e))?;
    let stdin = taken.next().ok_or_else(lost)?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|e| confine("standard input", &e))?;
    let mut wrapped = None;
    if letter.method == Method::Bubblewrap {
        let fd = taken.next().ok_or_else(lost)?;
        let number = OsString::from(fd.as_raw_fd().to_string());
        letter.args.splice(0..0, ["--args".into(), number]);
        fcntl_setfd(&fd, FdFlags::empty()).map_err(|e| confine("bwrap's arguments", &e))?;
        wrapped = Some(fd);
    }
    limit(&letter.caps).map_err(|e| confine("the limits cannot be set", &e))?;
    if let Some(walls) = &letter.walls {
        walls.build().map_err(|e| confine("no walls", &e))?;
    }
    if letter.method == Method::Landlock {
        drop_powers().map_err(|e| confine("capabilities cannot be given up", &e))?;
        // The rest may still be on its way: more rules than one message carries.
        let mut rules: Vec<OwnedFd> = taken.collect();
        while rules.len() < letter.rights.len() {
            receive(socket, &mut rules).map_err(|e| confine("a rule is missing", &e))?;
        }
        restrict(&letter, rules).map_err(Failure::Confine)?;
    }
    let error = Command::new(&letter.program)
        .args(&letter.args)
        .env_clear()
        .envs(letter.env)
        .exec();
    drop(wrapped);
    Err(Failure::Exec(error))
}

/// The descriptors of one message.
fn receive(socket: &UnixStream, fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )?;
    let before = fds.len();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 || fds.len() == before {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// No dump of memory in any case; the rest as far as it was said. A limit that we have ourselves
/// is never raised.
fn limit(caps: &Caps) -> io::Result<()> {
    let mut all = vec![(Resource::Core, 0)];
    all.extend(caps.processes.map(|most| (Resource::Nproc, most)));
    all.extend(caps.memory.map(|most| (Resource::As, most.0)));
    all.extend(caps.file.map(|most| (Resource::Fsize, most.0)));
    for (what, most) in all {
        let own = getrlimit(what).maximum.unwrap_or(u64::MAX);
        let most = Some(most.min(own));
        setrlimit(
            what,
            Rlimit {
                current: most,
                maximum: most,
            },
        )?;
    }
    Ok(())
}

/// What root can do past Landlock: read the memory of others, mount, load code into the kernel,
/// open files by number, make devices, change what cannot be changed. An ordinary user has none.
const POWERS: &[CapabilitySet] = &[
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_RESOURCE,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::LINUX_IMMUTABLE,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::MKNOD,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::NET_RAW,
    CapabilitySet::AUDIT_CONTROL,
    CapabilitySet::SYSLOG,
    CapabilitySet::PERFMON,
    CapabilitySet::BPF,
    CapabilitySet::CHECKPOINT_RESTORE,
];

/// Gives those up for good, where there are any.
fn drop_powers() -> io::Result<()> {
    let mut own = capabilities(None)?;
    if (own.permitted | own.inheritable).is_empty() {
        return Ok(());
    }
    for power in POWERS {
        match remove_capability_from_bounding_set(*power) {
            // An older kernel does not know it, and we may be without the right to give it up.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(Errno::PERM) if !own.effective.contains(CapabilitySet::SETPCAP) => {}
            Err(e) => return Err(e.into()),
        }
        for set in [&mut own.effective, &mut own.permitted, &mut own.inheritable] {
            set.remove(*power);
        }
    }
    Ok(set_capabilities(None, own)?)
}

/// Gives the rules to the kernel.
fn restrict(letter: &Letter, fds: Vec<OwnedFd>) -> Result<(), String> {
    let told = |e: &dyn std::fmt::Display| format!("landlock: {e}");
    let write = AccessFs::from_write(ABI::V5);
    let read = AccessFs::from_read(MEANT);
    let handled = if letter.limit_reads {
        write | read
    } else {
        write
    };
    let mut ruleset = Ruleset::default()
        .handle_access(handled)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(MEANT)))
        .map_err(|e| told(&e))?;
    if letter.limit_network {
        ruleset = ruleset
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)
            .map_err(|e| told(&e))?;
    }
    let mut created = ruleset.create().map_err(|e| told(&e))?;
    for (fd, right) in fds.into_iter().zip(&letter.rights) {
        let kind = rustix::fs::fstat(&fd).map_err(|e| told(&e))?.st_mode;
        let wanted: BitFlags<AccessFs> = match right {
            Right::Write => write | read,
            Right::Read => read,
        };
        let mut access = wanted & handled;
        if FileType::from_raw_mode(kind) != FileType::Directory {
            access &= AccessFs::from_file(MEANT);
        }
        if access.is_empty() {
            continue;
        }
        let added = created.add_rule(PathBeneath::new(fd, access));
        created = added.map_err(|e| told(&e))?;
    }
    let status = created.restrict_self().map_err(|e| told(&e))?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err("landlock: the kernel does not enforce it".to_owned());
    }
    Ok(())
}
