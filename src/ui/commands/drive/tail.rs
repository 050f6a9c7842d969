//! The end of a run's log as it grows: its checkpoints, each printed once.
//!
//! Reads whole lines only, without the run's lock; a line that is being written is left for the next
//! look.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use serde_json::json;

use crate::disk::root::Root;
use crate::disk::store::log::Line;
use crate::text::error::{Fault, Result};
use crate::ui::report::{clean_json, clean_line, print};

/// So much is read at a time.
const CHUNK: u64 = 1 << 20;

/// A place in the log of a run.
#[derive(Debug)]
pub(in crate::ui::commands) struct Tail {
    root: Arc<Root>,
    run_id: String,
    offset: u64,
    json: bool,
}

impl Tail {
    /// From the first line on.
    pub(in crate::ui::commands) fn from_start(root: &Arc<Root>, run_id: &str, json: bool) -> Tail {
        Tail {
            root: root.clone(),
            run_id: run_id.to_owned(),
            offset: 0,
            json,
        }
    }

    /// From what is there now on.
    pub(in crate::ui::commands) fn from_now(
        root: &Arc<Root>,
        run_id: &str,
        json: bool,
    ) -> Result<Tail> {
        let mut tail = Tail::from_start(root, run_id, json);
        tail.news()?;
        Ok(tail)
    }

    /// How far it has come.
    pub(in crate::ui::commands) fn offset(&self) -> u64 {
        self.offset
    }

    /// Prints the checkpoints that have come since.
    pub(in crate::ui::commands) fn print(&mut self) -> Result<()> {
        let mut text = String::new();
        for line in self.news()? {
            for note in &line.checkpoints {
                match self.json {
                    true => {
                        let value = json!({"run": self.run_id, "seq": line.seq, "at": line.at, "checkpoint": note.line, "guards": note.guards});
                        text.push_str(&clean_json(&value.to_string()));
                    }
                    false => text.push_str(&clean_line(&note.line)),
                }
                text.push('\n');
            }
        }
        // A reader that has gone away does not stop the run.
        print(&text).map(drop)
    }

    /// The whole lines that have come since.
    pub(in crate::ui::commands) fn news(&mut self) -> Result<Vec<Line>> {
        let name = format!("{}.jsonl", self.run_id);
        let failed = |e: io::Error| Fault::io("read", self.root.logs.path().join(&name), &e);
        let mut lines = Vec::new();
        let mut file = match self.root.logs.open(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(lines),
            other => other.map_err(failed)?,
        };
        let mut want = CHUNK;
        loop {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
            let read = (&mut file)
                .take(want)
                .read_to_end(&mut bytes)
                .map_err(failed)? as u64;
            let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
                if read < want {
                    return Ok(lines);
                }
                // One line that is longer than what was read.
                want *= 4;
                continue;
            };
            let whole = bytes[..end].split(|byte| *byte == b'\n');
            // A line that makes no sense is for `audit` to tell of.
            lines.extend(whole.filter_map(|line| serde_json::from_slice(line).ok()));
            self.offset += end as u64 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::store::tests::{Bed, RUN};

    #[test]
    fn whole_lines_are_given_once_and_a_torn_one_when_it_is_whole() {
        let bed = Bed::new();
        bed.three();
        let root = Arc::new(Root::open(bed.temp.path()).unwrap());
        let mut tail = Tail::from_start(&root, RUN, false);
        let lines = tail.news().unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2].checkpoints[0].line, "[one] one OK -> two");
        assert!(tail.news().unwrap().is_empty());
        let path = bed.log();
        let whole = std::fs::read_to_string(&path).unwrap();
        let last = whole.lines().last().unwrap();
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        log.write_all(&last.as_bytes()[..10]).unwrap();
        assert!(tail.news().unwrap().is_empty());
        log.write_all(format!("{}\n", &last[10..]).as_bytes())
            .unwrap();
        assert_eq!(tail.news().unwrap().len(), 1);
        assert_eq!(tail.offset(), std::fs::metadata(&path).unwrap().len());
        let mut none = Tail::from_now(&root, "20260101T000000Z-w-9999", false).unwrap();
        assert!(none.news().unwrap().is_empty());
    }
}
