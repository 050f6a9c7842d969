//! Reads a task's own file: its dependencies, the files that it changes, its status.

use std::sync::LazyLock;

use regex::Regex;

use super::markdown::{bullet, cells, heading, lines, pattern, plain};
use super::master::{Status, status};
use super::{PlanFault, ids};

/// A value and its line.
pub(super) type Said = (usize, String);

/// The metadata of a task as it is written.
#[derive(Debug, Default)]
pub(super) struct Meta {
    /// The first heading: its line, its id if it has one, and its text.
    pub(super) heading: Option<(usize, Option<String>, String)>,
    pub(super) depends_on: Vec<Said>,
    pub(super) parallel_with: Vec<Said>,
    pub(super) files: Vec<Said>,
    pub(super) review: bool,
    pub(super) status: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Key {
    DependsOn,
    ParallelWith,
    Files,
    Review,
}

/// A list whose items follow below its key.
struct Open {
    key: Key,
    /// Items must be indented deeper than this.
    above: Option<usize>,
    under_heading: bool,
}

pub(super) fn read(name: &str, text: &str) -> (Meta, Vec<PlanFault>) {
    let (mut meta, mut faults) = (Meta::default(), Vec::new());
    let mut open: Option<Open> = None;
    for line in lines(text) {
        let at = line.number;
        if let Some((_, words)) = heading(line.text) {
            if meta.heading.is_none() {
                meta.heading = Some(own_heading(at, words));
            }
            let key = key(&plain(words)).filter(|key| *key != Key::Review);
            open = key.map(|key| Open {
                key,
                above: None,
                under_heading: true,
            });
            continue;
        }
        if let Some(found) = status(line) {
            meta.status.get_or_insert(found);
            open = None;
            continue;
        }
        if let Some((key, value)) = field(line.text) {
            let is_bullet = bullet(line.text).is_some();
            let empty = value.trim().is_empty() && key != Key::Review;
            open = empty.then(|| Open {
                key,
                above: is_bullet.then(|| line.indent()),
                under_heading: false,
            });
            if !empty {
                meta.take(name, at, key, &value, &mut faults);
            }
            continue;
        }
        let Some(list) = &open else { continue };
        match bullet(line.text) {
            Some(item) if list.above.is_none_or(|above| line.indent() > above) => {
                let (key, item) = (list.key, unboxed(item));
                meta.take_item(at, key, item);
            }
            None if line.text.trim().is_empty() => {}
            None if list.under_heading && list.key != Key::Files => {
                let key = list.key;
                meta.take(name, at, key, line.text, &mut faults);
            }
            None if list.under_heading => {}
            _ => open = None,
        }
    }
    (meta, faults)
}

impl Meta {
    fn take(&mut self, name: &str, at: usize, key: Key, value: &str, faults: &mut Vec<PlanFault>) {
        let said = |text: String| (at, text);
        match key {
            Key::DependsOn => self
                .depends_on
                .extend(ids::listed(value).into_iter().map(said)),
            Key::ParallelWith => self
                .parallel_with
                .extend(ids::listed(value).into_iter().map(said)),
            Key::Files => self.files.extend(paths(value).into_iter().map(said)),
            Key::Review => match truth(value) {
                Some(review) => self.review |= review,
                None => {
                    let message = format!("`requires_ux_dx_review` is `{}`", value.trim());
                    faults.push(PlanFault::new(name, at, message, "write `true` or `false`"));
                }
            },
        }
    }

    fn take_item(&mut self, at: usize, key: Key, item: &str) {
        match key {
            Key::DependsOn => self
                .depends_on
                .extend(ids::listed(item).into_iter().map(|id| (at, id))),
            Key::ParallelWith => self
                .parallel_with
                .extend(ids::listed(item).into_iter().map(|id| (at, id))),
            // The text after the path may name other files.
            Key::Files => self
                .files
                .extend(paths(item).into_iter().take(1).map(|path| (at, path))),
            Key::Review => {}
        }
    }
}

fn own_heading(at: usize, words: &str) -> (usize, Option<String>, String) {
    let plain = plain(words);
    match ids::leading(&plain) {
        Some((id, rest)) => {
            let title = rest.trim_matches(|c: char| c.is_whitespace() || ":.-–—".contains(c));
            (at, Some(id.to_owned()), title.to_owned())
        }
        None => (at, None, plain.trim().to_owned()),
    }
}

/// `Key: value`, as a line, a list item or a row of a table.
fn field(line: &str) -> Option<(Key, String)> {
    static FIELD: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"^\s*(?:[-*+]\s+)?[*_`\x22]*([A-Za-z][A-Za-z /_-]{1,40}?)(?:\s*\([^)]*\))?[*_`\x22]*\s*:\s*\**\s*(.*?)\s*$",
        )
    });
    if let Some(found) = FIELD.captures(line) {
        return Some((key(&found[1])?, found[2].to_owned()));
    }
    let all = cells(line)?;
    match all.as_slice() {
        [(_, name), (_, value)] => Some((key(&plain(name))?, (*value).to_owned())),
        _ => None,
    }
}

fn key(words: &str) -> Option<Key> {
    let lower = words.to_lowercase();
    let parts: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || "_-/:*&".contains(c))
        .filter(|part| !part.is_empty() && *part != "and" && *part != "or")
        .collect();
    match parts.as_slice() {
        ["depends", "on"] | ["dependson" | "dependencies"] | ["blocked", "by"] => {
            Some(Key::DependsOn)
        }
        ["parallel", "with"] | ["parallelwith"] | ["can", "run", "in", "parallel", "with"] => {
            Some(Key::ParallelWith)
        }
        ["requires", "ux", "dx", "review"]
        | ["ux", "dx", "review"]
        | ["ux", "dx", "review", "required"] => Some(Key::Review),
        ["files"] => Some(Key::Files),
        ["files", rest @ ..] if rest.iter().all(|word| is_touch(word)) => Some(Key::Files),
        [word] if matches!(*word, "modifies" | "touches" | "creates") => Some(Key::Files),
        _ => None,
    }
}

fn is_touch(word: &str) -> bool {
    matches!(
        word,
        "to" | "touch"
            | "touched"
            | "modify"
            | "modified"
            | "create"
            | "created"
            | "change"
            | "changed"
            | "edit"
            | "edited"
            | "delete"
            | "deleted"
            | "affected"
            | "involved"
            | "new"
    )
}

fn truth(value: &str) -> Option<bool> {
    let value = value.trim().trim_matches(['*', '`', '"', '\'', '.']);
    match value.to_lowercase().as_str() {
        "true" | "yes" | "required" | "y" | "[x]" | "x" => Some(true),
        "false" | "no" | "not required" | "none" | "n" | "[ ]" | "n/a" | "" => Some(false),
        _ => None,
    }
}

/// The paths in a value: in backticks, or separated by commas.
fn paths(value: &str) -> Vec<String> {
    static TICKED: LazyLock<Regex> = LazyLock::new(|| pattern(r"`([^`]+)`"));
    static BETWEEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s*[,;]\s*|\s+and\s+"));
    static ABOUT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:\s+[(#–—-]|:(?:\s|\d)|\s->).*$"));
    if value.contains('`') {
        let ticked = TICKED.captures_iter(value);
        return ticked.filter_map(|found| path(&found[1])).collect();
    }
    let value = value.trim().trim_start_matches('[').trim_end_matches(']');
    let pieces = BETWEEN.split(value);
    pieces
        .filter_map(|piece| path(&ABOUT.replace(&plain(piece), "")))
        .collect()
}

/// One path, normalised. Whether it is allowed is checked later.
fn path(text: &str) -> Option<String> {
    static PLACE: LazyLock<Regex> = LazyLock::new(|| pattern(r":\d+(?:-\d+)?$"));
    let text = text.trim().trim_matches(['"', '\'']);
    let text = PLACE.replace(text, "");
    if ids::is_none(&text) {
        return None;
    }
    let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let joined = parts.collect::<Vec<_>>().join("/");
    Some(match text.starts_with('/') {
        true => format!("/{joined}"),
        false => joined,
    })
}

/// A list item without its box.
fn unboxed(item: &str) -> &str {
    let boxes = ["[ ]", "[x]", "[X]"];
    let found = boxes.iter().find_map(|open| item.strip_prefix(open));
    found.unwrap_or(item).trim()
}
