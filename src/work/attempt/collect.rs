//! What came of a process that has ended: read, judged, and written down. Can be repeated.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{AttemptFiles, AttemptRunner};
use crate::agents::process::Ending;
use crate::disk::hash::sha256;
use crate::disk::mailbox::{Attempt, Claim, ERR, Next, OUT, RAW, file_name};
use crate::disk::order::{Point, at};
use crate::disk::safety::Meta;
use crate::run::record::{EXCERPT_BYTES, FileEntry, Record, Status, excerpt};
use crate::run::verdict::{Exit, Observed, Verdict, judge, reads_output, signal_name};
use crate::spec::provider::ProviderConfig;
use crate::work::job::Job;
use crate::work::outcome::Finished;

/// Providers whose answer has to be read whole are read up to here.
const MOST_PARSED: u64 = 64 << 20;
/// Of stderr only the end is looked at.
const STDERR_TAIL: u64 = 64 << 10;

impl AttemptRunner {
    /// What came of a process that has ended. Can be repeated.
    pub(super) fn collect(
        &self,
        claim: &Claim,
        job: &Job,
        config: &ProviderConfig,
        ending: Ending,
        files: &AttemptFiles,
        mut record: Record,
    ) -> io::Result<(Finished, Verdict)> {
        at(Point::RunEnded)?;
        let AttemptFiles {
            attempt,
            stderr,
            masked,
        } = files;
        if let Some(masked) = masked {
            masked.finish()?;
        }
        if let Ending::OutputTooLarge { limit } = ending {
            // What it printed beyond the limit before it was ended is nobody's.
            for file in [&attempt.output, stderr] {
                file.set_len(limit.min(file.metadata()?.len()))?;
            }
        }
        let complaints = stderr.metadata()?.len();
        let mut verdict = self.judge(job, config, ending, files, complaints)?;
        // What it read was masked; what it made of that by decoding is masked here.
        if let Some(text) = &mut verdict.text {
            job.masker.text(text);
        }
        fill(&mut record, ending, &verdict, attempt)?;
        job.masker.record(&mut record);
        let mut outputs = vec![(attempt.suffix, attempt.output.clone())];
        record.files = vec![self.file_entry(claim, attempt.suffix, &attempt.output)?];
        // What was cancelled may have a successor of its name, whose files are not to be touched.
        let named =
            ending != Ending::Cancelled || self.shared.mailbox.is_output(claim, &attempt.output)?;
        if let Some(text) = verdict
            .text
            .as_ref()
            .filter(|_| named && attempt.suffix == RAW)
        {
            let answer = self.write_answer(claim, text)?;
            record
                .files
                .insert(0, self.file_entry(claim, OUT, &answer)?);
            outputs.push((OUT, Arc::new(answer)));
        }
        if named && complaints > 0 {
            name_stderr(claim, stderr)?;
            record.files.push(self.file_entry(claim, ERR, stderr)?);
            outputs.push((ERR, stderr.clone()));
        }
        let next = self.next(claim, job, &mut record, || match &verdict.text {
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

    fn judge(
        &self,
        job: &Job,
        config: &ProviderConfig,
        ending: Ending,
        files: &AttemptFiles,
        complaints: u64,
    ) -> io::Result<Verdict> {
        let exit = match ending {
            Ending::Exited(code) => Exit::Code(code),
            Ending::Signalled(signal) => Exit::Signal(signal),
            Ending::TimedOut { idle, after } => Exit::TimedOut { idle, after },
            Ending::OutputTooLarge { limit } => Exit::OutputTooLarge { limit },
            // Neither is judged: the record says what we did.
            Ending::Stopped | Ending::Cancelled => Exit::Signal(15),
        };
        let stdout = if reads_output(config, exit) {
            read_up_to(&files.attempt.output, MOST_PARSED)?
        } else {
            Vec::new()
        };
        let seen = Observed {
            exit,
            stdout: &stdout,
            stderr: &read_tail(&files.stderr, complaints, STDERR_TAIL)?,
        };
        Ok(judge(&job.setup.provider_name, config, &seen))
    }

    fn write_answer(&self, claim: &Claim, text: &str) -> io::Result<File> {
        at(Point::CommitAnswer)?;
        let dir = &claim.folders.artifacts;
        let name = file_name(&claim.name, OUT);
        // There may be one of an attempt that was not committed, with a provider that printed text.
        let mut file = dir.create_anew(&name)?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    }

    pub(super) fn next(
        &self,
        claim: &Claim,
        job: &Job,
        record: &mut Record,
        answer: impl FnOnce() -> io::Result<String>,
    ) -> io::Result<Option<Next>> {
        let Some(chain) = job.chain.as_ref().filter(|_| record.status.is_success()) else {
            return Ok(None);
        };
        let agent = &claim.folders.agent;
        record.next = Some(format!("{}/{}", chain.agent, claim.name));
        Ok(Some(Next {
            agent: chain.agent.clone(),
            text: chain.next_task(&claim.target(), agent, job.task.body(), &answer()?),
        }))
    }

    pub(super) fn file_entry(
        &self,
        claim: &Claim,
        suffix: &str,
        file: &File,
    ) -> io::Result<FileEntry> {
        let (bytes, sha256) = sha256(file)?;
        Ok(FileEntry {
            path: format!("artifacts/{}/{}{suffix}", claim.folders.agent, claim.name),
            bytes,
            sha256,
        })
    }
}

/// Gives stderr a name. Can be repeated.
fn name_stderr(claim: &Claim, stderr: &File) -> io::Result<()> {
    at(Point::CommitStderr)?;
    let dir = &claim.folders.artifacts;
    let name = file_name(&claim.name, ERR);
    let id = Meta::of_file(stderr)?.id;
    let named = match dir.find(&name)? {
        Some(there) if there.id == id => return Ok(()),
        Some(_) => {
            dir.make_way(&name)?;
            dir.remove(&name).or_else(|e| match e.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(e),
            })?;
            dir.give_name(stderr, &name)
        }
        None => dir.give_name(stderr, &name),
    };
    match named {
        // It had a name and lost it, or its folder is gone: the commit writes it again.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
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

pub(super) fn read_text(file: &File) -> io::Result<String> {
    let bytes = read_up_to(file, crate::spec::task::MAX_TASK_BYTES as u64 + 1)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// From the start, whatever the file's own position: a process that is left may still share it.
fn read_up_to(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    FromStart { file, at: 0 }
        .take(most)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file by offset, with no descriptor and no position of its own.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

fn read_tail(file: &File, size: u64, most: u64) -> io::Result<Vec<u8>> {
    let start = size.saturating_sub(most);
    let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
