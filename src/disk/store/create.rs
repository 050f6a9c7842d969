//! A new run's folder, lock, spec and empty log, in an order that a second try can complete.
//!
//! A run has begun when its log has a line. Until then everything here may be done again; after
//! that it is refused, and nothing is touched.

use std::io;

use super::{LOCK_FILE, PATIENCE, RunDir, Runs, STATE_FILE, Spec, check_id, spec};
use crate::disk::order::{Point, at};
use crate::disk::safety::Dir;
use crate::text::error::{Fault, Kind, Result};

impl Runs {
    /// Makes the folder of a run that has not begun, or completes one that a crash left half made.
    ///
    /// # Errors
    /// Where the run has begun already, or the disk refuses.
    pub fn create(&self, run_id: &str, spec: &Spec) -> Result<RunDir> {
        check_id(run_id)?;
        let workspace = self.workspace()?;
        let path = workspace.path().join(run_id);
        let dir = make_locked(&workspace, run_id).map_err(|e| Fault::io("make", &path, &e))?;
        let run = self.run_dir(run_id, dir);
        let locked = run.lock(PATIENCE)?;
        if has_begun(&run)? {
            return Err(
                Fault::new(Kind::Usage, format!("run `{run_id}` exists already"))
                    .hint(format!("`orch status {run_id}` shows it")),
            );
        }
        spec.write(&run.dir, spec::FOLDER, self.disk)?;
        self.make_rest(&run, &workspace)
            .map_err(|e| Fault::io("make", &path, &e))?;
        drop(locked);
        Ok(run)
    }

    fn make_rest(&self, run: &RunDir, workspace: &Dir) -> io::Result<()> {
        run.dir.make("snapshots")?;
        run.dir.make("files")?;
        at(Point::RunLogMake)?;
        existing_is_fine(self.root.logs.create_new(&run.log_name()).map(drop))?;
        for dir in [&run.dir, workspace, &self.root.logs] {
            self.disk.sync_dir(Point::RunMakeSync, dir)?;
        }
        Ok(())
    }
}

fn make_locked(workspace: &Dir, run_id: &str) -> io::Result<Dir> {
    at(Point::RunMake)?;
    let dir = workspace.make(run_id)?;
    at(Point::RunLock)?;
    existing_is_fine(dir.create_new(LOCK_FILE).map(drop))?;
    Ok(dir)
}

fn existing_is_fine(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Whether the log has a whole line, or there is a state: under the lock.
fn has_begun(run: &RunDir) -> Result<bool> {
    if run
        .dir
        .has(STATE_FILE)
        .map_err(|e| Fault::io("look at", run.dir.path(), &e))?
    {
        return Ok(true);
    }
    match run.open_log()? {
        Some(mut log) => {
            log.cut_torn(run.disk)?;
            Ok(log.len() > 0)
        }
        None => Ok(false),
    }
}
