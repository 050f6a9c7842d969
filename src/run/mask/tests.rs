//! Every form, cut at every byte; and what must be left alone.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::text::error::Kind;

const SECRET: &str = "s3cr3t/Kéy+\"q'<&> %\\z";

/// What other programs make of the secret.
const ENCODED: &[(&str, &[u8])] = &include!("../../../tests/fixtures/secrets/forms.in");

fn masker() -> Masker {
    Masker::new([SECRET])
}

fn in_pieces(masker: &Masker, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut stream = masker.stream();
    for piece in pieces {
        stream.push(piece, &mut out);
    }
    stream.finish(&mut out);
    out
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_form_is_masked_wherever_it_is_cut() {
    let masker = masker();
    for (name, encoded) in ENCODED {
        let text = [b"before ", *encoded, b" after"].concat();
        let expected = b"before *** after";
        assert_eq!(shown(&masker.bytes(&text)), shown(expected), "{name}");
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(in_pieces(&masker, &[a, b]), expected, "{name} at {cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(in_pieces(&masker, &single), expected, "{name} by bytes");
    }
}

#[test]
fn base64_is_found_at_every_place_in_a_longer_text() {
    let secret = "correct-horse-battery";
    let masker = Masker::new([secret]);
    let digits = |text: &str| match text {
        // What `base64` prints for the secret with 0, 1 and 2 bytes before it, and some behind.
        "" => "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5OnRhaWw=",
        "u" => "dWNvcnJlY3QtaG9yc2UtYmF0dGVyeTp0YWls",
        _ => "dTpjb3JyZWN0LWhvcnNlLWJhdHRlcnk6dGFpbA==",
    };
    // The digits that depend on the secret alone.
    for (before, inner) in [
        ("", "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"),
        ("u", "NvcnJlY3QtaG9yc2UtYmF0dGVye"),
        ("u:", "jb3JyZWN0LWhvcnNlLWJhdHRlcn"),
    ] {
        let text = digits(before);
        assert!(text.contains(inner), "{before}");
        let masked = shown(&masker.bytes(text.as_bytes()));
        assert!(
            masked.contains(MASK) && !masked.contains(&inner[1..inner.len() - 1]),
            "{masked}"
        );
    }
}

#[test]
fn wrapped_digits_are_found_also_in_json() {
    let secret = "an-api-key-that-is-long-enough-to-be-wrapped-by-base64-and-by-xxd";
    let masker = Masker::new([secret]);
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    for between in ["\n", "\r\n", "\\n", "\\r\\n", "\\\\n", "\n  "] {
        let text = format!("[{}{between}{}]", &hex[..60], &hex[60..]);
        assert_eq!(
            shown(&masker.bytes(text.as_bytes())),
            "[***]",
            "{between:?}"
        );
    }
}

#[test]
fn a_delete_character_in_json_hides_nothing() {
    let secret = "key\x7f\"quoted\\";
    let masker = Masker::new([secret]);
    let printed = json!({ "a": secret }).to_string();
    assert!(printed.contains('\x7f'), "{printed:?}");
    let twice = json!(printed).to_string();
    for text in [&printed, &printed.replace('\x7f', "\\u007f"), &twice] {
        let masked = shown(&masker.bytes(text.as_bytes()));
        assert!(
            masked.contains(MASK) && !masked.contains("quoted"),
            "{masked:?}"
        );
    }
}

#[test]
fn a_backslash_before_a_value_hides_nothing() {
    let masker = Masker::new(["nopassword", "6e6f70617373"]);
    for text in [
        "C:\\nopassword",
        "\\nopassword",
        "\\\\nopassword",
        "\\6e6f70617373",
    ] {
        let masked = shown(&masker.bytes(text.as_bytes()));
        assert!(
            masked.ends_with(MASK) && !masked.contains("pass"),
            "{masked}"
        );
    }
}

#[test]
fn each_line_of_a_value_is_masked_and_the_whole_is_one_mask() {
    let masker = Masker::new(["-----BEGIN-----\nfirst line\nsecond\n}\n"]);
    let masked = |text: &str| shown(&masker.bytes(text.as_bytes()));
    assert_eq!(masked("a first line b second c }"), "a *** b *** c }");
    assert_eq!(
        masked("<-----BEGIN-----\nfirst line\nsecond\n}\n>"),
        "<***\n>"
    );
    assert_eq!(
        masked("\"-----BEGIN-----\\nfirst line\\nsecond\\n}\\n\""),
        "\"***\""
    );
}

#[test]
fn overlapping_values_leave_no_rest() {
    let masker = Masker::new(["abcdef", "defghi", "cde?", "efghijkl"]);
    for (text, expected) in [
        ("xabcdefghix", "x***x"),
        ("xabcdefghijklx", "x***x"),
        ("xabcdefabcdefx", "x***x"),
        ("abcde", "abcde"),
        ("abcdex", "abcdex"),
        ("cde?f abcdef", "***f ***"),
    ] {
        assert_eq!(shown(&masker.bytes(text.as_bytes())), expected);
        for cut in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(
                shown(&in_pieces(&masker, &[a, b])),
                expected,
                "{text} at {cut}"
            );
        }
    }
}

#[test]
fn random_texts_come_out_the_same_however_they_are_cut_and_hold_no_value() {
    // Values over a small alphabet, so that beginnings and ends meet all the time.
    let values = ["abab", "babba", "aabaab", "bbbb"];
    let masker = Masker::new(values);
    let mut seed = 7_u64;
    let mut next = |most: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for _ in 0..2000 {
        let length = next(40);
        let text: Vec<u8> = (0..length)
            .map(|_| b"ab \n"[usize::try_from(next(4).min(next(4))).unwrap()])
            .collect();
        let whole = masker.bytes(&text);
        let mut covered = vec![false; text.len()];
        let kept: Vec<usize> = (0..text.len()).filter(|at| text[*at] > b' ').collect();
        for value in values {
            for window in kept.windows(value.len()) {
                let word: Vec<u8> = window.iter().map(|at| text[*at]).collect();
                if word == value.as_bytes() {
                    covered[window[0]..=window[value.len() - 1]].fill(true);
                }
            }
        }
        let mut expected = Vec::new();
        for at in 0..text.len() {
            match covered[at] {
                false => expected.push(text[at]),
                true if at > 0 && covered[at - 1] => {}
                true => expected.extend_from_slice(b"***"),
            }
        }
        assert_eq!(shown(&whole), shown(&expected), "{:?}", shown(&text));
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut rest = &text[..];
        while !rest.is_empty() {
            let (piece, more) =
                rest.split_at(usize::try_from(next(rest.len() as u64) + 1).unwrap());
            pieces.push(piece);
            rest = more;
        }
        assert_eq!(in_pieces(&masker, &pieces), whole);
    }
}

#[test]
fn what_cannot_be_a_secret_goes_out_at_once() {
    let masker = Masker::new(["hunter2"]);
    let mut stream = masker.stream();
    let mut out = Vec::new();
    stream.push(b"the password is\n", &mut out);
    assert_eq!(shown(&out), "the password is\n");
    stream.push(b"hun", &mut out);
    assert_eq!(shown(&out), "the password is\n");
    stream.push(b"ger\n", &mut out);
    assert_eq!(shown(&out), "the password is\nhunger\n");
    stream.push(b"hunter2 hu", &mut out);
    assert_eq!(shown(&out), "the password is\nhunger\n*** ");
    stream.finish(&mut out);
    assert_eq!(shown(&out), "the password is\nhunger\n*** hu");
}

#[test]
fn short_and_empty_values_are_told_apart() {
    assert!(!is_too_short(b"") && !is_too_short(b"abcd"));
    assert!(is_too_short(b"abc") && is_too_short(b"   ") && is_too_short(b" a b c "));
    let masker = Masker::new(["", "abc"]);
    assert!(masker.is_idle());
    assert_eq!(masker.bytes(b"abc"), b"abc");
}

#[test]
fn documents_records_and_faults_are_masked() {
    let masker = Masker::new(["hunter2", "123456"]);
    let mut value = json!({"a": ["hunter2", 123456, 12, true], "hunter2": {"b": "xhunter2x"}});
    masker.value(&mut value);
    assert_eq!(
        value,
        json!({"a": ["***", "***", 12, true], "***": {"b": "x***x"}})
    );
    let mut record = Record::new("a", "t", 1, crate::run::record::Status::Failed);
    record.output = "hunter2".into();
    record.command = Some(vec!["x".into(), "--key=hunter2".into()]);
    record.session_id = Some("hunter2".into());
    record.cwd = Some("/hunter2".into());
    record.error = Some(Fault::new(Kind::ProviderFailed, "hunter2").hint("hunter2"));
    masker.record(&mut record);
    assert!(!serde_json::to_string(&record).unwrap().contains("hunter2"));
    assert!(masker.is_in("x hunter2 y") && !masker.is_in("hunter"));
    assert_eq!(
        format!("{masker:?} {:?}", masker.stream()),
        "Masker(2) Stream(Masker(2), at 0)"
    );
}

#[test]
fn the_time_is_linear_in_the_text() {
    // The worst for a naive search: everything nearly matches.
    let value = "a".repeat(LONGEST - 1) + "b";
    let masker = Masker::new([&value]);
    let time = |bytes: usize| {
        let text = vec![b'a'; bytes];
        let began = Instant::now();
        assert_eq!(masker.bytes(&text).len(), bytes);
        began.elapsed()
    };
    let most = Duration::from_secs(20);
    assert!(time(1 << 20) < most, "a naive search takes hours");
}
