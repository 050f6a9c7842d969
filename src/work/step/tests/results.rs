//! What is made of a record and an answer.

use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use super::bed::{Bed, bed};
use crate::run::record::{Record, Status};
use crate::run::schema::Schema;
use crate::run::state::{StepResult, StepStatus};
use crate::text::error::{Fault, Kind};
use crate::work::step::result::{Times, complaint, write_output_file};
use crate::work::step::{Outcome, invalid, retryable, step_result, wait_result};

fn record(status: Status, code: Option<i32>, kind: Option<Kind>) -> Record {
    let mut record = Record::new("shell", "t", 1, status);
    record.exit_code = code;
    record.error = kind.map(|kind| Fault::new(kind, "why"));
    record
}

fn steps() -> Bed {
    bed(concat!(
        "{name: text, command: [x]}\n",
        "{name: lines, command: [x], output_capture: lines}\n",
        "{name: json, command: [x], output_capture: json, output_schema: specs/schemas/s.json}\n",
        "{name: loose, command: [x], output_capture: json, allow_parse_error: true}\n",
        "{name: wait, wait_for: {glob: \"*.md\"}}"
    ))
}

fn result(bed: &Bed, step: &str, record: &Record, answer: &[u8]) -> StepResult {
    let step = bed
        .pinned
        .workflow
        .step(bed.pinned.workflow.find(step).unwrap());
    let schema = Schema::compile(&json!({"required": ["a"]})).unwrap();
    step_result(&Outcome {
        step,
        visit: 2,
        attempt: 3,
        record,
        answer,
        schema: step.output_schema.as_ref().map(|_| &schema),
    })
}

#[test]
fn exit_codes_and_retries_follow_the_table() {
    use Status::{Cancelled, Failed, Interrupted, Rejected, Succeeded, TimedOut};
    let bed = steps();
    let table = [
        (Succeeded, Some(0), None, 0, false),
        (Succeeded, Some(3), None, 3, false),
        (Succeeded, None, None, 0, false),
        (Failed, Some(1), Some(Kind::ProviderFailed), 1, true),
        (Failed, Some(7), Some(Kind::ProviderFailed), 7, false),
        (Failed, Some(2), Some(Kind::ProviderFailed), 2, false),
        (Failed, Some(0), Some(Kind::ProviderFailed), 1, true),
        (Failed, Some(9), Some(Kind::RateLimited), 9, true),
        (Failed, None, Some(Kind::ProviderFailed), 1, true),
        (Failed, None, Some(Kind::ProviderNotFound), 2, false),
        (Failed, None, Some(Kind::NoRecording), 2, false),
        (TimedOut, None, Some(Kind::TimeoutExpired), 124, true),
        (TimedOut, Some(5), Some(Kind::TimeoutExpired), 124, true),
        (Rejected, None, Some(Kind::InvalidTask), 2, false),
        (Cancelled, None, Some(Kind::Cancelled), 1, false),
        (Interrupted, None, None, 1, false),
    ];
    for (status, code, kind, exit, again) in table {
        let record = record(status, code, kind);
        let result = result(&bed, "text", &record, b"hi");
        let shown = format!("{status:?} {code:?} {kind:?}");
        assert_eq!(result.exit_code, exit, "{shown}");
        assert_eq!(retryable(&result, &record), again, "{shown}");
        assert_eq!(result.error.is_some(), status != Succeeded, "{shown}");
        let failed = result.status == StepStatus::Failed;
        assert_eq!(failed, status != Succeeded, "{shown}");
        assert_eq!(result.output.as_deref(), Some("hi"));
        assert_eq!((result.visit, result.attempt), (2, 3));
        assert_eq!(result.task.as_deref(), Some("shell/t"));
    }
}

#[test]
fn answers_are_read_as_the_step_says() {
    let bed = steps();
    let good = record(Status::Succeeded, Some(0), None);
    let lines = result(&bed, "lines", &good, b"a\r\nb\n");
    assert_eq!(lines.lines.unwrap(), ["a", "b"]);
    let json = result(&bed, "json", &good, b"{\"a\": 1}");
    assert_eq!((json.json_data, json.exit_code), (Some(json!({"a": 1})), 0));
    for (answer, kind) in [
        (&b"{"[..], Kind::JsonParseError),
        (b"{}", Kind::SchemaError),
    ] {
        let bad = result(&bed, "json", &good, answer);
        assert_eq!((bad.exit_code, bad.status), (2, StepStatus::Failed));
        assert_eq!(bad.error.as_ref().unwrap().kind, kind);
        assert!(retryable(&bad, &good));
        let said = complaint(&bad).unwrap();
        assert!(said.contains(&bad.error.unwrap().message), "{said}");
    }
    let loose = result(&bed, "loose", &good, b"{");
    assert_eq!((loose.exit_code, loose.output.as_deref()), (0, Some("{")));
    assert!(loose.json_parse_error.is_some());
    let text = result(&bed, "text", &good, &[b'x'; 10_000]);
    assert!(text.truncated && text.output.unwrap().len() == 8192);
}

#[test]
fn a_process_that_failed_stays_failed_with_its_own_error() {
    let bed = steps();
    let failed = record(Status::Failed, Some(7), Some(Kind::ProviderFailed));
    let result = result(&bed, "json", &failed, b"oops");
    assert_eq!(result.exit_code, 7);
    assert_eq!(result.error.as_ref().unwrap().kind, Kind::ProviderFailed);
    assert!(!retryable(&result, &failed));
    assert_eq!(complaint(&result), None);
}

#[test]
fn what_needs_no_process_has_results_too() {
    let bed = steps();
    let step = bed
        .pinned
        .workflow
        .step(bed.pinned.workflow.find("wait").unwrap());
    let times = Times {
        start: "s",
        end: "e",
        duration: Duration::from_millis(1500),
    };
    let fault = Fault::new(Kind::DependencyNotFoundError, "none");
    let bad = invalid(step, fault, 1, 1, &times);
    assert_eq!((bad.exit_code, bad.status), (2, StepStatus::Failed));
    let late = wait_result(step, (1, 1), &times, &[], 4, 1);
    assert_eq!(late.exit_code, 124);
    assert_eq!(late.waited.unwrap().poll_count, 4);
    let there = wait_result(step, (1, 1), &times, &["a.md".to_owned()], 1, 1);
    assert_eq!((there.exit_code, there.status), (0, StepStatus::Succeeded));
    let shown = json!(there);
    assert_eq!(shown["files"], json!(["a.md"]));
    assert_eq!(shown["wait_duration_ms"], 1500);
    assert_eq!(shown["poll_count"], 1);
    assert_eq!(
        serde_json::from_value::<StepResult>(shown).unwrap(),
        there,
        "it is read as it was written"
    );
}

#[test]
fn an_output_file_is_written_whole_and_inside_the_root() {
    let bed = steps();
    let root = &bed.root;
    for text in ["first", "second"] {
        write_output_file(root, "out/deep/x.txt", text.as_bytes()).unwrap();
        let read = std::fs::read_to_string(root.path.join("out/deep/x.txt")).unwrap();
        assert_eq!(read, text);
    }
    let left = std::fs::read_dir(root.path.join("out/deep")).unwrap();
    assert_eq!(left.count(), 1);
    let other = tempfile::tempdir().unwrap();
    symlink(other.path(), root.path.join("link")).unwrap();
    symlink(other.path().join("f"), root.path.join("out/f")).unwrap();
    for path in ["/etc/x", "../x", "link/x", "out/../../x"] {
        let fault = write_output_file(root, path, b"x").expect_err(path);
        assert_eq!(fault.kind, Kind::SafetyViolation, "{path}: {fault}");
    }
    // A link in the file's own place is replaced, not written through.
    write_output_file(root, "out/f", b"x").unwrap();
    assert!(!other.path().join("f").exists());
    assert!(write_output_file(root, "out/deep", b"x").is_err());
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}
