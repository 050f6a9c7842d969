//! Steps that wait for files: claimed, without a worker each.
//!
//! One thread attends to all of them. The kernel reports what came and went in the folders that their
//! globs lead through; where it cannot, the files are polled at the interval of the step. A worker
//! commits what a wait ends with: here files are only looked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::disk::globs::{self, Look};
use crate::disk::mailbox::{CLAIMED, Claim, file_name};
use crate::run::state::Pending;
use crate::text::error::{Fault, Kind};
use crate::work::notice::Reporter;
use crate::work::step::prepare::WantedFiles;
use crate::work::task_key::TaskKey;
use crate::work::watch::{Change, Folders};

/// Looks at one wait take at most this part of the time.
const LOOK_SHARE: u32 = 20;
/// A wait that leads through more folders than this is not watched: it is looked at by the clock.
const MOST_FOLDERS: usize = 1024;
/// So often a wait that is watched is looked at all the same.
const SLOW: Duration = Duration::from_secs(10);
/// A look whose folders are new is made again so often before somebody else has a turn.
const LOOKS: u32 = 4;

/// What a wait belongs to.
#[derive(Debug)]
pub(crate) struct WaitingStep {
    pub run: String,
    /// The step, in the attempt that waits.
    pub pending: Pending,
    /// How often it may be tried again after this, and how much later.
    pub retries: u64,
    pub delay: Duration,
    /// How long it had waited before this process had it.
    pub before: Duration,
}

impl WaitingStep {
    /// Since when it waits.
    pub(crate) fn since(&self) -> Timestamp {
        let since = self.pending.since.as_deref();
        since
            .and_then(|since| since.parse().ok())
            .unwrap_or_else(Timestamp::now)
    }
}

/// A step that waits, with its claim, and how far it has got.
#[derive(Debug)]
pub(crate) struct ParkedStep {
    pub claim: Claim,
    /// What it waits for.
    pub files: WantedFiles,
    /// When it has waited long enough.
    pub deadline: Instant,
    /// When this process took it in.
    pub began: Instant,
    /// How often it was looked for the files.
    pub polls: u64,
    /// What is needed to end it.
    pub step: WaitingStep,
    seen: HashSet<WatchedPlace>,
    /// However much happens, it is not looked at again before this.
    not_before: Instant,
}

/// A wait that is over.
#[derive(Debug)]
pub(crate) struct EndedWait {
    pub parked: ParkedStep,
    pub how: WaitEnd,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum WaitEnd {
    /// These files are there; too few, where the time is up.
    Looked(Vec<String>),
    /// They cannot be looked for.
    Broken(Fault),
    /// Its claim was taken away.
    Lost,
}

/// A folder, and the one name in it that matters, or any.
type WatchedPlace = (PathBuf, Option<String>);

/// All waits of a process.
pub(crate) struct Waits {
    shared: Arc<SharedTable>,
}

struct SharedTable {
    state: Mutex<WaitTable>,
    changed: Condvar,
}

struct WaitTable {
    resting: HashMap<TaskKey, ParkedStep>,
    due: BTreeMap<TaskKey, Instant>,
    by_time: BTreeSet<(Instant, TaskKey)>,
    /// The one that is being looked at, and whether something has changed since.
    in_hand: Option<(TaskKey, bool)>,
    /// Who wants to know what happens in a folder.
    folders: HashMap<PathBuf, HashSet<(TaskKey, Option<String>)>>,
    /// Folders whose watch is no longer theirs.
    lost: HashSet<PathBuf>,
    stopped: bool,
}

impl ParkedStep {
    /// A wait that begins, or goes on after a restart.
    pub(crate) fn new(
        claim: Claim,
        files: WantedFiles,
        deadline: Instant,
        step: WaitingStep,
    ) -> ParkedStep {
        ParkedStep {
            claim,
            files,
            deadline,
            began: Instant::now(),
            polls: 0,
            step,
            seen: HashSet::new(),
            not_before: Instant::now(),
        }
    }

    fn name(&self) -> TaskKey {
        (self.claim.folders.agent.clone(), self.claim.name.clone())
    }
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            shared: Arc::new(SharedTable {
                state: Mutex::new(WaitTable {
                    resting: HashMap::new(),
                    due: BTreeMap::new(),
                    by_time: BTreeSet::new(),
                    in_hand: None,
                    folders: HashMap::new(),
                    lost: HashSet::new(),
                    stopped: false,
                }),
                changed: Condvar::new(),
            }),
        }
    }
}

impl Clone for Waits {
    fn clone(&self) -> Self {
        Waits {
            shared: self.shared.clone(),
        }
    }
}

impl Waits {
    /// Takes a wait in, to be looked at from then on; gives it back where orch stops.
    pub(crate) fn park(&self, parked: ParkedStep, from: Instant) -> Result<(), Box<ParkedStep>> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Box::new(parked));
        }
        state.rest(parked, from);
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Whether this claim belongs to one of them.
    pub(crate) fn holds(&self, name: &TaskKey) -> bool {
        let state = self.lock();
        state.resting.contains_key(name) || state.is_in_hand(name)
    }

    /// Nobody is looked at any more.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.shared.changed.notify_all();
    }

    /// The next one to look at, and the folders whose watches are to be dropped first.
    fn take_due(&self) -> Option<(ParkedStep, Vec<PathBuf>)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = Instant::now();
            let first = state.by_time.first().map(|(due, _)| *due);
            state = match first {
                Some(due) if due <= now => return Some(state.take_first()),
                Some(due) => {
                    self.shared
                        .changed
                        .wait_timeout(state, due - now)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        // Every operation leaves the state whole.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedTable {
    /// The kernel says that something happened.
    fn changed(&self, change: Change<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let touched = match change {
            Change::Came(path) => state.interested(path),
            Change::Went(path) => {
                let mut who = state.interested(path);
                who.extend(state.lose(|folder| folder.starts_with(path)));
                who
            }
            Change::Anything => state.lose(|_| true),
        };
        let now = Instant::now();
        let any = touched.iter().fold(false, |any, name| {
            let soon = state.touch(name, now);
            any || soon
        });
        drop(state);
        if any {
            self.changed.notify_one();
        }
    }
}

impl WaitTable {
    fn rest(&mut self, parked: ParkedStep, due: Instant) {
        let name = parked.name();
        self.resting.insert(name.clone(), parked);
        self.due.insert(name.clone(), due);
        self.by_time.insert((due, name));
    }

    fn is_in_hand(&self, name: &TaskKey) -> bool {
        self.in_hand.as_ref().is_some_and(|(own, _)| own == name)
    }

    fn take_first(&mut self) -> (ParkedStep, Vec<PathBuf>) {
        let (_, name) = self.by_time.pop_first().expect("there is one that is due");
        self.due.remove(&name);
        let parked = self.resting.remove(&name).expect("what is due is resting");
        self.in_hand = Some((name, false));
        let lost: Vec<PathBuf> = self.lost.drain().collect();
        for folder in &lost {
            self.folders.remove(folder);
        }
        (parked, lost)
    }

    fn interested(&self, path: &Path) -> HashSet<TaskKey> {
        let place = path.parent().zip(path.file_name());
        let Some((folder, file)) = place else {
            return HashSet::new();
        };
        let wanted = self.folders.get(folder).into_iter().flatten();
        wanted
            .filter(|(_, only)| only.as_ref().is_none_or(|only| file == only.as_str()))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The watches of these folders are no longer theirs; gives who relied on them.
    fn lose(&mut self, which: impl Fn(&Path) -> bool) -> HashSet<TaskKey> {
        let mut who = HashSet::new();
        for (folder, interested) in &self.folders {
            if which(folder) {
                who.extend(interested.iter().map(|(name, _)| name.clone()));
                self.lost.insert(folder.clone());
            }
        }
        who
    }

    /// Makes a wait due now; gives whether that is news.
    fn touch(&mut self, name: &TaskKey, now: Instant) -> bool {
        if let Some((own, changed)) = &mut self.in_hand
            && own == name
        {
            *changed = true;
            return false;
        }
        let (Some(due), Some(parked)) = (self.due.get_mut(name), self.resting.get(name)) else {
            return false;
        };
        let soon = parked.not_before.max(now);
        if soon >= *due {
            return false;
        }
        self.by_time.remove(&(*due, name.clone()));
        *due = soon;
        self.by_time.insert((soon, name.clone()));
        true
    }

    /// Gives whether this is new.
    fn want(&mut self, name: &TaskKey, (folder, only): &WatchedPlace) -> bool {
        let wanted = self.folders.entry(folder.clone()).or_default();
        wanted.insert((name.clone(), only.clone()))
    }

    /// Gives the folder if nobody else is interested in it.
    fn want_no_more<'p>(
        &mut self,
        name: &TaskKey,
        (folder, only): &'p WatchedPlace,
    ) -> Option<&'p Path> {
        let wanted = self.folders.get_mut(folder)?;
        wanted.remove(&(name.clone(), only.clone()));
        wanted.is_empty().then(|| {
            self.folders.remove(folder);
            folder.as_path()
        })
    }
}

/// What came of attending to a wait.
enum Attended {
    Again(Instant),
    Over(WaitEnd),
}

/// Attends to the waits of this process, on a thread of its own.
pub(crate) struct WaitAttendant<'a> {
    pub waits: &'a Waits,
    pub root: &'a Path,
    pub reporter: &'a Reporter,
    /// Whether folders are polled instead of watched.
    pub polls: bool,
}

impl WaitAttendant<'_> {
    /// Attends to the waits until they are stopped. What has ended is handed over; the claims that
    /// still wait at the end are returned.
    pub(crate) fn run(&self, ended: impl Fn(EndedWait)) -> Vec<Claim> {
        let mut watch: Option<Folders> = None;
        while let Some((mut parked, lost)) = self.waits.take_due() {
            for folder in &lost {
                if let Some(watch) = &mut watch {
                    watch.remove(folder);
                }
            }
            match self.attend(&mut parked, &mut watch) {
                Attended::Again(due) => {
                    let mut table = self.waits.lock();
                    let changed = table.in_hand.take().is_some_and(|(_, changed)| changed);
                    let soon = due.min(parked.not_before);
                    table.rest(parked, if changed { soon } else { due });
                }
                Attended::Over(how) => {
                    self.forget(&parked, &mut watch);
                    self.waits.lock().in_hand = None;
                    ended(EndedWait { parked, how });
                }
            }
        }
        let left = self.waits.lock().resting.drain().collect::<Vec<_>>();
        left.into_iter().map(|(_, parked)| parked.claim).collect()
    }

    fn attend(&self, parked: &mut ParkedStep, watch: &mut Option<Folders>) -> Attended {
        let mut looks = 0;
        loop {
            if !parked.claim.is_ours().unwrap_or(true) {
                return Attended::Over(WaitEnd::Lost);
            }
            let began = Instant::now();
            let late = began >= parked.deadline;
            let Look {
                files: found,
                folders,
            } = match globs::look(self.root, &parked.files.glob) {
                Ok(look) => look,
                Err(e) => {
                    let root = self.root;
                    return Attended::Over(WaitEnd::Broken(Fault::io(
                        "look for files in",
                        root,
                        &e,
                    )));
                }
            };
            parked.polls += 1;
            looks += 1;
            if late || found.len() as u64 >= parked.files.min_count {
                return Attended::Over(WaitEnd::Looked(found));
            }
            parked.not_before = Instant::now() + began.elapsed() * LOOK_SHARE;
            let places = match folders.len() {
                0..=MOST_FOLDERS => self.places(&parked.claim, folders),
                _ => HashSet::new(),
            };
            let pause = match self.watch_places(parked, places, watch) {
                // What came before its folder was watched is seen only by another look.
                Watched::Newly if looks < LOOKS => continue,
                Watched::Newly => Duration::ZERO,
                Watched::Still => SLOW.max(parked.files.poll),
                Watched::Not => parked.files.poll,
            };
            let due = (Instant::now() + pause).max(parked.not_before);
            return Attended::Again(due.min(parked.deadline));
        }
    }

    /// Where something must happen for another look to find something else: in the folders of the
    /// glob, or to the claim.
    fn places(&self, claim: &Claim, folders: Vec<globs::Seen>) -> HashSet<WatchedPlace> {
        let root = self.root;
        let absolute = |folder: &str| match folder {
            "" => root.to_path_buf(),
            folder => root.join(folder),
        };
        let own = claim.folders.inbox.path().to_path_buf();
        folders
            .into_iter()
            .map(|seen| (absolute(&seen.folder), seen.name))
            .chain([(own, Some(file_name(&claim.name, CLAIMED)))])
            .collect()
    }

    fn watch_places(
        &self,
        parked: &mut ParkedStep,
        places: HashSet<WatchedPlace>,
        watch: &mut Option<Folders>,
    ) -> Watched {
        if places.is_empty() || self.polls {
            self.forget(parked, watch);
            parked.seen.clear();
            return Watched::Not;
        }
        if watch.is_none() {
            let shared = self.waits.shared.clone();
            match Folders::new(move |change| shared.changed(change)) {
                Ok(folders) => *watch = Some(folders),
                Err(e) => return self.unwatched(&e),
            }
        }
        let name = parked.name();
        let mut any_new = false;
        for place in &places {
            // Known before it is watched: no event may find nobody.
            any_new |= self.waits.lock().want(&name, place);
            let added = watch.as_mut().map_or(Ok(()), |on| on.add(&place.0));
            match added {
                Ok(()) => {}
                // It has gone since: another look leads elsewhere.
                Err(e) if is_gone(&e) => {
                    any_new = true;
                    self.unwatch(&name, std::slice::from_ref(place), watch);
                }
                Err(e) => {
                    parked.seen.extend(places);
                    self.forget(parked, watch);
                    parked.seen.clear();
                    return self.unwatched(&e);
                }
            }
        }
        let stale: Vec<WatchedPlace> = parked.seen.difference(&places).cloned().collect();
        self.unwatch(&name, &stale, watch);
        parked.seen = places;
        match any_new {
            true => Watched::Newly,
            false => Watched::Still,
        }
    }

    fn unwatched(&self, error: &notify::Error) -> Watched {
        let message = format!("cannot watch the folders that a step waits for: {error}");
        self.reporter.trouble(&Fault::new(Kind::IoError, message).hint(
            "orch looks every `poll_ms` instead; see fs.inotify.max_user_instances and max_user_watches",
        ));
        Watched::Not
    }

    /// The wait is over, or no longer watched.
    fn forget(&self, parked: &ParkedStep, watch: &mut Option<Folders>) {
        let places: Vec<WatchedPlace> = parked.seen.iter().cloned().collect();
        self.unwatch(&parked.name(), &places, watch);
        let mut state = self.waits.lock();
        let unused = state.folders.is_empty();
        if unused {
            state.lost.clear();
        }
        drop(state);
        if unused {
            *watch = None;
        }
    }

    fn unwatch(&self, name: &TaskKey, places: &[WatchedPlace], watch: &mut Option<Folders>) {
        for place in places {
            let idle = self.waits.lock().want_no_more(name, place);
            if let (Some(folder), Some(watch)) = (idle, watch.as_mut()) {
                watch.remove(folder);
            }
        }
    }
}

/// Whether the kernel tells what happens to a wait.
enum Watched {
    /// It does from now on.
    Newly,
    /// It did during the whole look.
    Still,
    /// It does not.
    Not,
}

fn is_gone(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(e) => matches!(
            e.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        ),
        _ => false,
    }
}
