//! What is shown: nothing in it acts on a terminal, and what is harmless stays as it is.

use orch::ui::report::{clean, clean_json, clean_line};
use serde_json::{Value, json};

/// What terminals act on or show wrongly, said in other words than the program's.
fn acts(c: char) -> bool {
    let code = u32::from(c);
    let control = (code < 0x20 && c != '\n' && c != '\t') || (0x7f..0xa0).contains(&code);
    let turns = (0x202a..0x202f).contains(&code) || (0x2066..0x206a).contains(&code);
    control
        || turns
        || "\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{feff}".contains(c)
}

pub fn holds(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = clean(&text);
    assert!(!shown.contains(acts), "{shown:?}");
    assert_eq!(clean(&shown), shown);
    assert_eq!(text.matches('\n').count(), shown.matches('\n').count());
    if text.is_ascii() && !text.contains(acts) {
        assert_eq!(shown, text);
    }
    let line = clean_line(&text);
    assert!(
        !line.contains(acts) && !line.contains(['\n', '\t']),
        "{line:?}"
    );
    let json = json!({ "text": text, text.as_ref(): [text] }).to_string();
    let safe = clean_json(&json);
    assert!(!safe.contains(acts), "{safe:?}");
    let (before, after) = (json.parse::<Value>(), safe.parse::<Value>());
    assert_eq!(before.expect("JSON"), after.expect("JSON still"));
}
