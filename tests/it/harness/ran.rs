//! How a program ended. A test says what it expects: which code, and whether anything may stand on
//! standard error. Nothing there is the rule, and only who has looked at the end gets at the output.

use std::fmt::{self, Debug, Display};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// A way to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Ended by `kill -9`.
pub const KILLED: End = End::Signal(9);

impl End {
    fn of(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => panic!("it has not ended: {status:?}"),
        }
    }
}

/// What may stand on standard error.
#[derive(Debug, PartialEq, Eq)]
enum Noise {
    Silence,
    /// Something must.
    Some,
    Any,
    /// These words must.
    Words(Vec<String>),
    /// Lines that begin so may.
    Lines(&'static [&'static str]),
}

/// A program that has ended, and nobody has looked how.
#[must_use = "say how it is to have ended: `expect`, `killed`, `fails` or `one_of`"]
pub struct Ran {
    ended: Ended,
    noise: Noise,
    story: String,
    is_framed: bool,
}

/// A program that ended as it was expected to.
pub struct Ended {
    end: End,
    pub stdout: String,
    pub stderr: String,
    /// How much time of a processor it took, with those of its children that it waited for.
    pub cpu: Duration,
    line: String,
}

impl Ran {
    pub(super) fn new(status: ExitStatus, stdout: String, stderr: String, line: &str) -> Ran {
        Ran {
            ended: Ended {
                end: End::of(status),
                stdout,
                stderr,
                cpu: Duration::ZERO,
                line: line.to_owned(),
            },
            noise: Noise::Silence,
            story: String::new(),
            is_framed: false,
        }
    }

    pub(super) fn took(mut self, ticks: u64) -> Ran {
        self.ended.cpu = Duration::from_millis(10 * ticks);
        self
    }

    /// Whether it is a watcher, which says on standard error that it begins and what it has done.
    pub(super) fn framed(mut self, is_framed: bool) -> Ran {
        self.is_framed = is_framed;
        self
    }

    /// Which of many cases this was, for the message.
    pub fn about(mut self, story: impl Display) -> Ran {
        self.story = format!("{story}: ");
        self
    }

    /// These words are on its standard error, among others.
    pub fn says(mut self, words: impl Into<String>) -> Ran {
        match &mut self.noise {
            Noise::Words(all) => all.push(words.into()),
            other => *other = Noise::Words(vec![words.into()]),
        }
        self
    }

    /// Something is on its standard error.
    pub fn speaks(mut self) -> Ran {
        self.noise = Noise::Some;
        self
    }

    /// Only lines that begin in one of these ways may be on its standard error.
    pub fn may_say(mut self, beginnings: &'static [&'static str]) -> Ran {
        self.noise = Noise::Lines(beginnings);
        self
    }

    /// Whatever is on its standard error, or nothing.
    pub fn noisy(mut self) -> Ran {
        self.noise = Noise::Any;
        self
    }

    /// Fails the test unless it ended with this code, and its standard error is as said before.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        self.one_of(&[End::Code(code)])
    }

    /// The same as `expect` of an end by `kill -9`.
    #[track_caller]
    pub fn killed(self) -> Ended {
        self.one_of(&[KILLED])
    }

    /// Fails the test unless it ended with this code, and says on standard error which error that is.
    #[track_caller]
    pub fn fails(self, code: i32) -> Ended {
        self.says("error: ").expect(code)
    }

    /// Success in silence, or a failure with its error.
    #[track_caller]
    pub fn comes_to(self, code: i32) -> Ended {
        match code {
            0 => self.expect(0),
            _ => self.fails(code),
        }
    }

    /// The same as `fails` of any code but 0.
    #[track_caller]
    pub fn fails_somehow(self) -> Ended {
        let end = self.ended.end;
        let failed = matches!(end, End::Code(code) if code != 0);
        assert!(failed, "{}expected a failure: {self:?}", self.story);
        self.says("error: ").one_of(&[end])
    }

    /// The same as `killed`, or of an end with this code where it did not come to that.
    #[track_caller]
    pub fn killed_or(self, code: i32) -> Ended {
        self.one_of(&[KILLED, End::Code(code)])
    }

    /// The same as `expect` of any code: only no signal ended it.
    #[track_caller]
    pub fn any_code(self) -> Ended {
        let end = self.ended.end;
        let by_itself = matches!(end, End::Code(_));
        assert!(by_itself, "{}expected an exit code: {self:?}", self.story);
        self.one_of(&[end])
    }

    /// Whether it ended with 0, for who only wants to know what this machine can do.
    pub fn succeeds(self) -> bool {
        self.ended.end == End::Code(0)
    }

    /// Fails the test unless it ended in one of these ways, and its standard error is as said before.
    #[track_caller]
    pub fn one_of(self, ends: &[End]) -> Ended {
        let story = &self.story;
        assert!(
            ends.contains(&self.ended.end),
            "{story}expected {ends:?}: {self:?}"
        );
        let said = self.said();
        match &self.noise {
            Noise::Silence => assert!(
                said.is_empty(),
                "{story}expected nothing on standard error, but {said:?}: {self:?}"
            ),
            Noise::Some => assert!(
                !said.is_empty(),
                "{story}expected something on standard error: {self:?}"
            ),
            Noise::Any => {}
            Noise::Lines(beginnings) => {
                for line in said.lines() {
                    assert!(
                        beginnings.iter().any(|word| line.starts_with(word)),
                        "{story}expected no {line:?} on standard error: {self:?}"
                    );
                }
            }
            Noise::Words(all) => {
                for words in all {
                    assert!(
                        self.ended.stderr.contains(words),
                        "{story}expected {words:?} on standard error: {self:?}"
                    );
                }
            }
        }
        self.ended
    }

    /// What it said beside what every watcher says.
    fn said(&self) -> String {
        if !self.is_framed {
            return self.ended.stderr.clone();
        }
        let lines = self.ended.stderr.lines();
        lines
            .filter(|line| !is_frame(line))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// `watching FOLDER (2 tasks at a time; Ctrl-C stops)` and `3 done, 1 failed`.
fn is_frame(line: &str) -> bool {
    let counted = |part: &str| {
        let words = part.split_once(' ');
        words.is_some_and(|(count, of)| {
            let whats = [
                "done",
                "failed",
                "task waiting for a person",
                "tasks waiting for a person",
            ];
            count.parse::<u32>().is_ok() && whats.contains(&of)
        })
    };
    line.starts_with("watching ") || line.split(", ").all(counted)
}

impl Ended {
    /// Its exit code; fails the test where a signal ended it.
    #[track_caller]
    pub fn code(&self) -> i32 {
        match self.end {
            End::Code(code) => code,
            End::Signal(_) => panic!("{self:?}"),
        }
    }

    /// Whether SIGKILL ended it.
    pub fn was_killed(&self) -> bool {
        self.end == KILLED
    }
}

/// A command line with what came of it.
pub(super) fn told(line: &str, stdout: &str, stderr: &str) -> String {
    format!("$ {line}\n--- standard output\n{stdout}\n--- standard error\n{stderr}\n---")
}

impl Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ended.fmt(f)
    }
}

impl Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = told(&self.line, &self.stdout, &self.stderr);
        write!(f, "{:?}\n{told}", self.end)
    }
}
