//! Unified diffs: read as models print them, and applied exactly or not at all.
//!
//! A hunk is applied where its header says, if its old lines are there; else at the only place after the
//! previous hunk where they are. Every old line must match exactly, trailing spaces included. If the
//! counts in a header do not match the hunk, its lines decide.

use std::sync::LazyLock;

use regex::Regex;

use super::Change;

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The file, as it was printed.
    pub path: String,
    /// Whether the file exists before and after.
    pub side: Side,
    /// In order.
    pub hunks: Vec<Hunk>,
}

/// Whether a file exists before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Both.
    Changed,
    /// Only after.
    Created,
    /// Only before.
    Deleted,
}

/// A part that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Its line in what was printed.
    pub line: usize,
    /// The line of the old file that it begins at, if it says so.
    pub start: Option<usize>,
    /// The old lines.
    pub old: Vec<String>,
    /// The new lines.
    pub new: Vec<String>,
    /// The old text ends here without a newline.
    pub old_ends: bool,
    /// The new text ends here without a newline.
    pub new_ends: bool,
}

/// Whether a text holds a diff.
pub(super) fn is_one(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let header = |pair: &[&str]| pair[0].starts_with("--- ") && pair[1].starts_with("+++ ");
    let git = |line: &&str| line.starts_with("diff --git ");
    lines.windows(2).any(header) || lines.iter().any(git)
}

/// Reads every file section of a text; `first` is the number of its first line.
pub(super) fn read(text: &str, first: usize) -> Result<Vec<Change>, String> {
    let mut reader = Reader {
        lines: text.split('\n').collect(),
        at: 0,
        first,
    };
    if text.ends_with('\n') {
        reader.lines.pop();
    }
    let mut changes = Vec::new();
    let mut git: Option<Git> = None;
    while let Some(line) = reader.peek() {
        let number = reader.number();
        if let Some(rest) = line.strip_prefix("diff --git ") {
            changes.extend(git.take().and_then(Git::without_hunks));
            git = Some(Git::new(rest));
            reader.at += 1;
        } else if line.starts_with("--- ")
            && reader.ahead(1).is_some_and(|next| next.starts_with("+++ "))
        {
            git = None;
            changes.push(Change::Patch(reader.section()?));
        } else if let Some(git) = &mut git {
            if line.starts_with("rename ") || line.starts_with("copy ") {
                return Err(format!(
                    "line {number}: a diff that renames or copies a file is not applied; print the new file and delete the old one"
                ));
            }
            if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
                return Err(format!("line {number}: a binary diff is not applied"));
            }
            git.created |= line.starts_with("new file mode");
            git.deleted |= line.starts_with("deleted file mode");
            reader.at += 1;
        } else {
            reader.at += 1;
        }
    }
    changes.extend(git.and_then(Git::without_hunks));
    Ok(changes)
}

/// The head of a section as git writes it; an empty file has nothing else.
struct Git {
    path: String,
    created: bool,
    deleted: bool,
}

impl Git {
    fn new(names: &str) -> Git {
        let path = names.rsplit_once(" b/").map(|(_, path)| path.to_owned());
        Git {
            path: path.unwrap_or_default(),
            created: false,
            deleted: false,
        }
    }

    fn without_hunks(self) -> Option<Change> {
        let side = match (self.created, self.deleted) {
            (true, false) => Side::Created,
            (false, true) => Side::Deleted,
            _ => return None,
        };
        Some(Change::Patch(Patch {
            path: self.path,
            side,
            hunks: Vec::new(),
        }))
    }
}

struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
    first: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.ahead(0)
    }

    fn ahead(&self, by: usize) -> Option<&'t str> {
        self.lines.get(self.at + by).copied()
    }

    fn number(&self) -> usize {
        self.first + self.at
    }

    /// One file: `---`, `+++`, and its hunks.
    fn section(&mut self) -> Result<Patch, String> {
        let number = self.number();
        let old = name(self.peek().unwrap_or_default(), "--- ");
        let new = name(self.ahead(1).unwrap_or_default(), "+++ ");
        self.at += 2;
        let none = |name: &str| name == "/dev/null";
        let prefixed =
            (none(&old) || old.starts_with("a/")) && (none(&new) || new.starts_with("b/"));
        let bare = |name: &str| match prefixed {
            true => name[2..].to_owned(),
            false => name.to_owned(),
        };
        let (path, side) = match (none(&old), none(&new)) {
            (true, true) => {
                return Err(format!(
                    "line {number}: both sides of the diff are `/dev/null`"
                ));
            }
            (true, false) => (bare(&new), Side::Created),
            (false, true) => (bare(&old), Side::Deleted),
            (false, false) if bare(&old) == bare(&new) => (bare(&new), Side::Changed),
            (false, false) => {
                return Err(format!(
                    "line {number}: `{}` becomes `{}`: a diff that renames a file is not applied; print the new file and delete the old one",
                    bare(&old).escape_debug(),
                    bare(&new).escape_debug()
                ));
            }
        };
        let mut hunks = Vec::new();
        loop {
            match self.peek() {
                Some(line) if line.starts_with("@@") => hunks.push(self.hunk()?),
                Some(line)
                    if line.trim().is_empty()
                        && self.ahead(1).is_some_and(|next| next.starts_with("@@")) =>
                {
                    self.at += 1
                }
                _ => break,
            }
        }
        if hunks.is_empty() {
            return Err(format!(
                "line {number}: `{}` has no hunk",
                path.escape_debug()
            ));
        }
        Ok(Patch { path, side, hunks })
    }

    fn hunk(&mut self) -> Result<Hunk, String> {
        static HEAD: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"^@@+ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@").ok()
        });
        let line = self.number();
        let head = self.peek().unwrap_or_default();
        let found = HEAD.as_ref().and_then(|pattern| pattern.captures(head));
        let count = |at: usize| -> Option<usize> {
            let found = found.as_ref()?;
            found
                .get(at)
                .map_or(Some(1), |text| text.as_str().parse().ok())
        };
        let start = found
            .as_ref()
            .and_then(|found| found[1].parse::<usize>().ok());
        self.at += 1;
        let begin = self.at;
        let counted = match (start, count(2), count(4)) {
            (Some(_), Some(old), Some(new)) => self.counted(old, new),
            _ => None,
        };
        let body = match counted {
            Some(end) => begin..end,
            None => begin..self.marked(),
        };
        self.at = body.end;
        let mut hunk = Hunk {
            line,
            start,
            old: Vec::new(),
            new: Vec::new(),
            old_ends: false,
            new_ends: false,
        };
        let mut last = ' ';
        for raw in &self.lines[body] {
            let mark = raw.chars().next().unwrap_or(' ');
            let rest = raw
                .get(mark.len_utf8().min(raw.len())..)
                .unwrap_or_default()
                .to_owned();
            match mark {
                '-' => hunk.old.push(rest),
                '+' => hunk.new.push(rest),
                '\\' => {
                    hunk.old_ends |= last != '+';
                    hunk.new_ends |= last != '-';
                    continue;
                }
                // An empty context line, perhaps with a carriage return.
                '\r' => {
                    hunk.old.push("\r".to_owned());
                    hunk.new.push("\r".to_owned());
                }
                _ => {
                    hunk.old.push(rest.clone());
                    hunk.new.push(rest);
                }
            }
            last = mark;
        }
        match hunk.old.is_empty() && hunk.new.is_empty() {
            true => Err(format!("line {line}: the hunk is empty")),
            false => Ok(hunk),
        }
    }

    /// The end of a hunk by the counts of its header, if they match its lines.
    fn counted(&self, mut old: usize, mut new: usize) -> Option<usize> {
        let mut at = self.at;
        while old > 0 || new > 0 {
            match self.lines.get(at)?.bytes().next() {
                Some(b'-') => old = old.checked_sub(1)?,
                Some(b'+') => new = new.checked_sub(1)?,
                Some(b'\\') => {}
                Some(b' ' | b'\r') | None => {
                    old = old.checked_sub(1)?;
                    new = new.checked_sub(1)?;
                }
                _ => return None,
            }
            at += 1;
        }
        while self
            .lines
            .get(at)
            .is_some_and(|line| line.starts_with('\\'))
        {
            at += 1;
        }
        let more = self.lines.get(at).is_some_and(|line| {
            let header = line.starts_with("--- ")
                && self
                    .lines
                    .get(at + 1)
                    .is_some_and(|next| next.starts_with("+++ "));
            line.starts_with([' ', '+', '-']) && !header && line.trim_end() != "--"
        });
        (!more).then_some(at)
    }

    /// The end of a hunk by the first character of its lines.
    fn marked(&self) -> usize {
        let mut at = self.at;
        while let Some(line) = self.lines.get(at) {
            let header = line.starts_with("--- ")
                && self
                    .lines
                    .get(at + 1)
                    .is_some_and(|next| next.starts_with("+++ "));
            let own =
                line.trim_end_matches('\r').is_empty() || line.starts_with([' ', '+', '-', '\\']);
            if header || !own {
                break;
            }
            at += 1;
        }
        while at > self.at && self.lines[at - 1].trim_end_matches('\r').is_empty() {
            at -= 1;
        }
        at
    }
}

/// The name in a header, without a time stamp and without git's quotes.
fn name(line: &str, mark: &str) -> String {
    let rest = line.strip_prefix(mark).unwrap_or(line);
    let rest = rest.split('\t').next().unwrap_or(rest).trim_end();
    let inner = rest
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| rest.to_owned(), unquoted)
}

fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(digit @ b'0'..=b'3') => {
                let mut value = digit - b'0';
                for _ in 0..2 {
                    if let Some(next @ b'0'..=b'7') = rest.peek().copied() {
                        value = (value << 3) | (next - b'0');
                        rest.next();
                    }
                }
                bytes.push(value);
            }
            Some(other) => bytes.push(other),
            None => bytes.push(b'\\'),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The file after a patch; `None` if the patch deletes it.
///
/// # Errors
/// Why the patch does not apply, in one line.
pub fn apply(patch: &Patch, before: Option<&str>) -> Result<Option<String>, String> {
    let path = patch.path.escape_debug();
    let old = match (patch.side, before) {
        (Side::Created, Some(old)) if !old.is_empty() => {
            return Err(format!("the diff creates `{path}`, which exists already"));
        }
        (Side::Changed | Side::Deleted, None) => {
            return Err(format!("the diff changes `{path}`, which does not exist"));
        }
        (_, old) => old.unwrap_or_default(),
    };
    let exact = placed(patch, old, LineEnds::AsTheyAre);
    let placed = match (exact, other_ends(patch, old)) {
        (Err(_), Some(ends)) => placed(patch, old, ends),
        (exact, _) => exact,
    };
    let new = placed.map_err(|why| format!("`{path}`: {why}"))?;
    match patch.side {
        Side::Deleted if patch.hunks.is_empty() => Ok(None),
        Side::Deleted if !new.is_empty() => Err(format!(
            "the diff deletes `{path}` but does not contain all of it"
        )),
        Side::Deleted => Ok(None),
        _ => Ok(Some(new)),
    }
}

/// How the line ends of a diff relate to those of the file.
#[derive(Clone, Copy, PartialEq)]
enum LineEnds {
    AsTheyAre,
    /// The file has `\r\n`, the diff `\n`.
    Lengthened,
    /// The file has `\n`, the diff `\r\n`.
    Shortened,
}

/// Whether all line ends of the diff are of one kind and all of the file's of the other.
fn other_ends(patch: &Patch, old: &str) -> Option<LineEnds> {
    let lines = || {
        patch
            .hunks
            .iter()
            .flat_map(|hunk| hunk.old.iter().chain(&hunk.new))
    };
    let long = |line: &String| line.ends_with('\r');
    let whole = old.strip_suffix('\n').unwrap_or(old);
    let file_is_long = !old.is_empty() && whole.split('\n').all(|line| line.ends_with('\r'));
    let file_is_short = !old.contains('\r');
    if file_is_long && !lines().any(long) {
        return Some(LineEnds::Lengthened);
    }
    (file_is_short && lines().all(long)).then_some(LineEnds::Shortened)
}

fn placed(patch: &Patch, old: &str, ends: LineEnds) -> Result<String, String> {
    let fit = |line: &String| match ends {
        LineEnds::AsTheyAre => line.clone(),
        LineEnds::Lengthened => format!("{line}\r"),
        LineEnds::Shortened => line.trim_end_matches('\r').to_owned(),
    };
    let closed = old.is_empty() || old.ends_with('\n');
    let mut lines: Vec<&str> = old.split('\n').collect();
    if closed {
        lines.pop();
    }
    let mut out: Vec<String> = Vec::new();
    let (mut done, mut drift) = (0_usize, 0_isize);
    let mut ends_open = !closed;
    for hunk in &patch.hunks {
        let (wanted, new): (Vec<String>, Vec<String>) = (
            hunk.old.iter().map(fit).collect(),
            hunk.new.iter().map(fit).collect(),
        );
        let found = place(hunk, &wanted, &lines, closed, done, drift)?;
        let stated = stated(hunk, wanted.is_empty());
        if let Some(stated) = stated {
            drift = isize::try_from(found).unwrap_or(0) - isize::try_from(stated).unwrap_or(0);
        }
        out.extend(lines[done..found].iter().map(|line| (*line).to_owned()));
        out.extend(new);
        done = found + wanted.len();
        if done == lines.len() {
            ends_open = hunk.new_ends;
        }
    }
    let rest = done < lines.len();
    out.extend(lines[done..].iter().map(|line| (*line).to_owned()));
    let open = if rest { !closed } else { ends_open };
    let mut text = out.join("\n");
    if !out.is_empty() && !open {
        text.push('\n');
    }
    Ok(text)
}

/// The line of the file that a header names, from 0.
fn stated(hunk: &Hunk, inserts: bool) -> Option<usize> {
    // A hunk that only inserts names the line before it.
    hunk.start.map(|start| {
        if inserts {
            start
        } else {
            start.saturating_sub(1)
        }
    })
}

fn place(
    hunk: &Hunk,
    wanted: &[String],
    lines: &[&str],
    closed: bool,
    done: usize,
    drift: isize,
) -> Result<usize, String> {
    let fits = |at: usize| {
        let Some(there) = lines.get(at..at + wanted.len()) else {
            return false;
        };
        let last = at + wanted.len() == lines.len();
        let end = !hunk.old_ends || (last && !closed);
        end && there
            .iter()
            .zip(wanted)
            .all(|(there, wanted)| there == wanted)
    };
    let failed = |why: &str| format!("the hunk in line {} {why}", hunk.line);
    let stated = stated(hunk, wanted.is_empty());
    if wanted.is_empty() {
        return match stated.or(lines.is_empty().then_some(0)) {
            Some(at) if at >= done && at <= lines.len() => Ok(at),
            _ => Err(failed("only inserts lines and does not say where")),
        };
    }
    let moved = stated.and_then(|at| at.checked_add_signed(drift));
    if let Some(at) = moved
        .into_iter()
        .chain(stated)
        .find(|at| *at >= done && fits(*at))
    {
        return Ok(at);
    }
    let mut places = (done..lines.len()).filter(|at| fits(*at));
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(failed(&format!(
            "does not apply: its {} old lines, from `{}` on, are nowhere in the file",
            wanted.len(),
            shown(wanted)
        ))),
        (Some(one), Some(two)) => Err(failed(&format!(
            "could apply in line {} and in line {}",
            one + 1,
            two + 1
        ))),
    }
}

fn shown(lines: &[String]) -> String {
    let first = lines.iter().find(|line| !line.trim().is_empty());
    let text = first.map_or("", |line| line.trim());
    text.chars()
        .take(60)
        .collect::<String>()
        .escape_debug()
        .to_string()
}
