//! One attempt at a claimed task: the files it writes to, the process, and what came of it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::Engine;
use super::fence;
use super::masked::Masked;
use super::worker::Finished;
use crate::agents::confine::Fence;
use crate::agents::process::{Ending, Execution, Marker, Runner, SpawnError, Stdin, Wake};
use crate::disk::mailbox::{Attempt, Claim, OUT, PROMPT, RAW, STATE, file_name};
use crate::disk::order::{Point, at};
use crate::disk::safety::Dir;
use crate::run::record::{Record, Status};
use crate::run::state::Changes;
use crate::run::verdict::Retry;
use crate::spec::provider::invocation::{Invocation, StdinPlan};
use crate::spec::provider::{OutputKind, Provider, ProviderConfig};
use crate::text::error::{Fault, Kind};
use crate::work::job::Job;

/// The longest wait between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// What belongs to one worker.
pub(super) struct Desk {
    pub wake: Wake,
    /// An unnamed file for stderr that nothing was written to: the next task can have it.
    spare_stderr: Option<Arc<File>>,
}

/// How an attempt went.
pub(super) enum Tried {
    /// It has a result.
    Finished(Box<Finished>),
    /// It failed in a way that passes.
    Again {
        record: Box<Record>,
        after: Duration,
    },
    /// Orch stops.
    Stopped(Box<Record>),
    /// Its claim was taken away.
    Cancelled(Box<Finished>),
    /// Orch stops, and what came of it cannot be written down.
    Abandoned,
}

impl From<Option<Finished>> for Tried {
    fn from(finished: Option<Finished>) -> Tried {
        finished.map_or(Tried::Abandoned, |finished| {
            Tried::Finished(Box::new(finished))
        })
    }
}

/// What a process writes to.
pub(super) struct Files {
    pub(super) attempt: Attempt,
    pub(super) stderr: Arc<File>,
    /// What the process writes to in their place, where it may print secrets.
    pub(super) masked: Option<Masked>,
}

/// When something began, by both clocks: the wall's for people, the monotonic one for lengths.
#[derive(Clone, Copy)]
pub(super) struct Began {
    wall: Timestamp,
    clock: Instant,
}

impl Began {
    pub(super) fn now() -> Began {
        Began {
            wall: Timestamp::now(),
            clock: Instant::now(),
        }
    }
}

impl Desk {
    pub(super) fn new(wake: Wake) -> Desk {
        Desk {
            wake,
            spare_stderr: None,
        }
    }
}

impl Engine {
    pub(super) fn attempt(
        &self,
        claim: &mut Claim,
        plan: &Job,
        attempt: u32,
        retries: u32,
        desk: &mut Desk,
    ) -> io::Result<Tried> {
        match (&plan.setup.provider, &plan.invocation) {
            (Provider::Process(config), Some(invocation)) => {
                self.run_process(claim, plan, (config, invocation), attempt, retries, desk)
            }
            (Provider::Replay, _) => self.answer(claim, plan, attempt, self.replayed(plan)),
            _ => self.answer(claim, plan, attempt, Ok(plan.task.body().to_owned())),
        }
    }

    /// Makes the files, runs the process, and collects what came of it.
    ///
    /// An error means that nothing was run. Once the process has run, whatever goes wrong with the
    /// disk is waited out: it is never run again for that.
    fn run_process(
        &self,
        claim: &mut Claim,
        plan: &Job,
        process: (&ProviderConfig, &Invocation),
        attempt: u32,
        retries: u32,
        desk: &mut Desk,
    ) -> io::Result<Tried> {
        let began = Began::now();
        let (config, invocation) = process;
        let (files, stdin) = self.prepare(claim, plan, invocation, desk)?;
        let (fence, unfenced) = match self.fence(claim, plan, invocation) {
            Ok(fence) => (fence, None),
            Err(fault) => (None, Some(fault)),
        };
        // Who is not confined may have made whatever another finds changed.
        let _present = fence.is_none().then(|| self.together.unconfined());
        let fenced = (invocation, fence.as_ref());
        let ending = match unfenced {
            Some(fault) => Err(fault.into()),
            None => self.spawn(claim, plan, fenced, stdin, &files, &desk.wake),
        };
        let mut record = self.blank_record(claim, attempt, Status::Failed, None);
        stamp(&mut record, began);
        record.provider = plan.setup.provider_name.clone();
        record.command = Some(invocation.shown.clone());
        record.cwd = Some(self.cwd(plan).display().to_string());
        let ending = match ending {
            Ok(ending) => ending,
            Err(SpawnFault::System(error)) if error.retry_later() => {
                // The attempt did not take place, so there is to be no trace of one.
                claim
                    .folders
                    .artifacts
                    .remove(&file_name(&claim.name, files.attempt.suffix))?;
                return Err(io::Error::other(error.to_string()));
            }
            Err(fault) => {
                self.catalogue.forget_programs();
                record.error = Some(fault.into());
                plan.masker.record(&mut record);
                let finished = self.persist(claim, desk, |claim| {
                    let mut record = record.clone();
                    let Attempt { suffix, output } = &files.attempt;
                    record.files = vec![self.file_entry(claim, suffix, output)?];
                    let outputs = vec![(*suffix, output.clone())];
                    Ok(Finished {
                        record,
                        outputs,
                        next: None,
                        changes: Changes::default(),
                        brought_up_after: None,
                    })
                });
                return Ok(Tried::from(finished));
            }
        };
        let collected = self.persist(claim, desk, |claim| {
            self.collect(claim, plan, config, ending, &files, record.clone())
        });
        let Some((mut finished, verdict)) = collected else {
            return Ok(Tried::Abandoned);
        };
        fence::judge(fence.as_ref(), &mut finished.record);
        // What was cancelled may have something in it that was not kept.
        let kept = |(_, output): &(&str, Arc<File>)| Arc::ptr_eq(output, &files.stderr);
        if ending != Ending::Cancelled && !finished.outputs.iter().any(kept) {
            desk.spare_stderr = Some(files.stderr.clone());
        }
        match ending {
            Ending::Stopped => return Ok(Tried::Stopped(Box::new(finished.record))),
            Ending::Cancelled => return Ok(Tried::Cancelled(Box::new(finished))),
            _ => {}
        }
        if let Retry::After(asked) = verdict.retry
            && retries < plan.retries
            && !is_violation(&finished.record)
        {
            let after = asked.unwrap_or_else(|| self.backoff(retries));
            return Ok(Tried::Again {
                record: Box::new(finished.record),
                after: after.min(LONGEST_BACKOFF),
            });
        }
        if self.options.record && finished.record.status.is_success() {
            let kept = self.keep_recording(plan, &finished.record, &verdict, &files.attempt);
            if let Err(e) = kept {
                self.trouble(&Fault::io("record the answer of", claim.target(), &e));
            }
        }
        Ok(Tried::Finished(Box::new(finished)))
    }

    fn prepare(
        &self,
        claim: &Claim,
        plan: &Job,
        invocation: &Invocation,
        desk: &mut Desk,
    ) -> io::Result<(Files, Stdin)> {
        let suffix = match invocation.output {
            OutputKind::Text => OUT,
            OutputKind::Json | OutputKind::Jsonl => RAW,
        };
        let attempt = self.mailbox.begin(claim, suffix)?;
        let mut rest = || -> io::Result<(Arc<File>, Option<Masked>, Stdin)> {
            self.lend_document(claim, plan)?;
            let stdin = self.stdin(claim, plan, invocation)?;
            at(Point::RunStderr)?;
            let stderr = match desk.spare_stderr.take() {
                Some(spare) => {
                    // It may have been written to and emptied again.
                    (&*spare).rewind()?;
                    spare
                }
                None => Arc::new(claim.folders.artifacts.create_unnamed()?),
            };
            let masked = match plan.masker.is_idle() {
                true => None,
                false => {
                    let dir = &claim.folders.artifacts;
                    Some(Masked::new(dir, &plan.masker, &attempt.output, &stderr)?)
                }
            };
            at(Point::RunSpawn)?;
            Ok((stderr, masked, stdin))
        };
        match rest() {
            Ok((stderr, masked, stdin)) => {
                let files = Files {
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
    pub(super) fn lend_document(&self, claim: &Claim, plan: &Job) -> io::Result<()> {
        match &plan.document {
            Some(document) => {
                at(Point::RunDocument)?;
                document.write(&claim.folders.artifacts, &claim.name)
            }
            None => Ok(()),
        }
    }

    fn backoff(&self, retries: u32) -> Duration {
        self.catalogue
            .limits()
            .backoff
            .0
            .saturating_mul(1 << retries.min(16))
    }

    pub(super) fn cwd<'a>(&'a self, plan: &'a Job) -> &'a Path {
        plan.dir
            .as_ref()
            .map_or(&self.mailbox.root.path, |dir| dir.path())
    }

    /// What the provider reads: the task itself where that is all, else a file of its own.
    fn stdin(&self, claim: &Claim, plan: &Job, invocation: &Invocation) -> io::Result<Stdin> {
        let by_stdin = invocation.stdin == StdinPlan::Prompt;
        let is_body = invocation.prompt_sent == plan.task.body();
        // The claimed file of a step does not hold its prompt.
        let only_here = !plan.as_dropped && (by_stdin || !invocation.prompt_sent.is_empty());
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
        let start = plan.task.body_offset() as u64;
        if start > 0 {
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Stdin::File(file))
    }

    fn spawn(
        &self,
        claim: &Claim,
        plan: &Job,
        fenced: (&Invocation, Option<&Fence<'_>>),
        stdin: Stdin,
        files: &Files,
        wake: &Wake,
    ) -> Result<Ending, SpawnFault> {
        let (invocation, fence) = fenced;
        let (program, args) = invocation
            .argv
            .split_first()
            .ok_or_else(|| Fault::new(Kind::InvalidSettings, "the provider's command is empty"))?;
        let program = self.catalogue.program(program, &plan.setup.path)?;
        let args: Vec<_> = args.iter().map(Into::into).collect();
        // The watcher itself stands in the root.
        let cwd = plan
            .dir
            .as_ref()
            .map_or_else(|| ".".into(), Dir::handle_path);
        let set = invocation
            .set_env
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let own = plan.setup.env.iter().chain(&plan.secrets).cloned();
        let held = fence.map(Fence::env).unwrap_or_default();
        let env: Vec<_> = own.chain(held).chain(set).collect();
        let (stdout, stderr) = match &files.masked {
            Some(masked) => (&masked.stdout, &masked.stderr),
            None => (&*files.attempt.output, &*files.stderr),
        };
        let job = Execution {
            program: &program,
            args: &args,
            env: &env,
            cwd: &cwd,
            stdin,
            stdout,
            stderr,
            limits: plan.limits,
            markers: Marker {
                watcher: self.watcher_id.clone(),
                task: self.marker(&claim.folders.agent, &claim.name),
            },
            confine: fence.and_then(Fence::launch),
        };
        let mut still_wanted = || claim.is_ours().unwrap_or(true);
        let mut run = || self.processes.run(&job, wake, &mut still_wanted);
        Ok(match &files.masked {
            Some(masked) => masked.during(run),
            None => run(),
        }?)
    }

    pub(super) fn blank_record(
        &self,
        claim: &Claim,
        attempt: u32,
        status: Status,
        error: Option<Fault>,
    ) -> Record {
        let mut record = Record::new(
            claim.folders.agent.as_str(),
            claim.name.as_str(),
            attempt,
            status,
        );
        record.error = error;
        stamp(&mut record, Began::now());
        record
    }
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

pub(super) fn stamp(record: &mut Record, began: Began) {
    let duration = began.clock.elapsed();
    record.start_time = show_time(began.wall);
    // The end is reckoned from the start by the monotonic clock: a clock that jumps does not make
    // a task end before it began.
    record.end_time = show_time(began.wall.saturating_add(duration).unwrap_or(began.wall));
    record.duration = (duration.as_secs_f64() * 1000.0).round() / 1000.0;
}

fn show_time(time: Timestamp) -> String {
    format!("{time:.3}")
}
