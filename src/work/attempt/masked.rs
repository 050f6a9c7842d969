//! The output of a process that may print secrets: to files without a name, and from there, masked
//! and while it runs, to the files that people see.
//!
//! What is raw must never have a name on disk, so that no crash can leave it behind.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, inotify, memfd_create};

use crate::disk::safety::Dir;
use crate::run::mask::{Masker, Stream};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// The shortest time between two looks: a process that prints without end wakes us no more often.
const PAUSE: Duration = Duration::from_millis(20);
/// How often it is looked where the system does not tell that something was printed.
const BLIND: Duration = Duration::from_millis(200);

/// The raw files of one attempt, and how far they have been copied.
pub(super) struct Masked {
    pub(super) stdout: File,
    pub(super) stderr: File,
    copies: Mutex<[Copy; 2]>,
}

struct Copy {
    from: File,
    to: Arc<File>,
    stream: Stream,
    read: u64,
    /// Masked, and not yet written.
    ready: Vec<u8>,
    written: u64,
}

impl Masked {
    pub(super) fn new(
        dir: &Dir,
        masker: &Masker,
        stdout: &Arc<File>,
        stderr: &Arc<File>,
    ) -> io::Result<Masked> {
        let (raw_out, raw_err) = (unnamed(dir)?, unnamed(dir)?);
        let copy = |from: &File, to: &Arc<File>| -> io::Result<Copy> {
            Ok(Copy {
                from: from.try_clone()?,
                to: to.clone(),
                stream: masker.stream(),
                read: 0,
                ready: Vec::new(),
                written: 0,
            })
        };
        let copies = Mutex::new([copy(&raw_out, stdout)?, copy(&raw_err, stderr)?]);
        Ok(Masked {
            stdout: raw_out,
            stderr: raw_err,
            copies,
        })
    }

    /// Does something that writes to the raw files, and copies what is there meanwhile.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let Ok(done) = eventfd(0, EventfdFlags::CLOEXEC) else {
            // Nothing is seen before the end, but nothing is lost either.
            return work();
        };
        std::thread::scope(|scope| {
            let copier = std::thread::Builder::new().name("mask".to_owned());
            let copier = copier.spawn_scoped(scope, || self.follow(&done));
            let ending = Ending(&done);
            let worked = work();
            drop(ending);
            drop(copier);
            worked
        })
    }

    /// Copies what appears, until it is told that there will be no more.
    fn follow(&self, done: &OwnedFd) {
        let printed = self.printed();
        // What came before it was watched for.
        let _ = self.catch_up();
        loop {
            let wait = printed.is_none().then_some(BLIND);
            let mut fds = vec![PollFd::new(done, PollFlags::IN)];
            fds.extend(printed.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
            let woken = poll(&mut fds, wait.map(timespec).as_ref());
            if woken.is_ok() && fds[0].revents().contains(PollFlags::IN) {
                return;
            }
            if let Some(fd) = &printed {
                settle(fd);
            }
            // What cannot be written now is written at the end.
            let _ = self.catch_up();
            let _ = poll(
                &mut [PollFd::new(done, PollFlags::IN)],
                Some(&timespec(PAUSE)),
            );
        }
    }

    /// Something that can be read when a raw file has grown.
    fn printed(&self) -> Option<OwnedFd> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags).ok()?;
        for file in [&self.stdout, &self.stderr] {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            inotify::add_watch(&fd, path, inotify::WatchFlags::MODIFY).ok()?;
        }
        Some(fd)
    }

    fn catch_up(&self) -> io::Result<()> {
        self.copies().iter_mut().try_for_each(Copy::catch_up)
    }

    /// Copies the rest. Can be repeated, also after it failed half-way.
    pub(super) fn finish(&self) -> io::Result<()> {
        for copy in self.copies().iter_mut() {
            copy.catch_up()?;
            copy.stream.finish(&mut copy.ready);
            copy.write()?;
        }
        Ok(())
    }

    fn copies(&self) -> MutexGuard<'_, [Copy; 2]> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copy {
    fn catch_up(&mut self) -> io::Result<()> {
        self.write()?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = match self.from.read_at(&mut buffer, self.read) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if n == 0 {
                return Ok(());
            }
            self.read += n as u64;
            self.stream.push(&buffer[..n], &mut self.ready);
            self.write()?;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.ready.is_empty() {
            match self.to.write_at(&self.ready, self.written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.written += n as u64;
                    self.ready.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Tells the copier that the work is over, also where it panics.
struct Ending<'a>(&'a OwnedFd);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let _ = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// A file without a name: of the same file system where that can make one, else in memory.
fn unnamed(dir: &Dir) -> io::Result<File> {
    match dir.create_unnamed() {
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
            ) =>
        {
            Ok(File::from(memfd_create("orch", MemfdFlags::CLOEXEC)?))
        }
        other => other,
    }
}

fn settle(fd: &OwnedFd) {
    let mut events = [0_u8; 4096];
    while rustix::io::read(fd, &mut events).is_ok_and(|n| n == events.len()) {}
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_printed_is_seen_masked_while_the_work_goes_on() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        let out = Arc::new(dir.create_new("t.out").unwrap());
        let err = Arc::new(dir.create_unnamed().unwrap());
        let masker = Masker::new(["hunter2hunter"]);
        let masked = Masked::new(&dir, &masker, &out, &err).unwrap();
        let see = |wanted: &str| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while std::fs::read_to_string(temp.path().join("t.out")).unwrap() != wanted {
                assert!(Instant::now() < deadline, "{wanted} was never seen");
                std::thread::yield_now();
            }
        };
        masked.during(|| {
            (&masked.stdout).write_all(b"one hunter2").unwrap();
            see("one ");
            (&masked.stdout).write_all(b"hunter\ntwo.\n").unwrap();
            see("one ***\ntwo.\n");
            (&masked.stderr).write_all(b"oh hunter2hunt").unwrap();
        });
        (&masked.stderr).write_all(b"er").unwrap();
        masked.finish().unwrap();
        masked.finish().unwrap();
        let mut text = String::new();
        let mut file = File::open(format!("/proc/self/fd/{}", err.as_raw_fd())).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "oh ***");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
