//! Reads the master plan as it is written: phases with their task lines, each with its location.
//!
//! Nothing is resolved here: `link` finds the files and checks the dependencies.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::markdown::{Line, bullet, cells, heading, lines, pattern, plain};
use super::{MASTER, PlanFault, Tick, ids};

/// A phase as it is written.
#[derive(Debug)]
pub(super) struct RawPhase {
    pub(super) line: usize,
    pub(super) number: u32,
    pub(super) title: String,
    pub(super) status: Option<Status>,
    pub(super) tasks: Vec<RawTask>,
}

/// The line of a task.
#[derive(Debug)]
pub(super) struct RawTask {
    pub(super) line: usize,
    pub(super) id: String,
    pub(super) title: String,
    pub(super) file: Option<String>,
    pub(super) tick: Tick,
    /// The state of its box.
    pub(super) mark: Range<usize>,
}

/// A status in words.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) line: usize,
    pub(super) says: Tick,
    pub(super) value: Range<usize>,
}

/// A count of what is done.
#[derive(Debug)]
pub(super) struct Progress {
    /// The index of the phase that it counts for; `None` for the whole plan.
    pub(super) phase: Option<usize>,
    pub(super) done: Range<usize>,
    pub(super) total: Range<usize>,
    pub(super) percent: Option<Range<usize>>,
}

/// The whole master plan.
#[derive(Debug, Default)]
pub(super) struct Master {
    pub(super) phases: Vec<RawPhase>,
    pub(super) progress: Vec<Progress>,
    pub(super) faults: Vec<PlanFault>,
}

impl Master {
    fn fault(&mut self, line: usize, message: impl Into<String>, hint: &str) {
        self.faults
            .push(PlanFault::new(MASTER, line, message, hint));
    }
}

/// Which part of a phase a line belongs to.
enum Part {
    /// Outside of every phase.
    Outside,
    /// The part in which every box is a task's.
    Tasks(usize),
    /// Under a heading of its own, where a box may be something else.
    Other(usize),
}

pub(super) fn read(text: &str) -> Master {
    let mut master = Master::default();
    let mut part = Part::Outside;
    // The indentation of this phase's tasks: deeper lines belong to a task.
    let mut depth: Option<usize> = None;
    for line in lines(text) {
        if let Some((level, number, title)) = phase(line.text) {
            part = Part::Tasks(level);
            depth = None;
            master.phases.push(RawPhase {
                line: line.number,
                number,
                title,
                status: None,
                tasks: Vec::new(),
            });
            continue;
        }
        if let Some((level, words)) = heading(line.text) {
            part = match part {
                Part::Tasks(own) | Part::Other(own) if level > own => {
                    match words.to_lowercase().contains("task") {
                        true => Part::Tasks(own),
                        false => Part::Other(own),
                    }
                }
                _ => Part::Outside,
            };
            depth = None;
        }
        let inside = !matches!(part, Part::Outside);
        if let Some(mut progress) = progress(line) {
            progress.phase = inside.then(|| master.phases.len() - 1);
            master.progress.push(progress);
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(status) = status(line) {
            let last = master.phases.last_mut();
            if let Some(phase) = last.filter(|phase| phase.status.is_none()) {
                phase.status = Some(status);
            }
            continue;
        }
        let deeper = depth.is_some_and(|depth| line.indent() > depth + 1);
        if deeper && bullet(line.text).is_some() {
            continue;
        }
        let strict = matches!(part, Part::Tasks(_));
        if task(line, strict, &mut master) && depth.is_none() {
            depth = Some(line.indent());
        }
    }
    master
}

/// The level, number and title of the heading of a phase. A line in bold counts as one too.
fn phase(line: &str) -> Option<(usize, u32, String)> {
    static PHASE: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)^\s{0,3}(#{1,6}\s*|\*\*)[^\w#]*phase\s+(\d{1,6})\b(.*)$"));
    let found = PHASE.captures(line)?;
    let level = match found[1].trim_end() {
        "**" if !line.trim_end().ends_with("**") => return None,
        "**" => 6,
        marks => marks.len(),
    };
    let title = plain(&found[3]);
    let title = title.trim_matches(|c: char| c.is_whitespace() || ":.-–—#".contains(c));
    Some((level, found[2].parse().ok()?, title.to_owned()))
}

/// Reads a task line into the last phase; returns whether it was one.
fn task(line: Line<'_>, strict: bool, master: &mut Master) -> bool {
    let Some((mark, rest)) = boxed(line) else {
        return false;
    };
    let written = &line.text[mark.clone()];
    let Some(tick) = tick(written) else {
        let message = format!("a box contains `{written}`");
        master.fault(
            line.number,
            message,
            "write `[ ]`, `[x]` for done or `[-]` for skipped",
        );
        return true;
    };
    match entry(&rest) {
        Some((id, title, file)) => {
            let task = RawTask {
                line: line.number,
                id,
                title,
                file,
                tick,
                mark: line.start + mark.start..line.start + mark.end,
            };
            if let Some(phase) = master.phases.last_mut() {
                phase.tasks.push(task);
            }
            true
        }
        None if strict => {
            let message = "this line names no task";
            let hint = "write `- [ ] 01: what it is (`01-name.md`)`";
            master.fault(line.number, message, hint);
            true
        }
        None => false,
    }
}

/// The box of a list item or of a table row, and the rest of the line.
fn boxed(line: Line<'_>) -> Option<(Range<usize>, String)> {
    static ITEM: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+[*`]*\[([^\[\]]?)\]`?(?:\s+(.*))?$")
    });
    static CELL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^`?\[([^\[\]]?)\]`?$"));
    if let Some(found) = ITEM.captures(line.text) {
        let rest = found.get(2).map_or("", |rest| rest.as_str().trim());
        return Some((found.get(1)?.range(), rest.to_owned()));
    }
    let all = cells(line.text)?;
    let place = all.iter().position(|(_, cell)| CELL.is_match(cell))?;
    let (start, cell) = all[place];
    let mark = CELL.captures(cell)?.get(1)?.range();
    let rest: Vec<&str> = all.iter().map(|(_, cell)| *cell).collect();
    let before = rest[..place].iter().chain(&rest[place + 1..]);
    // The id comes first, whatever its column is.
    let mut rest: Vec<&str> = before.copied().filter(|cell| !cell.is_empty()).collect();
    if let Some(first) = rest.iter().position(|cell| ids::leading(cell).is_some()) {
        let id = rest.remove(first);
        rest.insert(0, id);
    }
    Some((start + mark.start..start + mark.end, rest.join(" | ")))
}

fn tick(mark: &str) -> Option<Tick> {
    match mark {
        "" | " " => Some(Tick::Open),
        "x" | "X" | "✓" | "✔" => Some(Tick::Done),
        "-" | "~" => Some(Tick::Skipped),
        _ => None,
    }
}

/// The id, title and file of a task's line.
fn entry(text: &str) -> Option<(String, String, Option<String>)> {
    static FILE: LazyLock<Regex> = LazyLock::new(|| pattern(r"[^\s`()\[\]<>|*\x22']+\.md\b"));
    static AROUND: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)[(\[]?\s*(?:(?:file|see)\s*:?\s*)?`?[^\s`()\[\]<>|*\x22']+\.md`?\s*[)\]]?")
    });
    let file = FILE.find(text).map(|found| found.as_str().to_owned());
    let of_file = || ids::of_file(file.as_deref()?.rsplit('/').next()?);
    let (id, rest) = match ids::leading(text) {
        Some((id, rest)) => (id.to_owned(), rest),
        None => (of_file()?.to_owned(), text),
    };
    let words = plain(rest);
    let words = AROUND.replace_all(&words, " ");
    let first = words.split('|').map(trimmed).find(|part| !part.is_empty());
    Some((id, first.unwrap_or_default().to_owned(), file))
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ":.-–—#_→>()[]".contains(c))
}

/// A line that gives a status in words.
pub(super) fn status(line: Line<'_>) -> Option<Status> {
    static STATUS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)^\s*(?:[-*+]\s+)?[*_`]*(?:phase\s+|task\s+)?status[*_`]*\s*[:=]\s*\**\s*(.*?)[*\s]*$",
        )
    });
    static ROW: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)^\s*\|\s*[*_`]*status[*_`]*\s*\|\s*([^|]*?)\s*\|?\s*$"));
    let found = STATUS
        .captures(line.text)
        .or_else(|| ROW.captures(line.text))?;
    let value = found.get(1)?;
    Some(Status {
        line: line.number,
        says: said(value.as_str()),
        value: line.start + value.start()..line.start + value.end(),
    })
}

/// What a status means. Anything that is neither done nor skipped is open.
fn said(value: &str) -> Tick {
    let letters = |c: &char| c.is_alphabetic();
    let word: String = value.to_lowercase().chars().filter(letters).collect();
    match word.as_str() {
        "done" | "complete" | "completed" | "finished" | "x" => Tick::Done,
        word if word.starts_with("skip") => Tick::Skipped,
        _ => Tick::Open,
    }
}

fn progress(line: Line<'_>) -> Option<Progress> {
    static COUNT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\bprogress\b.*?(\d{1,6})\s*(?:/|of)\s*(\d{1,6})"));
    static PERCENT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\bprogress\b.*?(\d{1,3})\s*%"));
    let found = COUNT.captures(line.text)?;
    let at = |found: regex::Match<'_>| line.start + found.start()..line.start + found.end();
    Some(Progress {
        phase: None,
        done: at(found.get(1)?),
        total: at(found.get(2)?),
        percent: PERCENT
            .captures(line.text)
            .and_then(|found| found.get(1).map(at)),
    })
}
