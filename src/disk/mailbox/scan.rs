//! Reading the inboxes: which tasks wait, which are claimed, and what else lies there.
//!
//! A scan is the truth; events only say when to make one. It opens no task and changes nothing.

use std::io;
use std::sync::Arc;

use rustix::fs::FileType;

use super::{ANSWERS, AgentBox, CLAIMED, Mailbox, TASK};
use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::spec::task::{AgentName, TaskName};

/// What a person said of a task, by renaming it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// `NAME.reply`: the answer stands below the line `--- answer`.
    Reply,
    /// `NAME.approved`.
    Approved,
    /// `NAME.rejected`.
    Rejected,
}

/// Task names, sorted bytewise, in one allocation: a backlog of 100,000 is a few megabytes.
#[derive(Debug, Default, Clone)]
pub struct Names {
    text: String,
    spans: Vec<(u32, u16)>,
}

impl Names {
    fn push(&mut self, name: &str) {
        // A name has at most 200 bytes, and 4 GiB of names do not fit in a folder's index.
        let (Ok(start), Ok(length)) = (u32::try_from(self.text.len()), u16::try_from(name.len()))
        else {
            return;
        };
        self.text.push_str(name);
        self.spans.push((start, length));
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.spans
            .sort_unstable_by(|a, b| slice(text, *a).cmp(slice(text, *b)));
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The name at this place.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&str> {
        self.spans.get(index).map(|span| slice(&self.text, *span))
    }

    /// Only this name, if it is there.
    #[must_use]
    pub fn only(&self, name: &str) -> Names {
        self.iter().filter(|other| *other == name).collect()
    }

    /// All names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|span| slice(&self.text, *span))
    }
}

impl<'a> FromIterator<&'a str> for Names {
    /// Takes names that are in order already.
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut all = Names::default();
        names.into_iter().for_each(|name| all.push(name));
        all
    }
}

fn slice(text: &str, (start, length): (u32, u16)) -> &str {
    &text[start as usize..start as usize + usize::from(length)]
}

/// Something in an inbox that is not a task. It is left alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stray {
    /// Where it is, below the root.
    pub path: String,
    /// Why it is not a task.
    pub why: String,
}

/// One agent's inbox.
#[derive(Debug)]
pub struct AgentListing {
    /// Its folders.
    pub folders: Arc<AgentBox>,
    /// Waiting tasks.
    pub waiting: Names,
    /// Claimed tasks.
    pub claimed: Vec<TaskName>,
    /// Answers of people.
    pub answers: Vec<(TaskName, Answer)>,
}

/// All inboxes, agents by name.
#[derive(Debug, Default)]
pub struct Scan {
    /// The agents that have a folder.
    pub agents: Vec<AgentListing>,
    /// What is not ours.
    pub strays: Vec<Stray>,
    /// The agents whose folders cannot be used; they stop nobody else.
    pub refused: Vec<Refused>,
    /// Folders were moved or made anew since the last scan.
    pub replaced: bool,
}

/// An agent whose folders cannot be used, such as a link in the place of one.
#[derive(Debug)]
pub struct Refused {
    /// The agent.
    pub agent: AgentName,
    /// Why.
    pub error: io::Error,
}

/// Reads every inbox, or only those of the agents for which `wanted` holds.
pub fn scan(mailbox: &Mailbox, wanted: impl Fn(&AgentName) -> bool) -> io::Result<Scan> {
    let mut found = Scan::default();
    let agents = inboxes(&mailbox.root, &mut found.strays)?;
    found.replaced = mailbox.forget_replaced()?;
    for agent in agents.into_iter().filter(|agent| wanted(agent)) {
        let listed = mailbox
            .agent(&agent)
            .and_then(|folders| list(folders, &mut found.strays));
        match listed {
            Ok(listing) => found.agents.push(listing),
            // Removed between two looks.
            Err(e) if e.kind() == io::ErrorKind::NotFound => mailbox.forget(&agent),
            // An error of the system itself, such as too many open files, is everybody's.
            Err(e) if e.raw_os_error().is_some() => return Err(e),
            Err(error) => found.refused.push(Refused { agent, error }),
        }
    }
    Ok(found)
}

/// The agents that have an inbox, by name.
pub(super) fn inboxes(root: &Root, strays: &mut Vec<Stray>) -> io::Result<Vec<AgentName>> {
    let mut agents = Vec::new();
    root.dir.sub("inbox")?.entries(|name, kind| {
        let Ok(text) = name.to_str() else {
            strays.push(stray(
                "inbox",
                &name.to_string_lossy(),
                "its name is not UTF-8",
            ));
            return;
        };
        if text.starts_with('.') {
            return;
        }
        match (kind, AgentName::parse(text)) {
            (FileType::Directory | FileType::Unknown, Ok(agent)) => agents.push(agent),
            (FileType::Directory, Err(fault)) => {
                strays.push(stray("inbox", text, &fault.message));
            }
            (FileType::Symlink, _) => {
                strays.push(stray("inbox", text, "a link is not an inbox"));
            }
            _ => strays.push(stray("inbox", text, "it is not in an agent's folder")),
        }
    })?;
    agents.sort_unstable();
    Ok(agents)
}

fn list(folders: Arc<AgentBox>, strays: &mut Vec<Stray>) -> io::Result<AgentListing> {
    let listing = list_inbox(&folders.inbox, &folders.agent, strays)?;
    Ok(AgentListing {
        folders,
        waiting: listing.waiting,
        claimed: listing.claimed,
        answers: listing.answers,
    })
}

/// What lies in one inbox.
#[derive(Debug, Default)]
pub struct Listing {
    /// Waiting tasks.
    pub waiting: Names,
    /// Claimed tasks.
    pub claimed: Vec<TaskName>,
    /// Answers of people.
    pub answers: Vec<(TaskName, Answer)>,
}

/// Reads one inbox.
pub(super) fn list_inbox(
    inbox: &Dir,
    agent: &AgentName,
    strays: &mut Vec<Stray>,
) -> io::Result<Listing> {
    let mut waiting = Names::default();
    let mut claimed = Vec::new();
    let mut answers = Vec::new();
    let place = format!("inbox/{agent}");
    inbox.entries(|name, kind| {
        let Ok(text) = name.to_str() else {
            strays.push(stray(
                &place,
                &name.to_string_lossy(),
                "its name is not UTF-8",
            ));
            return;
        };
        match sort_out(text, kind) {
            Entry::Waiting(name) => waiting.push(name),
            Entry::Claimed(name) => claimed.push(name),
            Entry::Answered(name, answer) => answers.push((name, answer)),
            Entry::NotOurs => {}
            Entry::Stray(why) => strays.push(stray(&place, text, &why)),
        }
    })?;
    waiting.sort();
    claimed.sort_unstable();
    answers.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(Listing {
        waiting,
        claimed,
        answers,
    })
}

enum Entry<'a> {
    Waiting(&'a str),
    Claimed(TaskName),
    Answered(TaskName, Answer),
    /// Temporary and hidden files: left alone, and not worth a word.
    NotOurs,
    Stray(String),
}

fn sort_out(text: &str, kind: FileType) -> Entry<'_> {
    if text.starts_with('.') || text.ends_with(".tmp") || text.ends_with('~') {
        return Entry::NotOurs;
    }
    if let Some(why) = why_not_a_file(kind) {
        return Entry::Stray(why.to_owned());
    }
    if let Some(name) = text.strip_suffix(TASK) {
        return match TaskName::check(name) {
            Ok(()) => Entry::Waiting(name),
            Err(fault) => Entry::Stray(fault.message),
        };
    }
    let named = |name: &str| TaskName::parse(name);
    if let Some(name) = text.strip_suffix(CLAIMED) {
        return named(name).map_or_else(|f| Entry::Stray(f.message), Entry::Claimed);
    }
    for (suffix, answer) in ANSWERS {
        if let Some(name) = text.strip_suffix(suffix) {
            return named(name)
                .map_or_else(|f| Entry::Stray(f.message), |n| Entry::Answered(n, answer));
        }
    }
    Entry::Stray("a task's name ends in `.task`".to_owned())
}

fn why_not_a_file(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile | FileType::Unknown => None,
        FileType::Directory => Some("it is a folder"),
        FileType::Symlink => Some("it is a link"),
        FileType::Fifo => Some("it is a fifo"),
        FileType::Socket => Some("it is a socket"),
        _ => Some("it is a device"),
    }
}

fn stray(place: &str, name: &str, why: &str) -> Stray {
    Stray {
        path: format!("{place}/{name}"),
        why: why.to_owned(),
    }
}
