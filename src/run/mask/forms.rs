//! The forms in which programs print a value.
//!
//! Each is what a common encoder makes of the whole value. A value that was compressed, encrypted,
//! reversed, split or encoded twice (except in JSON and URLs) is not found.

use std::fmt::Write;

/// Longer values are searched for in the most common forms only: the others would take too much memory.
const EVERY_FORM: usize = 1024;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE32_LOWER: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

const DELETE: char = '\x7f';

/// What URL encoders leave as it is besides letters, digits, `-`, `.` and `_`.
const URL_SAFE: [&[u8]; 5] = [b"~", b"", b"~!*'()", b"~/", b"~!*'();,/?:@&=+$#"];

/// Calls `give` with every form, and whether programs wrap it into lines.
pub(super) fn each(value: &[u8], give: &mut dyn FnMut(&[u8], bool)) {
    give(value, false);
    bits(value, give);
    urls(value, give);
    let text = std::str::from_utf8(value).ok();
    if let Some(text) = text {
        json(text, give);
    }
    if value.len() > EVERY_FORM {
        return;
    }
    bytewise(value, give);
    if let Some(text) = text {
        quoted(text, give);
        numbered(text, give);
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        give(&wide, false);
        bits(&wide, give);
    }
}

/// Base64, base32 and hexadecimal.
fn bits(value: &[u8], give: &mut dyn FnMut(&[u8], bool)) {
    for alphabet in [BASE64, BASE64_URL] {
        in_digits(value, alphabet, 6, &mut |form| give(form, true));
    }
    for alphabet in [BASE32, BASE32_LOWER] {
        in_digits(value, alphabet, 5, &mut |form| give(form, true));
    }
    give(each_byte(value, |b| format!("{b:02x}")).as_bytes(), true);
    give(each_byte(value, |b| format!("{b:02X}")).as_bytes(), true);
}

/// A value in digits of `width` bits each, wherever in the encoded text it begins: the digits that do
/// not depend on what surrounds it, and all digits if it stands alone.
fn in_digits(value: &[u8], alphabet: &[u8], width: usize, give: &mut dyn FnMut(&[u8])) {
    let group = if width == 6 { 3 } else { 5 };
    for before in 0..group {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        let digits = digits(&bytes, alphabet, width);
        let first = (before * 8).div_ceil(width);
        let last = bytes.len() * 8 / width;
        if let Some(inner) = digits.get(first..last) {
            give(inner);
        }
        // At the end of a text the last digit is filled with zeros, and padding may follow.
        let mut rest = digits[first.min(digits.len())..].to_vec();
        give(&rest);
        let whole = bytes.len().div_ceil(group) * group * 8 / width;
        rest.resize(rest.len() + whole - digits.len(), b'=');
        give(&rest);
    }
}

fn digits(bytes: &[u8], alphabet: &[u8], width: usize) -> Vec<u8> {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let digit = |at: usize| (0..width).fold(0, |sum, n| sum << 1 | usize::from(bit(at + n)));
    let starts = (0..bytes.len() * 8).step_by(width);
    starts.map(|at| alphabet[digit(at)]).collect()
}

fn urls(value: &[u8], give: &mut dyn FnMut(&[u8], bool)) {
    for safe in URL_SAFE {
        for blank in ["%20", "+"] {
            for upper in [true, false] {
                let once = percent(value, upper, |byte| match byte {
                    b' ' => Some(blank),
                    _ if byte.is_ascii_alphanumeric() => Some(""),
                    _ if b"-._".contains(&byte) || safe.contains(&byte) => Some(""),
                    _ => None,
                });
                give(once.as_bytes(), false);
                give(once.replace('%', "%25").as_bytes(), false);
            }
        }
    }
}

/// Percent-encodes every byte except those that `kept` maps to a text; an empty text is the byte itself.
fn percent(value: &[u8], upper: bool, kept: impl Fn(u8) -> Option<&'static str>) -> String {
    each_byte(value, |byte| match kept(byte) {
        Some("") => char::from(byte).to_string(),
        Some(text) => text.to_owned(),
        None if upper => format!("%{byte:02X}"),
        None => format!("%{byte:02x}"),
    })
}

/// As JSON encoders write it, also JSON inside JSON.
fn json(text: &str, give: &mut dyn FnMut(&[u8], bool)) {
    for upper in [false, true] {
        for slash in [false, true] {
            for wide in [false, true] {
                for html in [false, true] {
                    let mut add = |writer: &dyn Fn(char) -> String| {
                        let once = each_char(text, writer);
                        give(once.as_bytes(), false);
                        give(each_char(&once, writer).as_bytes(), false);
                    };
                    let escaped = |c| json_char(c, upper, slash, wide, html);
                    add(&escaped);
                    // The one control character that most encoders leave as it is.
                    if text.contains(DELETE) {
                        add(&|c| match c {
                            DELETE => c.to_string(),
                            c => escaped(c),
                        });
                    }
                }
            }
        }
    }
}

fn json_char(c: char, upper: bool, slash: bool, wide: bool, html: bool) -> String {
    match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\x08' => "\\b".to_owned(),
        '\x0c' => "\\f".to_owned(),
        '/' if slash => "\\/".to_owned(),
        '<' | '>' | '&' | '\'' if html => utf16(c, upper),
        _ if c.is_ascii_control() || (wide && !c.is_ascii()) => utf16(c, upper),
        _ => c.to_string(),
    }
}

/// `\u0041`; a surrogate pair where one is not enough.
fn utf16(c: char, upper: bool) -> String {
    let mut out = String::new();
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = match upper {
            true => write!(out, "\\u{unit:04X}"),
            false => write!(out, "\\u{unit:04x}"),
        };
    }
    out
}

/// Every byte as a number, or only those that are not printable, as in string literals.
fn bytewise(value: &[u8], give: &mut dyn FnMut(&[u8], bool)) {
    let writers: [fn(u8) -> String; 9] = [
        |b| format!("\\x{b:02x}"),
        |b| format!("\\x{b:02X}"),
        |b| format!("\\{b:03o}"),
        |b| format!("%{b:02x}"),
        |b| format!("%{b:02X}"),
        |b| format!("{b:02x}:"),
        |b| format!("{b:02X}:"),
        |b| format!("0x{b:02x},"),
        |b| format!("{b},"),
    ];
    for writer in writers {
        let all = each_byte(value, writer);
        // A separator stands between two, not after the last.
        give(all.trim_end_matches([':', ',']).as_bytes(), false);
    }
    for writer in &writers[..3] {
        for quotes in ["", "\"", "'", "\"'"] {
            let literal = each_byte(value, |byte| match (byte, char::from(byte)) {
                (b'\n', _) => "\\n".to_owned(),
                (b'\r', _) => "\\r".to_owned(),
                (b'\t', _) => "\\t".to_owned(),
                (b'\\', c) => format!("\\{c}"),
                (_, c) if quotes.contains(c) => format!("\\{c}"),
                (b' '..=b'~', c) => c.to_string(),
                _ => writer(byte),
            });
            give(literal.as_bytes(), false);
        }
    }
    let printable = each_byte(value, |byte| match byte {
        b'=' => "=3D".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("={byte:02X}"),
    });
    give(printable.as_bytes(), false);
}

/// Inside quotes: of shells, programming languages and CSV.
fn quoted(text: &str, give: &mut dyn FnMut(&[u8], bool)) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:@%+=".contains(c) || !c.is_ascii();
    let mut add = |writer: &dyn Fn(char) -> String| give(each_char(text, writer).as_bytes(), false);
    let before = |set: &'static str| {
        move |c: char| match set.contains(c) {
            true => format!("\\{c}"),
            false => c.to_string(),
        }
    };
    let instead = |from: char, to: &'static str| {
        move |c: char| match c == from {
            true => to.to_owned(),
            false => c.to_string(),
        }
    };
    // A shell word outside quotes, escaped more and less strictly.
    for kept in ["", ",:@%+=", ":@%+=", "~"] {
        let kept: String = kept.to_owned();
        add(&move |c| match c.is_ascii_alphanumeric()
            || "_-./".contains(c)
            || kept.contains(c)
            || !c.is_ascii()
        {
            true => c.to_string(),
            false => format!("\\{c}"),
        });
    }
    add(&|c| {
        if plain(c) {
            c.to_string()
        } else {
            format!("\\{c}")
        }
    });
    for set in ["\"\\$`", "\"\\$`!", "'\\", "\"'\\", "\"'\\$`", "'\"", "\\"] {
        add(&before(set));
    }
    for (from, to) in [
        ('\'', "'\\''"),
        ('\'', "'\"'\"'"),
        ('\'', "''"),
        ('"', "\"\""),
    ] {
        add(&instead(from, to));
    }
    for apostrophe in ["'", "&#39;", "&#x27;", "&apos;", "&#039;"] {
        for quote in ["\"", "&quot;", "&#34;"] {
            add(&|c| match c {
                '&' => "&amp;".to_owned(),
                '<' => "&lt;".to_owned(),
                '>' => "&gt;".to_owned(),
                '"' => quote.to_owned(),
                '\'' => apostrophe.to_owned(),
                _ => c.to_string(),
            });
        }
    }
}

/// Every character as a number.
fn numbered(text: &str, give: &mut dyn FnMut(&[u8], bool)) {
    let writers: [fn(char) -> String; 5] = [
        |c| utf16(c, false),
        |c| utf16(c, true),
        |c| format!("&#{};", c as u32),
        |c| format!("&#x{:x};", c as u32),
        |c| format!("&#x{:X};", c as u32),
    ];
    for writer in writers {
        give(each_char(text, writer).as_bytes(), false);
    }
}

fn each_byte(value: &[u8], writer: impl Fn(u8) -> String) -> String {
    value.iter().map(|byte| writer(*byte)).collect()
}

fn each_char(text: &str, writer: impl Fn(char) -> String) -> String {
    text.chars().map(writer).collect()
}
