//! `orch guide`: the pages of `docs/` in the terminal. Needs no root.
//!
//! Piped, a page is printed as it is. In a terminal its headings are bold and its links are text.

use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::suggest;
use crate::ui::cli;
use crate::ui::report::{Paint, print};

/// A page: the word that names it, and its text.
struct Page {
    topic: &'static str,
    text: &'static str,
}

macro_rules! pages {
    ($($topic:literal,)*) => {
        &[$(Page { topic: $topic, text: include_str!(concat!("../../../docs/", $topic, ".md")) },)*]
    };
}

/// The pages, in the order in which a newcomer reads them.
const PAGES: &[Page] = pages![
    "first-steps",
    "tasks-and-agents",
    "providers",
    "workflows",
    "people-and-approvals",
    "shipped-workflows",
    "confinement",
    "secrets",
    "operations",
    "scripts-and-ci",
    "reference",
    "internals",
];

/// How the first sentence of every page begins.
const HELPS: &str = "This page helps you ";

pub(super) fn run(words: &cli::Guide) -> Result<u8> {
    let paint = Paint::stdout();
    match &words.topic {
        None => print(&list(paint))?,
        Some(topic) => print(&shown(find(topic)?.text, paint))?,
    };
    Ok(exit::DONE)
}

/// Every page in a line.
fn list(paint: Paint) -> String {
    let width = PAGES.iter().map(|page| page.topic.len()).max();
    let width = width.unwrap_or_default();
    let line = |page: &Page| {
        let topic = paint.strong(format!("{:width$}", page.topic));
        format!("{topic}  {}\n", page.purpose())
    };
    let lines: String = PAGES.iter().map(line).collect();
    format!("{lines}\n`orch guide TOPIC` shows a page\n")
}

/// The page of this topic, or the only one whose topic contains the word.
fn find(word: &str) -> Result<&'static Page> {
    let word = word.trim_end_matches(".md");
    if let Some(page) = PAGES.iter().find(|page| page.topic == word) {
        return Ok(page);
    }
    let mut similar = PAGES.iter().filter(|page| page.topic.contains(word));
    match (similar.next(), similar.next()) {
        (Some(page), None) => Ok(page),
        _ => Err(unknown(word)),
    }
}

fn unknown(word: &str) -> Fault {
    let topics: Vec<&str> = PAGES.iter().map(|page| page.topic).collect();
    let fault = Fault::new(Kind::Usage, format!("there is no page `{word}`"));
    match suggest::hint(word, &topics) {
        Some(hint) => fault.hint(hint),
        None => fault.hint("`orch guide` lists the pages"),
    }
}

impl Page {
    /// What it helps with: its first sentence, without the beginning and the period.
    fn purpose(&self) -> String {
        let first = self.text.split("\n\n").nth(1).unwrap_or_default();
        let first = first.replace('\n', " ");
        let first = first.split(". ").next().unwrap_or(&first);
        let first = first.strip_prefix(HELPS).unwrap_or(first);
        first.trim_end_matches('.').to_owned()
    }
}

/// A page for a terminal; as it is where nothing is painted.
fn shown(text: &str, paint: Paint) -> String {
    if !paint.is_on() {
        return text.to_owned();
    }
    let mut is_code = false;
    let line = |line: &str| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        match line.strip_prefix('#') {
            _ if is_fence => paint.dim(line) + "\n",
            _ if is_code => format!("{line}\n"),
            Some(rest) => paint.strong(rest.trim_start_matches('#').trim_start()) + "\n",
            None => without_links(line) + "\n",
        }
    };
    text.lines().map(line).collect()
}

/// `[text](address)` becomes `text`: a terminal has nothing to click on.
fn without_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let (Some(open), Some((_, after))) = (before.rfind('['), after.split_once(')')) else {
            break;
        };
        out.push_str(&before[..open]);
        out.push_str(&before[open + 1..]);
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_what_it_helps_with() {
        for page in PAGES {
            let purpose = page.purpose();
            let is_one_line = !purpose.contains('\n') && purpose.len() < 90;
            assert!(page.text.contains(HELPS) && is_one_line, "{purpose}");
        }
    }

    #[test]
    fn links_become_text() {
        for (line, shown) in [
            ("see [a](b.md), [c d](e#f).", "see a, c d."),
            ("an [open one](b.md", "an [open one](b.md"),
            ("a[0](x) and b]( c", "a0 and b]( c"),
            ("none", "none"),
        ] {
            assert_eq!(without_links(line), shown);
        }
    }
}
