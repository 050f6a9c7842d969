//! Untrusted text made harmless: escape sequences, control characters and invisible characters
//! are removed before anything is shown. Pure: nothing is printed here.

use std::borrow::Cow;

/// Removes whatever could act on a terminal or deceive its reader: escape sequences, control characters
/// other than line breaks and tabs, marks that change the direction of writing, and invisible
/// characters.
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

/// JSON that cannot act on a terminal: harmful characters are escaped, so a parser still gets them
/// unchanged.
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

/// Whether a character could act on a terminal or deceive its reader. Line breaks and tabs are
/// harmless.
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

/// Skips to the end of a control sequence. If it is incomplete, nothing after it is lost.
fn skip_csi(chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    while chars.next_if(|c| ('\x20'..='\x3f').contains(c)).is_some() {}
    chars.next_if(|c| ('\x40'..='\x7e').contains(c));
}

/// Skips to the end of an operating-system command: BEL, or ESC and a backslash. If it never ends,
/// only the rest of its line is lost.
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
    fn counts_read_well() {
        assert_eq!(
            (count(1, "task"), count(2, "task")),
            ("1 task".into(), "2 tasks".into())
        );
    }
}
