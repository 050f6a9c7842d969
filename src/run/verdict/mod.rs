//! Decides whether an attempt succeeded or failed, why, and whether to try again.
//!
//! Exit code 0 alone is not success, and what a program prints counts only where its configuration
//! says so. A plain answer is neither copied nor searched.

use std::sync::OnceLock;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

mod message;

#[cfg(test)]
mod tests;

use self::message::{clean, last_meaningful_line, tail};
use crate::run::record::{Status, Usage};
use crate::spec::provider::config::{OutputKind, ProviderConfig};
use crate::spec::provider::rule::Finder;
use crate::text::error::{Fault, Kind};
use crate::text::units::{show_duration, show_size};

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// A signal that orch did not send for a limit.
    Signal(i32),
    /// A limit of time was reached.
    TimedOut {
        /// Whether it was the limit on silence.
        idle: bool,
        /// How long that limit is.
        after: Duration,
    },
    /// The limit of output was reached.
    OutputTooLarge {
        /// That limit in bytes.
        limit: u64,
    },
}

/// Whether stdout must be read to judge a process that ended like this.
#[must_use]
pub fn reads_output(config: &ProviderConfig, exit: Exit) -> bool {
    let plain = config.output == OutputKind::Text
        && !config.success.require_output
        && config.success.fail_if_match.is_empty();
    !(plain && exit == Exit::Code(0))
}

/// What was observed of a process.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// How it ended.
    pub exit: Exit,
    /// What it printed.
    pub stdout: &'a [u8],
    /// What it printed on stderr.
    pub stderr: &'a [u8],
}

/// Whether another attempt may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It will not.
    No,
    /// It may, after this time if the provider named one.
    After(Option<Duration>),
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Verdict {
    /// How the attempt ended.
    pub status: Status,
    /// The answer; `None` means that stdout itself is the answer.
    pub text: Option<String>,
    /// Tokens and cost, if the provider reports them.
    pub usage: Option<Usage>,
    /// The provider's session.
    pub session_id: Option<String>,
    /// What went wrong.
    pub error: Option<Fault>,
    /// Whether to try again.
    pub retry: Retry,
}

/// Judges what was observed.
pub fn judge(name: &str, config: &ProviderConfig, seen: &Observed<'_>) -> Verdict {
    let found = match config.output {
        OutputKind::Text => Found::default(),
        kind => Found::read(kind, config, seen.stdout),
    };
    let case = Case {
        name,
        config,
        seen,
        found: &found,
    };
    let failure = case.failure();
    let (status, error, retry) = match failure {
        None => (Status::Succeeded, None, Retry::No),
        Some((status, fault, retry)) => (status, Some(fault), retry),
    };
    Verdict {
        status,
        text: found.text,
        usage: Some(found.usage).filter(|usage| !usage.is_empty()),
        session_id: found.session,
        error,
        retry,
    }
}

/// What the rules found in JSON output.
#[derive(Debug, Default)]
struct Found {
    text: Option<String>,
    failed: bool,
    error: Option<String>,
    denied: Option<String>,
    usage: Usage,
    session: Option<String>,
    not_json: bool,
}

impl Found {
    fn read(kind: OutputKind, config: &ProviderConfig, stdout: &[u8]) -> Self {
        let rules = &config.result;
        let mut finders = [
            &rules.text,
            &rules.failed,
            &rules.error,
            &rules.denied,
            &rules.cost_usd,
            &rules.session,
            &rules.input_tokens,
            &rules.output_tokens,
            &rules.cached_tokens,
        ]
        .map(|rule| Finder::new(rule.as_ref()));
        let documents = for_each_document(kind, stdout, |document| {
            finders.iter_mut().for_each(|finder| finder.look(document));
        });
        let [
            text,
            failed,
            error,
            denied,
            cost,
            session,
            input,
            output,
            cached,
        ] = finders;
        Found {
            text: rules.text.as_ref().map(|_| text.text().unwrap_or_default()),
            failed: failed.is_true(),
            error: error.text(),
            denied: denied.text(),
            usage: Usage {
                input_tokens: input.count(),
                output_tokens: output.count(),
                cached_tokens: cached.count(),
                cost_usd: cost.number(),
            },
            session: session.text(),
            not_json: documents == 0,
        }
    }
}

/// Gives every JSON document to `look`, and says how many there were.
fn for_each_document(kind: OutputKind, stdout: &[u8], mut look: impl FnMut(&Value)) -> usize {
    if kind == OutputKind::Json {
        let document = one_document(stdout);
        document.iter().for_each(&mut look);
        return usize::from(document.is_some());
    }
    let mut count = 0;
    for line in stdout.split(|b| *b == b'\n') {
        let line = line.trim_ascii();
        if line.starts_with(b"{")
            && let Ok(document) = serde_json::from_slice::<Value>(line)
        {
            look(&document);
            count += 1;
        }
    }
    count
}

/// The document, also where a program printed lines of text before it.
fn one_document(stdout: &[u8]) -> Option<Value> {
    if let Ok(document) = serde_json::from_slice(stdout) {
        return Some(document);
    }
    let mut at = 0;
    for line in stdout.split_inclusive(|b| *b == b'\n').take(64) {
        if line.starts_with(b"{") || line.starts_with(b"[") {
            let rest = serde_json::Deserializer::from_slice(&stdout[at..]);
            if let Some(Ok(document)) = rest.into_iter::<Value>().next()
                && (document.is_object() || document.is_array())
            {
                return Some(document);
            }
        }
        at += line.len();
    }
    None
}

type Failure = (Status, Fault, Retry);

/// Everything that is known about one attempt.
struct Case<'a> {
    name: &'a str,
    config: &'a ProviderConfig,
    seen: &'a Observed<'a>,
    found: &'a Found,
}

impl Case<'_> {
    fn failure(&self) -> Option<Failure> {
        match self.seen.exit {
            Exit::TimedOut { idle, after } => Some(self.timed_out(idle, after)),
            Exit::OutputTooLarge { limit } => Some(self.too_large(limit)),
            Exit::Signal(signal) => Some(self.signalled(signal)),
            Exit::Code(code) if !self.config.success.exit_codes.contains(&code) => {
                Some(self.exited(code))
            }
            Exit::Code(_) => self.false_success(),
        }
    }

    /// Failures in spite of a good exit code.
    fn false_success(&self) -> Option<Failure> {
        let success = &self.config.success;
        if self.found.failed {
            let message = self
                .own_message()
                .unwrap_or_else(|| "it reports a failure".into());
            return Some(self.classified(&message, None));
        }
        if !success.fail_if_match.is_empty()
            && let Some(line) = success.fail_if_match.matching_line(self.answer())
        {
            let message = clean(&String::from_utf8_lossy(line));
            return Some(self.classified(&message, None));
        }
        if let Some(denied) = &self.found.denied {
            return Some(self.denied(denied));
        }
        if self.found.not_json && !self.seen.stdout.trim_ascii_start().is_empty() {
            return Some(self.not_json());
        }
        if success.require_output && self.answer().trim_ascii_start().is_empty() {
            return Some(self.no_answer());
        }
        None
    }

    /// The answer; stdout if that is the answer, or if no answer was found in it.
    fn answer(&self) -> &[u8] {
        match &self.found.text {
            Some(text) if !self.found.not_json => text.as_bytes(),
            _ => self.seen.stdout,
        }
    }

    /// What was printed in no known form. If an answer was found, it is not searched for reasons: it may
    /// mention authentication without having failed at it.
    fn unparsed(&self) -> &[u8] {
        match self.config.output {
            OutputKind::Text => self.seen.stdout,
            _ if self.found.not_json => self.seen.stdout,
            _ => &[],
        }
    }

    /// The provider's own error message.
    fn own_message(&self) -> Option<String> {
        let own = self.found.error.as_deref().map(clean);
        own.filter(|text| !text.is_empty())
            .or_else(|| last_meaningful_line(self.seen.stderr))
            .or_else(|| last_meaningful_line(self.answer()))
    }

    fn exited(&self, code: i32) -> Failure {
        let message = match self.own_message() {
            Some(message) => format!("exit code {code}: {message}"),
            None => format!("exit code {code}, and no error message"),
        };
        let hint = match code {
            126 => Some("126 usually means that a program is not executable"),
            127 => Some(
                "127 usually means that a program was not found; look at `path:` in `specs/orch.yaml`",
            ),
            _ => None,
        };
        self.classified(&message, hint)
    }

    /// Finds out whether the failure is permanent: from the message first, then from everything else that
    /// was printed.
    fn classified(&self, message: &str, hint: Option<&str>) -> Failure {
        let said = format!("`{}` failed: {message}", self.name);
        let more = [tail(self.seen.stderr), tail(self.unparsed())];
        for text in [message.as_bytes()].into_iter().chain(more) {
            if self.config.too_long.matches(text) {
                return too_long(&said);
            }
            if let Some(line) = self.config.fatal.matching_line(text) {
                return self.fatal(&said, &String::from_utf8_lossy(line));
            }
            if self.config.transient.matches(text) {
                return self.rate_limited(said, &more);
            }
        }
        let fault = Fault::new(Kind::ProviderFailed, said);
        let fault = match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        };
        (Status::Failed, fault, Retry::No)
    }

    fn fatal(&self, said: &str, line: &str) -> Failure {
        let fault = if regex(&AUTH, AUTH_SOURCE).is_match(line) {
            Fault::new(Kind::AuthenticationFailed, said).hint(self.login_hint())
        } else if regex(&QUOTA, QUOTA_SOURCE).is_match(line) {
            Fault::new(Kind::RateLimited, said)
                .hint("the quota is used up: run `orch retry` when it has been reset")
        } else {
            Fault::new(Kind::ProviderFailed, said)
        };
        (Status::Failed, fault, Retry::No)
    }

    fn login_hint(&self) -> String {
        let program = self.config.program();
        let is_key = |name: &&String| name.ends_with("KEY") || name.ends_with("TOKEN");
        match self.config.env.iter().find(is_key) {
            Some(key) => {
                format!(
                    "run `{program}` once by hand to log in, or set `{key}` in orch's environment"
                )
            }
            None => format!("run `{program}` once by hand to log in"),
        }
    }

    fn rate_limited(&self, said: String, more: &[&[u8]]) -> Failure {
        let wait = retry_after(&said).or_else(|| {
            let mut texts = more.iter().map(|text| String::from_utf8_lossy(text));
            texts.find_map(|text| retry_after(&text))
        });
        let fault = Fault::new(Kind::RateLimited, said)
            .hint("the service is busy: try again later, or lower `--jobs`");
        (Status::Failed, fault, Retry::After(wait))
    }

    fn denied(&self, what: &str) -> Failure {
        let message = format!("`{}` was not allowed to use: {}", self.name, clean(what));
        let fault = Fault::new(Kind::PermissionDenied, message).hint(
            "allow more with `access: edit` or `access: full` in the task or in the agent's file",
        );
        (Status::Failed, fault, Retry::No)
    }

    fn not_json(&self) -> Failure {
        let message = match last_meaningful_line(self.seen.stdout) {
            Some(line) => format!("it printed no JSON; its last line: {line}"),
            None => "it printed no JSON".to_owned(),
        };
        let (status, fault, retry) = self.classified(&message, None);
        match fault.kind {
            Kind::ProviderFailed => {
                let fault = Fault::new(Kind::JsonParseError, fault.message).hint(
                    "look at `NAME.raw`: a newer version of the program may print another format",
                );
                (status, fault, retry)
            }
            _ => (status, fault, retry),
        }
    }

    fn no_answer(&self) -> Failure {
        let message = match last_meaningful_line(self.seen.stderr) {
            Some(line) => format!("it gave no answer: {line}"),
            None => "it gave no answer".to_owned(),
        };
        self.classified(
            &message,
            Some("an empty answer counts as a failure for this provider (`require_output`)"),
        )
    }

    fn timed_out(&self, idle: bool, after: Duration) -> Failure {
        let after = show_duration(after);
        let (message, key) = match idle {
            true => (
                format!("`{}` printed nothing for {after}", self.name),
                "idle_timeout",
            ),
            false => (
                format!("`{}` took longer than {after}", self.name),
                "timeout",
            ),
        };
        let last = self.found.error.as_deref().map(clean);
        let last = last.filter(|text| !text.is_empty());
        let message = match last.or_else(|| last_meaningful_line(self.seen.stderr)) {
            Some(line) => format!("{message}; its last line: {line}"),
            None => message,
        };
        let fault = Fault::new(Kind::TimeoutExpired, message).hint(format!(
            "raise `{key}` in the task, in the agent's file or in `specs/orch.yaml`"
        ));
        (Status::TimedOut, fault, Retry::No)
    }

    fn too_large(&self, limit: u64) -> Failure {
        let message = format!("`{}` printed more than {}", self.name, show_size(limit));
        let fault = Fault::new(Kind::OutputTooLargeError, message)
            .hint("raise `limits: {output: ...}` in `specs/orch.yaml`, or let it write to a file");
        (Status::Failed, fault, Retry::No)
    }

    fn signalled(&self, signal: i32) -> Failure {
        let signal_name = signal_name(signal);
        let message = match last_meaningful_line(self.seen.stderr) {
            Some(line) => format!("`{}` was killed by {signal_name}: {line}", self.name),
            None => format!("`{}` was killed by {signal_name}", self.name),
        };
        let fault = Fault::new(Kind::ProviderFailed, message);
        let fault = match signal {
            9 => fault.hint("someone killed it, or the machine ran out of memory"),
            _ => fault,
        };
        (Status::Failed, fault, Retry::No)
    }
}

/// The prompt does not fit: a longer wait or another key changes nothing.
fn too_long(said: &str) -> Failure {
    let fault = Fault::new(Kind::PromptTooLong, said).hint(
        "give it less: a shorter task, fewer injected files, or a model with a larger context",
    );
    (Status::Failed, fault, Retry::No)
}

static AUTH: OnceLock<Regex> = OnceLock::new();
const AUTH_SOURCE: &str = r"(?i)\b401\b|unauthori[sz]ed|authenticat|api.?key|log(ged)? ?in|(auth|access|bearer|oauth|invalid|expired|missing)[ _-]*token|token (is |has )?(invalid|expired)|forbidden";
static QUOTA: OnceLock<Regex> = OnceLock::new();
const QUOTA_SOURCE: &str = r"(?i)hit your .*limit|quota|credit balance";
static WAIT: OnceLock<Regex> = OnceLock::new();
const WAIT_SOURCE: &str = r#"(?i)(?:retry|try again)[-_ ]*(?:after|in|delay)["']?[:= ]+["']?(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)?\b"#;

fn regex(cell: &'static OnceLock<Regex>, source: &str) -> &'static Regex {
    // Invariant: the sources are constants of this file, and the tests use every one of them.
    cell.get_or_init(|| Regex::new(source).expect("a constant expression"))
}

/// The delay that a provider asks for: `retry-after: 20`, `try again in 5 minutes`.
fn retry_after(text: &str) -> Option<Duration> {
    let found = regex(&WAIT, WAIT_SOURCE).captures(text)?;
    let number: f64 = found[1].parse().ok()?;
    let unit = found
        .get(2)
        .map_or("s", |unit| unit.as_str())
        .to_ascii_lowercase();
    let seconds = match unit.as_str() {
        unit if unit.starts_with("ms") || unit.starts_with("milli") => number / 1000.0,
        unit if unit.starts_with('m') => number * 60.0,
        unit if unit.starts_with('h') => number * 3600.0,
        _ => number,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// The name of a signal, as people know it.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    names
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(
            || format!("signal {signal}"),
            |(_, name)| (*name).to_owned(),
        )
}
