//! The SHA-256 of a file, read from its beginning and whatever its size. The file's own position
//! is left where it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// How many bytes a file has, and their hash in hex, as `sha256sum` prints it.
pub(crate) fn sha256(file: &File) -> io::Result<(u64, String)> {
    let (mut hash, mut total) = (Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file.read_at(&mut buffer, total)? {
            0 => return Ok((total, format!("{:x}", hash.finalize()))),
            read => {
                hash.update(&buffer[..read]);
                total += read as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::text::canonical;

    #[test]
    fn a_file_is_hashed_from_its_beginning_and_stays_where_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = vec![7; CHUNK_BYTES + 1];
        file.write_all(&bytes).unwrap();
        let end = file.stream_position().unwrap();
        assert_eq!(sha256(&file).unwrap(), (end, canonical::sha256(&bytes)));
        assert_eq!(file.stream_position().unwrap(), end);
    }
}
