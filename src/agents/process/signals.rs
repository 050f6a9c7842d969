//! Signals to orch itself: the three that end it, and those that must not.
//!
//! What a process ignores, its children ignore too, but what it handles they have at its default.
//! So every signal that was ignored on entry (`nohup`, background jobs of a shell) gets a handler
//! that does nothing. This file must never decide what a signal means for the work.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::iterator::{Handle, Signals as Incoming};

use crate::text::error::exit;

/// A signal that asks orch to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

impl Signal {
    /// The exit code of a command that it ended.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => exit::INTERRUPTED,
            Signal::Terminate | Signal::HangUp => exit::TERMINATED,
        }
    }

    fn of(number: i32) -> Option<Signal> {
        match number {
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGHUP => Some(Signal::HangUp),
            _ => None,
        }
    }
}

/// The installed handlers. Dropped, signals are no longer told, but still do not end orch.
#[derive(Debug)]
pub struct Signals {
    handle: Handle,
}

impl Signals {
    /// Installs all handlers and starts the thread, named `signals`, that calls `tell` for each
    /// signal, one at a time. Call it first of all, and once.
    ///
    /// # Errors
    /// If a handler cannot be installed or the thread not started.
    pub fn install(tell: impl Fn(Signal) + Send + 'static) -> io::Result<Signals> {
        let ignored = ignored_on_entry();
        for &number in &ignored {
            go_on(number)?;
        }
        // A broken lease sends it, and its default is to end the process.
        go_on(libc::SIGIO)?;
        let told = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
            .into_iter()
            .filter(|number| *number != libc::SIGHUP || !ignored.contains(number));
        let mut incoming = Incoming::new(told)?;
        let handle = incoming.handle();
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || incoming.forever().filter_map(Signal::of).for_each(tell))?;
        Ok(Signals { handle })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Lets a signal do nothing here, and have its default in children.
pub(super) fn go_on(number: i32) -> io::Result<()> {
    signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

fn ignored_on_entry() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status)
}

/// The line `SigIgn:` of `/proc/self/status`, without those that are left as they are: SIGPIPE is
/// ignored by every Rust program and put back by every spawn; the two of the terminal do no harm
/// when ignored, while with a handler a write from the background would never end; those between
/// 31 and the first real-time one belong to the C library, which ignores them in what it spawns.
fn parse_ignored(status: &str) -> Vec<i32> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let left = [libc::SIGPIPE, libc::SIGTTIN, libc::SIGTTOU];
    (1..=31)
        .chain(libc::SIGRTMIN()..=64)
        .filter(|number| mask & (1 << (number - 1)) != 0)
        .filter(|number| !left.contains(number))
        .filter(|number| !signal_hook::consts::FORBIDDEN.contains(number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_read_bit_by_bit() {
        let status = "Name:\torch\nSigBlk:\tffff\nSigIgn:\t0000000180011003\nSigCgt:\t0\n";
        assert_eq!(parse_ignored(status), [1, 2, 17]);
        assert_eq!(parse_ignored("nothing"), [0; 0]);
    }

    #[test]
    fn the_codes_are_those_of_the_table() {
        let codes = [Signal::Interrupt, Signal::Terminate].map(Signal::exit_code);
        assert_eq!(codes, [130, 143]);
    }
}
