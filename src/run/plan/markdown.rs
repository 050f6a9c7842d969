//! The little Markdown that a plan needs: lines outside code and comments, headings, lists, tables.

use std::sync::LazyLock;

use regex::Regex;

/// Compiles a pattern that is part of the program.
pub(super) fn pattern(text: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "every pattern is compiled by a test")]
    Regex::new(text).expect("a pattern of our own")
}

/// A line of a text, without its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    /// From 1.
    pub(super) number: usize,
    /// Where it begins in the text, in bytes.
    pub(super) start: usize,
    pub(super) text: &'t str,
}

impl Line<'_> {
    /// Its indentation; a tab counts as four.
    pub(super) fn indent(&self) -> usize {
        let blank = self.text.chars().take_while(|c| c.is_whitespace());
        blank.map(|c| if c == '\t' { 4 } else { 1 }).sum()
    }
}

/// The lines that are neither in a code block nor in a comment.
pub(super) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut all = Vec::new();
    let (mut start, mut fence, mut comment) = (0, None, false);
    for (index, raw) in text.split_inclusive('\n').enumerate() {
        let line = raw.trim_end_matches(['\n', '\r']);
        let trimmed = line.trim();
        let here = start;
        start += raw.len();
        if comment {
            comment = !trimmed.contains("-->");
        } else if let Some(open) = fence {
            if closes(trimmed, open) {
                fence = None;
            }
        } else if let Some(open) = opened(trimmed) {
            fence = Some(open);
        } else if trimmed.starts_with("<!--") {
            comment = !trimmed.contains("-->");
        } else {
            all.push(Line {
                number: index + 1,
                start: here,
                text: line,
            });
        }
    }
    all
}

/// The fence character of a code block and its length.
fn opened(line: &str) -> Option<(char, usize)> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = line.chars().take_while(|c| *c == mark).count();
    (count >= 3).then_some((mark, count))
}

fn closes(line: &str, (mark, count): (char, usize)) -> bool {
    line.chars().all(|c| c == mark) && line.chars().count() >= count
}

/// The level of a heading and its text.
pub(super) fn heading(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_start();
    let level = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[level..];
    ((1..=6).contains(&level) && rest.starts_with([' ', '\t', '*']))
        .then(|| (level, rest.trim().trim_end_matches('#').trim()))
}

/// The text of a list item.
pub(super) fn bullet(line: &str) -> Option<&str> {
    static BULLET: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)$"));
    let found = BULLET.captures(line)?;
    found.get(1).map(|rest| rest.as_str())
}

/// The cells of a table's row, and where each begins in the line.
pub(super) fn cells(line: &str) -> Option<Vec<(usize, &str)>> {
    let row = line.trim();
    if !row.starts_with('|') || row.len() < 2 {
        return None;
    }
    let mut at = line.len() - line.trim_start().len();
    let mut all = Vec::new();
    for cell in row.split('|') {
        let lead = cell.len() - cell.trim_start().len();
        all.push((at + lead, cell.trim()));
        at += cell.len() + 1;
    }
    all.remove(0);
    if row.ends_with('|') {
        all.pop();
    }
    Some(all)
}

/// A text without emphasis, with only the text of its links.
pub(super) fn plain(text: &str) -> String {
    static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\[([^\]]*)\]\([^)]*\)"));
    let text = LINK.replace_all(text, "$1");
    text.replace("**", "").replace(['`', '*'], "")
}
