//! Masking: however the bytes are cut, no secret comes out in a form that is promised, and nothing
//! else goes missing.
//!
//! The first line is the secret, the second one says how the rest is cut.

use orch::run::mask::{MASK, Masker, SHORTEST};
use serde_json::{Value, json};

/// Longer ones are not looked for in every form.
const EVERY_FORM: usize = 1000;

pub fn holds(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let (Some(secret), Some(cuts), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    // A mask beside a star of the text could look like a secret that has stars in it.
    if !(SHORTEST..=EVERY_FORM).contains(&dense(secret).len()) || secret.contains(&b'*') {
        return;
    }
    let masker = Masker::new([secret]);
    any_text(&masker, secret, cuts, text);
    // What is shorter than that in another form cannot be told from ordinary text.
    let long_enough = |form: &Vec<u8>| dense(form).len() >= SHORTEST;
    for form in forms(secret).into_iter().filter(long_enough) {
        let around = [text, b"<", form.as_slice(), b">", text].concat();
        let out = any_text(&masker, secret, cuts, &around);
        assert!(
            !holds_in(&out, &form),
            "{:?}",
            String::from_utf8_lossy(&out)
        );
    }
    if let (Ok(secret), Ok(text)) = (std::str::from_utf8(secret), std::str::from_utf8(text)) {
        in_a_document(&masker, secret, text);
    }
}

fn any_text(masker: &Masker, secret: &[u8], cuts: &[u8], text: &[u8]) -> Vec<u8> {
    let out = masker.bytes(text);
    assert_eq!(in_pieces(masker, cuts, text), out, "cut otherwise");
    assert!(
        !holds_in(&out, secret),
        "{:?}",
        String::from_utf8_lossy(&out)
    );
    assert_eq!(masker.bytes(&out), out, "masked twice");
    // Where stars stand beside a mask, which of them are the mask cannot be told.
    if !text.contains(&b'*') {
        left_alone(text, &out);
    }
    out
}

fn in_pieces(masker: &Masker, cuts: &[u8], text: &[u8]) -> Vec<u8> {
    let (mut stream, mut out, mut rest) = (masker.stream(), Vec::new(), text);
    let mut lengths = cuts.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(1, |cut| usize::from(*cut) % 24);
        // Nothing at all is a piece too, but not for ever.
        let (piece, more) = rest.split_at(length.min(rest.len()));
        stream.push(piece, &mut out);
        let (one, more) = more.split_at(more.len().min(1));
        stream.push(one, &mut out);
        rest = more;
    }
    stream.finish(&mut out);
    out
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0)
}

/// Blanks count for nothing.
fn dense(bytes: &[u8]) -> Vec<u8> {
    let counts = |byte: &u8| !is_blank(*byte);
    bytes.iter().copied().filter(counts).collect()
}

fn holds_in(text: &[u8], secret: &[u8]) -> bool {
    let (text, secret) = (dense(text), dense(secret));
    text.windows(secret.len()).any(|part| part == secret)
}

/// What other programs make of a secret, by encoders that are not orch's.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let each =
        |writer: fn(&u8) -> String| secret.iter().map(writer).collect::<String>().into_bytes();
    let mut forms = vec![
        secret.to_vec(),
        each(|byte| format!("{byte:02x}")),
        each(|byte| format!("{byte:02X}")),
        each(|byte| format!("\\x{byte:02x}")),
        each(|byte| format!("%{byte:02X}")),
        each(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(*byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        }),
        base64(secret),
    ];
    if let Ok(text) = std::str::from_utf8(secret) {
        let json = Value::from(text).to_string();
        forms.push(json.as_bytes()[1..json.len() - 1].to_vec());
        forms.push(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
    }
    forms
}

fn base64(secret: &[u8]) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for three in secret.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let four = [18, 12, 6, 0].map(|shift| digits[(bits >> shift & 63) as usize]);
        out.extend_from_slice(&four[..=three.len()]);
        out.resize(out.len() + 3 - three.len(), b'=');
    }
    out
}

/// What is between the masks stands in the text, in this order.
fn left_alone(text: &[u8], out: &[u8]) {
    let mut rest = text;
    let mut out = out;
    while !out.is_empty() {
        let end = out
            .windows(MASK.len())
            .position(|part| part == MASK.as_bytes());
        let piece = &out[..end.unwrap_or(out.len())];
        let found = match piece.is_empty() {
            true => Some(0),
            false => rest.windows(piece.len()).position(|part| part == piece),
        };
        rest = &rest[found.expect("it was not there before") + piece.len()..];
        out = &out[end.map_or(out.len(), |end| end + MASK.len())..];
    }
}

fn in_a_document(masker: &Masker, secret: &str, text: &str) {
    let mut document = json!({ "text": format!("{text}{secret}"), secret: [text, {"a": secret}] });
    masker.value(&mut document);
    texts(&document, &mut |text| {
        assert_eq!(masker.bytes(text.as_bytes()), text.as_bytes());
    });
    let mut line = format!("{secret} {text}");
    masker.text(&mut line);
    assert!(!masker.is_in(&line), "{line:?}");
}

fn texts(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, each)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            each(key);
            texts(value, each);
        }),
        _ => {}
    }
}
