//! `orch show`: one task, where it is, how it ended, and what is left of it; or a run, or a step of
//! one. Changes nothing.

mod text;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use serde::Serialize;

use super::target::Target;
use super::{run_target, run_view};
use crate::disk::mailbox::{
    CLAIMED, FAILED, Part, Peek, Place, RECORD, RESULT_SUFFIXES, RETIRED_SUFFIXES, TASK, file_name,
    read_record,
};
use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::run::record::Record;
use crate::spec::task::TaskName;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::suggest::suggest;
use crate::ui::cli;
use crate::ui::report::{print, print_json};

pub(super) fn run(root: Option<&Path>, words: &cli::Show) -> Result<u8> {
    let root = Arc::new(Root::discover(root)?);
    if let Some(target) = run_target::parse(&root, &words.target)? {
        return run_view::show(&root, &target, words.json);
    }
    let target = Target::parse(&words.target)?;
    let peek = Peek::at(&root, &target.agent)
        .map_err(|e| Fault::io("open the folders of", target.agent.as_str(), &e))?;
    let view = View::of(&peek, &target.name)
        .map_err(|e| Fault::io("look at", words.target.as_str(), &e))?;
    let Some(view) = view else {
        return Err(not_found(&root, &peek, &target));
    };
    if words.json {
        print_json(&view)?;
    } else {
        print(&text::page(&view, &peek))?;
    }
    Ok(exit::DONE)
}

/// Everything that there is to say of a task.
#[derive(Debug, Serialize)]
struct View {
    task: String,
    /// `waiting`, `running`, `interrupted`, `done` or `failed`.
    state: &'static str,
    /// When it came into that state.
    since: Option<String>,
    record: Option<Record>,
    /// Why there is a record that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    files: Vec<File>,
    earlier: Vec<Earlier>,
    #[serde(skip)]
    name: TaskName,
    #[serde(skip)]
    place: Place,
}

/// A file of the task's, by its path below the root.
#[derive(Debug, Serialize)]
struct File {
    path: String,
    bytes: u64,
}

/// An earlier attempt, or an earlier task of the same name: `NAME~number`.
#[derive(Debug, Serialize)]
struct Earlier {
    number: u32,
    /// Missing where a crash ended the attempt.
    record: Option<Record>,
}

impl View {
    fn of(peek: &Peek, name: &TaskName) -> io::Result<Option<View>> {
        let Some(place) = peek.place(name)? else {
            return Ok(None);
        };
        let (record, damaged) = match record_of(peek, &file_name(name, RECORD)) {
            Ok(record) => (record, None),
            Err(e) => (None, Some(e.to_string())),
        };
        Ok(Some(View {
            task: format!("{}/{name}", peek.agent),
            state: word(place),
            since: since(place),
            record,
            damaged,
            files: files(peek, name)?,
            earlier: earlier(peek, name)?,
            name: name.clone(),
            place,
        }))
    }
}

fn word(place: Place) -> &'static str {
    match place {
        Place::Waiting(_) => "waiting",
        Place::Running(_) => "running",
        Place::Interrupted(_) => "interrupted",
        Place::Done(_) => "done",
        Place::Failed(_) => "failed",
    }
}

fn moment(place: Place) -> i128 {
    match place {
        Place::Waiting(at) | Place::Running(at) | Place::Interrupted(at) => at,
        Place::Done(at) | Place::Failed(at) => at,
    }
}

fn since(place: Place) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(moment(place)).ok()?;
    Some(format!("{time:.3}"))
}

fn record_of(peek: &Peek, file: &str) -> io::Result<Option<Record>> {
    match &peek.artifacts {
        Some(dir) => read_record(dir, file),
        None => Ok(None),
    }
}

/// The task's own files, looked up by name.
fn files(peek: &Peek, name: &TaskName) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let agent = &peek.agent;
    let mut add = |area: &str, dir: &Option<Dir>, suffixes: &[&str]| -> io::Result<()> {
        let Some(dir) = dir else {
            return Ok(());
        };
        for suffix in suffixes {
            let file = file_name(name, suffix);
            if let Some(meta) = dir
                .find(&file)?
                .filter(|meta| meta.kind == FileType::RegularFile)
            {
                let path = format!("{area}/{agent}/{file}");
                files.push(File {
                    path,
                    bytes: meta.size,
                });
            }
        }
        Ok(())
    };
    add("inbox", &peek.inbox, &[TASK, CLAIMED])?;
    add("processed", &peek.processed, &[TASK, FAILED])?;
    add("artifacts", &peek.artifacts, RESULT_SUFFIXES)?;
    Ok(files)
}

/// Earlier attempts, by when they ended; what has no record comes first.
fn earlier(peek: &Peek, name: &TaskName) -> io::Result<Vec<Earlier>> {
    let mut numbers = Vec::new();
    let Some(dir) = &peek.artifacts else {
        return Ok(Vec::new());
    };
    dir.entries(|file, _| {
        let part = file
            .to_str()
            .ok()
            .and_then(|file| Part::of(file, RESULT_SUFFIXES));
        if let Some(Part {
            name: of,
            earlier: Some(number),
            ..
        }) = part
            && of == name.as_str()
        {
            numbers.push(number);
        }
    })?;
    numbers.sort_unstable();
    numbers.dedup();
    let read = |number| Earlier {
        number,
        record: read_record(dir, &format!("{name}~{number}{RECORD}"))
            .ok()
            .flatten(),
    };
    Ok(numbers.into_iter().map(read).collect())
}

fn not_found(root: &Root, peek: &Peek, target: &Target) -> Fault {
    let Target { agent, name } = target;
    let fault = Fault::new(
        Kind::FileNotFound,
        format!("there is no task `{agent}/{name}`"),
    );
    let near = |words: &[String], word: &str| {
        suggest(word, words.iter().map(String::as_str)).map(str::to_owned)
    };
    let names = peek.names().unwrap_or_default();
    if let Some(close) = near(&names, name.as_str()) {
        return fault.hint(format!("did you mean `{agent}/{close}`?"));
    }
    let agents = agents(root);
    let is_known = agents.iter().any(|other| other == agent.as_str());
    if let Some(close) = near(&agents, agent.as_str()).filter(|_| !is_known) {
        return fault.hint(format!("did you mean `{close}/{name}`?"));
    }
    let hint = match names.iter().max() {
        Some(last) => format!(
            "the last name of `{agent}` is `{last}`; `orch status` and `orch log {agent}` show more"
        ),
        None => {
            "`orch status` shows the agents and what waits, `orch log` what is finished".to_owned()
        }
    };
    fault.hint(hint)
}

fn agents(root: &Root) -> Vec<String> {
    let mut agents = Peek::agents_in(&root.inbox).unwrap_or_default();
    agents.extend(Peek::agents_in(&root.processed).unwrap_or_default());
    agents.iter().map(ToString::to_string).collect()
}

/// The names by which retired tasks of this name are kept, for the list of files.
fn earlier_tasks(peek: &Peek, name: &TaskName) -> usize {
    let mut found = 0;
    let Some(dir) = &peek.processed else {
        return 0;
    };
    // Only a remark: what cannot be read is not counted.
    let _ = dir.entries(|file, _| {
        let part = file
            .to_str()
            .ok()
            .and_then(|file| Part::of(file, RETIRED_SUFFIXES));
        found += usize::from(part.is_some_and(|p| p.name == name.as_str() && p.earlier.is_some()));
    });
    found
}
