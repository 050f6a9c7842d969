//! How a waiting worker is woken: a stop for all of them, a poke for one.
//!
//! Built on eventfds, so that it sits in the same `poll` as the child. It must never lose a stop:
//! a stop stays readable for ever; only a poke is used up by the one that reads it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::procfs::timespec;

/// What ended a [`Wake::sleep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The time is up.
    Elapsed,
    /// Someone called [`Wake::poke`].
    Poked,
    /// Someone called [`Wake::stop`], now or earlier.
    Stopped,
}

/// One worker's alarm clock. A clone is the same worker's; [`Wake::worker`] makes another's.
#[derive(Debug, Clone)]
pub struct Wake {
    all: Arc<Stop>,
    poke: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Stop {
    count: AtomicU32,
    /// Readable from the first stop on.
    stop: OwnedFd,
    /// Readable from the second stop on: no more grace.
    hurry: OwnedFd,
}

impl Wake {
    /// A first worker's wake, with a stop of its own.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn new() -> io::Result<Wake> {
        let all = Stop {
            count: AtomicU32::new(0),
            stop: event()?,
            hurry: event()?,
        };
        Ok(Wake {
            all: Arc::new(all),
            poke: Arc::new(event()?),
        })
    }

    /// Another worker's wake, under the same stop.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn worker(&self) -> io::Result<Wake> {
        Ok(Wake {
            all: Arc::clone(&self.all),
            poke: Arc::new(event()?),
        })
    }

    /// Tells every worker to stop; a second call tells them to stop at once.
    pub fn stop(&self) {
        let before = self.all.count.fetch_add(1, Ordering::SeqCst);
        raise(&self.all.stop);
        if before > 0 {
            raise(&self.all.hurry);
        }
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.all.count.load(Ordering::SeqCst) > 0
    }

    /// Makes this worker look at once whether its job is still wanted.
    pub fn poke(&self) {
        raise(&self.poke);
    }

    /// Sleeps until the time is up, a poke or a stop, whichever is first.
    #[must_use]
    pub fn sleep(&self, time: Duration) -> Woken {
        let deadline = Instant::now() + time.min(Duration::from_secs(1 << 30));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::new(&self.all.stop, PollFlags::IN),
                PollFd::new(&*self.poke, PollFlags::IN),
            ];
            let _ = poll(&mut fds, Some(&timespec(left)));
            let poked = !fds[1].revents().is_empty();
            if !fds[0].revents().is_empty() {
                return Woken::Stopped;
            }
            if poked {
                self.settle();
                return Woken::Poked;
            }
            if left.is_zero() {
                return Woken::Elapsed;
            }
        }
    }

    /// Uses up the pokes so far.
    pub(super) fn settle(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.poke, &mut count);
    }

    pub(super) fn poke_fd(&self) -> &OwnedFd {
        &self.poke
    }

    pub(super) fn stop_fd(&self) -> &OwnedFd {
        &self.all.stop
    }

    pub(super) fn hurry_fd(&self) -> &OwnedFd {
        &self.all.hurry
    }
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// A full counter is readable as well, so a failed write loses nothing.
fn raise(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_poke_is_used_up_and_reaches_one_worker_only() {
        let one = Wake::new().unwrap();
        let two = one.worker().unwrap();
        one.poke();
        assert_eq!(one.sleep(LONG), Woken::Poked);
        assert_eq!(one.sleep(Duration::from_millis(1)), Woken::Elapsed);
        assert_eq!(two.sleep(Duration::from_millis(1)), Woken::Elapsed);
    }

    #[test]
    fn a_stop_reaches_everyone_and_stays() {
        let one = Wake::new().unwrap();
        let two = one.worker().unwrap();
        let sleeper = std::thread::spawn(move || [two.sleep(LONG), two.sleep(LONG)]);
        one.stop();
        assert_eq!(sleeper.join().unwrap(), [Woken::Stopped; 2]);
        assert!(one.stopped());
    }
}
