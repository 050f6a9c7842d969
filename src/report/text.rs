//! Text for terminals: what came from an agent, a file or a file name is made harmless first.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

/// Colours, where they are wanted: on a terminal, and not with `NO_COLOR`.
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

/// Takes out what could act on a terminal: escape sequences, other control characters but line
/// breaks and tabs, and marks that turn the direction of writing.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => match chars.next() {
                Some('[') => skip_csi(&mut chars),
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut chars),
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut chars),
            '\u{9d}' | '\u{90}' => skip_string(&mut chars),
            c if is_harmful(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for text that must stay on its line.
#[must_use]
pub fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

fn is_harmful(c: char) -> bool {
    let turns_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t')
        || turns_direction
        || matches!(c, '\u{2028}' | '\u{2029}')
}

fn skip_csi(chars: &mut impl Iterator<Item = char>) {
    for c in chars {
        if ('\x40'..='\x7e').contains(&c) {
            break;
        }
    }
}

/// To the end of an operating-system command: BEL, or ESC and a backslash.
fn skip_string(chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while let Some(c) = chars.next() {
        match c {
            '\x07' | '\u{9c}' => break,
            '\x1b' => {
                chars.next_if_eq(&'\\');
                break;
            }
            _ => {}
        }
    }
}

/// `1 file`, `2 files`.
#[must_use]
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        for (dirty, expected) in [
            ("plain ünïcode\n\ttext", "plain ünïcode\n\ttext"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07after", "after"),
            ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("over\rwritten", "overwritten"),
            ("\u{9b}2Jcleared", "cleared"),
            ("a\u{202e}b\u{2066}c", "abc"),
            ("bell\x07 nul\0 del\x7f", "bell nul del"),
            ("cut \x1b[3", "cut "),
            ("cut \x1b", "cut "),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
        assert_eq!(clean_line("two\nlines\x1b[2J"), "two lines");
    }

    #[test]
    fn counts_and_durations_read_well() {
        assert_eq!(
            (count(1, "task"), count(2, "task")),
            ("1 task".into(), "2 tasks".into())
        );
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
