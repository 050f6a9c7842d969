//! `orch log`: the finished tasks, the latest last, and with `--follow` those to come.
//!
//! Reads records only. What an agent itself wrote next to them is passed over in silence; what
//! should be a record and is none is reported once.

mod follow;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::target::Target;
use super::{run_log, run_target};
use crate::disk::mailbox::{FAILED, Part, Peek, RECORD, TASK, read_record};
use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::run::record::Record;
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{
    Paint, Reader, clean_json, clean_line, parse_since, print, short_duration, status_word,
};

/// So much is printed at once.
const BATCH_BYTES: usize = 64 << 10;
/// A record is written after the end that it tells of; clocks and file systems may round.
const SLACK_NS: i128 = 2_000_000_000;

pub(super) fn run(root: Option<&Path>, words: &cli::Log) -> Result<u8> {
    let root = Arc::new(Root::discover(root)?);
    let word = words.target.as_deref();
    if let Some(run) = word
        .map(|word| run_target::unless_agent(&root, word))
        .transpose()?
        .flatten()
    {
        return run_log::run(&root, &run, words);
    }
    let mut log = Log::new(root, words)?;
    if words.follow {
        return follow::run(&mut log);
    }
    log.print_all()?;
    Ok(exit::DONE)
}

/// What is wanted, and what was shown already.
struct Log {
    root: Arc<Root>,
    agent: Option<AgentName>,
    /// Only this task, with its earlier attempts.
    name: Option<String>,
    since: Option<Timestamp>,
    form: Form,
    filter: Filter,
    paint: Paint,
    /// What was shown, and what was reported as unreadable.
    seen: HashSet<Key>,
}

/// Which record it is: a task that is run again has another end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    file: String,
    end: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    All,
    Failed,
}

/// A record to be shown. As JSON it is read again when its turn comes: 100,000 answers are too
/// many to hold, 100,000 lines are not.
struct Entry {
    end: String,
    agent: AgentName,
    file: String,
    line: Option<String>,
}

impl Log {
    fn new(root: Arc<Root>, words: &cli::Log) -> Result<Log> {
        let (agent, name) = parse_target(words.target.as_deref())?;
        if let Some(agent) = &agent {
            check_agent(&root, agent)?;
        }
        let since = words
            .since
            .as_deref()
            .map(|text| parse_since(text, Timestamp::now()));
        Ok(Log {
            root,
            agent,
            name,
            since: since.transpose()?,
            form: if words.json { Form::Json } else { Form::Lines },
            filter: if words.failed {
                Filter::Failed
            } else {
                Filter::All
            },
            paint: Paint::stdout(),
            seen: HashSet::new(),
        })
    }

    fn wants(&self, agent: &AgentName) -> bool {
        self.agent.as_ref().is_none_or(|wanted| wanted == agent)
    }

    /// Everything that is there and was not shown yet, in order.
    fn print_all(&mut self) -> Result<Reader> {
        let agents = Peek::agents_in(&self.root.artifacts)
            .map_err(|e| Fault::io("read", self.root.artifacts.path(), &e))?;
        let mut entries = Vec::new();
        for agent in agents {
            if self.wants(&agent) {
                self.collect(&agent, &mut entries)?;
            }
        }
        entries.sort_unstable_by(|a: &Entry, b| {
            (&a.end, &a.agent, &a.file).cmp(&(&b.end, &b.agent, &b.file))
        });
        let mut batch = String::new();
        for entry in entries {
            self.add_text(&entry, &mut batch)?;
            if batch.len() >= BATCH_BYTES {
                if print(&batch)? == Reader::Gone {
                    return Ok(Reader::Gone);
                }
                batch.clear();
            }
        }
        print(&batch)
    }

    /// Adds what is printed for a record, unless it was shown already.
    fn add_text(&mut self, entry: &Entry, batch: &mut String) -> Result<()> {
        let key = Key {
            file: format!("{}/{}", entry.agent, entry.file),
            end: Some(entry.end.clone()),
        };
        if !self.seen.insert(key) {
            return Ok(());
        }
        let text = match &entry.line {
            Some(line) => Some(line.clone()),
            None => self.json(&entry.agent, &entry.file)?,
        };
        if let Some(text) = text {
            batch.push_str(&text);
            batch.push('\n');
        }
        Ok(())
    }

    fn json(&self, agent: &AgentName, file: &str) -> Result<Option<String>> {
        let Some(dir) = self.peek(agent)?.artifacts else {
            return Ok(None);
        };
        // Removed or spoilt since it was listed: then there is nothing to show.
        let record = read_record(&dir, file).ok().flatten();
        Ok(record
            .and_then(|record| serde_json::to_string(&record).ok())
            .map(|text| clean_json(&text).into_owned()))
    }

    fn collect(&mut self, agent: &AgentName, entries: &mut Vec<Entry>) -> Result<()> {
        let peek = self.peek(agent)?;
        let Some(dir) = &peek.artifacts else {
            return Ok(());
        };
        let mut files = Vec::new();
        dir.entries(|file, _| {
            if let Some(file) = file.to_str().ok().filter(|file| self.is_candidate(file)) {
                files.push(file.to_owned());
            }
        })
        .map_err(|e| Fault::io("read", dir.path(), &e))?;
        for file in files {
            if let Some(record) = self.read(&peek, dir, &file)? {
                entries.push(self.entry(agent, file, &record));
            }
        }
        Ok(())
    }

    fn entry(&self, agent: &AgentName, file: String, record: &Record) -> Entry {
        Entry {
            end: record.end_time.clone(),
            agent: agent.clone(),
            line: (self.form == Form::Lines).then(|| line(record, &file, self.paint)),
            file,
        }
    }

    /// Prints one record unless it was shown already.
    fn print_one(&mut self, agent: &AgentName, file: &str) -> Result<Reader> {
        let peek = self.peek(agent)?;
        let Some(dir) = peek.artifacts.as_ref().filter(|_| self.is_candidate(file)) else {
            return Ok(Reader::There);
        };
        let Some(record) = self.read(&peek, dir, file)? else {
            return Ok(Reader::There);
        };
        let entry = self.entry(agent, file.to_owned(), &record);
        let mut text = String::new();
        self.add_text(&entry, &mut text)?;
        print(&text)
    }

    fn peek(&self, agent: &AgentName) -> Result<Peek> {
        Peek::at(&self.root, agent)
            .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))
    }

    fn is_candidate(&self, file: &str) -> bool {
        match (Part::of(file, &[RECORD]), &self.name) {
            (Some(part), Some(name)) => part.name == name,
            (Some(part), None) => part.earlier.is_none(),
            (None, _) => false,
        }
    }

    /// The record, if it is one and is wanted.
    fn read(&mut self, peek: &Peek, dir: &Dir, file: &str) -> Result<Option<Record>> {
        if self.is_too_old(dir, file) {
            return Ok(None);
        }
        let record = match read_record(dir, file) {
            Ok(record) => record,
            Err(e) => {
                self.report_once(peek, file, &e);
                None
            }
        };
        let Some(part) = Part::of(file, &[RECORD]) else {
            return Ok(None);
        };
        Ok(record
            .filter(|record| record.task == part.name && record.agent == peek.agent.as_str())
            .filter(|record| self.filter == Filter::All || !record.status.is_success())
            .filter(|record| self.ended_since(record)))
    }

    /// By its time alone, without opening it.
    fn is_too_old(&self, dir: &Dir, file: &str) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let found = dir.find(file).ok().flatten();
        found.is_some_and(|meta| meta.mtime_ns + SLACK_NS < since.as_nanosecond())
    }

    fn ended_since(&self, record: &Record) -> bool {
        match (self.since, record.end_time.parse::<Timestamp>()) {
            (Some(since), Ok(end)) => end >= since,
            _ => true,
        }
    }

    /// Only where a task of that name is retired: else it is a file of the agent's own.
    fn report_once(&mut self, peek: &Peek, file: &str, error: &io::Error) {
        let is_ours = Part::of(file, &[RECORD]).is_some_and(|part| is_retired(peek, &part));
        let key = Key {
            file: format!("{}/{file}", peek.agent),
            end: None,
        };
        if is_ours && self.seen.insert(key) {
            eprintln!(
                "{} {}",
                Paint::stderr().odd("skipped:"),
                clean_line(&error.to_string())
            );
        }
    }
}

fn is_retired(peek: &Peek, part: &Part<'_>) -> bool {
    let Some(dir) = &peek.processed else {
        return false;
    };
    [TASK, FAILED]
        .iter()
        .any(|suffix| dir.has(&format!("{}{suffix}", part.name)).unwrap_or(false))
}

fn parse_target(text: Option<&str>) -> Result<(Option<AgentName>, Option<String>)> {
    let Some(text) = text else {
        return Ok((None, None));
    };
    if text.trim_end_matches('/').contains('/') {
        let target = Target::parse(text)?;
        return Ok((Some(target.agent), Some(target.name.as_str().to_owned())));
    }
    let agent = AgentName::parse(text.trim_end_matches('/')).map_err(|fault| Fault {
        kind: Kind::Usage,
        ..fault
    })?;
    Ok((Some(agent), None))
}

/// A slip of the finger would else look like an agent that has done nothing.
fn check_agent(root: &Root, agent: &AgentName) -> Result<()> {
    let peek =
        Peek::at(root, agent).map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    if peek.inbox.is_some() || peek.artifacts.is_some() || peek.processed.is_some() {
        return Ok(());
    }
    crate::agents::catalogue::Catalogue::load(&root.path)?.knows(agent)
}

fn line(record: &Record, file: &str, paint: Paint) -> String {
    let time = Duration::try_from_secs_f64(record.duration).unwrap_or_default();
    let mut line = format!(
        "{}  {}  {}/{}  {}",
        paint.dim(clean_line(&shown_time(&record.end_time))),
        status_word(record.status, paint, 11),
        record.agent,
        file.strip_suffix(RECORD).unwrap_or(file),
        short_duration(time),
    );
    if let Some(cost) = record.usage.as_ref().and_then(|usage| usage.cost_usd) {
        line.push_str(&format!("  ${cost:.4}"));
    }
    if let Some(fault) = &record.error {
        let first = fault.message.lines().next().unwrap_or_default();
        line.push_str(&format!("  {}", clean_line(first)));
    }
    line
}

/// To the second: fractions are for programs.
fn shown_time(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, rest)) if rest.ends_with('Z') => format!("{seconds}Z"),
        _ => time.to_owned(),
    }
}
