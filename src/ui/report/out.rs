//! Standard output for commands that print data, and may be piped into a program that stops
//! reading.

use std::io::{self, Write};

use serde::Serialize;

use crate::text::clean::clean_json;
use crate::text::error::{Fault, Result};

/// Whether the output is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// As far as is known.
    There,
    /// The output was closed, as `head` does: no error, but a reason to stop.
    Gone,
}

/// Prints a text as it is.
pub fn print(text: &str) -> Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(Fault::io("write to", "standard output", &e)),
    }
}

/// Prints a text and ends the line.
pub fn print_line(text: &str) -> Result<Reader> {
    print(&format!("{text}\n"))
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<Reader> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::io("write as JSON to", "standard output", &io::Error::other(e)))?;
    print_line(&clean_json(&text))
}
