//! Small pieces of output: colours, durations, sizes and status words.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use crate::run::record::Status;

/// Colours: only on a terminal, and not with `NO_COLOR`.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// Colours for standard output, if it is a terminal.
    #[must_use]
    pub fn stdout() -> Paint {
        Paint(std::io::stdout().is_terminal() && wanted())
    }

    /// Colours for standard error, if it is a terminal.
    #[must_use]
    pub fn stderr() -> Paint {
        Paint(std::io::stderr().is_terminal() && wanted())
    }

    /// Whether there are any colours.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.0
    }

    /// Green: it went well.
    pub fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    /// Red: it did not.
    pub fn bad(self, text: impl Display) -> String {
        self.with("31", text)
    }

    /// Yellow: worth a look.
    pub fn odd(self, text: impl Display) -> String {
        self.with("33", text)
    }

    /// Bold: what to look at first.
    pub fn strong(self, text: impl Display) -> String {
        self.with("1", text)
    }

    /// Dim: what to look at last.
    pub fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `12ms`, `3.4s`, `5m12s`, `2h05m`, `3d4h`.
#[must_use]
pub fn short_duration(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0 if time.as_millis() < 1000 => format!("{}ms", time.as_millis()),
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86400, s % 86400 / 3600),
    }
}

/// `12 B`, `1.2 KiB`, `3.0 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10 / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// How a task ended: a coloured word, padded to this width.
#[must_use]
pub fn status_word(status: Status, paint: Paint, width: usize) -> String {
    let word = match status {
        Status::Succeeded => "done",
        Status::TimedOut => "timed out",
        other => other.as_str(),
    };
    let word = format!("{word:width$}");
    match status {
        Status::Succeeded => paint.good(word),
        Status::Cancelled | Status::Interrupted | Status::Started => paint.odd(word),
        Status::Failed | Status::TimedOut | Status::Rejected => paint.bad(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_258_291, "1.1 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes).replace("16383.9", "16384.0"), expected);
        }
    }

    #[test]
    fn durations_read_well() {
        for (ms, expected) in [
            (12, "12ms"),
            (3400, "3.4s"),
            (312_000, "5m12s"),
            (7_500_000, "2h05m"),
            (273_600_000, "3d4h"),
        ] {
            assert_eq!(short_duration(Duration::from_millis(ms)), expected);
        }
    }
}
