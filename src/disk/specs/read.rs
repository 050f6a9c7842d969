//! Reads one file that the user wrote: it must be regular, of limited size, and UTF-8.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::text::error::{Fault, Kind, Result};

/// The largest file of `specs/` that is read.
const MAX_SPEC_BYTES: u64 = 256 << 10;

/// The text of a file, or `None` if it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    // Non-blocking: a fifo in the place of a file must not stop a watcher.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
    {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| Fault::io("open", path, &e))?,
    };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        let message = format!("`{}` is not a regular file", path.display());
        return Err(Fault::new(Kind::InvalidSettings, message).hint("put a text file in its place"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SPEC_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Fault::io("read", path, &e))?;
    if bytes.len() as u64 > MAX_SPEC_BYTES {
        return Err(Fault::new(
            Kind::InvalidSettings,
            format!("`{}` is larger than 256 KiB", path.display()),
        ));
    }
    String::from_utf8(bytes).map(Some).map_err(|e| {
        Fault::new(
            Kind::InvalidSettings,
            format!(
                "`{}` is not UTF-8: byte {}",
                path.display(),
                e.utf8_error().valid_up_to()
            ),
        )
    })
}
