//! "Did you mean": the nearest known word to one that is not known.
//!
//! Pure arithmetic on two words; it only words a hint.

/// The candidate nearest to `word`, if it is near enough to be a typing error.
#[must_use]
pub fn suggest<'a, I>(word: &str, candidates: I) -> Option<&'a str>
where
    I: IntoIterator<Item = &'a str>,
{
    let limit = (word.chars().count().max(3) / 3).min(3);
    candidates
        .into_iter()
        .filter(|candidate| *candidate != word)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The hint for an unknown word: the nearest one, or the whole list.
#[must_use]
pub fn hint(word: &str, candidates: &[&str]) -> Option<String> {
    if let Some(near) = suggest(word, candidates.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    (!candidates.is_empty()).then(|| format!("known here: `{}`", candidates.join("`, `")))
}

/// How many edits lie between two words, where a swap of two neighbours is one edit and case does
/// not count. Only the beginning of a long word is compared.
fn distance(a: &str, b: &str) -> usize {
    let start = |word: &str| -> String {
        let start = word.chars().take(64);
        start.flat_map(char::to_lowercase).collect()
    };
    strsim::osa_distance(&start(a), &start(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_far_one_is_not() {
        let words = ["model", "timeout", "provider", "then"];
        let table = [
            ("modle", Some("model")),
            ("tiemout", Some("timeout")),
            ("Provider", Some("provider")),
            ("the", Some("then")),
            ("colour", None),
            ("", None),
        ];
        for (word, expected) in table {
            assert_eq!(suggest(word, words), expected, "{word}");
        }
    }

    #[test]
    fn the_hint_lists_what_is_known_when_nothing_is_near() {
        assert_eq!(
            hint("xyz", &["read", "edit"]).as_deref(),
            Some("known here: `read`, `edit`")
        );
        assert_eq!(hint("xyz", &[]), None);
    }
}
