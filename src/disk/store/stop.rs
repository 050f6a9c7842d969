//! The hard stop: a run that cannot be trusted any more has failed, and everybody is told the same.
//!
//! Where the log is sound, that is one more event in it. Where it is not, nothing is added to it, and
//! `state.json` alone says so: the log will be found unsound by whoever reads it next. A state that
//! was not the log's is kept beside it as `state~1.json`.

use std::io;

use super::cache;
use super::draft::Draft;
use super::locked::Locked;
use super::log::{Log, NO_LINE};
use super::replay::follow;
use super::{Course, RunDir, STATE_FILE};
use crate::run::flow;
use crate::run::state::{Event, RunState};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};

/// What could be made of a log.
struct Survey {
    /// The state after the last line, if every line could be followed.
    state: Option<RunState>,
    /// The number and the hash of the last line, if every line names the one before it.
    end: Option<(u64, String)>,
    /// Whether what is kept was what the log adds up to at its event.
    bears_out: bool,
}

impl Locked<'_> {
    /// Ends a run for good with this fault; gives the state as it was before, or nothing where the
    /// run had ended already. Without a workflow (which may be what is wrong) the state is taken as
    /// it is kept.
    ///
    /// # Errors
    /// Where the disk refuses: the run is then not stopped.
    pub fn stop(
        &self,
        workflow: Option<&Workflow>,
        at: &str,
        fault: &Fault,
    ) -> Result<Option<RunState>> {
        self.refuse_unsynced()?;
        drop(self.run.take_known());
        let cached = cache::read(&self.run.dir).ok().flatten();
        let cached = cached.map(|cached| cached.state);
        if cached.as_ref().is_some_and(is_stopped) {
            return Ok(None);
        }
        let mut log = self.run.open_log()?;
        if let Some(log) = &mut log {
            log.cut_torn(self.run.disk)?;
        }
        let survey = match &log {
            Some(log) => {
                // A spec of before that was changed leaves nothing to follow the log by.
                let course = workflow.and_then(|workflow| Course::new(self.run, workflow).ok());
                survey(log, course.as_ref(), cached.as_ref())?
            }
            None => Survey {
                state: None,
                end: None,
                bears_out: false,
            },
        };
        let mut before = survey.state.or(cached).unwrap_or_else(flow::nothing);
        before.run_id.clone_from(&self.run.id);
        if before.status.is_final() {
            return Ok(None);
        }
        let mut state = before.clone();
        if let (Some(log), Some((seq, head))) = (&mut log, survey.end) {
            (state.seq, state.log_head) = (seq, head);
            let event = Event::Stopped {
                fault: fault.clone(),
            };
            let line = Draft::new(&state, at, &event)?.finish(&[])?;
            self.append(log, &line)?;
            (state.seq, state.log_head) = (seq + 1, super::sha256(&line));
        }
        let state = flow::stopped(state, at, fault);
        let path = self.run.dir.path().join(STATE_FILE);
        if !survey.bears_out {
            set_aside(self.run).map_err(|e| Fault::io("set aside", &path, &e))?;
        }
        cache::write(&self.run.dir, &state).map_err(|e| Fault::io("write", &path, &e))?;
        Ok(Some(before))
    }
}

/// Whether a run was ended because it cannot be trusted.
#[must_use]
pub fn is_stopped(state: &RunState) -> bool {
    let kind = state.error.as_ref().map(|fault| fault.kind);
    state.status.is_final() && matches!(kind, Some(Kind::SafetyViolation | Kind::StateCorrupted))
}

/// Follows the log as far as it leads.
fn survey(log: &Log, course: Option<&Course<'_>>, cached: Option<&RunState>) -> Result<Survey> {
    let mut state = course.map(|_| flow::nothing());
    let mut last = (0, NO_LINE.to_owned());
    let mut is_chain = true;
    let mut bears_out = cached.is_none();
    log.each_line(|number, raw| {
        is_chain &= raw.read(number).is_ok_and(|line| line.prev == last.1);
        last = (number, raw.hash());
        if let (Some(course), Some(before)) = (course, state.take()) {
            state = follow(course, before, &raw, log).ok();
            is_chain &= state.is_some();
        }
        bears_out |= cached.is_some() && cached == state.as_ref();
        Ok(())
    })?;
    Ok(Survey {
        state: state.filter(|state| state.seq > 0),
        end: (is_chain && last.0 > 0).then_some(last),
        // Without the workflow nobody can say.
        bears_out: bears_out || course.is_none(),
    })
}

/// Moves `state.json` to `state~1.json`, or to the next number that is free.
fn set_aside(run: &RunDir) -> io::Result<()> {
    for k in 1_u32.. {
        match run
            .dir
            .rename_new(STATE_FILE, &run.dir, &format!("state~{k}.json"))
        {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Ok(())
}
