//! Text that the user gives to a command: from standard input, or from a file that the user names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::spec::task::MAX_TASK_BYTES;
use crate::text::error::{Fault, Kind, Result};

/// All of standard input.
pub(super) fn stdin() -> Result<String> {
    read_all(io::stdin().lock(), "standard input")
}

/// All of a file.
pub(super) fn file(path: &Path) -> Result<String> {
    let file = File::open(path).map_err(|e| Fault::io("open", path, &e))?;
    read_all(file, &path.display().to_string())
}

fn read_all(from: impl Read, what: &str) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_TASK_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Fault::io("read", what, &e))?;
    if bytes.len() > MAX_TASK_BYTES {
        let fault = Fault::new(Kind::InvalidTask, format!("{what} is larger than 1 MiB"));
        return Err(fault.hint("put it in a file that the agent can read, and give its name"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Fault::new(Kind::InvalidTask, format!("{what} is not UTF-8: byte {at}"))
    })
}
