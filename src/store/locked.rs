//! A run under its lock: the only place where its log and its state change.
//!
//! The event goes to the log first, and has happened when it is there. `state.json` follows, and
//! may be left behind: a failure to write it is told and costs nothing but a longer replay.

use std::thread;
use std::time::{Duration, Instant};

use super::cache::{self, Cached};
use super::log::{Failed, Line, Log, NO_LINE, Note, Raw, corrupted};
use super::{LOCK_FILE, RunDir, STATE_FILE, Tail, snapshots};
use crate::error::{Fault, Kind, Result};
use crate::flow;
use crate::lock;
use crate::safety::Meta;
use crate::state::{Effect, Event, RunState, RunStatus};
use crate::workflow::Workflow;

/// A state up to this size is replaced at every event.
const SMALL_STATE: u64 = 64 * 1024;
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// A run whose lock is held, until this goes out of scope.
#[derive(Debug)]
pub struct Locked<'r> {
    run: &'r RunDir,
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
    /// `state.json` plus what the log has beyond it; before the first event, [`flow::nothing`].
    ///
    /// # Errors
    /// Where log and state contradict each other or themselves (`StateCorrupted`), belong to another
    /// run or workflow, or come from a newer orch.
    pub fn load(&self, workflow: &Workflow) -> Result<RunState> {
        let cached = cache::read(&self.run.dir)?;
        if let Some(cached) = &cached {
            self.check_whose(&cached.state, workflow)?;
        }
        let Some(mut log) = self.run.open_log()? else {
            return match cached {
                None => Ok(flow::nothing()),
                Some(cached) => Err(self.ahead(&cached.state, "there is no log")),
            };
        };
        log.cut_torn(self.run.disk)?;
        let before = cached.as_ref().map_or(0, |cached| cached.bytes);
        let (state, lag) = match cached {
            Some(cached) => self.catch_up(workflow, &log, cached)?,
            None => self.replay(workflow, &log)?,
        };
        let mut tail = Tail {
            file: log.id(),
            len: log.len(),
            seq: state.seq,
            head: state.log_head.clone(),
            lag,
            state_bytes: before,
        };
        if lag > 0 {
            self.keep(&state, &mut tail);
        }
        self.run.set_tail(Some(tail));
        Ok(state)
    }

    /// Applies an event: through [`flow::step`], to the log, and then to `state.json`.
    ///
    /// What is applied is the event as the log will give it back.
    ///
    /// # Errors
    /// Where the event does not fit the state (`Usage`), the state is not the run's latest (`Busy`),
    /// or the log cannot be written. The event has then not happened; only after a failed sync is it
    /// unknown, and nothing more is taken by this [`RunDir`].
    pub fn apply(
        &self,
        workflow: &Workflow,
        state: RunState,
        at: &str,
        event: Event,
    ) -> Result<(RunState, Vec<Effect>)> {
        if self.run.is_unsynced() {
            return Err(Fault::new(
                Kind::IoError,
                format!(
                    "run `{}` takes no more events: its log could not be made durable",
                    self.run.id
                ),
            )
            .hint("see to the disk, then start orch again"));
        }
        let Some(mut log) = self.run.open_log()? else {
            return Err(self.ahead(&state, "there is no log"));
        };
        let mut tail = self.current(&mut log, &state)?;
        let draft = Draft::new(&state, at, &event)?;
        let (mut state, effects) =
            flow::step(workflow, state, at, &draft.event).map_err(|illegal| {
                Fault::new(Kind::Usage, format!("run `{}`: {illegal}", self.run.id))
            })?;
        self.check_whose(&state, workflow)?;
        let line = draft.finish(&effects)?;
        for effect in &effects {
            if let Effect::Lock { name, text } = effect {
                snapshots::write(&self.run.dir, self.run.disk, name, text)?;
            }
        }
        self.append(&mut log, &line)?;
        state.log_head = super::sha256(&line);
        tail.len = log.len();
        tail.seq = state.seq;
        tail.head.clone_from(&state.log_head);
        tail.lag = tail.lag.saturating_add(line.len() as u64);
        self.keep(&state, &mut tail);
        self.run.set_tail(Some(tail));
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
    pub fn rebuild(&self, workflow: &Workflow) -> Result<RunState> {
        // A newer state is refused here as well.
        if let Some(cached) = cache::read(&self.run.dir)? {
            self.check_whose(&cached.state, workflow)?;
        }
        let Some(mut log) = self.run.open_log()? else {
            return Err(self.ahead(&flow::nothing(), "there is no log"));
        };
        log.cut_torn(self.run.disk)?;
        let (state, _) = self.replay(workflow, &log)?;
        cache::write(&self.run.dir, &state)
            .map_err(|e| Fault::io("write", self.run.dir.path().join(STATE_FILE), &e))?;
        self.run.set_tail(None);
        Ok(state)
    }

    /// Holds `state.json` against the whole log, which nobody does who only works on.
    ///
    /// # Errors
    /// `StateCorrupted` where the log is not sound, or adds up to something else.
    pub fn verify(&self, workflow: &Workflow) -> Result<()> {
        let (Some(cached), Some(log)) = (cache::read(&self.run.dir)?, self.run.open_log()?) else {
            return Ok(());
        };
        let mut state = Some(flow::nothing());
        let mut same = false;
        log.each_line(|_, raw| {
            let before = state.take().unwrap_or_else(flow::nothing);
            let after = follow(workflow, before, &raw, &log)?;
            if after.seq == cached.state.seq {
                same =
                    serde_json::to_value(&after).ok() == serde_json::to_value(&cached.state).ok();
            }
            state = Some(after);
            Ok(())
        })?;
        if same {
            return Ok(());
        }
        let (path, id) = (self.run.dir.path().join(STATE_FILE), &self.run.id);
        let message = format!(
            "`{}` is not what the log adds up to at event {}",
            path.display(),
            cached.state.seq
        );
        Err(Fault::new(Kind::StateCorrupted, message).hint(format!(
            "`orch audit {id}` names what differs; `orch resume --repair {id}` makes it anew"
        )))
    }

    /// What the log has beyond a state, walking back from its end; and how many bytes that is.
    fn catch_up(&self, workflow: &Workflow, log: &Log, cached: Cached) -> Result<(RunState, u64)> {
        let mut state = cached.state;
        let (mut later, mut end) = (Vec::new(), log.len());
        let known = loop {
            let Some(raw) = log.line_before(end)? else {
                return Err(self.ahead(&state, "the log does not have that event"));
            };
            if raw.hash() == state.log_head {
                break raw;
            }
            let number =
                number_of(&raw).map_err(|why| self.bad_from_end(log, later.len(), &why))?;
            if number <= state.seq {
                let why = match number == state.seq {
                    true => "that line of the log is another one".to_owned(),
                    false => format!("the log ends before it, or has a gap after line {number}"),
                };
                return Err(self.ahead(&state, &why));
            }
            end = raw.start;
            later.push(raw);
        };
        let number = number_of(&known).map_err(|why| corrupted(log.path(), state.seq, &why))?;
        if number != state.seq {
            return Err(self.ahead(
                &state,
                &format!("the line it ends with has number {number}"),
            ));
        }
        for raw in later.iter().rev() {
            state = follow(workflow, state, raw, log)?;
        }
        Ok((state, log.len() - (known.start + known.bytes.len() as u64)))
    }

    /// The whole log, from nothing.
    fn replay(&self, workflow: &Workflow, log: &Log) -> Result<(RunState, u64)> {
        let mut state = Some(flow::nothing());
        log.each_line(|_, raw| {
            // It is there before and after every line that is followed.
            let before = state.take().unwrap_or_else(flow::nothing);
            state = Some(follow(workflow, before, &raw, log)?);
            Ok(())
        })?;
        let state = state.unwrap_or_else(flow::nothing);
        if state.seq > 0 {
            self.check_whose(&state, workflow)?;
        }
        Ok((state, log.len()))
    }

    fn check_whose(&self, state: &RunState, workflow: &Workflow) -> Result<()> {
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

    /// That this state is what the log ends with, and what is known of that end.
    fn current(&self, log: &mut Log, state: &RunState) -> Result<Tail> {
        let same = |tail: &Tail| tail.file == log.id() && tail.len == log.len();
        let tail = match self.run.tail().filter(same) {
            Some(tail) => tail,
            None => {
                log.cut_torn(self.run.disk)?;
                self.look_at_end(log)?
            }
        };
        if tail.seq == state.seq && (state.seq == 0 || tail.head == state.log_head) {
            return Ok(tail);
        }
        Err(Fault::new(
            Kind::Busy,
            format!(
                "run `{}` has gone on to event {} meanwhile",
                self.run.id, tail.seq
            ),
        )
        .hint("its state has to be loaded again under the lock"))
    }

    fn look_at_end(&self, log: &Log) -> Result<Tail> {
        let last = log.line_before(log.len())?;
        let (seq, head) = match &last {
            None => (0, String::new()),
            Some(raw) => {
                let number = number_of(raw).map_err(|why| self.bad_from_end(log, 0, &why))?;
                (number, raw.hash())
            }
        };
        Ok(Tail {
            file: log.id(),
            len: log.len(),
            seq,
            head,
            // Not known, so that the state is written next time.
            lag: u64::MAX,
            state_bytes: 0,
        })
    }

    fn append(&self, log: &mut Log, line: &[u8]) -> Result<()> {
        log.append(self.run.disk, line).map_err(|failed| {
            self.run.set_tail(None);
            match failed {
                Failed::Undone(fault) => fault,
                Failed::Unsynced(fault) => {
                    self.run
                        .unsynced
                        .store(true, std::sync::atomic::Ordering::Relaxed);
                    fault
                }
            }
        })
    }

    /// Replaces `state.json`, a large one only when the log has grown by as much.
    fn keep(&self, state: &RunState, tail: &mut Tail) {
        let large = tail.state_bytes > SMALL_STATE;
        if large && tail.lag < tail.state_bytes && state.status == RunStatus::Running {
            return;
        }
        match cache::write(&self.run.dir, state) {
            Ok(bytes) => (tail.lag, tail.state_bytes) = (0, bytes),
            Err(error) => tracing::warn!(
                run = self.run.id,
                %error,
                "`{STATE_FILE}` could not be replaced; the log has everything"
            ),
        }
    }

    /// A line that cannot be read, told by its place from the end: only then are lines counted.
    fn bad_from_end(&self, log: &Log, from_end: usize, why: &str) -> Fault {
        let mut lines = 0;
        let counted = log.each_line(|number, _| {
            lines = number;
            Ok(())
        });
        match counted {
            Ok(()) => corrupted(log.path(), lines.saturating_sub(from_end as u64), why),
            Err(fault) => fault,
        }
    }

    fn ahead(&self, state: &RunState, why: &str) -> Fault {
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

/// A line that has been checked to read back, all but its checkpoints.
struct Draft {
    text: String,
    event: Event,
}

impl Draft {
    fn new(state: &RunState, at: &str, event: &Event) -> Result<Draft> {
        let prev = if state.seq == 0 {
            NO_LINE
        } else {
            &state.log_head
        };
        let line = Line {
            seq: state.seq + 1,
            at: at.to_owned(),
            prev: prev.to_owned(),
            event: event.clone(),
            checkpoints: Vec::new(),
        };
        let unfit = |e: serde_json::Error| {
            Fault::new(
                Kind::OutputTooLargeError,
                format!("the event cannot be logged: {e}"),
            )
            .hint("JSON may be nested at most about 120 deep")
        };
        let text = serde_json::to_string(&line).map_err(unfit)?;
        let read: Line = serde_json::from_str(&text).map_err(unfit)?;
        Ok(Draft {
            text,
            event: read.event,
        })
    }

    /// The bytes of the line, newline included.
    fn finish(mut self, effects: &[Effect]) -> Result<Vec<u8>> {
        let note = |effect: &Effect| match effect {
            Effect::Checkpoint(checkpoint) => Some(Note::from(checkpoint)),
            _ => None,
        };
        let notes: Vec<Note> = effects.iter().filter_map(note).collect();
        if !notes.is_empty() {
            let notes = serde_json::to_string(&notes).map_err(|e| {
                Fault::new(Kind::IoError, format!("the event cannot be logged: {e}"))
            })?;
            self.text.pop();
            self.text.push_str(",\"checkpoints\":");
            self.text.push_str(&notes);
            self.text.push('}');
        }
        self.text.push('\n');
        Ok(self.text.into_bytes())
    }
}

/// The state after one more line, which must follow in number, in hash and in sense.
pub(crate) fn follow(
    workflow: &Workflow,
    state: RunState,
    raw: &Raw,
    log: &Log,
) -> Result<RunState> {
    let number = state.seq + 1;
    let bad = |why: String| corrupted(log.path(), number, &why);
    let line = raw.read(number).map_err(bad)?;
    let prev = if state.seq == 0 {
        NO_LINE
    } else {
        &state.log_head
    };
    if line.prev != prev {
        return Err(bad(
            "the chain is broken: it does not name the line before it".to_owned(),
        ));
    }
    let (mut state, _) = flow::step(workflow, state, &line.at, &line.event).map_err(|illegal| {
        bad(format!(
            "it does not follow from what is before it: {illegal}"
        ))
    })?;
    state.log_head = raw.hash();
    Ok(state)
}

fn number_of(raw: &Raw) -> Result<u64, String> {
    #[derive(serde::Deserialize)]
    struct Number {
        seq: u64,
    }
    let number: Number =
        serde_json::from_slice(&raw.bytes).map_err(|e| format!("it cannot be read: {e}"))?;
    Ok(number.seq)
}
