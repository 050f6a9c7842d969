//! Text for terminals: what came from an agent, a file or a file name is made harmless first.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use crate::record::Status;

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

/// Takes out what could act on a terminal or deceive its reader: escape sequences, other control
/// characters but line breaks and tabs, marks that turn the direction of writing, and characters
/// that cannot be seen.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    skip_csi(&mut chars);
                }
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    chars.next();
                    skip_string(&mut chars);
                }
                Some('\x20'..='\x7e') => {
                    chars.next();
                }
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut chars),
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

/// JSON whose texts hold nothing that could act on a terminal: such characters are escaped, so that
/// whoever reads the JSON gets them as they were.
#[must_use]
pub fn clean_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_harmful) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_harmful(c) {
            false => out.push(c),
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    Cow::Owned(out)
}

/// Whether a character does something else than be seen. Line breaks and tabs are left to the
/// reader.
#[must_use]
pub fn is_harmful(c: char) -> bool {
    let turns_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    (c.is_control() && c != '\n' && c != '\t')
        || turns_direction
        || is_invisible
        || matches!(c, '\u{2028}' | '\u{2029}')
}

/// To the end of a control sequence. One that is broken off takes nothing else with it.
fn skip_csi(chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while chars.next_if(|c| ('\x20'..='\x3f').contains(c)).is_some() {}
    chars.next_if(|c| ('\x40'..='\x7e').contains(c));
}

/// To the end of an operating-system command: BEL, or ESC and a backslash. One that is never ended
/// takes no more than its line with it.
fn skip_string(chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
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

/// How a task ended, in one word of this width, coloured.
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
            ("\x1b[31\nnext line", "\nnext line"),
            ("\x1b]0;hides\nnext line", "\nnext line"),
            ("\x1b\x1b[31mred", "red"),
            ("\x1b(Bplain\u{85}\u{9f}apc\u{9c}.", "Bplain."),
            (
                "zero\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}width",
                "zerowidth",
            ),
            ("a\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{2069}b", "ab"),
            ("tag\u{e0041}\u{e007f}s", "tags"),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
        let text = "a\u{202e}b\u{9b}c\u{e0041}d\x7f\u{2028}";
        let json = serde_json::json!({ "k": text }).to_string();
        let safe = clean_json(&json);
        assert_eq!(clean(&safe), safe);
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(back["k"], text);
        assert_eq!(clean_line("two\nlines\x1b[2J"), "two lines");
    }

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
