//! A run that goes on with another spec than it began with.
//!
//! The new one is written to `spec.next/`; the event in the log adopts it; then `spec/` becomes
//! `spec~1/`, or the next number that is free, and `spec.next/` becomes `spec/`. Where a crash leaves
//! a `spec.next/`, the log says whether it was adopted, and whoever reads the spec next completes
//! the moves or removes it.

use std::io;
use std::sync::Arc;

use super::locked::Locked;
use super::log::Line;
use super::spec::{self, FOLDER};
use super::{RunDir, Spec, course};
use crate::disk::order::{Point, at};
use crate::run::flow;
use crate::run::state::{Event, RunState};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result};

/// The folder of a spec that is not adopted yet.
const NEXT: &str = "spec.next";

/// The folder of the spec that a run had before its k-th update.
fn past(k: u32) -> String {
    format!("{FOLDER}~{k}")
}

fn adopting(spec: &Spec) -> Event {
    Event::SpecUpdated {
        workflow_sha256: spec.workflow_sha256(),
        spec_sha256: spec.sha256(),
    }
}

impl RunDir {
    /// Whether this run has gone on to another spec since it was opened here: it is to be opened anew.
    ///
    /// # Errors
    /// Where the folder cannot be looked at.
    pub fn is_outdated(&self) -> Result<bool> {
        if self.has_next_spec()? {
            return Ok(true);
        }
        let Some(own) = self.sealed_folder() else {
            return Ok(false);
        };
        let failed = |e: io::Error| Fault::io("look at", self.dir.path(), &e);
        if self.dir.find(FOLDER).map_err(failed)?.map(|meta| meta.id) == Some(own) {
            return Ok(false);
        }
        for folder in self.past_specs()? {
            if self.dir.find(&folder).map_err(failed)?.map(|meta| meta.id) == Some(own) {
                return Ok(true);
            }
        }
        // Moved by nobody of ours: whoever compares it finds out.
        Ok(false)
    }

    fn sealed_folder(&self) -> Option<crate::disk::safety::FileId> {
        let sealed = self
            .sealed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        sealed.first().and_then(spec::Seals::folder_id)
    }

    pub(super) fn has_next_spec(&self) -> Result<bool> {
        let next = self.dir.has(NEXT);
        next.map_err(|e| Fault::io("look at", self.dir.path().join(NEXT), &e))
    }

    /// The folders of the specs that the run had before, in order.
    pub(crate) fn past_specs(&self) -> Result<Vec<String>> {
        let mut folders = Vec::new();
        for folder in (1..).map(past) {
            match self.dir.has(&folder) {
                Ok(true) => folders.push(folder),
                Ok(false) => break,
                Err(e) => return Err(Fault::io("look at", self.dir.path().join(folder), &e)),
            }
        }
        Ok(folders)
    }

    fn move_specs(&self) -> io::Result<()> {
        if self.dir.has(FOLDER)? {
            for folder in (1..).map(past) {
                at(Point::RunSpecAside)?;
                match self.dir.rename_new(FOLDER, &self.dir, &folder) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(e),
                    Ok(()) => break,
                }
            }
        }
        at(Point::RunSpecRename)?;
        self.dir.rename_new(NEXT, &self.dir, FOLDER)?;
        self.disk.sync_dir(Point::RunSpecSyncFolder, &self.dir)
    }
}

impl Locked<'_> {
    /// Whether the run could go on with this spec: nothing is written.
    ///
    /// # Errors
    /// `Usage` where it stands at something that the new workflow does not have.
    pub fn would_update(&self, workflow: &Workflow, spec: &Spec, state: &RunState) -> Result<()> {
        let tried = flow::step(workflow, state.clone(), "", &adopting(spec));
        let refused = |why| {
            let message = format!(
                "run `{}` cannot go on with the new spec: {why}",
                self.run.id
            );
            let hint =
                "keep what the run stands at until it is past it, or start another with `orch run`";
            Fault::new(Kind::Usage, message).hint(hint)
        };
        tried.map(drop).map_err(refused)
    }

    /// Adopts a new spec, whose workflow this is; the state is the one that [`Locked::load`] gave.
    ///
    /// # Errors
    /// As [`Locked::apply`]; what was begun is completed or cleared by the next who reads the spec.
    pub fn update_spec(
        &self,
        workflow: &Workflow,
        spec: &Spec,
        state: Arc<RunState>,
        now: &str,
    ) -> Result<Arc<RunState>> {
        let failed = |e: io::Error| Fault::io("adopt the spec in", self.run.dir.path(), &e);
        spec.write(&self.run.dir, NEXT, self.run.disk)?;
        let synced = self.run.disk.sync_dir(Point::RunSpecSync, &self.run.dir);
        synced.map_err(failed)?;
        let (state, _) = self.apply(workflow, state, now, adopting(spec))?;
        self.run.move_specs().map_err(failed)?;
        self.run.read_spec()?;
        Ok(state)
    }

    /// Completes an update that the log knows of, and clears one that it does not.
    pub(super) fn settle_spec(&self) -> Result<()> {
        let run = self.run;
        if !run.has_next_spec()? {
            return Ok(());
        }
        let failed = |e: io::Error| Fault::io("complete the update of", run.dir.path(), &e);
        let named = self.named_spec()?;
        let is_named = |folder| spec::hash_of(&run.dir, folder).ok() == named;
        if is_named(NEXT) && !is_named(FOLDER) {
            run.move_specs().map_err(failed)
        } else if named.is_none() || is_named(FOLDER) {
            spec::remove(&run.dir, NEXT).map_err(failed)
        } else {
            let why = "is not the spec that the log names";
            Err(spec::changed(&run.dir, NEXT, why))
        }
    }

    /// The hash of the spec that the log ends with.
    fn named_spec(&self) -> Result<Option<String>> {
        let Some(mut log) = self.run.open_log()? else {
            return Ok(None);
        };
        log.cut_torn(self.run.disk)?;
        let mut named = None;
        log.each_line(|_, raw| {
            // What is wrong with a line is told by who follows it.
            if let Ok(Line { event, .. }) = serde_json::from_slice(&raw.bytes) {
                named = course::adopted(&event).map(str::to_owned).or(named.take());
            }
            Ok(())
        })?;
        Ok(named)
    }

    /// Refuses who goes by a spec that the run does not have any more.
    pub(super) fn refuse_outdated(&self) -> Result<()> {
        if !self.run.is_outdated()? {
            return Ok(());
        }
        let id = &self.run.id;
        let message = format!("run `{id}` has gone on to another spec meanwhile");
        Err(Fault::new(Kind::Busy, message).hint("try again"))
    }
}
