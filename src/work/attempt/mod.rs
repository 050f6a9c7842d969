//! One attempt at a claimed task: the files it writes to, the process, and what came of it.
//!
//! Knows nothing of runs. Touches the artifacts of its own task, and starts its process.

mod answer;
mod collect;
mod fence;
mod folders;
mod masked;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::folders::WorkFolders;
use self::masked::Masked;
use crate::agents::confine::{Fence, Together};
use crate::agents::process::{
    Ending, Execution, Marker, Processes, Runner, SpawnError, Stdin, Wake, Woken,
};
use crate::disk::mailbox::{Attempt, Claim, OUT, PROMPT, RAW, STATE, file_name};
use crate::disk::order::{Point, at};
use crate::disk::safety::Dir;
use crate::run::record::{Record, Status};
use crate::run::verdict::Retry;
use crate::spec::provider::invocation::{Invocation, StdinPlan};
use crate::spec::provider::{OutputKind, Provider, ProviderConfig};
use crate::text::error::{self, Fault, Kind};
use crate::work::commit::{Began, Committer, blank_record, stamp};
use crate::work::job::Job;
use crate::work::outcome::{Finished, Unfinished, Worked};
use crate::work::shared::Shared;

pub(crate) use self::folders::FolderLock;

/// The longest wait between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// What belongs to one worker thread.
pub(crate) struct WorkerState {
    pub wake: Wake,
    /// An unnamed file for stderr that nothing was written to: the next task can have it.
    spare_stderr: Option<Arc<File>>,
}

impl WorkerState {
    pub(crate) fn new(wake: Wake) -> WorkerState {
        WorkerState {
            wake,
            spare_stderr: None,
        }
    }
}

/// Runs attempts: the only part of the work that starts processes.
pub(crate) struct AttemptRunner {
    shared: Arc<Shared>,
    committer: Committer,
    processes: Processes,
    /// Which attempts run side by side, for the fences around them.
    together: Together,
    folders: WorkFolders,
    watcher_id: String,
    /// Whether every answer is kept for the replay provider.
    keeps_answers: bool,
}

/// What a process writes to.
struct AttemptFiles {
    attempt: Attempt,
    stderr: Arc<File>,
    /// What the process writes to in their place, where it may print secrets.
    masked: Option<Masked>,
}

impl AttemptRunner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        processes: Processes,
        watcher_id: String,
        keeps_answers: bool,
    ) -> AttemptRunner {
        AttemptRunner {
            committer: Committer::new(shared.clone()),
            shared,
            processes,
            together: Together::default(),
            folders: WorkFolders::default(),
            watcher_id,
            keeps_answers,
        }
    }

    /// Whether the folder that a job works in is free; if it is, it is the job's while the lock lives.
    pub(crate) fn lock_folder(&self, job: &Job) -> error::Result<FolderLock> {
        self.folders.lock(job)
    }

    /// One task at a time works in a folder, or the steps of one run: the others wait for it, until
    /// orch stops or the claim is taken away.
    pub(crate) fn wait_for_folder(
        &self,
        claim: &Claim,
        job: &Job,
        wake: &Wake,
    ) -> error::Result<Option<FolderLock>> {
        loop {
            match self.folders.lock(job)? {
                FolderLock::Busy => {}
                lock => return Ok(Some(lock)),
            }
            let woken = wake.sleep(Duration::from_millis(100));
            if woken == Woken::Stopped || !claim.is_ours().unwrap_or(true) {
                return Ok(None);
            }
        }
    }

    /// Makes one attempt. `retries` is how often a failure that may pass was tried again.
    pub(crate) fn attempt(
        &self,
        claim: &mut Claim,
        job: &Job,
        attempt: u32,
        retries: u32,
        worker: &mut WorkerState,
    ) -> Worked<Finished> {
        match (&job.setup.provider, &job.invocation) {
            (Provider::Process(config), Some(invocation)) => {
                self.run_process(claim, job, (config, invocation), attempt, retries, worker)
            }
            (Provider::Replay, _) => self.answer(claim, job, attempt, self.replayed(job)),
            _ => self.answer(claim, job, attempt, Ok(job.task.body().to_owned())),
        }
    }

    /// Makes the files, runs the process, and collects what came of it.
    ///
    /// An error means that nothing was run. Once the process has run, whatever goes wrong with the
    /// disk is waited out: it is never run again for that.
    fn run_process(
        &self,
        claim: &mut Claim,
        job: &Job,
        process: (&ProviderConfig, &Invocation),
        attempt: u32,
        retries: u32,
        worker: &mut WorkerState,
    ) -> Worked<Finished> {
        let began = Began::now();
        let (config, invocation) = process;
        let (files, stdin) = self
            .prepare(claim, job, invocation, worker)
            .map_err(|e| not_begun(claim, &e))?;
        let (fence, unfenced) = match self.fence(claim, job, invocation) {
            Ok(fence) => (fence, None),
            Err(fault) => (None, Some(fault)),
        };
        // Who is not confined may have made whatever another finds changed.
        let _present = fence.is_none().then(|| self.together.unconfined());
        let fenced = (invocation, fence.as_ref());
        let ending = match unfenced {
            Some(fault) => Err(fault.into()),
            None => self.spawn(claim, job, fenced, stdin, &files, &worker.wake),
        };
        let mut record = blank_record(claim, attempt, Status::Failed, None);
        stamp(&mut record, began);
        record.provider = job.setup.provider_name.clone();
        record.command = Some(invocation.shown.clone());
        record.cwd = Some(self.cwd(job).display().to_string());
        let ending = match ending {
            Ok(ending) => ending,
            Err(SpawnFault::System(error)) if error.retry_later() => {
                // The attempt did not take place, so there is to be no trace of one.
                let file = file_name(&claim.name, files.attempt.suffix);
                let removed = claim.folders.artifacts.remove(&file);
                removed.map_err(|e| not_begun(claim, &e))?;
                return Err(not_begun(claim, &io::Error::other(error.to_string())));
            }
            Err(fault) => {
                self.shared.catalogue.forget_programs();
                record.error = Some(fault.into());
                job.masker.record(&mut record);
                let finished = self.committer.persist(claim, &worker.wake, |claim| {
                    let mut record = record.clone();
                    let Attempt { suffix, output } = &files.attempt;
                    record.files = vec![self.file_entry(claim, suffix, output)?];
                    let outputs = vec![(*suffix, output.clone())];
                    Ok(Finished {
                        record,
                        outputs,
                        next: None,
                    })
                });
                return finished.ok_or(Unfinished::Abandoned);
            }
        };
        let collected = self.committer.persist(claim, &worker.wake, |claim| {
            self.collect(claim, job, config, ending, &files, record.clone())
        });
        let Some((mut finished, verdict)) = collected else {
            return Err(Unfinished::Abandoned);
        };
        fence::apply_violation(fence.as_ref(), &mut finished.record);
        // What was cancelled may have something in it that was not kept.
        let kept = |(_, output): &(&str, Arc<File>)| Arc::ptr_eq(output, &files.stderr);
        if ending != Ending::Cancelled && !finished.outputs.iter().any(kept) {
            worker.spare_stderr = Some(files.stderr.clone());
        }
        match ending {
            Ending::Stopped => return Err(Unfinished::Stopped(Box::new(finished.record))),
            Ending::Cancelled => return Err(Unfinished::Lost(Box::new(finished))),
            _ => {}
        }
        if let Retry::After(asked) = verdict.retry
            && retries < job.retries
            && !is_violation(&finished.record)
        {
            let after = asked.unwrap_or_else(|| self.backoff(retries));
            return Err(Unfinished::Again {
                record: Box::new(finished.record),
                after: after.min(LONGEST_BACKOFF),
            });
        }
        if self.keeps_answers && finished.record.status.is_success() {
            let kept = self.keep_recording(job, &finished.record, &verdict, &files.attempt);
            if let Err(e) = kept {
                self.shared.reporter.trouble(&Fault::io(
                    "record the answer of",
                    claim.target(),
                    &e,
                ));
            }
        }
        Ok(finished)
    }

    fn prepare(
        &self,
        claim: &Claim,
        job: &Job,
        invocation: &Invocation,
        worker: &mut WorkerState,
    ) -> io::Result<(AttemptFiles, Stdin)> {
        let suffix = match invocation.output {
            OutputKind::Text => OUT,
            OutputKind::Json | OutputKind::Jsonl => RAW,
        };
        let attempt = self.shared.mailbox.begin(claim, suffix)?;
        let mut rest = || -> io::Result<(Arc<File>, Option<Masked>, Stdin)> {
            self.lend_document(claim, job)?;
            let stdin = self.stdin(claim, job, invocation)?;
            at(Point::RunStderr)?;
            let stderr = match worker.spare_stderr.take() {
                Some(spare) => {
                    // It may have been written to and emptied again.
                    (&*spare).rewind()?;
                    spare
                }
                None => Arc::new(claim.folders.artifacts.create_unnamed()?),
            };
            let masked = match job.masker.is_idle() {
                true => None,
                false => {
                    let dir = &claim.folders.artifacts;
                    Some(Masked::new(dir, &job.masker, &attempt.output, &stderr)?)
                }
            };
            at(Point::RunSpawn)?;
            Ok((stderr, masked, stdin))
        };
        match rest() {
            Ok((stderr, masked, stdin)) => {
                let files = AttemptFiles {
                    attempt,
                    stderr,
                    masked,
                };
                Ok((files, stdin))
            }
            Err(e) => {
                // No attempt took place, so there is to be no trace of one.
                for suffix in [STATE, suffix] {
                    let file = file_name(&claim.name, suffix);
                    let _ = claim.folders.artifacts.remove(&file);
                }
                Err(e)
            }
        }
    }

    /// Every attempt gets a copy of the document of its own.
    fn lend_document(&self, claim: &Claim, job: &Job) -> io::Result<()> {
        match &job.document {
            Some(document) => {
                at(Point::RunDocument)?;
                document.write(&claim.folders.artifacts, &claim.name)
            }
            None => Ok(()),
        }
    }

    fn backoff(&self, retries: u32) -> Duration {
        self.shared
            .catalogue
            .limits()
            .backoff
            .0
            .saturating_mul(1 << retries.min(16))
    }

    fn cwd<'a>(&'a self, job: &'a Job) -> &'a Path {
        job.dir
            .as_ref()
            .map_or(&self.shared.mailbox.root.path, |dir| dir.path())
    }

    /// What the provider reads: the task itself where that is all, else a file of its own.
    fn stdin(&self, claim: &Claim, job: &Job, invocation: &Invocation) -> io::Result<Stdin> {
        let by_stdin = invocation.stdin == StdinPlan::Prompt;
        let is_body = invocation.prompt_sent == job.task.body();
        // The claimed file of a step does not hold its prompt.
        let only_here = !job.as_dropped && (by_stdin || !invocation.prompt_sent.is_empty());
        if invocation.wants_prompt_file || !is_body || only_here {
            at(Point::RunPrompt)?;
            let dir = &claim.folders.artifacts;
            let name = file_name(&claim.name, PROMPT);
            let mut file = dir.create_anew(&name)?;
            file.write_all(invocation.prompt_sent.as_bytes())?;
            return Ok(if by_stdin {
                Stdin::File(dir.open(&name)?)
            } else {
                Stdin::Null
            });
        }
        if !by_stdin {
            return Ok(Stdin::Null);
        }
        let mut file = claim.reopen()?;
        let start = job.task.body_offset() as u64;
        if start > 0 {
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Stdin::File(file))
    }

    fn spawn(
        &self,
        claim: &Claim,
        job: &Job,
        fenced: (&Invocation, Option<&Fence<'_>>),
        stdin: Stdin,
        files: &AttemptFiles,
        wake: &Wake,
    ) -> Result<Ending, SpawnFault> {
        let (invocation, fence) = fenced;
        let (program, args) = invocation
            .argv
            .split_first()
            .ok_or_else(|| Fault::new(Kind::InvalidSettings, "the provider's command is empty"))?;
        let program = self.shared.catalogue.program(program, &job.setup.path)?;
        let args: Vec<_> = args.iter().map(Into::into).collect();
        // The watcher itself stands in the root.
        let cwd = job
            .dir
            .as_ref()
            .map_or_else(|| ".".into(), Dir::handle_path);
        let set = invocation
            .set_env
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let own = job.setup.env.iter().chain(&job.secrets).cloned();
        let held = fence.map(Fence::env).unwrap_or_default();
        let env: Vec<_> = own.chain(held).chain(set).collect();
        let (stdout, stderr) = match &files.masked {
            Some(masked) => (&masked.stdout, &masked.stderr),
            None => (&*files.attempt.output, &*files.stderr),
        };
        let execution = Execution {
            program: &program,
            args: &args,
            env: &env,
            cwd: &cwd,
            stdin,
            stdout,
            stderr,
            limits: job.limits,
            markers: Marker {
                watcher: self.watcher_id.clone(),
                task: self.shared.marker(&claim.folders.agent, &claim.name),
            },
            confine: fence.and_then(Fence::launch),
        };
        let mut still_wanted = || claim.is_ours().unwrap_or(true);
        let mut run = || self.processes.run(&execution, wake, &mut still_wanted);
        Ok(match &files.masked {
            Some(masked) => masked.during(run),
            None => run(),
        }?)
    }
}

/// No attempt took place: its files or its process could not be made.
fn not_begun(claim: &Claim, error: &io::Error) -> Unfinished {
    Fault::io("prepare the output of", claim.target(), error).into()
}

/// Why there is no process.
enum SpawnFault {
    Invalid(Fault),
    System(SpawnError),
}

impl From<Fault> for SpawnFault {
    fn from(fault: Fault) -> Self {
        SpawnFault::Invalid(fault)
    }
}

impl From<SpawnError> for SpawnFault {
    fn from(error: SpawnError) -> Self {
        SpawnFault::System(error)
    }
}

impl From<SpawnFault> for Fault {
    fn from(fault: SpawnFault) -> Self {
        match fault {
            SpawnFault::Invalid(fault) => fault,
            SpawnFault::System(error) => error.into(),
        }
    }
}

fn is_violation(record: &Record) -> bool {
    let error = record.error.as_ref();
    error.is_some_and(|fault| fault.kind == Kind::ScopeViolation)
}
