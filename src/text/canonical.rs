//! Canonical JSON and its hash: the same document gives the same bytes everywhere.
//!
//! Keys are sorted and there is no white space between tokens, so `sha256sum` of a snapshot prints the
//! hash that the run's state holds.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The deepest JSON that is kept. A log line nests it further, and must still be readable.
pub const MAX_JSON_DEPTH: usize = 64;

/// A document with its keys sorted, on one line, without a newline at the end.
#[must_use]
pub fn text(document: &Value) -> String {
    let mut sorted = document.clone();
    sorted.sort_all_objects();
    sorted.to_string()
}

/// The SHA-256 of some bytes, in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_and_the_blanks_do_not_matter() {
        let one: Value =
            serde_json::from_str(r#"{"b": [{"z": 1, "a": 2.50}], "a": null}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"a":null,"b":[{"a":2.5,"z":1}]}"#).unwrap();
        assert_eq!(text(&one), r#"{"a":null,"b":[{"a":2.5,"z":1}]}"#);
        assert_eq!(text(&one), text(&two));
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
