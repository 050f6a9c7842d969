//! The result record of a task, `NAME.json`, with its excerpt of the answer.
//!
//! Field order is part of the format. Unknown fields are accepted on reading; empty fields are left out
//! on writing. This module writes no file.

use serde::{Deserialize, Serialize};

use crate::spec::task::AgentName;
use crate::text::cut;
use crate::text::error::{Fault, exit};

/// How much of the answer a record carries.
pub const EXCERPT_BYTES: usize = 8 * 1024;

/// How a task ended, or that it has only started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Status {
    Succeeded,
    Failed,
    TimedOut,
    Rejected,
    Cancelled,
    Interrupted,
    Started,
}

impl Status {
    /// Whether the task did what was asked.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Status::Succeeded
    }

    /// The exit code of a command that waited for this task.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Status::Succeeded => exit::DONE,
            Status::Rejected => exit::INVALID,
            _ => exit::FAILED,
        }
    }

    /// The word as it stands in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::TimedOut => "timed_out",
            Status::Rejected => "rejected",
            Status::Cancelled => "cancelled",
            Status::Interrupted => "interrupted",
            Status::Started => "started",
        }
    }
}

/// A file that the task left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Where it is, relative to the root.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
    /// Its SHA-256 in hex.
    pub sha256: String,
}

/// What the provider said that it used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Cost in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Nothing at all was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

/// The result record of one attempt at a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The task's name.
    pub task: String,
    /// The agent whose inbox it was in.
    pub agent: String,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The step of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The provider that worked on it; empty if none did.
    #[serde(default)]
    pub provider: String,
    /// The command line, with the prompt left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How it ended.
    pub status: Status,
    /// The process's own exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Which attempt this was, from 1.
    pub attempt: u32,
    /// When it began, RFC 3339 in UTC.
    pub start_time: String,
    /// When it ended; the start time if it has only started.
    pub end_time: String,
    /// Seconds between the two.
    pub duration: f64,
    /// The first 8 KiB of the answer.
    #[serde(default)]
    pub output: String,
    /// Whether the answer is longer than `output`.
    #[serde(default)]
    pub truncated: bool,
    /// What a person answered: `approved`, `rejected` or `reply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What the task left behind.
    #[serde(default)]
    pub files: Vec<FileEntry>,
    /// Tokens and cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The provider's session, to continue from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Where the answer went: `agent/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether the task was committed by another attempt, and this one is only kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncommitted: bool,
}

impl Record {
    /// A record that says only whose it is and how it ended.
    #[must_use]
    pub fn new(agent: &str, task: &str, attempt: u32, status: Status) -> Record {
        Record {
            task: task.to_owned(),
            agent: agent.to_owned(),
            run: None,
            step: None,
            provider: String::new(),
            command: None,
            cwd: None,
            status,
            exit_code: None,
            signal: None,
            attempt,
            start_time: String::new(),
            end_time: String::new(),
            duration: 0.0,
            output: String::new(),
            truncated: false,
            answer: None,
            error: None,
            files: Vec::new(),
            usage: None,
            session_id: None,
            next: None,
            uncommitted: false,
        }
    }

    /// The agent that the answer goes to.
    #[must_use]
    pub fn next_agent(&self) -> Option<AgentName> {
        let (agent, _) = self.next.as_deref()?.split_once('/')?;
        AgentName::parse(agent).ok()
    }
}

/// The first 8 KiB of an answer as text, cut between characters, and whether something was cut.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> (String, bool) {
    if bytes.len() <= EXCERPT_BYTES {
        return (String::from_utf8_lossy(bytes).into_owned(), false);
    }
    let head = &bytes[..cut::boundary(bytes, EXCERPT_BYTES)];
    (String::from_utf8_lossy(head).into_owned(), true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::Kind;

    fn record() -> Record {
        Record {
            task: "a".into(),
            agent: "writer".into(),
            run: Some("r".into()),
            step: Some("s".into()),
            provider: "claude".into(),
            command: Some(vec!["claude".into(), "-p".into()]),
            cwd: Some("/x".into()),
            status: Status::Failed,
            exit_code: Some(1),
            signal: Some("SIGTERM".into()),
            attempt: 2,
            start_time: "2026-01-01T00:00:00Z".into(),
            end_time: "2026-01-01T00:00:01Z".into(),
            duration: 1.0,
            output: "hi".into(),
            truncated: false,
            answer: None,
            error: Some(Fault::new(Kind::ProviderFailed, "no").hint("try")),
            files: vec![FileEntry {
                path: "f".into(),
                bytes: 1,
                sha256: "00".into(),
            }],
            usage: Some(Usage {
                input_tokens: Some(1),
                ..Usage::default()
            }),
            session_id: Some("id".into()),
            next: Some("reviewer/a".into()),
            uncommitted: false,
        }
    }

    #[test]
    fn the_fields_are_written_in_the_documented_order() {
        let value = serde_json::to_value(record()).unwrap();
        let keys: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys.join(", "),
            "task, agent, run, step, provider, command, cwd, status, exit_code, signal, attempt, \
             start_time, end_time, duration, output, truncated, error, files, usage, session_id, next"
        );
        assert_eq!(value["usage"], serde_json::json!({"input_tokens": 1}));
    }

    #[test]
    fn what_is_written_is_read_back_and_unknown_fields_are_tolerated() {
        let mut value = serde_json::to_value(record()).unwrap();
        value["mood"] = "fine".into();
        value["usage"]["cached"] = 5.into();
        assert_eq!(serde_json::from_value::<Record>(value).unwrap(), record());
    }

    #[test]
    fn every_status_has_its_word_and_exit_code() {
        let table = [
            (Status::Succeeded, "succeeded", 0),
            (Status::Failed, "failed", 1),
            (Status::TimedOut, "timed_out", 1),
            (Status::Rejected, "rejected", 65),
            (Status::Cancelled, "cancelled", 1),
            (Status::Interrupted, "interrupted", 1),
            (Status::Started, "started", 1),
        ];
        for (status, word, code) in table {
            assert_eq!(serde_json::to_value(status).unwrap(), word);
            assert_eq!(status.as_str(), word);
            assert_eq!(status.exit_code(), code, "{word}");
            assert_eq!(status.is_success(), code == 0);
        }
    }

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        assert_eq!(excerpt(b"short"), ("short".to_owned(), false));
        let exact = vec![b'a'; EXCERPT_BYTES];
        assert!(!excerpt(&exact).1);
        for pad in 0..4 {
            let text = "a".repeat(pad) + &"é€😀".repeat(2000);
            let (head, truncated) = excerpt(text.as_bytes());
            assert!(truncated && text.starts_with(&head), "{pad}");
            assert!(head.len() <= EXCERPT_BYTES && head.len() > EXCERPT_BYTES - 4);
        }
        let (lossy, _) = excerpt(b"a\xffb");
        assert_eq!(lossy, "a\u{fffd}b");
        let (binary, truncated) = excerpt(&vec![0x80; EXCERPT_BYTES + 10]);
        assert!(truncated && !binary.is_empty());
    }
}
