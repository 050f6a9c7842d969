//! What orch writes to the helper: a list of byte strings, each with its length before it.
//!
//! It goes through an unnamed file, never through arguments or the environment: an agent's
//! environment can hold secrets, and it must not act on the helper itself.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::walls::Walls;
use crate::spec::policy::Caps;
use crate::text::units::Size;

/// How the helper holds the agent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// By limits alone.
    Limits,
    /// With Landlock.
    Landlock,
    /// By handing over to bubblewrap, which reads its own arguments from the next descriptor.
    Bubblewrap,
}

/// What a rule opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Reading and executing.
    Read,
    /// Reading, executing and changing.
    Write,
}

/// Everything that the helper has to know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub method: Method,
    pub program: OsString,
    pub args: Vec<OsString>,
    /// `NAME`, value, one after the other.
    pub env: Vec<(OsString, OsString)>,
    /// One for each descriptor that follows.
    pub rights: Vec<Right>,
    pub limit_reads: bool,
    pub limit_network: bool,
    pub caps: Caps,
    /// Mounts around it, where the system lets us have some.
    pub walls: Option<Walls>,
}

impl Letter {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let method = match self.method {
            Method::Limits => 0,
            Method::Landlock => 1,
            Method::Bubblewrap => 2,
        };
        let flags = u64::from(self.limit_reads) | u64::from(self.limit_network) << 1;
        number(&mut out, method);
        number(&mut out, flags);
        let caps = &self.caps;
        for cap in [
            caps.processes,
            caps.memory.map(|s| s.0),
            caps.file.map(|s| s.0),
        ] {
            number(&mut out, cap.unwrap_or(u64::MAX));
        }
        text(&mut out, self.program.as_bytes());
        number(&mut out, self.args.len() as u64);
        self.args
            .iter()
            .for_each(|arg| text(&mut out, arg.as_bytes()));
        number(&mut out, self.env.len() as u64);
        for (name, value) in &self.env {
            text(&mut out, name.as_bytes());
            text(&mut out, value.as_bytes());
        }
        let rights: Vec<u8> = self.rights.iter().map(|right| *right as u8).collect();
        text(&mut out, &rights);
        number(&mut out, u64::from(self.walls.is_some()));
        if let Some(walls) = &self.walls {
            for paths in [&walls.open, &walls.closed] {
                number(&mut out, paths.len() as u64);
                let paths = paths.iter().map(|path| path.as_os_str().as_bytes());
                paths.for_each(|path| text(&mut out, path));
            }
        }
        out
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Letter> {
        let method = match take(from)? {
            0 => Method::Limits,
            1 => Method::Landlock,
            2 => Method::Bubblewrap,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let flags = take(from)?;
        let mut cap = || Ok::<_, io::Error>(Some(take(from)?).filter(|cap| *cap != u64::MAX));
        let caps = Caps {
            processes: cap()?,
            memory: cap()?.map(Size),
            file: cap()?.map(Size),
        };
        let program = string(from)?;
        let args = (0..take(from)?)
            .map(|_| string(from))
            .collect::<io::Result<_>>()?;
        let env = (0..take(from)?)
            .map(|_| Ok((string(from)?, string(from)?)))
            .collect::<io::Result<_>>()?;
        let right = |byte: u8| match byte {
            0 => Right::Read,
            _ => Right::Write,
        };
        let rights = string(from)?.into_vec().into_iter().map(right).collect();
        let walls = match take(from)? {
            0 => None,
            _ => Some(Walls {
                open: paths(from)?,
                closed: paths(from)?,
            }),
        };
        Ok(Letter {
            method,
            program,
            args,
            env,
            rights,
            limit_reads: flags & 1 != 0,
            limit_network: flags & 2 != 0,
            caps,
            walls,
        })
    }
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn paths(from: &mut impl Read) -> io::Result<Vec<PathBuf>> {
    (0..take(from)?).map(|_| Ok(string(from)?.into())).collect()
}

fn string(from: &mut impl Read) -> io::Result<OsString> {
    let length = take(from)?;
    let mut bytes = Vec::new();
    let read = from.take(length).read_to_end(&mut bytes)?;
    if read as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_arrives_as_it_was_written() {
        let letter = Letter {
            method: Method::Landlock,
            program: "/bin/sh".into(),
            args: vec![
                "-c".into(),
                OsString::from_vec(vec![0xff, b'\n']),
                "".into(),
            ],
            env: vec![("A".into(), "1=2".into()), ("B".into(), "".into())],
            rights: vec![Right::Write, Right::Read],
            limit_reads: false,
            limit_network: true,
            caps: Caps {
                memory: Some(Size(7)),
                ..Caps::default()
            },
            walls: Some(Walls {
                open: vec!["/a".into(), "/b".into()],
                closed: vec!["/a/c".into()],
            }),
        };
        let bytes = letter.write();
        assert_eq!(Letter::read(&mut &bytes[..]).unwrap(), letter);
        for cut in 0..bytes.len() {
            assert!(Letter::read(&mut &bytes[..cut]).is_err(), "{cut}");
        }
    }
}
