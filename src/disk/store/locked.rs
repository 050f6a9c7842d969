//! A run under its lock: the only place where its log and its state change.
//!
//! The event goes to the log first, and has happened when it is there. `state.json` follows, and
//! may be left behind: a failure to write it is told and costs nothing but a longer replay.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::cache;
use super::draft::Draft;
use super::known::{Known, LogEnd};
use super::log::{Failed, Log};
use super::{LOCK_FILE, RunDir, STATE_FILE, snapshots};
use crate::disk::lock;
use crate::disk::safety::Meta;
use crate::run::flow;
use crate::run::state::{Effect, Event, RunState, RunStatus};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};

/// A state up to this size is replaced at every event.
const SMALL_STATE: u64 = 64 * 1024;
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// A run whose lock is held, until this goes out of scope.
#[derive(Debug)]
pub struct Locked<'r> {
    pub(super) run: &'r RunDir,
    _lock: lock::Locked,
}

/// Takes the lock of a run.
pub(super) fn lock(run: &RunDir, patience: Duration) -> Result<Locked<'_>> {
    let began = Instant::now();
    let mut nap = Duration::from_micros(200);
    loop {
        if let Some(lock) = try_lock(run)? {
            return Ok(Locked { run, _lock: lock });
        }
        if began.elapsed() >= patience {
            return Err(Fault::new(
                Kind::Busy,
                format!("run `{}` is being changed by another process", run.id),
            )
            .hint("try again; the lock is never held while an agent runs"));
        }
        thread::sleep(nap.min(patience.saturating_sub(began.elapsed())));
        nap = (nap * 2).min(LONGEST_NAP);
    }
}

/// The lock, if it is free and the file is still the one that has the name.
fn try_lock(run: &RunDir) -> Result<Option<lock::Locked>> {
    let path = run.dir.path().join(LOCK_FILE);
    let failed = |e| Fault::io("lock", &path, &e);
    let file = match run.dir.open_append(LOCK_FILE) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Fault::new(
                Kind::StateCorrupted,
                format!("run `{}` has no `{LOCK_FILE}`", run.id),
            )
            .hint(format!(
                "it was removed, or the run was never made; if nothing works on it, `touch {}`",
                path.display()
            )));
        }
        other => other.map_err(failed)?,
    };
    let Some(locked) = lock::Locked::try_new(file).map_err(failed)? else {
        return Ok(None);
    };
    let named = run.dir.find(LOCK_FILE).map_err(failed)?;
    let ours = Meta::of_file(locked.file()).map_err(failed)?.id;
    Ok(named.is_some_and(|meta| meta.id == ours).then_some(locked))
}

impl Locked<'_> {
    /// The state that the log ends with; before the first event, [`flow::nothing`].
    ///
    /// The first time, the whole log is added up and `state.json` held against it. From then on the
    /// state is kept in memory, and only what somebody else has added since is followed.
    ///
    /// # Errors
    /// `StateCorrupted` where the log contradicts itself or lacks what the state knows, or they
    /// belong to another run or workflow; `SafetyViolation` where `state.json` or the spec was
    /// changed; `NewerVersion` where a newer orch wrote them.
    pub fn load(&self, workflow: &Workflow) -> Result<Arc<RunState>> {
        self.refuse_outdated()?;
        self.run.check_spec()?;
        let Some(mut log) = self.run.open_log()? else {
            return match cache::read(&self.run.dir)? {
                None => Ok(Arc::new(flow::nothing())),
                Some(cached) => Err(self.ahead(&cached.state, "there is no log")),
            };
        };
        let mut known = self.run.take_known();
        let is_latest = match &mut known {
            Some(known) => self.is_latest(known, &log)?,
            None => false,
        };
        let known = match known {
            Some(known) if is_latest => known,
            known => self.look(workflow, &mut log, known)?,
        };
        let state = known.state.clone();
        self.run.set_known(known);
        Ok(state)
    }

    /// Whether log and state still look as they did.
    fn is_latest(&self, known: &mut Known, log: &Log) -> Result<bool> {
        if known.log != LogEnd::of(log) {
            return Ok(false);
        }
        match &mut known.kept {
            Some(kept) => cache::is_same(&self.run.dir, kept),
            None => Ok(false),
        }
    }

    /// Applies an event: through [`flow::step`], to the log, and then to `state.json`.
    ///
    /// What is applied is the event as the log will give it back. A state that nobody else holds is
    /// changed in place.
    ///
    /// # Errors
    /// Where the event does not fit the state (`Usage`), the state is not the run's latest (`Busy`),
    /// or the log cannot be written. The event has then not happened; only after a failed sync is it
    /// unknown, and nothing more is taken by this [`RunDir`].
    pub fn apply(
        &self,
        workflow: &Workflow,
        state: impl Into<Arc<RunState>>,
        at: &str,
        event: Event,
    ) -> Result<(Arc<RunState>, Vec<Effect>)> {
        let state = state.into();
        self.refuse_unsynced()?;
        let Some(mut log) = self.run.open_log()? else {
            return Err(self.ahead(&state, "there is no log"));
        };
        let known = match self.run.take_known() {
            Some(known) if known.log == LogEnd::of(&log) => known,
            known => self.look(workflow, &mut log, known)?,
        };
        let latest = (known.state.seq, known.state.log_head.as_str());
        if latest != (state.seq, state.log_head.as_str()) {
            let fault = self.gone_on(known.state.seq);
            self.run.set_known(known);
            return Err(fault);
        }
        let draft = Draft::new(&state, at, &event)?;
        let Known { kept, lag, .. } = known;
        let (mut state, effects) =
            flow::step(workflow, Arc::unwrap_or_clone(state), at, &draft.event).map_err(
                |illegal| Fault::new(Kind::Usage, format!("run `{}`: {illegal}", self.run.id)),
            )?;
        self.check_whose(&state, workflow)?;
        let line = draft.finish(&effects)?;
        for effect in &effects {
            if let Effect::Lock { name, text } = effect {
                snapshots::write(&self.run.dir, self.run.disk, name, text)?;
            }
        }
        self.append(&mut log, &line)?;
        state.log_head = super::sha256(&line);
        let mut known = Known {
            state: Arc::new(state),
            log: LogEnd::of(&log),
            kept,
            lag: lag.saturating_add(line.len() as u64),
        };
        self.keep(&mut known);
        let state = known.state.clone();
        self.run.set_known(known);
        Ok((state, effects))
    }

    /// That every locked decision is as it was locked. Asked before each event that moves a run on.
    ///
    /// # Errors
    /// `SafetyViolation` where one was changed, replaced or removed: then the run is to be stopped.
    pub fn check_snapshots(&self, state: &RunState) -> Result<()> {
        snapshots::check(self.run, state)
    }

    /// Removes the snapshots of a commit that a crash prevented.
    ///
    /// # Errors
    /// Where the folder cannot be read or changed.
    pub fn clear_uncommitted_snapshots(&self, state: &RunState) -> Result<()> {
        snapshots::clear_uncommitted(self.run, state)
    }

    /// Makes `state.json` anew from the whole log, whatever it says now.
    ///
    /// # Errors
    /// Where the log itself is not sound.
    pub fn rebuild(&self, workflow: &Workflow) -> Result<Arc<RunState>> {
        // A newer state is refused here as well.
        match cache::read(&self.run.dir) {
            Err(fault) if fault.kind != Kind::SafetyViolation => return Err(fault),
            Ok(Some(cached)) => self.check_whose(&cached.state, workflow)?,
            Ok(None) | Err(_) => {}
        }
        let Some(mut log) = self.run.open_log()? else {
            return Err(self.ahead(&flow::nothing(), "there is no log"));
        };
        log.cut_torn(self.run.disk)?;
        let state = self.replay(workflow, &log)?;
        cache::write(&self.run.dir, &state)
            .map_err(|e| Fault::io("write", self.run.dir.path().join(STATE_FILE), &e))?;
        drop(self.run.take_known());
        Ok(Arc::new(state))
    }

    pub(super) fn check_whose(&self, state: &RunState, workflow: &Workflow) -> Result<()> {
        let (what, own, other) = if state.run_id != self.run.id {
            ("run", &self.run.id, &state.run_id)
        } else if state.workflow_name != workflow.name.value {
            ("workflow", &workflow.name.value, &state.workflow_name)
        } else {
            return Ok(());
        };
        let path = self.run.dir.path().join(STATE_FILE);
        Err(Fault::new(
            Kind::StateCorrupted,
            format!("`{}` is of {what} `{other}`, not `{own}`", path.display()),
        )
        .hint("a run's folder and log cannot be copied under another name"))
    }

    fn gone_on(&self, seq: u64) -> Fault {
        let message = format!("run `{}` has gone on to event {seq} meanwhile", self.run.id);
        Fault::new(Kind::Busy, message).hint("its state has to be loaded again under the lock")
    }

    pub(super) fn refuse_unsynced(&self) -> Result<()> {
        if !self.run.is_unsynced() {
            return Ok(());
        }
        let message = format!(
            "run `{}` takes no more events: its log could not be made durable",
            self.run.id
        );
        Err(Fault::new(Kind::IoError, message).hint("see to the disk, then start orch again"))
    }

    pub(super) fn append(&self, log: &mut Log, line: &[u8]) -> Result<()> {
        log.append(self.run.disk, line)
            .map_err(|failed| match failed {
                Failed::Undone(fault) => fault,
                Failed::Unsynced(fault) => {
                    self.run.unsynced.store(true, Ordering::Relaxed);
                    fault
                }
            })
    }

    /// Replaces `state.json`, a large one only when the log has grown by as much.
    pub(super) fn keep(&self, known: &mut Known) {
        let bytes = known.kept.as_ref().map_or(0, |kept| kept.bytes);
        let is_large = bytes > SMALL_STATE;
        if is_large && known.lag < bytes && known.state.status == RunStatus::Running {
            return;
        }
        match cache::write(&self.run.dir, &known.state) {
            Ok(kept) => (known.lag, known.kept) = (0, Some(kept)),
            Err(error) => tracing::warn!(
                run = self.run.id,
                %error,
                "`{STATE_FILE}` could not be replaced; the log has everything"
            ),
        }
    }

    pub(super) fn ahead(&self, state: &RunState, why: &str) -> Fault {
        Fault::new(
            Kind::StateCorrupted,
            format!(
                "`{}` is at event {}, and `{}` does not bear that out: {why}",
                self.run.dir.path().join(STATE_FILE).display(),
                state.seq,
                self.run.log_path().display(),
            ),
        )
        .hint(format!(
            "one of the two was changed, put back or lost; `orch audit {id}` tells what differs, `orch resume {id} --repair` goes by the log",
            id = self.run.id
        ))
    }
}
