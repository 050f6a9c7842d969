//! Adding up a log: what it says now, and whether `state.json` ever was what it says.
//!
//! A state in memory is gone on from where the log still has what it ended with; otherwise every
//! line from the first is followed.

use std::sync::Arc;

use super::cache::{self, Cached};
use super::known::{Kept, Known, LogEnd};
use super::locked::Locked;
use super::log::{Log, NO_LINE, Raw, corrupted};
use super::{Course, RunDir, STATE_FILE};
use crate::run::flow;
use crate::run::state::RunState;
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};

/// One passage over a log.
struct Walk<'a> {
    course: Course<'a>,
    log: &'a Log,
    /// `state.json`, which must be what came of the line that it names.
    cached: Option<&'a Cached>,
    /// What this process had seen, if it has to be seen again.
    seen: Option<(u64, &'a str)>,
    state: RunState,
    /// Where the line ends that `state.json` is at, once it was come to.
    met: Option<u64>,
}

impl Locked<'_> {
    /// Finds out what the log ends with, and holds `state.json` against it.
    pub(super) fn look(
        &self,
        workflow: &Workflow,
        log: &mut Log,
        known: Option<Known>,
    ) -> Result<Known> {
        let cached = cache::read(&self.run.dir)?;
        if let Some(cached) = &cached {
            self.check_whose(&cached.state, workflow)?;
        }
        log.cut_torn(self.run.disk)?;
        let known = known.filter(|known| !self.run.was_set_aside(known));
        let seen = known
            .as_ref()
            .map(|known| (known.state.seq, known.state.log_head.clone()));
        let least = cached.as_ref().map_or(u64::MAX, |cached| cached.state.seq);
        let base = match known {
            Some(known) if known.state.seq <= least && goes_on_from(log, &known)? => {
                Some((Arc::unwrap_or_clone(known.state), known.log.len))
            }
            _ => None,
        };
        let is_new = base.is_none();
        let (state, offset) = base.unwrap_or_else(|| (flow::nothing(), 0));
        let mut walk = Walk {
            course: Course::new(self.run, workflow)?,
            log,
            cached: cached.as_ref(),
            seen: seen
                .as_ref()
                .filter(|_| is_new)
                .map(|(seq, head)| (*seq, head.as_str())),
            state,
            met: None,
        };
        let (state, met) = self.walk(workflow, &mut walk, offset)?;
        self.run.check_named_spec(&state)?;
        let kept: Option<Kept> = cached.map(|cached| cached.kept);
        let mut known = Known {
            lag: log.len() - met.unwrap_or(0),
            state: Arc::new(state),
            log: LogEnd::of(log),
            kept,
        };
        if known.lag > 0 {
            self.keep(&mut known);
        }
        Ok(known)
    }

    /// Follows every line after the offset; gives the state, and where `state.json` was met.
    fn walk(
        &self,
        workflow: &Workflow,
        walk: &mut Walk<'_>,
        offset: u64,
    ) -> Result<(RunState, Option<u64>)> {
        if walk.state.seq > 0 {
            self.meet(walk, offset)?;
        }
        let log = walk.log;
        log.each_line_after(walk.state.seq, offset, |_, raw| {
            let before = std::mem::replace(&mut walk.state, flow::nothing());
            walk.state = follow(&walk.course, before, &raw, log)?;
            self.meet(walk, raw.start + raw.bytes.len() as u64)
        })?;
        let state = std::mem::replace(&mut walk.state, flow::nothing());
        if state.seq > 0 {
            self.check_whose(&state, workflow)?;
        }
        if let Some((seq, _)) = walk.seen.filter(|(seq, _)| *seq > state.seq) {
            return Err(corrupted(log.path(), seq, "it was there, and is gone"));
        }
        match walk.cached {
            Some(cached) if walk.met.is_none() => {
                let why = match cached.state.seq < state.seq {
                    true => "that line of the log is another one",
                    false => "the log does not have that event",
                };
                Err(self.ahead(&cached.state, why))
            }
            _ => Ok((state, walk.met)),
        }
    }

    /// Holds what is there against the state that a line has led to.
    fn meet(&self, walk: &mut Walk<'_>, end: u64) -> Result<()> {
        let state = &walk.state;
        if let Some((seq, head)) = walk.seen
            && seq == state.seq
            && head != state.log_head
        {
            let why = "it is another one than it was";
            return Err(corrupted(walk.log.path(), seq, why));
        }
        let Some(cached) = walk.cached.filter(|cached| cached.state.seq == state.seq) else {
            return Ok(());
        };
        if cached.state.log_head != state.log_head {
            return Err(self.ahead(&cached.state, "that line of the log is another one"));
        }
        if cached.state != *state {
            return Err(changed(self.run));
        }
        walk.met = Some(end);
        Ok(())
    }

    /// The whole log, from nothing.
    pub(super) fn replay(&self, workflow: &Workflow, log: &Log) -> Result<RunState> {
        let mut walk = Walk {
            course: Course::new(self.run, workflow)?,
            log,
            cached: None,
            seen: None,
            state: flow::nothing(),
            met: None,
        };
        Ok(self.walk(workflow, &mut walk, 0)?.0)
    }
}

/// Whether a log has only grown since: the line that it ended with is still there. Where it did not
/// grow and looks different all the same, all of it has to be read.
fn goes_on_from(log: &Log, known: &Known) -> Result<bool> {
    if known.log == LogEnd::of(log) {
        return Ok(true);
    }
    if known.log.id != log.meta().id || log.len() <= known.log.len {
        return Ok(false);
    }
    let last = log.line_before(known.log.len)?;
    Ok(last.is_some_and(|raw| raw.hash() == known.state.log_head))
}

/// A state that says something else than the log adds up to, at the very same event.
fn changed(run: &RunDir) -> Fault {
    let path = run.dir.path().join(STATE_FILE);
    let message = format!(
        "`{}` was changed, and not by orch: it is not what the log adds up to",
        path.display()
    );
    Fault::new(Kind::SafetyViolation, message).hint(format!(
        "`orch audit {id}` names what differs; `orch set` is how a person corrects a run, `orch reset {id}` starts it over",
        id = run.id
    ))
}

/// The state after one more line, which must follow in number, in hash and in sense.
pub(crate) fn follow(
    course: &Course<'_>,
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
    let workflow = course.at(&state, &line.event)?;
    let (mut state, _) = flow::step(workflow, state, &line.at, &line.event).map_err(|illegal| {
        bad(format!(
            "it does not follow from what is before it: {illegal}"
        ))
    })?;
    state.log_head = raw.hash();
    Ok(state)
}
