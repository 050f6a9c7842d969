//! `orch send`: puts a task in an inbox, and with `--wait` sees it through.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use notify::{RecursiveMode, Watcher as _};
use serde_json::{Map, Value};

use super::input;
use super::target::{is_watched, say_if_nobody_watches};
use crate::agents::catalogue::Catalogue;
use crate::agents::process::{TASK_VARIABLE, living_watchers};
use crate::disk::mailbox::{
    ANSWERS, CLAIMED, Mailbox, OUT, RECORD, TASK, file_name, fresh_name, read_record, scan,
};
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::safety::FileId;
use crate::run::record::Record;
use crate::spec::task::{AgentName, Header, Task, TaskName, render};
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{clean, print_fault, print_json, print_unheld};
use crate::work::runtime;
use crate::work::scheduler::Options;

/// While waiting for somebody else's work, how often to see whether that somebody is alive.
const CHECK: Duration = Duration::from_secs(1);

pub(super) fn run(root: Option<&Path>, words: cli::Send) -> Result<u8> {
    runtime::inherit_nothing()?;
    let root = Arc::new(Root::discover(root)?);
    let mailbox = Mailbox::new(root.clone(), Disk::new(Durability::Power));
    let agent = AgentName::parse(&words.agent).map_err(usage)?;
    let catalogue = Catalogue::load(&root.path)?;
    catalogue.knows(&agent)?;
    let text = compose(&words)?;
    check(&catalogue, &agent, &Task::parse(text.as_bytes())?.header)?;
    if words.wait {
        refuse_to_wait_for_itself(&mailbox, &agent)?;
    }
    let name = match &words.name {
        Some(name) => TaskName::parse(name).map_err(usage)?,
        None => fresh_name(Timestamp::now(), &uuid::Uuid::now_v7()),
    };
    let earlier = record_id(&mailbox, &agent, &name)?;
    submit(&mailbox, &agent, &name, &text)?;
    if !words.wait {
        say_sent(&words, &agent, &name);
        say_if_nobody_watches(&mailbox, &agent);
        return Ok(exit::DONE);
    }
    let errand = Errand {
        mailbox: &mailbox,
        agent: &agent,
        name: &name,
        earlier,
        deadline: words.timeout.map(|timeout| Instant::now() + timeout),
    };
    match wait(&root, &errand, &words)? {
        Waited::Result(record) => report(&mailbox, &agent, &name, &record, words.json),
        Waited::Stopped(code) => Ok(code),
    }
}

fn say_sent(words: &cli::Send, agent: &AgentName, name: &TaskName) {
    if words.json {
        println!(
            "{}",
            serde_json::json!({"agent": agent.as_str(), "task": name.as_str()})
        );
    } else {
        println!("{agent}/{name}");
    }
}

fn compose(words: &cli::Send) -> Result<String> {
    let body = match (&words.text, &words.file) {
        (Some(dash), None) if dash == "-" => input::stdin()?,
        (Some(text), None) => text.clone(),
        (None, Some(path)) => input::file(path)?,
        (None, None) if !std::io::stdin().is_terminal() => input::stdin()?,
        _ => {
            return Err(Fault::new(Kind::Usage, "there is nothing to send")
                .hint("give the text, `-` for standard input, or --file FILE"));
        }
    };
    let then = words
        .then
        .iter()
        .map(|name| AgentName::parse(name))
        .collect::<Result<Vec<_>>>()
        .map_err(usage)?;
    let header = Header {
        dir: words.dir.clone(),
        provider: words.provider.clone(),
        then: (!then.is_empty()).then_some(then),
        context: context(&words.context)?,
        ..Header::default()
    };
    Ok(render(&header, &body))
}

fn context(pairs: &[String]) -> Result<Map<String, Value>> {
    pairs
        .iter()
        .map(|pair| {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| Fault::new(Kind::Usage, format!("`--context {pair}` is not K=V")))?;
            Ok((key.to_owned(), Value::String(value.to_owned())))
        })
        .collect()
}

/// Finds out before it is sent what would reject the task later.
fn check(catalogue: &Catalogue, agent: &AgentName, header: &Header) -> Result<()> {
    if let Some(provider) = &header.provider {
        catalogue.setup(agent, Some(provider))?;
    }
    for next in header.then.iter().flatten() {
        catalogue.knows(next)?;
    }
    if let Some(dir) = &header.dir {
        catalogue.settings().dir(dir)?;
    }
    Ok(())
}

fn submit(mailbox: &Mailbox, agent: &AgentName, name: &TaskName, text: &str) -> Result<()> {
    mailbox.submit(agent, name, text).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            return Fault::new(
                Kind::Busy,
                format!("`{agent}/{name}` is waiting or being worked on"),
            )
            .hint("choose another name, or leave --name out");
        }
        Fault::io("put a task in", format!("inbox/{agent}"), &e)
    })
}

/// What is waited for.
struct Errand<'a> {
    mailbox: &'a Mailbox,
    agent: &'a AgentName,
    name: &'a TaskName,
    /// The result of an earlier task of this name, which is not the one.
    earlier: Option<FileId>,
    deadline: Option<Instant>,
}

/// Which file the record of this name is.
fn record_id(mailbox: &Mailbox, agent: &AgentName, name: &TaskName) -> Result<Option<FileId>> {
    let found = mailbox
        .agent(agent)
        .and_then(|folders| folders.artifacts.find(&file_name(name, RECORD)));
    let found =
        found.map_err(|e| Fault::io("look for a result of", format!("{agent}/{name}"), &e))?;
    Ok(found.map(|meta| meta.id))
}

enum Waited {
    Result(Box<Record>),
    Stopped(u8),
}

/// Waits for the record, and does the work here where nobody else is there to do it.
fn wait(root: &Arc<Root>, errand: &Errand<'_>, words: &cli::Send) -> Result<Waited> {
    let Errand {
        mailbox,
        agent,
        name,
        deadline,
        ..
    } = *errand;
    let mut was_gone = false;
    loop {
        if !is_watched(mailbox, agent) {
            let options = Options {
                jobs: 1,
                only: Some((agent.clone(), name.clone())),
                until: deadline,
                record: words.record,
                ..Options::default()
            };
            let ended = runtime::watch(root, Durability::Power, options, Arc::new(print_unheld))?;
            if let Some(code) = ended.signal {
                eprintln!("stopped; `{agent}/{name}` waits in its inbox");
                return Ok(Waited::Stopped(code));
            }
        }
        if let Some(record) = wait_for_record(errand)? {
            return Ok(Waited::Result(Box::new(record)));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let fault = Fault::new(Kind::Busy, format!("`{agent}/{name}` is not finished yet"));
            return Err(fault.hint(match is_watched(mailbox, agent) {
                true => format!("it goes on; `orch show {agent}/{name}` tells how it stands"),
                false => "it waits in its inbox; `orch watch` works on it".to_owned(),
            }));
        }
        if waits_for_person(mailbox, agent, name)? {
            return Err(Fault::new(
                Kind::Blocked,
                format!("`{agent}/{name}` waits for a person"),
            )
            .hint(format!("write the answer below a line `--- answer` in inbox/{agent}/{name}.task, then rename it to {name}.reply")));
        }
        // One look may miss a file that is just being renamed.
        let is_gone = is_gone(mailbox, agent, name)?;
        if is_gone && was_gone {
            return Err(Fault::new(
                Kind::Cancelled,
                format!("`{agent}/{name}` was taken away before it was done"),
            ));
        }
        was_gone = is_gone;
    }
}

/// Whether nothing of the task is in the inbox.
fn is_gone(mailbox: &Mailbox, agent: &AgentName, name: &TaskName) -> Result<bool> {
    let look = || -> std::io::Result<bool> {
        let folders = mailbox.agent(agent)?;
        let answers = ANSWERS.iter().map(|(suffix, _)| *suffix);
        for suffix in [TASK, CLAIMED].into_iter().chain(answers) {
            if folders.inbox.has(&file_name(name, suffix))? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    look().map_err(|e| Fault::io("look for", format!("{agent}/{name}"), &e))
}

/// An agent that waits for a task of its own, while it holds the only slot, would wait for ever.
fn refuse_to_wait_for_itself(mailbox: &Mailbox, agent: &AgentName) -> Result<()> {
    let root = &mailbox.root;
    let marker = std::env::var(TASK_VARIABLE).unwrap_or_default();
    let ours = format!("{}:{}:", root.id.dev, root.id.ino);
    if marker.starts_with(&ours) && all_slots_busy(mailbox, agent).unwrap_or(false) {
        return Err(Fault::new(
            Kind::Busy,
            "every slot of the watcher is busy, one of them with the task that asks: waiting would never end",
        )
        .hint("send without --wait, or run `orch watch` with more --jobs"));
    }
    Ok(())
}

/// Whether those who would do the work of this agent all have something to do.
fn all_slots_busy(mailbox: &Mailbox, agent: &AgentName) -> std::io::Result<bool> {
    let mut watchers = living_watchers(&mailbox.root.logs)?;
    watchers.retain(|watcher| watcher.duty.covers(agent.as_str()));
    if watchers.is_empty() {
        return Ok(false);
    }
    let slots: usize = watchers
        .iter()
        .map(|watcher| usize::from(watcher.duty.jobs))
        .sum();
    let theirs = |agent: &AgentName| watchers.iter().any(|w| w.duty.covers(agent.as_str()));
    let mut busy = 0;
    for listing in scan(mailbox, theirs)?.agents {
        for name in &listing.claimed {
            busy += usize::from(mailbox.is_worked_on(&listing.folders, name)?);
        }
    }
    Ok(busy >= slots)
}

fn waits_for_person(mailbox: &Mailbox, agent: &AgentName, name: &TaskName) -> Result<bool> {
    let catalogue = Catalogue::load(&mailbox.root.path)?;
    let folders = mailbox
        .agent(agent)
        .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    let waiting = folders.inbox.has(&file_name(name, TASK)).unwrap_or(false);
    Ok(waiting && catalogue.is_human(agent))
}

/// Waits until the record is there, for a while; the folder's events only say when to look.
fn wait_for_record(errand: &Errand<'_>) -> Result<Option<Record>> {
    let Errand {
        mailbox,
        agent,
        name,
        deadline,
        ..
    } = *errand;
    let folders = mailbox
        .agent(agent)
        .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    let file = file_name(name, RECORD);
    let (tell, told) = mpsc::channel();
    let ending = file.clone();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let ours = event.map_or(true, |event| {
            event.need_rescan() || event.paths.iter().any(|path| path.ends_with(&ending))
        });
        if ours {
            let _ = tell.send(());
        }
    });
    let watched = watcher.and_then(|mut watcher| {
        watcher.watch(folders.artifacts.path(), RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    let until = deadline.map_or_else(|| Instant::now() + CHECK, |d| d.min(Instant::now() + CHECK));
    loop {
        if record_id(mailbox, agent, name)?.is_some_and(|id| errand.earlier != Some(id)) {
            let record = read_record(&folders.artifacts, &file)
                .map_err(|e| Fault::io("read", folders.artifacts.path().join(&file), &e))?;
            if record.is_some() {
                return Ok(record);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        match &watched {
            Ok(_watcher) => match told.recv_timeout(left) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left.min(CHECK / 10)),
            },
            Err(_) => std::thread::sleep(left.min(CHECK / 10)),
        }
    }
}

fn report(
    mailbox: &Mailbox,
    agent: &AgentName,
    name: &TaskName,
    record: &Record,
    json: bool,
) -> Result<u8> {
    if json {
        print_json(record)?;
        return Ok(record.status.exit_code());
    }
    let folders = mailbox
        .agent(agent)
        .map_err(|e| Fault::io("open the folders of", agent.as_str(), &e))?;
    match folders.artifacts.open(&file_name(name, OUT)) {
        Ok(mut file) => print_answer(&mut file)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => {
            return Err(Fault::io(
                "open the answer of",
                format!("{agent}/{name}"),
                &e,
            ));
        }
    }
    if let Some(fault) = &record.error {
        print_fault(fault);
    }
    Ok(record.status.exit_code())
}

/// The answer as it is, or on a terminal without what could act on it.
fn print_answer(file: &mut std::fs::File) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if out.is_terminal() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .and_then(|_| out.write_all(clean(&String::from_utf8_lossy(&bytes)).as_bytes()))
    } else {
        std::io::copy(file, &mut out).map(|_| ())
    };
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::io("print", "the answer", &e))
        }
        _ => Ok(()),
    }
}

fn usage(fault: Fault) -> Fault {
    Fault {
        kind: Kind::Usage,
        ..fault
    }
}
