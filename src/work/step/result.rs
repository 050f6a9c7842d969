//! What a step leaves behind: its answer read as the step says, and its exit code.
//!
//! The process decides first; only the answer of one that succeeded can still be invalid.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::disk::paths;
use crate::disk::root::Root;
use crate::run::json_answer::Source;
use crate::run::output::{self, Mode, OnBadJson};
use crate::run::record::{Record, Status};
use crate::run::schema::Schema;
use crate::run::state::{StepResult, StepStatus, Waited};
use crate::spec::workflow::model::{Capture, Step};
use crate::text::error::{Fault, Kind, Result};

/// The exit code of what was invalid before a process ran, or in its output.
pub const INVALID: i32 = output::INVALID_OUTPUT;
/// The exit code of what took too long.
pub const TIMEOUT: i32 = 124;
/// The exit code of a failure that has none.
const FAILED: i32 = 1;

/// An attempt at a step that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// The step.
    pub step: &'a Step,
    /// Which visit of it this is.
    pub visit: u64,
    /// Which attempt of that visit; it may differ from the record's.
    pub attempt: u32,
    /// What the mailbox recorded.
    pub record: &'a Record,
    /// The whole of `NAME.out`.
    pub answer: &'a [u8],
    /// The schema of the answer, as `schema` gave it.
    pub schema: Option<&'a Schema>,
}

/// When something began and ended, RFC 3339.
#[derive(Debug, Clone, Copy)]
pub struct Times<'a> {
    /// When it began.
    pub start: &'a str,
    /// When it ended.
    pub end: &'a str,
    /// What lies in between.
    pub duration: Duration,
}

/// The result of an attempt.
#[must_use]
pub fn step_result(outcome: &Outcome<'_>) -> StepResult {
    let Outcome {
        step,
        record,
        answer,
        ..
    } = *outcome;
    let on_bad = match step.allow_parse_error {
        true => OnBadJson::KeepText,
        false => OnBadJson::Fail,
    };
    let captured = output::capture(mode(step.capture), answer, on_bad, outcome.schema);
    let succeeded = record.status.is_success();
    let invalid = captured.fault.clone().filter(|_| succeeded);
    StepResult {
        step_name: step.name.value.clone(),
        status: match succeeded && invalid.is_none() {
            true => StepStatus::Succeeded,
            false => StepStatus::Failed,
        },
        exit_code: match &invalid {
            Some(_) => INVALID,
            None => exit_code(record),
        },
        start_time: record.start_time.clone(),
        end_time: record.end_time.clone(),
        duration: record.duration,
        output: captured.output,
        lines: captured.lines,
        json_data: captured.json_data,
        truncated: captured.truncated,
        // A process that failed is not said to have printed bad JSON.
        json_parse_error: captured.json_parse_error.filter(|_| succeeded),
        error: invalid.or_else(|| error(record)),
        note: None,
        attempt: outcome.attempt,
        visit: outcome.visit,
        task: Some(format!("{}/{}", record.agent, record.task)),
        artifacts: record.files.clone(),
        waited: None,
        more: found_in(captured.json_source),
    }
}

/// Where the JSON of an answer was found, where that is not the whole of it.
fn found_in(source: Option<Source>) -> Map<String, Value> {
    let mut more = Map::new();
    if let Some(source @ (Source::Fence | Source::Prose)) = source {
        more.insert("json_from".to_owned(), json!(source));
    }
    more
}

/// The result of a step that was invalid before a process ran.
#[must_use]
pub fn invalid(
    step: &Step,
    fault: Fault,
    visit: u64,
    attempt: u32,
    times: &Times<'_>,
) -> StepResult {
    StepResult {
        status: StepStatus::Failed,
        exit_code: INVALID,
        error: Some(fault),
        ..blank(step, visit, attempt, times)
    }
}

/// The result of a step that waited for files: those that are there, and how it was looked.
#[must_use]
pub fn wait_result(
    step: &Step,
    (visit, attempt): (u64, u32),
    times: &Times<'_>,
    files: &[String],
    polls: u64,
    min_count: u64,
) -> StepResult {
    let mut result = blank(step, visit, attempt, times);
    if (files.len() as u64) < min_count {
        let message = format!(
            "{} of {min_count} files were there after {:.1} s",
            files.len(),
            times.duration.as_secs_f64()
        );
        result.status = StepStatus::Failed;
        result.exit_code = TIMEOUT;
        result.error = Some(Fault::new(Kind::TimeoutExpired, message));
    }
    let waited = u64::try_from(times.duration.as_millis()).unwrap_or(u64::MAX);
    result.waited = Some(Waited {
        files: files.to_vec(),
        wait_duration_ms: waited,
        poll_count: polls,
    });
    result
}

/// The result of a step that orch did itself, as far as it is the same for all.
#[must_use]
pub fn action_result(step: &Step, (visit, attempt): (u64, u32), times: &Times<'_>) -> StepResult {
    blank(step, visit, attempt, times)
}

/// Makes a result one that has failed.
pub fn fail(result: &mut StepResult, fault: Fault, exit_code: i32) {
    result.status = StepStatus::Failed;
    result.exit_code = exit_code;
    result.error = Some(fault);
}

/// Whether a declared retry may try again after this.
#[must_use]
pub fn retryable(result: &StepResult, record: &Record) -> bool {
    let ended_by_us = matches!(
        record.status,
        Status::Rejected | Status::Cancelled | Status::Interrupted | Status::Started
    );
    let kind = result.error.as_ref().map(|fault| fault.kind);
    if result.status != StepStatus::Failed || ended_by_us || is_invalid_before(record) {
        return false;
    }
    let bad_output = complaint(result).is_some();
    let passes = kind == Some(Kind::RateLimited);
    bad_output || passes || matches!(result.exit_code, FAILED | TIMEOUT)
}

/// Puts a step's whole answer into its `output_file`, in one step; folders are made.
///
/// # Errors
/// [`Kind::SafetyViolation`] where the path leads out of the root, by a link too.
pub fn write_output_file(root: &Root, path: &str, bytes: &[u8]) -> Result<()> {
    paths::write(root, path, bytes)
}

/// What is told to the agent that is asked again, if its answer was the trouble.
#[must_use]
pub fn complaint(result: &StepResult) -> Option<String> {
    let fault = result.error.as_ref()?;
    let about_answer = matches!(
        fault.kind,
        Kind::JsonParseError | Kind::SchemaError | Kind::OutputTooLargeError
    );
    (result.exit_code == INVALID && about_answer).then(|| {
        let hint = fault.hint.as_deref().map(|hint| format!("; {hint}"));
        format!(
            "Your previous answer could not be used: {}{}.",
            fault.message,
            hint.unwrap_or_default()
        )
    })
}

fn mode(capture: Capture) -> Mode {
    match capture {
        Capture::Text => Mode::Text,
        Capture::Lines => Mode::Lines,
        Capture::Json => Mode::Json,
    }
}

/// As the process said. A failure is never 0, and success is whatever the provider takes for it.
fn exit_code(record: &Record) -> i32 {
    match (record.status, record.exit_code) {
        (Status::Succeeded, code) => code.unwrap_or(0),
        (Status::TimedOut, _) => TIMEOUT,
        _ if is_invalid_before(record) => INVALID,
        (_, Some(0) | None) => FAILED,
        (_, Some(code)) => code,
    }
}

/// What went wrong, said in any case where something did.
fn error(record: &Record) -> Option<Fault> {
    if record.status.is_success() {
        return None;
    }
    Some(record.error.clone().unwrap_or_else(|| {
        let message = format!("the task is {}", record.status.as_str());
        Fault::new(Kind::StepFailed, message)
    }))
}

/// Nothing was run, because it could not be.
fn is_invalid_before(record: &Record) -> bool {
    let ran = record.exit_code.is_some() || record.signal.is_some();
    let kind = record.error.as_ref().map(|fault| fault.kind);
    let refused = matches!(
        kind,
        Some(
            Kind::ProviderNotFound
                | Kind::FileNotFound
                | Kind::LimitExceeded
                | Kind::InvalidTask
                | Kind::InvalidSettings
                | Kind::WorkflowValidationError
                | Kind::UnknownAgent
                | Kind::UnknownProvider
                | Kind::UnknownDir
                | Kind::MissingTemplateKeyError
                | Kind::UndefinedVariableError
                | Kind::DependencyNotFoundError
                | Kind::NoRecording
                | Kind::SafetyViolation
        )
    );
    record.status == Status::Rejected || (!record.status.is_success() && !ran && refused)
}

fn blank(step: &Step, visit: u64, attempt: u32, times: &Times<'_>) -> StepResult {
    StepResult {
        step_name: step.name.value.clone(),
        status: StepStatus::Succeeded,
        exit_code: 0,
        start_time: times.start.to_owned(),
        end_time: times.end.to_owned(),
        duration: (times.duration.as_secs_f64() * 1000.0).round() / 1000.0,
        output: None,
        lines: None,
        json_data: None::<Value>,
        truncated: false,
        json_parse_error: None,
        error: None,
        note: None,
        attempt,
        visit,
        task: None,
        artifacts: Vec::new(),
        waited: None,
        more: Map::new(),
    }
}
