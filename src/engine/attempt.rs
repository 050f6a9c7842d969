//! One attempt at a claimed task: the files it writes to, the process, and what came of it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::Engine;
use super::plan::Plan;
use super::queue::Item;
use super::worker::Finished;
use crate::disk::{Point, at};
use crate::error::{Fault, Kind};
use crate::mailbox::{Answer, Attempt, Claim, ERR, Held, Next, OUT, PROMPT, RAW, file_name};
use crate::process::{Ending, Job, Marker, Runner, SpawnError, Stdin, Wake};
use crate::provider::invocation::{Invocation, StdinPlan};
use crate::provider::verdict::{Exit, Observed, Retry, Verdict, judge, signal_name};
use crate::provider::{OutputKind, Provider, ProviderConfig};
use crate::record::{EXCERPT_BYTES, FileEntry, Record, Status, excerpt};
use crate::recording::{self, Question, Recording};

/// Providers whose answer has to be read whole are read up to here.
const MOST_PARSED: u64 = 64 << 20;
/// Of stderr only the end is looked at.
const STDERR_TAIL: u64 = 64 << 10;
/// The longest wait between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// What belongs to one worker.
pub(super) struct Desk {
    pub wake: Wake,
    /// An unnamed file for stderr that nothing was written to: the next task can have it.
    spare_stderr: Option<File>,
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
    Cancelled(Box<Record>),
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
struct Files {
    attempt: Attempt,
    stderr: File,
}

/// When something began, by both clocks: the wall's for people, the monotonic one for lengths.
#[derive(Clone, Copy)]
struct Began {
    wall: Timestamp,
    clock: Instant,
}

impl Began {
    fn now() -> Began {
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
        claim: &Claim,
        plan: &Plan,
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

    /// An answer that needs no process.
    fn answer(
        &self,
        claim: &Claim,
        plan: &Plan,
        attempt: u32,
        answer: Result<String, Fault>,
    ) -> io::Result<Tried> {
        let began = Began::now();
        let mut output = self.mailbox.begin(claim, OUT)?.output;
        let (text, error) = match answer {
            Ok(text) => (text, None),
            Err(fault) => (String::new(), Some(fault)),
        };
        if let Err(e) = output.write_all(text.as_bytes()) {
            let _ = claim.folders.artifacts.remove(&file_name(&claim.name, OUT));
            return Err(e);
        }
        let status = if error.is_none() {
            Status::Succeeded
        } else {
            Status::Failed
        };
        let mut record = self.blank_record(claim, attempt, status, error);
        record.provider = plan.setup.provider_name.clone();
        (record.output, record.truncated) = excerpt(text.as_bytes());
        if status.is_success() {
            record.exit_code = Some(0);
        }
        record.files = vec![self.file_entry(claim, OUT, &output)?];
        stamp(&mut record, began);
        let next = self.next(claim, plan, &mut record, || Ok(text.clone()))?;
        Ok(Tried::Finished(Box::new(Finished {
            record,
            outputs: vec![output],
            next,
        })))
    }

    /// The recorded answer: `params: {of: PROVIDER}` says whose, else anybody's will do.
    fn replayed(&self, plan: &Plan) -> Result<String, Fault> {
        let (header, agent) = (&plan.task.header, &plan.setup.agent);
        let question = Question {
            provider: agent.params.get("of").and_then(|of| of.as_str()),
            model: header.model.as_deref().or(agent.model.as_deref()),
            system: agent.system.trim(),
            prompt: plan.task.body(),
        };
        recording::replay(&self.mailbox.root.artifacts, &question)
    }

    /// Makes the files, runs the process, and collects what came of it.
    ///
    /// An error means that nothing was run. Once the process has run, whatever goes wrong with the
    /// disk is waited out: it is never run again for that.
    fn run_process(
        &self,
        claim: &Claim,
        plan: &Plan,
        process: (&ProviderConfig, &Invocation),
        attempt: u32,
        retries: u32,
        desk: &mut Desk,
    ) -> io::Result<Tried> {
        let began = Began::now();
        let (config, invocation) = process;
        let (files, stdin) = self.prepare(claim, plan, invocation, desk)?;
        let ending = self.spawn(claim, plan, invocation, stdin, &files, &desk.wake);
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
                self.registry.forget_programs();
                record.error = Some(fault.into());
                let finished = self.persist(claim, desk, || {
                    let mut record = record.clone();
                    record.files = vec![self.file_entry(
                        claim,
                        files.attempt.suffix,
                        &files.attempt.output,
                    )?];
                    let outputs = vec![files.attempt.output.try_clone()?];
                    Ok(Finished {
                        record,
                        outputs,
                        next: None,
                    })
                });
                return Ok(Tried::from(finished));
            }
        };
        let collected = self.persist(claim, desk, || {
            self.collect(claim, plan, config, ending, &files, record.clone())
        });
        if files.stderr.metadata().is_ok_and(|meta| meta.len() == 0) {
            desk.spare_stderr = Some(files.stderr);
        }
        let Some((finished, verdict)) = collected else {
            return Ok(Tried::Abandoned);
        };
        match ending {
            Ending::Stopped => return Ok(Tried::Stopped(Box::new(finished.record))),
            Ending::Cancelled => return Ok(Tried::Cancelled(Box::new(finished.record))),
            _ => {}
        }
        if let Retry::After(asked) = verdict.retry
            && retries < plan.retries
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
        plan: &Plan,
        invocation: &Invocation,
        desk: &mut Desk,
    ) -> io::Result<(Files, Stdin)> {
        let suffix = match invocation.output {
            OutputKind::Text => OUT,
            OutputKind::Json | OutputKind::Jsonl => RAW,
        };
        let attempt = self.mailbox.begin(claim, suffix)?;
        let mut rest = || -> io::Result<(File, Stdin)> {
            let stdin = self.stdin(claim, plan, invocation)?;
            at(Point::RunStderr)?;
            let stderr = match desk.spare_stderr.take() {
                Some(spare) => spare,
                None => claim.folders.artifacts.create_unnamed()?,
            };
            at(Point::RunSpawn)?;
            Ok((stderr, stdin))
        };
        match rest() {
            Ok((stderr, stdin)) => Ok((Files { attempt, stderr }, stdin)),
            Err(e) => {
                // No attempt took place, so there is to be no trace of one.
                let _ = claim
                    .folders
                    .artifacts
                    .remove(&file_name(&claim.name, suffix));
                Err(e)
            }
        }
    }

    /// What came of a process that has ended. Can be repeated.
    fn collect(
        &self,
        claim: &Claim,
        plan: &Plan,
        config: &ProviderConfig,
        ending: Ending,
        files: &Files,
        mut record: Record,
    ) -> io::Result<(Finished, Verdict)> {
        at(Point::RunEnded)?;
        let Files { attempt, stderr } = files;
        if let Ending::OutputTooLarge { limit } = ending {
            // What it printed beyond the limit before it was ended is nobody's.
            attempt
                .output
                .set_len(limit.min(attempt.output.metadata()?.len()))?;
        }
        let verdict = self.judge(plan, config, ending, files)?;
        fill(&mut record, ending, &verdict, attempt)?;
        let mut outputs = vec![attempt.output.try_clone()?];
        record.files = vec![self.file_entry(claim, attempt.suffix, &attempt.output)?];
        if let Some(text) = verdict.text.as_ref().filter(|_| attempt.suffix == RAW) {
            let answer = self.write_answer(claim, text)?;
            record
                .files
                .insert(0, self.file_entry(claim, OUT, &answer)?);
            outputs.push(answer);
        }
        if stderr.metadata()?.len() > 0 {
            name_stderr(claim, stderr)?;
            record.files.push(self.file_entry(claim, ERR, stderr)?);
            outputs.push(stderr.try_clone()?);
        }
        let next = self.next(claim, plan, &mut record, || match &verdict.text {
            Some(text) => Ok(text.clone()),
            None => read_text(&attempt.output),
        })?;
        let finished = Finished {
            record,
            outputs,
            next,
        };
        Ok((finished, verdict))
    }

    fn keep_recording(
        &self,
        plan: &Plan,
        record: &Record,
        verdict: &Verdict,
        files: &Attempt,
    ) -> io::Result<()> {
        let answer = match &verdict.text {
            Some(text) => text.clone(),
            None => read_text(&files.output)?,
        };
        let (header, agent) = (&plan.task.header, &plan.setup.agent);
        let recording = Recording {
            provider: record.provider.clone(),
            model: header.model.as_ref().or(agent.model.as_ref()).cloned(),
            system: agent.system.trim().to_owned(),
            prompt: plan.task.body().to_owned(),
            answer,
        };
        recording::keep(&self.mailbox.root.artifacts, &recording)
    }

    fn backoff(&self, retries: u32) -> Duration {
        self.registry
            .limits()
            .backoff
            .0
            .saturating_mul(1 << retries.min(16))
    }

    fn cwd<'a>(&'a self, plan: &'a Plan) -> &'a Path {
        plan.dir
            .as_ref()
            .map_or(&self.mailbox.root.path, |dir| dir.path())
    }

    /// What the provider reads: the task itself where that is all, else a file of its own.
    fn stdin(&self, claim: &Claim, plan: &Plan, invocation: &Invocation) -> io::Result<Stdin> {
        let by_stdin = invocation.stdin == StdinPlan::Prompt;
        let is_body = invocation.prompt_sent == plan.task.body();
        if invocation.wants_prompt_file || !is_body {
            at(Point::RunPrompt)?;
            let dir = &claim.folders.artifacts;
            let name = file_name(&claim.name, PROMPT);
            let mut file = match dir.create_new(&name) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    dir.remove(&name)?;
                    dir.create_new(&name)?
                }
                other => other?,
            };
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
        file.seek(SeekFrom::Start(plan.task.body_offset() as u64))?;
        Ok(Stdin::File(file))
    }

    fn spawn(
        &self,
        claim: &Claim,
        plan: &Plan,
        invocation: &Invocation,
        stdin: Stdin,
        files: &Files,
        wake: &Wake,
    ) -> Result<Ending, SpawnFault> {
        let (program, args) = invocation
            .argv
            .split_first()
            .ok_or_else(|| Fault::new(Kind::InvalidSettings, "the provider's command is empty"))?;
        let program = self.registry.program(program, &plan.setup.path)?;
        let args: Vec<_> = args.iter().map(Into::into).collect();
        let dir = plan.dir.as_ref().unwrap_or(&self.mailbox.root.dir);
        let set = invocation
            .set_env
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let env: Vec<_> = plan.setup.env.iter().cloned().chain(set).collect();
        let job = Job {
            program: &program,
            args: &args,
            env: &env,
            cwd: &dir.handle_path(),
            stdin,
            stdout: &files.attempt.output,
            stderr: &files.stderr,
            limits: plan.limits,
            markers: Marker {
                watcher: self.watcher_id.clone(),
                task: self.marker(&claim.folders.agent, &claim.name),
            },
        };
        let mut still_wanted = || claim.is_ours().unwrap_or(true);
        Ok(self.processes.run(&job, wake, &mut still_wanted)?)
    }

    fn judge(
        &self,
        plan: &Plan,
        config: &ProviderConfig,
        ending: Ending,
        files: &Files,
    ) -> io::Result<Verdict> {
        let exit = match ending {
            Ending::Exited(code) => Exit::Code(code),
            Ending::Signalled(signal) => Exit::Signal(signal),
            Ending::TimedOut { idle, after } => Exit::TimedOut { idle, after },
            Ending::OutputTooLarge { limit } => Exit::OutputTooLarge { limit },
            // Neither is judged: the record says what we did.
            Ending::Stopped | Ending::Cancelled => Exit::Signal(15),
        };
        let stdout = if config.reads_output(exit) {
            read_up_to(&files.attempt.output, MOST_PARSED)?
        } else {
            Vec::new()
        };
        let seen = Observed {
            exit,
            stdout: &stdout,
            stderr: &read_tail(&files.stderr, STDERR_TAIL)?,
        };
        Ok(judge(&plan.setup.provider_name, config, &seen))
    }

    fn write_answer(&self, claim: &Claim, text: &str) -> io::Result<File> {
        at(Point::CommitAnswer)?;
        let dir = &claim.folders.artifacts;
        let name = file_name(&claim.name, OUT);
        let mut file = match dir.create_new(&name) {
            // Of an attempt that was not committed, with a provider that printed text.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                dir.remove(&name)?;
                dir.create_new(&name)?
            }
            other => other?,
        };
        file.write_all(text.as_bytes())?;
        Ok(file)
    }

    fn next(
        &self,
        claim: &Claim,
        plan: &Plan,
        record: &mut Record,
        answer: impl FnOnce() -> io::Result<String>,
    ) -> io::Result<Option<Next>> {
        let Some(chain) = plan.chain.as_ref().filter(|_| record.status.is_success()) else {
            return Ok(None);
        };
        let agent = &claim.folders.agent;
        record.next = Some(format!("{}/{}", chain.agent, claim.name));
        Ok(Some(Next {
            agent: chain.agent.clone(),
            text: chain.next_task(&claim.target(), agent, plan.task.body(), &answer()?),
        }))
    }

    /// A person's answer becomes the result of the task that asked for it.
    pub(super) fn answered(&self, held: Held, item: Item, desk: &mut Desk) {
        let text = String::from_utf8_lossy(&held.bytes).into_owned();
        let kind = crate::mailbox::ANSWERS
            .iter()
            .find(|(suffix, _)| *suffix == item.suffix)
            .map_or(Answer::Reply, |(_, kind)| *kind);
        let (request, note) = split_answer(&text);
        let plan = self.plan(&held.folders().agent, held.name(), request.as_bytes());
        self.claim_and(held, item, |claim| {
            let fault = match (kind, note.is_empty()) {
                (Answer::Reply, true) => {
                    let fault = Fault::new(
                        Kind::InvalidTask,
                        format!(
                            "`{}.reply` has no text below a line `--- answer`",
                            claim.target()
                        ),
                    )
                    .hint("write the answer there, and rename the task to .reply again");
                    self.trouble(&fault);
                    if let Err(e) = self.mailbox.put_back(claim) {
                        self.trouble(&Fault::io("put back", "the task", &e));
                    }
                    return;
                }
                (Answer::Rejected, _) => Some(Fault::new(
                    Kind::Rejected,
                    if note.is_empty() {
                        "rejected by a person".to_owned()
                    } else {
                        format!("rejected by a person: {note}")
                    },
                )),
                _ => None,
            };
            let answer = match fault {
                Some(fault) => Err(fault),
                None => Ok(note.to_owned()),
            };
            let finished = match &plan {
                Ok(plan) => self.answer(&claim, plan, 1, answer),
                Err(fault) => {
                    let record =
                        self.blank_record(&claim, 1, Status::Rejected, Some(fault.clone()));
                    Ok(Tried::Finished(Box::new(Finished::without_output(record))))
                }
            };
            match finished {
                Ok(Tried::Finished(finished)) => self.finish(claim, *finished, desk),
                Ok(_) => {}
                Err(e) => self.trouble(&Fault::io("write the answer of", claim.target(), &e)),
            }
        });
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

    fn file_entry(&self, claim: &Claim, suffix: &str, file: &File) -> io::Result<FileEntry> {
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let mut buffer = [0; 16 * 1024];
        loop {
            let n = file.read_at(&mut buffer, bytes)?;
            if n == 0 {
                break;
            }
            hash.update(&buffer[..n]);
            bytes += n as u64;
        }
        Ok(FileEntry {
            path: format!("artifacts/{}/{}{suffix}", claim.folders.agent, claim.name),
            bytes,
            sha256: format!("{:x}", hash.finalize()),
        })
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

/// Gives stderr a name. Can be repeated.
fn name_stderr(claim: &Claim, stderr: &File) -> io::Result<()> {
    at(Point::CommitStderr)?;
    let dir = &claim.folders.artifacts;
    let name = file_name(&claim.name, ERR);
    match dir.give_name(stderr, &name) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            dir.remove(&name)?;
            dir.give_name(stderr, &name)
        }
        other => other,
    }
}

fn fill(record: &mut Record, ending: Ending, verdict: &Verdict, files: &Attempt) -> io::Result<()> {
    match ending {
        Ending::Exited(code) => record.exit_code = Some(code),
        Ending::Signalled(signal) => record.signal = Some(signal_name(signal)),
        Ending::TimedOut { .. } => record.exit_code = Some(124),
        _ => {}
    }
    match ending {
        Ending::Stopped => record.status = Status::Interrupted,
        Ending::Cancelled => record.status = Status::Cancelled,
        _ => {
            record.status = verdict.status;
            record.error = verdict.error.clone();
        }
    }
    record.usage = verdict.usage.clone();
    record.session_id = verdict.session_id.clone();
    (record.output, record.truncated) = match &verdict.text {
        Some(text) => excerpt(text.as_bytes()),
        None => excerpt(&read_up_to(&files.output, EXCERPT_BYTES as u64 + 4)?),
    };
    Ok(())
}

fn stamp(record: &mut Record, began: Began) {
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

/// The request, and what a person wrote below the line `--- answer`.
fn split_answer(text: &str) -> (&str, &str) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "--- answer" {
            return (&text[..start], text[start + line.len()..].trim());
        }
        start += line.len();
    }
    (text, "")
}

fn read_text(file: &File) -> io::Result<String> {
    let bytes = read_up_to(file, crate::task::MAX_TASK_BYTES as u64 + 1)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_up_to(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut again = file.try_clone()?;
    again.seek(SeekFrom::Start(0))?;
    again.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_tail(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let start = size.saturating_sub(most);
    let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
