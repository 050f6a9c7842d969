//! Old retired tasks: which they are, and their removal with their results.
//!
//! A task is old when its move to `processed/` is. Only regular files with names that orch itself
//! writes are taken; whatever else an agent left stays, and so does every folder. A task whose name
//! waits or is worked on is never touched. The retired file goes last, so that a removal that was
//! cut off is found and finished by the next one.

use std::collections::HashMap;
use std::io;

use rustix::fs::FileType;

use super::finish::{ignore_missing, seal_of};
use super::{ANSWERS, CLAIMED, Part, Peek, RESULT_SUFFIXES, RETIRED_SUFFIXES, TASK};
use crate::disk::root::Root;
use crate::disk::safety::{Dir, FileId, Meta};
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result};

/// Where a file of a retired task lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Results: removed first.
    Artifacts,
    /// The task itself.
    Processed,
}

impl Area {
    /// The folder's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Area::Artifacts => "artifacts",
            Area::Processed => "processed",
        }
    }

    /// The agent's folder there.
    #[must_use]
    pub fn of(self, peek: &Peek) -> Option<&Dir> {
        match self {
            Area::Artifacts => peek.artifacts.as_ref(),
            Area::Processed => peek.processed.as_ref(),
        }
    }
}

/// A file that may go, as it was when it was found.
#[derive(Debug, Clone)]
pub struct OldFile {
    /// Where it lies.
    pub area: Area,
    /// Its name.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    id: FileId,
    ctime_ns: i128,
}

impl OldFile {
    fn new(area: Area, file: String, meta: &Meta) -> OldFile {
        OldFile {
            area,
            file,
            size: meta.size,
            id: meta.id,
            ctime_ns: meta.ctime_ns,
        }
    }

    /// Whether this is still the very file that was found, unchanged and unmoved.
    #[must_use]
    pub fn is(&self, meta: &Meta) -> bool {
        meta.id == self.id && meta.ctime_ns == self.ctime_ns && meta.size == self.size
    }
}

/// A retired task that may go, or the earlier ones of a name that itself is to stay.
#[derive(Debug, Clone)]
pub struct OldTask {
    /// Its agent.
    pub agent: AgentName,
    /// Its name.
    pub name: String,
    /// When it was retired, in nanoseconds since 1970.
    pub retired_ns: i128,
    /// Its files, in the order in which they are removed.
    pub files: Vec<OldFile>,
}

/// What may go.
#[derive(Debug, Default)]
pub struct Old {
    /// By agent and name.
    pub tasks: Vec<OldTask>,
    /// Old ones that stay because a task of that name waits or is worked on.
    pub live: usize,
}

/// What became of a task that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Done,
    /// It stays: it is in use again, or somebody else moved or changed it.
    Kept,
}

/// What is known of one name while a folder is read.
#[derive(Debug, Default)]
struct Found {
    /// The newest of its own retired files, if it has one.
    current_ns: Option<i128>,
    files: Vec<(Option<u32>, OldFile)>,
}

impl Found {
    fn goes_whole(&self, before_ns: i128) -> bool {
        self.current_ns.is_some_and(|time| time < before_ns)
    }
}

impl Old {
    /// Finds what was retired before this moment, in nanoseconds since 1970.
    ///
    /// # Errors
    /// A safety violation if an agent's folder lies on another file system; an I/O fault.
    pub fn find(root: &Root, before_ns: i128) -> Result<Old> {
        let io = |e| Fault::io("read", root.processed.path(), &e);
        let mut old = Old::default();
        for agent in Peek::agents_in(&root.processed).map_err(io)? {
            let peek = Peek::at(root, &agent).map_err(io)?;
            for dir in [&peek.processed, &peek.artifacts].into_iter().flatten() {
                check_inside(root, dir)?;
            }
            old.find_of(&peek, before_ns)
                .map_err(|e| Fault::io("look for old tasks of", agent.as_str(), &e))?;
        }
        Ok(old)
    }

    fn find_of(&mut self, peek: &Peek, before_ns: i128) -> io::Result<()> {
        let mut names: HashMap<String, Found> = HashMap::new();
        each_file(peek, Area::Processed, RETIRED_SUFFIXES, |part, file| {
            let found = names.entry(part.name.to_owned()).or_default();
            if part.earlier.is_none() {
                found.current_ns = found.current_ns.max(Some(file.ctime_ns));
            }
            found.files.push((part.earlier, file));
        })?;
        each_file(peek, Area::Artifacts, RESULT_SUFFIXES, |part, file| {
            if let Some(found) = names.get_mut(part.name) {
                found.files.push((part.earlier, file));
            }
        })?;
        let mut tasks: Vec<OldTask> = names
            .into_iter()
            .filter_map(|(name, found)| old_task(&peek.agent, name, found, before_ns))
            .collect();
        tasks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for task in tasks {
            if is_live(peek, &task.name)? {
                self.live += 1;
            } else {
                self.tasks.push(task);
            }
        }
        Ok(())
    }
}

impl OldTask {
    /// The sum of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Whether everything of it is still as it was found, and its name is not in use.
    pub fn is_unchanged(&self, peek: &Peek) -> io::Result<bool> {
        if is_live(peek, &self.name)? {
            return Ok(false);
        }
        for file in &self.files {
            let found = match file.area.of(peek) {
                Some(dir) => dir.find(&file.file)?,
                None => None,
            };
            if !found.is_some_and(|meta| file.is(&meta)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes it, unless it changed since it was found. `removed` hears of every file.
    pub fn remove(&self, peek: &Peek, mut removed: impl FnMut(&OldFile)) -> io::Result<Removal> {
        if !self.is_unchanged(peek)? {
            return Ok(Removal::Kept);
        }
        for file in &self.files {
            let Some(dir) = file.area.of(peek) else {
                return Ok(Removal::Kept);
            };
            match dir.remove(&file.file) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => {
                    other?;
                    removed(file);
                }
            }
        }
        // A crash may have left it; without a claim nobody asks for it.
        if let Some(processed) = &peek.processed {
            ignore_missing(processed.remove(&seal_of(&self.name)))?;
        }
        Ok(Removal::Done)
    }
}

fn old_task(agent: &AgentName, name: String, found: Found, before_ns: i128) -> Option<OldTask> {
    let whole = found.goes_whole(before_ns);
    let mut files: Vec<OldFile> = found
        .files
        .into_iter()
        .filter(|(earlier, file)| whole || (earlier.is_some() && file.ctime_ns < before_ns))
        .map(|(_, file)| file)
        .collect();
    files.sort_unstable_by(|a, b| (a.area, &a.file).cmp(&(b.area, &b.file)));
    let newest = files.iter().map(|file| file.ctime_ns).max()?;
    Some(OldTask {
        agent: agent.clone(),
        name,
        retired_ns: found.current_ns.filter(|_| whole).unwrap_or(newest),
        files,
    })
}

fn each_file(
    peek: &Peek,
    area: Area,
    suffixes: &[&'static str],
    mut each: impl FnMut(&Part<'_>, OldFile),
) -> io::Result<()> {
    let Some(dir) = area.of(peek) else {
        return Ok(());
    };
    let mut files: Vec<String> = Vec::new();
    dir.entries(|file, kind| {
        let recognised = |file: &&str| Part::of(file, suffixes).is_some();
        let is_file = matches!(kind, FileType::RegularFile | FileType::Unknown);
        files.extend(
            file.to_str()
                .ok()
                .filter(recognised)
                .filter(|_| is_file)
                .map(str::to_owned),
        );
    })?;
    for file in files {
        let Some(meta) = dir
            .find(&file)?
            .filter(|meta| meta.kind == FileType::RegularFile)
        else {
            continue;
        };
        let old = OldFile::new(area, file.clone(), &meta);
        if let Some(part) = Part::of(&file, suffixes) {
            each(&part, old);
        }
    }
    Ok(())
}

fn is_live(peek: &Peek, name: &str) -> io::Result<bool> {
    let Some(inbox) = &peek.inbox else {
        return Ok(false);
    };
    let answers = ANSWERS.iter().map(|(suffix, _)| *suffix);
    for suffix in [TASK, CLAIMED].into_iter().chain(answers) {
        if inbox.has(&format!("{name}{suffix}"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_inside(root: &Root, dir: &Dir) -> Result<()> {
    let meta = dir
        .meta()
        .map_err(|e| Fault::io("look at", dir.path(), &e))?;
    if meta.id.dev == root.id.dev && dir.mount_id() == root.dir.mount_id() {
        return Ok(());
    }
    let message = format!(
        "`{}` is on another file system or mount than the root",
        dir.path().display()
    );
    Err(Fault::new(Kind::SafetyViolation, message)
        .hint("nothing was removed; unmount it, or clean it by hand"))
}

#[cfg(test)]
mod tests;
