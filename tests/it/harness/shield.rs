//! Whoever runs the tests may have signals ignored: `nohup` does, and a shell for its background jobs.
//! What is ignored is inherited, but what is handled is not: so each gets a handler that does nothing,
//! and what the tests start has every signal as a person at a terminal would give it.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Left as they are: SIGPIPE is every Rust program's own, and put back in what it starts.
const PIPE: i32 = 13;
/// The signals of a terminal: SIGHUP, SIGINT and SIGQUIT.
const TERMINAL: [i32; 3] = [1, 2, 3];

/// Puts the shield up where one is needed; gives whether the signals of a terminal are kept from these
/// tests, and therefore have to be kept from what they start: by a process group of its own.
pub fn is_up() -> bool {
    static UP: OnceLock<bool> = OnceLock::new();
    *UP.get_or_init(|| {
        let ignored = ignored();
        for number in &ignored {
            signal_hook::flag::register(*number, Arc::new(AtomicBool::new(false))).unwrap();
        }
        ignored.iter().any(|number| TERMINAL.contains(number))
    })
}

/// The signals that this process ignores and could handle.
fn ignored() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(|hex| u64::from_str_radix(hex.trim(), 16).unwrap())
        .unwrap();
    (1..32)
        .filter(|number| mask & (1 << (number - 1)) != 0)
        .filter(|number| *number != PIPE)
        .filter(|number| !signal_hook::consts::FORBIDDEN.contains(number))
        .collect()
}
