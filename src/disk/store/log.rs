//! The log of a run: one JSON object to a line, each with the hash of the line before it.
//!
//! The hash of a line is that of its bytes, the newline included, so that `tail -n 1 | sha256sum`
//! gives the head. A line is appended by one write; a torn end is cut only under the run's lock.
//! Nothing here knows what an event does.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sha256;
use crate::disk::order::{Disk, Point, at};
use crate::disk::safety::{Dir, Meta};
use crate::run::state::{Checked, Checkpoint, Event};
use crate::text::error::{Fault, Kind, Result};

/// What stands for the hash of the line before the first.
pub const NO_LINE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// How much is read at a time on the way back from the end.
const CHUNK: u64 = 4096;

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number, from 1.
    pub seq: u64,
    /// When it happened, RFC 3339.
    pub at: String,
    /// The hash of the line before.
    pub prev: String,
    /// What happened.
    pub event: Event,
    /// The transitions that followed, for people; they are derived, and never read back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Note>,
    /// The conditions that were looked at besides; derived as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Checked>,
}

/// A transition as the log shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// `[phase] step OK|FAIL -> next | reason`.
    pub line: String,
    /// Every guard that was evaluated, with its value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<String>,
}

impl From<&Checkpoint> for Note {
    fn from(checkpoint: &Checkpoint) -> Note {
        Note {
            line: checkpoint.to_string(),
            guards: checkpoint.guards.clone(),
        }
    }
}

/// The bytes of a line, its newline included, and where they begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn hash(&self) -> String {
        sha256(&self.bytes)
    }

    /// A write that did not get through: no newline, or bytes that never reached the disk.
    pub(crate) fn is_torn(&self) -> bool {
        self.bytes.last() != Some(&b'\n') || self.bytes.contains(&0)
    }

    /// What the line says, if it is the one with this number; otherwise what is wrong with it.
    pub(crate) fn read(&self, number: u64) -> Result<Line, String> {
        let line: Line =
            serde_json::from_slice(&self.bytes).map_err(|e| format!("it cannot be read: {e}"))?;
        match line.seq {
            seq if seq == number => Ok(line),
            seq if seq > number => Err(format!("it has number {seq}: a line is missing before it")),
            seq => Err(format!("it has number {seq}, and {number} is due")),
        }
    }
}

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    meta: Meta,
    len: u64,
    path: PathBuf,
}

/// Why an append did not succeed.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing was added.
    Undone(Fault),
    /// The line is there, and may be gone after a power cut.
    Unsynced(Fault),
}

impl Log {
    /// Opens a log for reading and appending, if it is there.
    pub(crate) fn open(dir: &Dir, name: &str) -> Result<Option<Log>> {
        let path = dir.path().join(name);
        let opened = dir
            .open_append(name)
            .and_then(|file| Ok((Meta::of_file(&file)?, file)));
        match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Fault::io("open", path, &e)),
            Ok((meta, _)) if !meta.is_plain() => Err(Fault::new(
                Kind::SafetyViolation,
                format!("`{}` is not a plain file", path.display()),
            )
            .hint("a run's log is a regular file with one name; orch did not make it so")),
            Ok((meta, file)) => Ok(Some(Log {
                file,
                len: meta.size,
                meta,
                path,
            })),
        }
    }

    /// How it looked when it was opened, or last changed by us.
    pub(super) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The line that ends at this offset; nothing at the beginning of the log.
    pub(crate) fn line_before(&self, end: u64) -> Result<Option<Raw>> {
        let read = || -> io::Result<Option<Raw>> {
            let (mut start, mut bytes) = (end, Vec::new());
            let mut chunk = CHUNK;
            while start > 0 {
                let from = start.saturating_sub(chunk);
                // Never more than the chunk, which is far below what an address can hold.
                let mut part = vec![0; (start - from) as usize];
                self.file.read_exact_at(&mut part, from)?;
                // The newline at `end` is the line's own.
                let own = usize::from(start == end);
                let inner = part.len() - own;
                if let Some(newline) = part[..inner].iter().rposition(|byte| *byte == b'\n') {
                    let mut line = part.split_off(newline + 1);
                    start = from + newline as u64 + 1;
                    line.append(&mut bytes);
                    return Ok(Some(Raw { start, bytes: line }));
                }
                part.append(&mut bytes);
                (start, bytes) = (from, part);
                chunk = (chunk * 4).min(1024 * 1024);
            }
            Ok((end > 0).then_some(Raw { start, bytes }))
        };
        read().map_err(|e| Fault::io("read", &self.path, &e))
    }

    /// Cuts a last line that a crash left torn. Under the run's lock only.
    pub(crate) fn cut_torn(&mut self, disk: Disk) -> Result<bool> {
        let torn = self.line_before(self.len)?.filter(Raw::is_torn);
        let Some(torn) = torn else {
            return Ok(false);
        };
        let cut = || -> io::Result<()> {
            at(Point::RunLogCut)?;
            self.file.set_len(torn.start)?;
            disk.sync_file(Point::RunLogSync, &self.file)
        };
        cut().map_err(|e| Fault::io("cut the torn end of", &self.path, &e))?;
        self.len = torn.start;
        self.look_again();
        Ok(true)
    }

    /// Appends one line by one write, and makes it durable.
    pub(super) fn append(&mut self, disk: Disk, line: &[u8]) -> Result<(), Failed> {
        if let Err(error) = self.write_once(line) {
            let mut fault = Fault::io("append to", &self.path, &error);
            // What cannot be cut back now is torn, and is cut when the log is next read.
            if let Err(error) = self.file.set_len(self.len) {
                fault.message = format!("{}, and it cannot be cut back: {error}", fault.message);
            }
            return Err(Failed::Undone(fault));
        }
        self.len += line.len() as u64;
        self.look_again();
        disk.sync_file(Point::RunLogSync, &self.file)
            .map_err(|error| {
                let fault = Fault::io("make durable", &self.path, &error);
                Failed::Unsynced(
                    fault.hint(
                        "the disk may be failing: what it says from now on cannot be trusted",
                    ),
                )
            })
    }

    /// Where that fails, it looks changed to whoever compares, and is read again.
    fn look_again(&mut self) {
        if let Ok(meta) = Meta::of_file(&self.file) {
            self.meta = meta;
        }
    }

    fn write_once(&mut self, line: &[u8]) -> io::Result<()> {
        at(Point::RunLogAppend)?;
        let written = loop {
            match self.file.write(line) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        match written == line.len() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("only {written} of {} bytes were written", line.len()),
            )),
        }
    }

    /// Calls `each` with every line from the first on, and its number from 1.
    pub(crate) fn each_line(&self, each: impl FnMut(u64, Raw) -> Result<()>) -> Result<()> {
        self.each_line_after(0, 0, each)
    }

    /// The same for the lines after one that has this number and ends at this offset.
    pub(super) fn each_line_after(
        &self,
        number: u64,
        offset: u64,
        mut each: impl FnMut(u64, Raw) -> Result<()>,
    ) -> Result<()> {
        let failed = |e: io::Error| Fault::io("read", &self.path, &e);
        let mut reader = BufReader::with_capacity(64 * 1024, At { log: self, offset });
        let (mut number, mut start) = (number, offset);
        loop {
            let mut bytes = Vec::new();
            if reader.read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
                return Ok(());
            }
            number += 1;
            let length = bytes.len() as u64;
            each(number, Raw { start, bytes })?;
            start += length;
        }
    }
}

/// Reads a log from an offset on, leaving the position of the file alone.
struct At<'l> {
    log: &'l Log,
    offset: u64,
}

impl io::Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.log.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A log that contradicts itself or its state.
pub(crate) fn corrupted(path: &Path, number: u64, why: &str) -> Fault {
    Fault::new(
        Kind::StateCorrupted,
        format!("`{}` line {number}: {why}", path.display()),
    )
    .hint("orch writes whole lines only, so something else changed it; put it back from a copy, or start a new run; `orch audit` lists everything that differs")
}
