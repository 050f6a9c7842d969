//! Runs on a root of their own, with tiny workflows: what is kept, what is cut, what is refused.

pub(crate) mod bed;

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::run::flow;
use crate::run::state::{Event, Facts, RunStatus};
pub(crate) use bed::{Bed, NOW, RUN, TEXT, a_spec, created, result, runs_at, workflow};

#[test]
fn what_was_applied_is_loaded_again() {
    let bed = Bed::new();
    assert_eq!(bed.load().unwrap(), flow::nothing());
    let state = bed.three();
    assert_eq!(bed.load().unwrap(), state);
    assert_eq!(bed.run.peek().unwrap(), state);
    let state = bed.enter(state);
    let state = bed.finish(state, result("two"));
    assert_eq!(state.status, RunStatus::Succeeded);
    assert_eq!(bed.load().unwrap(), state);
    let lines = bed.lines();
    assert_eq!(lines.len(), 5);
    assert!(lines[0].contains(log::NO_LINE));
    assert!(lines[1].contains(&sha256(format!("{}\n", lines[0]).as_bytes())));
    assert_eq!(state.log_head, sha256(format!("{}\n", lines[4]).as_bytes()));
    assert!(lines[2].contains("[one] one OK -> two"), "{}", lines[2]);
}

#[test]
fn a_state_that_lags_is_caught_up_and_one_that_is_lost_is_made_anew() {
    let bed = Bed::new();
    let (first, _) = bed.apply(flow::nothing(), created("please"));
    let kept = std::fs::read(bed.file(STATE_FILE)).unwrap();
    let state = bed.finish(bed.enter(first), result("one"));
    let latest = std::fs::read(bed.file(STATE_FILE)).unwrap();
    std::fs::write(bed.file(STATE_FILE), kept).unwrap();
    assert_eq!(bed.load().unwrap(), state);
    assert_eq!(std::fs::read(bed.file(STATE_FILE)).unwrap(), latest);
    for torn in [&b""[..], &latest[..latest.len() / 2], &[0; 100]] {
        std::fs::write(bed.file(STATE_FILE), torn).unwrap();
        assert_eq!(bed.load().unwrap(), state);
    }
    std::fs::remove_file(bed.file(STATE_FILE)).unwrap();
    assert_eq!(bed.load().unwrap(), state);
    assert_eq!(std::fs::read(bed.file(STATE_FILE)).unwrap(), latest);
}

#[test]
fn a_torn_end_is_cut() {
    let bed = Bed::new();
    let state = bed.three();
    let whole = std::fs::read(bed.log()).unwrap();
    for torn in [
        &b"{\"seq\":4,\"at\""[..],
        &[0; 5000],
        b"{\"seq\":4\0\0\0}\n",
        b"\0",
    ] {
        bed.add_to_log(torn);
        assert_eq!(bed.load().unwrap(), state, "{torn:?}");
        assert_eq!(std::fs::read(bed.log()).unwrap(), whole);
    }
    bed.add_to_log(b"{\"seq\"");
    let next = bed.enter(bed.load().unwrap());
    assert_eq!(bed.load().unwrap(), next);
    // With nothing whole in it, the run has not begun.
    std::fs::remove_file(bed.file(STATE_FILE)).unwrap();
    std::fs::write(bed.log(), &whole[..20]).unwrap();
    assert_eq!(bed.load().unwrap(), flow::nothing());
}

#[test]
fn a_log_that_contradicts_itself_or_its_state_is_corrupted() {
    let bed = Bed::new();
    let old = {
        let (first, _) = bed.apply(flow::nothing(), created("please"));
        let kept = std::fs::read(bed.file(STATE_FILE)).unwrap();
        bed.finish(bed.enter(first), result("one"));
        kept
    };
    let state = std::fs::read(bed.file(STATE_FILE)).unwrap();
    let lines = bed.lines();
    let whole = std::fs::read(bed.log()).unwrap();

    bed.add_to_log(b"not json\n");
    bed.corrupted("line 4");
    std::fs::write(bed.log(), &whole).unwrap();

    // The last line was changed, then dropped: the state is ahead of it.
    bed.write_lines(&[
        lines[0].clone(),
        lines[1].clone(),
        lines[2].replace("done", "dome"),
    ]);
    bed.corrupted("event 3");
    bed.write_lines(&lines[..2]);
    bed.corrupted("event 3");
    std::fs::write(bed.log(), "").unwrap();
    bed.corrupted("event 3");
    std::fs::remove_file(bed.log()).unwrap();
    bed.corrupted("there is no log");

    // A state that lags needs the lines after it; one that is lost needs all of them.
    for state in [Some(old), None] {
        match &state {
            Some(state) => std::fs::write(bed.file(STATE_FILE), state).unwrap(),
            None => std::fs::remove_file(bed.file(STATE_FILE)).unwrap(),
        }
        bed.write_lines(&[lines[0].clone(), lines[2].clone()]);
        bed.corrupted("line 2");
        bed.write_lines(&[
            lines[0].clone(),
            lines[1].replace(NOW, "2027-01-01T00:00:00Z"),
            lines[2].clone(),
        ]);
        bed.corrupted("line 3: the chain is broken");
    }
    std::fs::write(bed.log(), &whole).unwrap();
    std::fs::write(bed.file(STATE_FILE), state).unwrap();
    assert_eq!(bed.load().unwrap().seq, 3);
}

#[test]
fn repair_goes_by_the_log() {
    let bed = Bed::new();
    bed.three();
    bed.write_lines(&bed.lines()[..2]);
    bed.corrupted("event 3");
    let state = bed
        .run
        .lock(PATIENCE)
        .unwrap()
        .rebuild(&bed.workflow)
        .unwrap();
    assert_eq!(state.seq, 2);
    assert_eq!(bed.load().unwrap(), *state);
}

#[test]
fn versions_and_owners_are_checked() {
    let bed = Bed::new();
    let state = bed.three();
    let put = |key: &str, value: Value| {
        let mut document = serde_json::to_value(&state).unwrap();
        document[key] = value;
        let text = document.to_string();
        std::fs::write(bed.file(STATE_FILE), &text).unwrap();
        text
    };
    put("version", json!(0));
    assert_eq!(bed.load().unwrap(), state);
    bed.add_to_log(b"torn");
    let log = std::fs::read(bed.log()).unwrap();
    let newer = put("version", json!(2));
    let fault = bed.load().unwrap_err();
    assert_eq!(fault.kind, Kind::NewerVersion);
    assert_eq!(bed.run.peek().unwrap_err().kind, Kind::NewerVersion);
    assert_eq!(
        std::fs::read_to_string(bed.file(STATE_FILE)).unwrap(),
        newer
    );
    assert_eq!(std::fs::read(bed.log()).unwrap(), log);
    put("run_id", json!("other"));
    bed.corrupted("is of run `other`");
    put("workflow_name", json!("v"));
    bed.corrupted("is of workflow `v`");
}

#[test]
fn only_the_latest_state_takes_an_event() {
    let bed = Bed::new();
    let (first, _) = bed.apply(flow::nothing(), created("please"));
    bed.enter(first.clone());
    let lines = bed.lines();
    for run in [&bed.run, &bed.runs.open(RUN).unwrap()] {
        let locked = run.lock(PATIENCE).unwrap();
        let stale = locked.apply(&bed.workflow, first.clone(), NOW, Event::Cancelled);
        assert_eq!(stale.unwrap_err().kind, Kind::Busy);
    }
    let state = bed.load().unwrap();
    let locked = bed.run.lock(PATIENCE).unwrap();
    let unfit = locked.apply(&bed.workflow, state, NOW, created("again"));
    assert_eq!(unfit.unwrap_err().kind, Kind::Usage);
    assert_eq!(bed.lines(), lines);
}

#[test]
fn what_would_not_read_back_is_not_logged() {
    let bed = Bed::new();
    let state = bed.enter(bed.apply(flow::nothing(), created("please")).0);
    let deep = (0..126).fold(json!(1), |inner, _| json!([inner]));
    let mut bad = result("one");
    bad.json_data = Some(deep);
    let task = state.pending[0].task.clone();
    let event = Event::Finished {
        task,
        result: Box::new(bad),
        changes: Default::default(),
        facts: Facts::default(),
    };
    let refused = bed
        .run
        .lock(PATIENCE)
        .unwrap()
        .apply(&bed.workflow, state.clone(), NOW, event);
    assert!(refused.is_err());
    assert_eq!(bed.load().unwrap(), state);
}

#[test]
fn one_holder_at_a_time() {
    let bed = Bed::new();
    let held = bed.run.lock(PATIENCE).unwrap();
    let other = bed.runs.open(RUN).unwrap();
    let fault = other.lock(Duration::from_millis(30)).unwrap_err();
    assert_eq!((fault.kind, fault.exit_code()), (Kind::Busy, 75));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock(PATIENCE).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_large_state_is_replaced_now_and_then_and_at_the_end() {
    let bed = Bed::new();
    let (mut state, _) = bed.apply(flow::nothing(), created(&"x".repeat(100_000)));
    state = bed.enter(state);
    let task = state.pending[0].task.clone();
    let mut replaced = 0;
    let mut before = bed.run.peek().unwrap().seq;
    for attempt in 2..=900 {
        state = bed
            .apply(
                state,
                Event::Retried {
                    task: task.clone(),
                    attempt,
                },
            )
            .0;
        let seq = bed.run.peek().unwrap().seq;
        replaced += usize::from(seq != before);
        before = seq;
    }
    assert!((1..10).contains(&replaced), "{replaced}");
    assert!(before < state.seq);
    // A second process does not start the count anew, and sees what the log says.
    assert_eq!(bed.load().unwrap(), state);
    assert_eq!(bed.run.peek().unwrap().seq, before);
    state = bed.apply(state, Event::Cancelled).0;
    assert_eq!(bed.run.peek().unwrap(), state);
}

/// Set in the process whose files may not grow past a few KiB.
const LIMITED: &str = "ORCH_TEST_LIMITED_FILES";

/// Not a test by itself: the part of the test below that runs in a process of its own.
#[test]
fn with_a_limit_on_files() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let bed = Bed::new();
    let state = bed.three();
    let whole = std::fs::read(bed.log()).unwrap();
    let mut long = result("two");
    long.output = Some("x".repeat(100_000));
    let state = bed.enter(state);
    let before = std::fs::read(bed.log()).unwrap();
    assert!(whole.len() < before.len());
    let task = state.pending[0].task.clone();
    let event = Event::Finished {
        task,
        result: Box::new(long),
        changes: Default::default(),
        facts: Facts::default(),
    };
    let failed = bed
        .run
        .lock(PATIENCE)
        .unwrap()
        .apply(&bed.workflow, state.clone(), NOW, event);
    let fault = failed.unwrap_err();
    assert!(fault.message.contains("bytes were written"), "{fault}");
    assert_eq!(std::fs::read(bed.log()).unwrap(), before);
    assert_eq!(bed.load().unwrap(), state);
}

#[test]
fn a_short_append_is_cut_back() {
    let ran = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -f 32 && exec \"$0\" --exact disk::store::tests::with_a_limit_on_files",
        ])
        .arg(std::env::current_exe().unwrap())
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_spec_is_read_back_byte_for_byte() {
    let bed = Bed::new();
    assert_eq!(bed.run.spec().unwrap(), a_spec());
    let path = bed.file("spec/specs/prompts/deep/p.md");
    std::fs::write(&path, "do it!").unwrap();
    let fault = bed.run.spec().unwrap_err();
    assert_eq!(fault.kind, Kind::SafetyViolation);
    assert!(fault.message.contains("deep/p.md"), "{fault}");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert_eq!(bed.run.spec().unwrap_err().kind, Kind::SafetyViolation);
}

#[test]
fn a_run_that_has_begun_is_not_made_again_and_a_half_made_one_is() {
    let temp = tempfile::tempdir().unwrap();
    let runs = runs_at(temp.path());
    let mut old = a_spec();
    old.files.insert("specs/old.md".to_owned(), Vec::new());
    runs.create(RUN, &old).unwrap();
    let half = temp.path().join("workspace").join(RUN);
    std::fs::remove_dir(half.join("files")).unwrap();
    std::fs::write(
        temp.path().join("logs").join(format!("{RUN}.jsonl")),
        "{\"se",
    )
    .unwrap();
    let run = runs.create(RUN, &a_spec()).unwrap();
    assert_eq!(run.spec().unwrap(), a_spec());
    assert!(half.join("files").is_dir() && !half.join("spec/specs/old.md").exists());
    let locked = run.lock(PATIENCE).unwrap();
    locked
        .apply(&workflow(TEXT), flow::nothing(), NOW, created("x"))
        .unwrap();
    drop(locked);
    assert_eq!(runs.create(RUN, &a_spec()).unwrap_err().kind, Kind::Usage);
    for path in ["../x", "/x", "a//b", "MANIFEST.json", ""] {
        let mut bad = a_spec();
        bad.files.insert(path.to_owned(), Vec::new());
        assert!(runs.create("fresh", &bad).is_err(), "{path}");
    }
    for id in ["", "..", "a/b", ".x", "-x"] {
        assert!(runs.create(id, &a_spec()).is_err(), "{id}");
        assert!(runs.open(id).is_err(), "{id}");
    }
}

#[test]
fn a_run_is_found_by_any_unique_part_of_its_id() {
    let temp = tempfile::tempdir().unwrap();
    let runs = runs_at(temp.path());
    assert_eq!(runs.find("last").unwrap_err().kind, Kind::StateNotFound);
    let ids = [
        "20260101T000000Z-w-bbbb",
        "20260101T000000Z-w-aaaa",
        "20250101T000000Z-v-cccc",
    ];
    for id in ids {
        runs.create(id, &a_spec()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(runs.list().unwrap().len(), 3);
    assert_eq!(runs.find("last").unwrap(), ids[1]);
    assert_eq!(runs.find("bb").unwrap(), ids[0]);
    assert_eq!(runs.find(ids[2]).unwrap(), ids[2]);
    let fault = runs.find("-w-").unwrap_err();
    assert!(
        fault.message.contains("aaaa") && fault.message.contains("bbbb"),
        "{fault}"
    );
    let fault = runs.open("20260101T000000Z-w-bbbc").unwrap_err();
    assert_eq!(fault.kind, Kind::StateNotFound);
    assert_eq!(fault.hint.unwrap(), format!("did you mean `{}`?", ids[0]));
    assert!(
        runs.find("nowhere")
            .unwrap_err()
            .hint
            .unwrap()
            .contains("aaaa")
    );
}

#[test]
fn a_run_of_the_first_version_loads() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/run-v1");
    let bed = Bed::new();
    let log = std::fs::read(kept.join("log.jsonl")).unwrap();
    let state = std::fs::read(kept.join(STATE_FILE)).unwrap();
    std::fs::write(bed.log(), log).unwrap();
    std::fs::write(bed.file(STATE_FILE), state).unwrap();
    let loaded = bed.load().unwrap();
    assert_eq!((loaded.seq, loaded.status), (5, RunStatus::Succeeded));
    std::fs::remove_file(bed.file(STATE_FILE)).unwrap();
    assert_eq!(bed.load().unwrap(), loaded);
}
