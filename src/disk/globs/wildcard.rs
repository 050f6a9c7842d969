//! One part of a glob, as a pattern over the characters of one name.
//!
//! `globset` decides what a valid glob is, as it does for workflows. It is not used for matching because
//! its `?` matches one byte, not one character.

use std::io;

use globset::GlobBuilder;
use regex::{Regex, RegexBuilder};

/// Compiles a part without slashes.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a glob.
pub(super) fn compile(part: &str) -> io::Result<Regex> {
    let bad = |why: String| {
        let message = format!("`{}` is not a glob: {why}", part.escape_debug());
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let checked = GlobBuilder::new(part).literal_separator(true).build();
    checked.map_err(|e| bad(e.kind().to_string()))?;
    RegexBuilder::new(&translated(part))
        .dot_matches_new_line(true)
        .size_limit(1 << 20)
        .build()
        .map_err(|e| bad(e.to_string()))
}

fn translated(part: &str) -> String {
    let mut out = String::from("^");
    let mut rest = part.chars();
    let mut open = 0_usize;
    while let Some(c) = rest.next() {
        match c {
            '*' => out.push_str(".*"),
            '?' => out.push('.'),
            '[' => class(&mut rest, &mut out),
            '{' => {
                open += 1;
                out.push_str("(?:");
            }
            '}' if open > 0 => {
                open -= 1;
                out.push(')');
            }
            ',' if open > 0 => out.push('|'),
            '\\' => literal(rest.next().unwrap_or('\\'), &mut out),
            c => literal(c, &mut out),
        }
    }
    out.push('$');
    out
}

/// The inside of `[...]`. A `]` at its beginning and a `-` at either end are literal.
fn class(rest: &mut std::str::Chars<'_>, out: &mut String) {
    out.push('[');
    let mut first = true;
    let mut peeked = rest.clone();
    if matches!(peeked.next(), Some('!' | '^')) {
        rest.next();
        out.push('^');
    }
    while let Some(c) = rest.next() {
        match c {
            ']' if !first => break,
            '-' if !first && !rest.as_str().starts_with(']') => out.push('-'),
            c => literal(c, out),
        }
        first = false;
    }
    out.push(']');
}

fn literal(c: char, out: &mut String) {
    let mut buffer = [0; 4];
    let text = c.encode_utf8(&mut buffer);
    out.push_str(&regex::escape(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_by_their_characters() {
        let table = [
            ("?.txt", "ü.txt", true),
            ("[äü].txt", "ü.txt", true),
            ("[!a-c]x", "dx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[-a]", "-", true),
            ("[a^]", "^", true),
            ("[[]1", "[1", true),
            ("[&&~]", "~", true),
            ("a{b,c*}.d", "acx.d", true),
            ("a{b,c}.d", "ad.d", false),
            ("a,b", "a,b", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a.b", "axb", false),
            ("a+(b)$|^", "a+(b)$|^", true),
            ("*", "a\nb", true),
            ("a*", "ba", false),
        ];
        for (part, name, expected) in table {
            let glob = compile(part).unwrap();
            assert_eq!(glob.is_match(name), expected, "{part} {name} {glob}");
        }
        for part in ["[", "[b-a]", "{a"] {
            let error = compile(part).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
