//! Places in messages: line and column must lie inside of the text that they are about.

/// How many lines a text has for any reader of YAML, the empty one behind the last break included.
pub fn lines(text: &str) -> usize {
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    text.matches(breaks).count() + 1
}

/// A place, as far as it can be judged by its numbers.
pub fn is_inside(text: &str, line: usize, column: usize) -> bool {
    let longest = text.split('\n').map(|line| line.chars().count());
    (1..=lines(text)).contains(&line) && (1..=longest.max().unwrap_or(0) + 1).contains(&column)
}

/// Every number that follows one of these words in a message.
pub fn numbers_after(message: &str, word: &str) -> Vec<usize> {
    let number = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    };
    message.split(word).skip(1).filter_map(number).collect()
}
