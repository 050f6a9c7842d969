//! The runs of a root on disk: their folders, specs, logs and states.
//!
//! The log of a run is the authority and `state.json` its cache; both change only under the run's
//! lock, through [`Locked`]. Nothing here decides what an event does (that is `flow`), and nothing
//! here runs an agent or holds a lock while one runs.

mod cache;
mod course;
mod create;
mod draft;
mod known;
mod locked;
pub mod log;
mod replay;
mod snapshots;
mod spec;
mod stop;
mod update;

#[cfg(test)]
pub(crate) mod tests;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FileType;

pub use crate::text::canonical::sha256;
pub(crate) use course::{Course, adopted, workflow_of};
pub use locked::Locked;
pub use spec::Spec;
pub(crate) use spec::{check_sealed, manifest, manifest_in, verified};
pub use stop::is_stopped;

use crate::disk::order::Disk;
use crate::disk::root::Root;
use crate::disk::safety::{Dir, Meta};
use crate::run::state::RunState;
use crate::text::error::{Fault, Kind, Result};
use crate::text::suggest;
use known::Known;
use log::Log;

/// How long a command waits for the lock of a run.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The name of a run's cached state.
pub const STATE_FILE: &str = "state.json";
const LOCK_FILE: &str = "lock";
/// How many runs a hint names.
const NAMED_RUNS: usize = 5;
/// How long the time is that a run id begins with.
const STAMP_BYTES: usize = "20260101T000000Z".len();

/// All runs of a root.
#[derive(Debug, Clone)]
pub struct Runs {
    root: Arc<Root>,
    disk: Disk,
}

impl Runs {
    /// The runs of this root.
    #[must_use]
    pub fn new(root: Arc<Root>, disk: Disk) -> Self {
        Runs { root, disk }
    }

    /// Opens a run by its whole id.
    ///
    /// # Errors
    /// Where there is no such run, or its folder cannot be opened.
    pub fn open(&self, run_id: &str) -> Result<RunDir> {
        check_id(run_id)?;
        let workspace = self.workspace()?;
        match workspace.sub(run_id) {
            Ok(dir) => Ok(self.run_dir(run_id, dir)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.unknown(run_id)),
            Err(e) => Err(Fault::io("open", workspace.path().join(run_id), &e)),
        }
    }

    /// The id of the run that `part` stands for: any unique part of it, or `last`.
    ///
    /// # Errors
    /// Where it stands for none or for several.
    pub fn find(&self, part: &str) -> Result<String> {
        let all = self.list()?;
        if all.iter().any(|id| id == part) {
            return Ok(part.to_owned());
        }
        if part == "last" {
            return self.last(&all);
        }
        let mut fitting = all
            .iter()
            .filter(|id| !part.is_empty() && id.contains(part));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => Ok(id.clone()),
            (None, _) => Err(unknown(part, &all)),
            (Some(one), Some(two)) => {
                let more: Vec<_> = [one, two].into_iter().chain(fitting).cloned().collect();
                Err(ambiguous(part, &more))
            }
        }
    }

    /// The ids of all runs, sorted. It reads the whole folder: for commands only.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>> {
        let workspace = self.workspace()?;
        let mut ids = Vec::new();
        let mut each = |name: &std::ffi::CStr, kind: FileType| {
            let folder = matches!(kind, FileType::Directory | FileType::Unknown);
            if let Ok(name) = name.to_str()
                && folder
                && is_id(name)
            {
                ids.push(name.to_owned());
            }
        };
        workspace
            .entries(&mut each)
            .map_err(|e| Fault::io("read", workspace.path(), &e))?;
        ids.sort_unstable();
        Ok(ids)
    }

    /// The newest run: by the time in its id, and within one second by when its lock was made.
    fn last(&self, all: &[String]) -> Result<String> {
        let Some(newest) = all.iter().map(|id| stamp(id)).max() else {
            return Err(unknown("last", all));
        };
        let workspace = self.workspace()?;
        let made = |id: &str| {
            let lock = workspace.sub(id).and_then(|dir| dir.look(LOCK_FILE));
            lock.map_or(0, |meta| meta.mtime_ns)
        };
        let latest = all
            .iter()
            .filter(|id| stamp(id) == newest)
            .max_by_key(|id| (made(id), id.as_str()));
        latest.cloned().ok_or_else(|| unknown("last", all))
    }

    fn unknown(&self, run_id: &str) -> Fault {
        unknown(run_id, &self.list().unwrap_or_default())
    }

    fn workspace(&self) -> Result<Dir> {
        let made = self.root.dir.make("workspace");
        made.map_err(|e| Fault::io("open", self.root.path.join("workspace"), &e))
    }

    fn run_dir(&self, id: &str, dir: Dir) -> RunDir {
        RunDir {
            root: Arc::clone(&self.root),
            disk: self.disk,
            id: id.to_owned(),
            dir,
            known: Mutex::new(None),
            sealed: Mutex::new(Vec::new()),
            unsynced: AtomicBool::new(false),
        }
    }
}

/// The folder of one run, and its log.
#[derive(Debug)]
pub struct RunDir {
    root: Arc<Root>,
    disk: Disk,
    id: String,
    dir: Dir,
    /// The state as this process last saw it; only good while the files look the same.
    known: Mutex<Option<Known>>,
    /// How the files of the spec looked when their hashes were last compared; after them, those of the
    /// specs that the run had before.
    sealed: Mutex<Vec<spec::Seals>>,
    /// A sync failed: what the kernel says of later ones is worth nothing.
    unsynced: AtomicBool,
}

impl RunDir {
    /// The id of the run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where the run's agents work.
    #[must_use]
    pub fn files_path(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The root that it belongs to.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The path of its log, for messages and readers.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.root.logs.path().join(self.log_name())
    }

    /// The spec that the run is pinned to. What is left of an update that a crash broke off is
    /// completed or cleared first, under the run's lock: it must not be held by who asks.
    ///
    /// # Errors
    /// Where a file of it was changed or is missing: that is a safety violation.
    pub fn spec(&self) -> Result<Spec> {
        if !self.has_next_spec()?
            && let Ok(spec) = self.read_spec()
        {
            return Ok(spec);
        }
        // It is being replaced at this moment, or was changed: under the lock nobody replaces it.
        let locked = self.lock(PATIENCE)?;
        locked.settle_spec()?;
        self.read_spec()
    }

    /// Reads it and the ones before it, and remembers how they look.
    fn read_spec(&self) -> Result<Spec> {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let (spec, seals) = spec::read_sealed(&self.dir, spec::FOLDER)?;
        let mut all = vec![seals];
        for folder in self.past_specs()? {
            all.push(spec::read_sealed(&self.dir, &folder)?.1);
        }
        *sealed = all;
        Ok(spec)
    }

    /// That the specs are what they were when they were last read here. A look at the files is enough
    /// as long as none looks different.
    fn check_spec(&self) -> Result<()> {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        sealed
            .iter_mut()
            .try_for_each(|seals| seals.check(&self.dir))
    }

    /// That the spec is the one that the log names.
    fn check_named_spec(&self, state: &RunState) -> Result<()> {
        match course::named(&state.variables) {
            Some(named) => spec::check_hash(&self.dir, named),
            None => Ok(()),
        }
    }

    /// Takes the run's lock, waiting for it no longer than `patience`.
    ///
    /// # Errors
    /// `Busy` where someone else holds it for that long.
    pub fn lock(&self, patience: Duration) -> Result<Locked<'_>> {
        locked::lock(self, patience)
    }

    /// `state.json` as it is, without the lock: it may lag behind the log.
    ///
    /// # Errors
    /// Where there is none that can be read, or a newer orch wrote it.
    pub fn peek(&self) -> Result<RunState> {
        match cache::read(&self.dir)? {
            Some(cached) => Ok(cached.state),
            None => Err(Fault::new(
                Kind::StateNotFound,
                format!("run `{}` has no `{STATE_FILE}` that can be read", self.id),
            )
            .hint(format!(
                "`orch resume {}` makes it anew from the log",
                self.id
            ))),
        }
    }

    fn log_name(&self) -> String {
        format!("{}.jsonl", self.id)
    }

    /// The run's log, if there is one.
    pub(crate) fn open_log(&self) -> Result<Option<Log>> {
        Log::open(&self.root.logs, &self.log_name())
    }

    fn take_known(&self) -> Option<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.take()
    }

    fn set_known(&self, known: Known) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }

    /// Whether the log that this is known of was moved out of the way for a new one.
    fn was_set_aside(&self, known: &Known) -> bool {
        let aside = (1_u32..).map(|k| self.root.logs.find(&format!("{}~{k}.jsonl", self.id)));
        aside
            .map_while(|found| found.ok().flatten())
            .any(|meta| meta.id == known.log.id)
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced.load(Ordering::Relaxed)
    }
}

/// Opens a regular file by a path of plain names below a folder; no link on the way is followed.
pub(crate) fn open_below(dir: &Dir, path: &str) -> io::Result<File> {
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut here = None;
    for part in parents.split('/').filter(|_| !parents.is_empty()) {
        here = Some(here.as_ref().unwrap_or(dir).sub(part)?);
    }
    let file = here.as_ref().unwrap_or(dir).open(name)?;
    if Meta::of_file(&file)?.kind != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The same, and all of its bytes.
pub(crate) fn read_below(dir: &Dir, path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_below(dir, path)?, &mut bytes)?;
    Ok(bytes)
}

fn stamp(id: &str) -> &str {
    id.get(..STAMP_BYTES).unwrap_or(id)
}

/// A name that can be the name of a run's folder, of its log and the beginning of its tasks' names.
fn is_id(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=120).contains(&name.len()) && !name.starts_with(['.', '-']) && name.bytes().all(allowed)
}

fn check_id(name: &str) -> Result<()> {
    if is_id(name) {
        return Ok(());
    }
    Err(Fault::new(
        Kind::Usage,
        format!("`{}` is not the id of a run", name.escape_debug()),
    )
    .hint("an id has letters, digits, `.`, `_` and `-`; `orch status` lists the runs"))
}

fn unknown(part: &str, all: &[String]) -> Fault {
    let names: Vec<&str> = all.iter().rev().map(String::as_str).collect();
    let hint = match suggest::suggest(part, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => {
            "there are no runs yet; `orch run WORKFLOW` starts one".to_owned()
        }
        None => format!(
            "the latest: {}",
            quoted(&names[..names.len().min(NAMED_RUNS)])
        ),
    };
    let message = format!("there is no run `{}`", part.escape_debug());
    Fault::new(Kind::StateNotFound, message).hint(hint)
}

fn ambiguous(part: &str, fitting: &[String]) -> Fault {
    let names: Vec<&str> = fitting.iter().map(String::as_str).collect();
    let message = format!(
        "`{part}` stands for {} runs: {}",
        names.len(),
        quoted(&names)
    );
    Fault::new(Kind::Usage, message).hint("give more of the id, or `last`")
}

fn quoted(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}
