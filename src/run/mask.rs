//! Finds secrets in every form that a program is likely to print them in, and replaces them.
//!
//! A byte is masked if it is part of any occurrence of any form; each run of such bytes becomes `***`.
//! Spaces, line breaks and NUL bytes between are ignored, so a value that was wrapped or printed as
//! UTF-16 is found too. The bytes are scanned once. Only an end that may be the start of a form is held
//! back until more bytes come.
//!
//! Pure: values in, text out. A value must never be kept in anything that can be printed.

mod automaton;
mod forms;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::run::record::Record;
use crate::run::state::StepResult;
use crate::text::error::Fault;
use automaton::{Automaton, Scanner};

/// What replaces a secret.
pub const MASK: &str = "***";
/// The shortest value that is masked, in bytes without white space. Shorter ones would match ordinary
/// text.
pub const SHORTEST: usize = 4;
/// The longest value that is masked, in bytes.
pub const LONGEST: usize = 16 * 1024;

/// Finds a set of values, in all their forms.
#[derive(Clone, Default)]
pub struct Masker(Option<Arc<Tables>>);

struct Tables {
    /// Every form.
    all: Automaton,
    /// Forms that programs wrap into lines: found across escaped line breaks too.
    wrapped: Automaton,
    /// The values themselves.
    values: Vec<Vec<u8>>,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |tables| tables.values.len());
        write!(f, "Masker({count})")
    }
}

/// Whether a value is too short to be masked. An empty one is not: it has nothing to hide.
#[must_use]
pub fn is_too_short(value: &[u8]) -> bool {
    !value.is_empty() && automaton::weight(value) < SHORTEST
}

impl Masker {
    /// A masker for these values; those that cannot be masked are left out.
    pub fn new<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Masker {
        let mut tables = Tables {
            all: Automaton::default(),
            wrapped: Automaton::default(),
            values: Vec::new(),
        };
        for value in values {
            let value = value.as_ref();
            if value.is_empty() || is_too_short(value) || value.len() > LONGEST {
                continue;
            }
            if tables.values.iter().any(|known| known == value) {
                continue;
            }
            tables.values.push(value.to_vec());
            for part in parts(value) {
                forms::each(part, &mut |form, wrapped| {
                    tables.all.add(form);
                    if wrapped {
                        tables.wrapped.add(form);
                    }
                });
            }
        }
        if tables.values.is_empty() {
            return Masker(None);
        }
        tables.all.finish();
        tables.wrapped.finish();
        Masker(Some(Arc::new(tables)))
    }

    /// A masker for the values of both.
    #[must_use]
    pub fn and(&self, other: &Masker) -> Masker {
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            (Some(a), Some(b)) if b.values.iter().all(|value| a.values.contains(value)) => {
                self.clone()
            }
            (Some(a), Some(b)) => Masker::new(a.values.iter().chain(&b.values)),
        }
    }

    /// Whether there is nothing to mask.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a text contains one of the values, unencoded.
    #[must_use]
    pub fn is_in(&self, text: &str) -> bool {
        let Some(tables) = &self.0 else { return false };
        let stands = |value: &[u8]| std::str::from_utf8(value).is_ok_and(|v| text.contains(v));
        tables.values.iter().any(|value| stands(value))
    }

    /// A masker for bytes that arrive in pieces.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream {
            masker: self.clone(),
            scanners: [Scanner::default(), Scanner::unescaping()],
            held: Vec::new(),
            base: 0,
            ranges: VecDeque::new(),
            masking: false,
        }
    }

    /// The bytes with their secrets masked.
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.push(bytes, &mut out);
        stream.finish(&mut out);
        out
    }

    /// Masks the secrets of a text.
    pub fn text(&self, text: &mut String) {
        if self.is_idle() {
            return;
        }
        let masked = self.bytes(text.as_bytes());
        if masked != text.as_bytes() {
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
    }

    /// Masks the secrets of a document: in its texts, keys and numbers.
    pub fn value(&self, value: &mut Value) {
        if self.is_idle() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let mut text = number.to_string();
                self.text(&mut text);
                if text != number.to_string() {
                    *value = Value::String(text);
                }
            }
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields)
                    .into_iter()
                    .map(|(mut key, mut value)| {
                        self.text(&mut key);
                        self.value(&mut value);
                        (key, value)
                    });
                *fields = masked.collect();
            }
        }
    }

    /// Masks the secrets of an error.
    pub fn fault(&self, fault: &mut Fault) {
        self.text(&mut fault.message);
        if let Some(hint) = &mut fault.hint {
            self.text(hint);
        }
    }

    /// Masks the secrets of a record. Names and hashes are orch's own and stay.
    pub fn record(&self, record: &mut Record) {
        if self.is_idle() {
            return;
        }
        self.text(&mut record.output);
        let texts = record.command.iter_mut().flatten();
        for text in texts.chain(&mut record.cwd).chain(&mut record.session_id) {
            self.text(text);
        }
        if let Some(fault) = &mut record.error {
            self.fault(fault);
        }
    }

    /// Masks the secrets of a step's result.
    pub fn result(&self, result: &mut StepResult) {
        if self.is_idle() {
            return;
        }
        let texts = result.output.iter_mut().chain(&mut result.note);
        let texts = texts.chain(&mut result.json_parse_error);
        for text in texts.chain(result.lines.iter_mut().flatten()) {
            self.text(text);
        }
        if let Some(value) = &mut result.json_data {
            self.value(value);
        }
        if let Some(fault) = &mut result.error {
            self.fault(fault);
        }
        result.more.values_mut().for_each(|value| self.value(value));
    }
}

/// A value, and each line of one that has several.
fn parts(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = value.split(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = lines.filter(move |line| line.len() < value.len() && !is_too_short(line));
    std::iter::once(value).chain(lines.filter(|line| !line.is_empty()))
}

/// Masks bytes that arrive in pieces. How they are split makes no difference.
pub struct Stream {
    masker: Masker,
    scanners: [Scanner; 2],
    /// The bytes that are not decided yet, and their offset in the whole.
    held: Vec<u8>,
    base: u64,
    /// The ranges to mask, in order, not overlapping.
    ranges: VecDeque<(u64, u64)>,
    /// Whether the last byte that was released was masked.
    masking: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?}, at {})", self.masker, self.base)
    }
}

impl Stream {
    /// Takes the next bytes and appends what is decided so far.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let Some(tables) = self.masker.0.clone() else {
            out.extend_from_slice(chunk);
            return;
        };
        let first = self.base + self.held.len() as u64;
        self.held.extend_from_slice(chunk);
        let [all, wrapped] = &mut self.scanners;
        for (at, byte) in (first..).zip(chunk) {
            let starts = [
                all.feed(&tables.all, *byte, at),
                wrapped.feed(&tables.wrapped, *byte, at),
            ];
            for start in starts.into_iter().flatten() {
                cover(&mut self.ranges, start, at + 1);
            }
        }
        let end = self.base + self.held.len() as u64;
        let waiting = [
            all.undecided(&tables.all),
            wrapped.undecided(&tables.wrapped),
        ];
        let decided = waiting.into_iter().flatten().min().unwrap_or(end);
        self.release(decided, out);
    }

    /// Ends the stream and appends what was held back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.release(self.base + self.held.len() as u64, out);
        self.scanners = [Scanner::default(), Scanner::unescaping()];
    }

    fn release(&mut self, until: u64, out: &mut Vec<u8>) {
        let base = self.base;
        let index = |at: u64| usize::try_from(at - base).unwrap_or(usize::MAX);
        let mut at = base;
        while at < until {
            let (start, end) = *self.ranges.front().unwrap_or(&(until, until));
            if at < start {
                let stop = start.min(until);
                out.extend_from_slice(&self.held[index(at)..index(stop)]);
                self.masking = false;
                at = stop;
            } else {
                if !self.masking {
                    out.extend_from_slice(MASK.as_bytes());
                    self.masking = true;
                }
                at = end.min(until);
                if at == end {
                    self.ranges.pop_front();
                }
            }
        }
        self.held.drain(..index(until));
        self.base = until;
    }
}

/// Adds a range that ends behind all others.
fn cover(ranges: &mut VecDeque<(u64, u64)>, mut start: u64, end: u64) {
    while let Some((before, _)) = ranges.back().filter(|(_, last)| *last >= start) {
        start = start.min(*before);
        ranges.pop_back();
    }
    ranges.push_back((start, end));
}
