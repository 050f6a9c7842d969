//! Long text made shorter, always cut between two characters. It never decides how long a text may
//! be.

use std::borrow::Cow;

/// The last place at or before `limit` that is not inside a character. In bytes that are not UTF-8
/// that is `limit` itself.
#[must_use]
pub(crate) fn boundary(text: impl AsRef<[u8]>, limit: usize) -> usize {
    let bytes = text.as_ref();
    if limit >= bytes.len() {
        return bytes.len();
    }
    let continues = |at: usize| bytes[at] & 0b1100_0000 == 0b1000_0000;
    (limit.saturating_sub(3)..=limit)
        .rev()
        .find(|&at| !continues(at))
        .unwrap_or(limit)
}

/// The beginning of a text, at most `limit` bytes of it.
#[must_use]
pub(crate) fn head(text: &str, limit: usize) -> &str {
    &text[..boundary(text, limit)]
}

/// A text of at most `limit` characters; the last one is `…` where something was left out.
#[must_use]
pub(crate) fn ellipsis(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept = text.chars().take(limit.saturating_sub(1));
            Cow::Owned(kept.chain(['…']).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (text, limit, expected) in [
            ("", 0, ""),
            ("abc", 2, "ab"),
            ("abc", 9, "abc"),
            ("aé", 2, "a"),
            ("aé", 3, "aé"),
            ("😀b", 3, ""),
            ("😀b", 4, "😀"),
        ] {
            assert_eq!(head(text, limit), expected, "{text} {limit}");
        }
        assert_eq!(boundary([0xff, 0x80, 0x80, 0x80, 0x80], 4), 4);
    }

    #[test]
    fn what_was_left_out_is_shown_by_an_ellipsis() {
        for (text, limit, expected) in [("äbc", 3, "äbc"), ("äbcd", 3, "äb…"), ("", 0, "")] {
            assert_eq!(ellipsis(text, limit), expected);
        }
    }
}
