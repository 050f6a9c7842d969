//! Errors as the user sees them: a kind, a message with its location, and a hint.
//!
//! This is the only place where a kind of failure becomes an exit code. The library returns
//! [`Fault`]s and never prints; `main` prints one and exits with its code.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The exit codes of every command, as the table in `docs/reference.md` lists them.
pub mod exit {
    /// The work is done.
    pub const DONE: u8 = 0;
    /// The task or the command failed.
    pub const FAILED: u8 = 1;
    /// A write outside the allowed places was attempted or found.
    pub const SAFETY: u8 = 2;
    /// State on disk is inconsistent.
    pub const CORRUPTED: u8 = 3;
    /// A person has to act before work can continue.
    pub const BLOCKED: u8 = 4;
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
    /// A workflow, spec or task is invalid.
    pub const INVALID: u8 = 65;
    /// Another process holds what is needed.
    pub const BUSY: u8 = 75;
    /// Ended by SIGINT.
    pub const INTERRUPTED: u8 = 130;
    /// Ended by SIGTERM.
    pub const TERMINATED: u8 = 143;

    /// Every code with its meaning, in the order of that table.
    pub const TABLE: &[(u8, &str)] = &[
        (DONE, "done"),
        (FAILED, "failed"),
        (SAFETY, "safety violation"),
        (CORRUPTED, "state corrupted"),
        (BLOCKED, "blocked, waiting for a person"),
        (USAGE, "bad usage"),
        (INVALID, "invalid workflow, spec or task"),
        (BUSY, "something else holds what is needed"),
        (INTERRUPTED, "SIGINT"),
        (TERMINATED, "SIGTERM"),
    ];
}

/// The kind of a failure, as result records name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Kind {
    FileNotFound,
    YamlParseError,
    WorkflowValidationError,
    InvalidTask,
    InvalidSettings,
    UnknownAgent,
    UnknownProvider,
    UnknownWorkflow,
    UnknownDir,
    MissingTemplateKeyError,
    UndefinedVariableError,
    ExpressionError,
    DependencyNotFoundError,
    MissingSecret,
    JsonParseError,
    SchemaError,
    PlanError,
    PatchError,
    OutputTooLargeError,
    TimeoutExpired,
    ProviderNotFound,
    ProviderFailed,
    AuthenticationFailed,
    RateLimited,
    PromptTooLong,
    PermissionDenied,
    NoRecording,
    StepFailed,
    StateNotFound,
    Rejected,
    Cancelled,
    Interrupted,
    LimitExceeded,
    ScopeViolation,
    SafetyViolation,
    StateCorrupted,
    NewerVersion,
    Blocked,
    Busy,
    Usage,
    IoError,
}

impl Kind {
    /// The exit code of a command that ends with this kind of failure.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            // A step that wrote beyond its scope has failed, like any other: `ScopeViolation`. A run
            // that is stopped for it ends with `SafetyViolation`.
            Kind::SafetyViolation => exit::SAFETY,
            Kind::StateCorrupted => exit::CORRUPTED,
            Kind::Usage => exit::USAGE,
            Kind::YamlParseError
            | Kind::WorkflowValidationError
            | Kind::InvalidTask
            | Kind::InvalidSettings
            | Kind::UnknownAgent
            | Kind::UnknownProvider
            | Kind::UnknownWorkflow
            | Kind::UnknownDir
            | Kind::NewerVersion
            | Kind::MissingTemplateKeyError => exit::INVALID,
            Kind::Blocked => exit::BLOCKED,
            Kind::Busy => exit::BUSY,
            _ => exit::FAILED,
        }
    }
}

/// A failure as the user sees it, on the terminal and in a result record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind of failure it is.
    pub kind: Kind,
    /// One line: what went wrong and where. Lower case, no final period.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The result of anything that can fail with a [`Fault`].
pub type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    /// A fault without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// The same fault with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An I/O error with the verb and the path that it happened to.
    pub fn io(verb: &str, path: impl AsRef<Path>, source: &io::Error) -> Self {
        Fault::new(
            Kind::IoError,
            format!("cannot {verb} `{}`: {source}", path.as_ref().display()),
        )
    }

    /// Whether the same thing may work a moment later without anybody's help: the disk refused it, or
    /// something else holds what is needed.
    #[must_use]
    pub fn is_worth_retrying(&self) -> bool {
        matches!(self.kind, Kind::IoError | Kind::Busy)
    }

    /// The exit code of a command that ends with this fault.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// Separates a message from its hint inside an error of `serde`, which has no hints of its own.
const HINT_MARK: char = '\u{1f}';

/// A message for `serde::de::Error::custom` that carries its hint; [`unhinted`] splits them again.
#[must_use]
pub fn hinted(message: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}{HINT_MARK}{hint}"),
        None => message.to_owned(),
    }
}

/// A message of `serde`, split into what is wrong and its hint.
#[must_use]
pub fn unhinted(message: &str) -> (String, Option<String>) {
    match message.split_once(HINT_MARK) {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (message.to_owned(), None),
    }
}
