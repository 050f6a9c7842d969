//! Fenced blocks, and the file path that belongs to each.

use std::sync::LazyLock;

use regex::Regex;

/// A part of a printed text.
pub(super) enum Piece<'t> {
    /// A line outside every block.
    Line(&'t str),
    Block(Block),
}

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it begins, from 1.
    pub(super) line: usize,
    pub(super) path: Option<String>,
    pub(super) text: String,
    pub(super) closed: bool,
}

/// A fence: its character, its length, its indentation, and the text after it.
struct Fence<'t> {
    mark: char,
    count: usize,
    indent: usize,
    info: &'t str,
}

fn fence(line: &str) -> Option<Fence<'_>> {
    let rest = line.trim_start_matches(' ');
    let indent = line.len() - rest.len();
    let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = rest.chars().take_while(|c| *c == mark).count();
    let info = rest[count..].trim();
    let code = mark == '`' && info.contains('`');
    (count >= 3 && indent <= 3 && !code).then_some(Fence {
        mark,
        count,
        indent,
        info,
    })
}

pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let lines: Vec<&str> = text.split('\n').collect();
    let last = lines.len() - usize::from(text.ends_with('\n'));
    let lines = &lines[..last];
    let mut all = Vec::new();
    let mut at = 0;
    let mut before: Vec<&str> = Vec::new();
    while at < lines.len() {
        let line = lines[at].trim_end_matches('\r');
        match fence(line) {
            Some(open) => {
                let (block, next) = block(lines, at, &open, &before);
                all.push(Piece::Block(block));
                before.clear();
                at = next;
            }
            None => {
                all.push(Piece::Line(lines[at]));
                before.push(line);
                at += 1;
            }
        }
    }
    all
}

/// Reads a block; returns it and the index of the line after it.
fn block(lines: &[&str], start: usize, open: &Fence<'_>, before: &[&str]) -> (Block, usize) {
    let named = of_info(open.info).or_else(|| above(before));
    let markdown = is_markdown(open.info) || named.as_deref().is_some_and(is_markdown);
    let mut inner = 0_usize;
    let mut own: Vec<&str> = Vec::new();
    let mut end = None;
    for (index, raw) in lines.iter().enumerate().skip(start + 1) {
        if let Some(found) = fence(raw.trim_end_matches('\r'))
            && found.mark == open.mark
            && found.count >= open.count
        {
            // Markdown contains blocks of its own: a fence with a language cannot be the end.
            match (found.info.is_empty(), inner) {
                (true, 0) => {
                    end = Some(index);
                    break;
                }
                (true, _) => inner -= 1,
                (false, _) if markdown => inner += 1,
                (false, _) => {}
            }
        }
        own.push(raw);
    }
    let strip = |line: &&str| -> String {
        let blank = line.len() - line.trim_start_matches(' ').len();
        line[blank.min(open.indent)..].to_owned()
    };
    let mut texts: Vec<String> = own.iter().map(strip).collect();
    let path = named.or_else(|| {
        let (path, lines) = within(&texts)?;
        texts.drain(..lines);
        Some(path)
    });
    let mut text = texts.join("\n");
    if !texts.is_empty() {
        text.push('\n');
    }
    // The whole answer may have been printed with `\r\n`.
    let carried = lines[start].ends_with('\r');
    let text = if carried {
        text.replace("\r\n", "\n")
    } else {
        text
    };
    let block = Block {
        line: start + 1,
        path,
        text,
        closed: end.is_some(),
    };
    (block, end.map_or(lines.len(), |end| end + 1))
}

fn is_markdown(name: &str) -> bool {
    let lower = name.to_lowercase();
    let language = lower.split([' ', ':']).next().unwrap_or_default();
    matches!(language, "md" | "markdown" | "mdx")
        || lower.ends_with(".md")
        || lower.ends_with(".mdx")
        || lower.ends_with(".markdown")
}

/// `lang path`, `lang:path`, `path`, `lang title="path"`.
fn of_info(info: &str) -> Option<String> {
    static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"(?i)\b(?:title|file|filename|path|name)\s*[=:]\s*"?([^"\s}]+)"?"#).ok()
    });
    if let Some(found) = NAMED.as_ref().and_then(|named| named.captures(info)) {
        return Some(found[1].to_owned());
    }
    let mut words = info.split_whitespace();
    let first = words.next()?;
    if let Some((language, path)) = first.split_once(':')
        && !language.contains(['/', '.'])
        && !path.is_empty()
    {
        return Some(path.to_owned());
    }
    match (words.next(), words.next()) {
        (None, _) => looks_like_path(first).then(|| first.to_owned()),
        (Some(second), None) => {
            let path = second.trim_matches(['(', ')', '`', '"', '\'']);
            looks_like_path(path).then(|| path.to_owned())
        }
        _ => None,
    }
}

/// The last line before the block, if it is a path and nothing more.
fn above(before: &[&str]) -> Option<String> {
    let mut lines = before.iter().rev();
    let last = match lines.next() {
        Some(line) if line.trim().is_empty() => lines.next()?,
        Some(line) => line,
        None => return None,
    };
    only_path(last)
}

fn only_path(line: &str) -> Option<String> {
    static ONLY: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?ix)^\s*(?:\#{1,6}\s+|[-*+]\s+|\d{1,3}[.)]\s+)?[*_]*
              (?:(?:new\s+|updated\s+)?(?:file(?:name)?|path)\s*:\s*)?[*_]*\s*
              (?:`([^`]+)`|([^\s`*:()]+))[*_]*\s*
              (?:\((?:new|updated|modified|new\s+file)\))?\s*[*_]*:?[*_]*\s*$",
        )
        .ok()
    });
    let found = ONLY.as_ref()?.captures(line)?;
    let path = found.get(1).or(found.get(2))?.as_str().trim();
    looks_like_path(path).then(|| path.to_owned())
}

/// The path in the first line: a comment with `file:`, or only the path. Also returns how many lines
/// that takes.
fn within(lines: &[String]) -> Option<(String, usize)> {
    static MARKED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)^\s*(?://+|#+|--+|;+|%+|/\*+|<!--|\x22\x22\x22)?\s*(?:file(?:name)?|path)\s*:\s*`?([^\s`]+)`?\s*(?:\*/|-->|\x22\x22\x22)?\s*$",
        )
        .ok()
    });
    let first = lines.first()?.trim_end_matches('\r');
    if let Some(found) = MARKED.as_ref().and_then(|marked| marked.captures(first)) {
        return Some((found[1].to_owned(), 1));
    }
    let path = first.trim();
    let alone = !path.contains([' ', '(', ';', '=', '{', '"', '<', '>', '$', ',', '@']);
    let named = path.contains('/')
        || path
            .rsplit_once('.')
            .is_some_and(|(stem, _)| !stem.is_empty());
    (alone && named && looks_like_path(path) && lines.len() > 1).then(|| (path.to_owned(), 1))
}

/// Something with a folder or an extension, or one of the few names that have neither.
fn looks_like_path(text: &str) -> bool {
    let bare = [
        "Makefile",
        "Dockerfile",
        "Justfile",
        "LICENSE",
        "Procfile",
        "Gemfile",
        "Rakefile",
    ];
    let last = text.rsplit('/').next().unwrap_or_default();
    let ending = last
        .rsplit_once('.')
        .is_some_and(|(_, end)| !end.is_empty());
    let address = text.contains("://");
    let strange = text.contains(['{', '}', '=', '|', '<', '>', '"'])
        || text.starts_with("//")
        || text.starts_with('#');
    !address
        && !strange
        && !text.is_empty()
        && (text.contains('/') || ending || bare.contains(&text))
}
