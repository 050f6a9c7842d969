//! The promise of the order on disk: whatever dies or fails at whichever point, an accepted task is
//! in exactly one place, is committed once, is executed at most once more than there were crashes,
//! and no process is left.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use orch::disk::order::Point;
use serde_json::Value;

use crate::harness::{Bed, Ran, names};

/// Points that only another command, or only a signal, passes.
const ELSEWHERE: [Point; 33] = [
    Point::SubmitCreate,
    Point::SubmitWrite,
    Point::SubmitSync,
    Point::SubmitRename,
    Point::SubmitSyncFolder,
    Point::PutBack,
    Point::RunMake,
    Point::RunLock,
    Point::RunSpec,
    Point::RunSpecSync,
    Point::RunSpecAside,
    Point::RunSpecRename,
    Point::RunSpecSyncFolder,
    Point::RunLogMake,
    Point::RunMakeSync,
    Point::RunDocument,
    Point::RunSnapshotCreate,
    Point::RunSnapshotWrite,
    Point::RunSnapshotSync,
    Point::RunSnapshotRename,
    Point::RunSnapshotSyncFolder,
    Point::RunLogAppend,
    Point::RunLogSync,
    Point::RunLogCut,
    Point::RunStateWrite,
    Point::RunStateRename,
    Point::PlanWrite,
    Point::PlanSync,
    Point::PlanRename,
    Point::ApplyJournal,
    Point::ApplySync,
    Point::ApplyWrite,
    Point::ApplyRename,
];

/// Points that only a recovery passes.
const RECOVERY: [Point; 3] = [Point::AdoptOpen, Point::AdoptLock, Point::AdoptLook];

/// Points that are passed only where things are made durable.
const SYNCS: [Point; 7] = [
    Point::SubmitSync,
    Point::SubmitSyncFolder,
    Point::CommitSyncOutput,
    Point::CommitSync,
    Point::CommitSyncFolder,
    Point::CommitSyncDrop,
    Point::RetireSyncProcessed,
];

/// The tasks of the scenario, and the file that counts their executions.
const TASKS: [(&str, &str); 3] = [("first", "one"), ("json", "two"), ("second", "one")];

/// A text agent with stderr whose answer goes on to a second one, a JSON agent with a system
/// prompt, and results of an earlier task of the same name: every point is passed.
fn scenario() -> Bed {
    fill(Bed::new())
}

/// The same in another bed.
pub fn fill(bed: Bed) -> Bed {
    let counts = |name: &str| format!("echo x >> {}/{name}.count", bed.outside.display());
    bed.script_with(
        "first",
        &format!("cat; echo trouble >&2; (sleep 30 &) ; {}", counts("first")),
        "",
        "then: second",
    );
    bed.script("second", &format!("cat; {}", counts("second")));
    bed.script_with(
        "json",
        &format!(
            "cat >/dev/null; {}; echo '{{\"result\": \"fine\"}}'",
            counts("json")
        ),
        "result: {text: /result}",
        "",
    );
    bed.agent("json", "provider: json-script", "be brief");
    bed.write("artifacts/first/one.json", earlier());
    bed.write("artifacts/first/one.out", "earlier");
    bed.write("processed/first/one.task", "earlier");
    bed.drop_task("first", "one", "request one");
    bed.drop_task("json", "two", "request two");
    bed
}

fn earlier() -> String {
    serde_json::json!({
        "task": "one", "agent": "first", "status": "succeeded", "attempt": 1,
        "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:00Z", "duration": 0.0,
    })
    .to_string()
}

pub fn drain(bed: &Bed, durability: &str, fault: Option<&str>) -> Ran {
    let mut orch = bed.orch(["watch", "--drain", "--durability", durability]);
    if let Some(fault) = fault {
        orch = orch.env("ORCH_FAULT", fault);
    }
    orch.run()
}

/// Checks the promise after everything has been worked off.
pub fn assert_promise(bed: &Bed, crashes: usize, story: &str) {
    for (agent, name) in TASKS {
        let places: Vec<String> = [
            format!("inbox/{agent}/{name}.task"),
            format!("inbox/{agent}/{name}.claimed"),
            format!("processed/{agent}/{name}.task"),
            format!("processed/{agent}/{name}.failed"),
        ]
        .into_iter()
        .filter(|path| bed.has(path))
        .collect();
        assert_eq!(
            places,
            [format!("processed/{agent}/{name}.task")],
            "{story}"
        );
        let executions = bed.count_lines(&format!("{agent}.count"));
        assert!(
            (1..=1 + crashes).contains(&executions),
            "{story}: {agent} was executed {executions} times"
        );
        assert_eq!(
            committed(bed, agent),
            1 + usize::from(agent == "first"),
            "{story}: {agent}"
        );
        let leftovers: Vec<_> = bed
            .ls(&format!("artifacts/{agent}"))
            .into_iter()
            .filter(|file| file.starts_with('.') || file.ends_with(".next"))
            .collect();
        assert_eq!(leftovers, [""; 0], "{story}");
    }
    assert_eq!(
        bed.read("artifacts/first/one.out"),
        "request one",
        "{story}"
    );
    assert_eq!(bed.read("artifacts/json/two.out"), "fine", "{story}");
    assert_eq!(
        bed.read("processed/first/one.task"),
        "request one",
        "{story}"
    );
    assert_eq!(bed.read("processed/first/one~1.task"), "earlier", "{story}");
    assert_eq!(bed.ls("processed/second"), ["one.task"], "{story}");
    assert_eq!(bed.ls("logs"), ["orch.jsonl"], "{story}");
    bed.assert_nothing_runs();
}

/// How many records of an agent say that a task was committed.
fn committed(bed: &Bed, agent: &str) -> usize {
    bed.ls(&format!("artifacts/{agent}"))
        .iter()
        .filter(|file| file.ends_with(".json"))
        .filter(|file| {
            let text = bed.read(&format!("artifacts/{agent}/{file}"));
            let record: Value = serde_json::from_str(&text).unwrap();
            record["uncommitted"] != true
        })
        .count()
}

/// Runs the cases side by side: most of their time is waiting.
pub fn side_by_side<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tried =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case)));
                    if let Err(panic) = tried {
                        failed.lock().unwrap().push(
                            panic
                                .downcast_ref::<String>()
                                .cloned()
                                .unwrap_or_else(|| "failed".to_owned()),
                        );
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} cases failed, first: {}",
        failed.len(),
        failed[0]
    );
}

pub fn is_reached(point: Point, durability: &str) -> bool {
    !ELSEWHERE.contains(&point)
        && !RECOVERY.contains(&point)
        && (durability == "power" || !(SYNCS.contains(&point) || point == Point::RetireSyncInbox))
}

fn kill_everywhere(durability: &str) {
    let cases: Vec<Point> = Point::ALL
        .iter()
        .copied()
        .filter(|point| is_reached(*point, durability))
        .collect();
    side_by_side(&cases, |point| {
        let story = format!("kill -9 before {} ({durability})", point.name());
        let bed = scenario();
        drain(&bed, durability, Some(&format!("kill:{}", point.name())))
            .about(format!("{story}: the point was not reached"))
            .killed();
        drain(&bed, durability, None)
            .may_say(&["take over "])
            .expect(0);
        assert_promise(&bed, 1, &story);
    });
}

#[test]
fn a_kill_at_any_point_loses_nothing_without_syncs() {
    kill_everywhere("process");
}

#[test]
fn a_kill_at_any_point_loses_nothing_with_syncs() {
    kill_everywhere("power");
}

/// The first crash leaves something to recover; the second strikes while that is done.
fn kill_twice(durability: &str) {
    let first = [
        Point::ClaimCheck,
        Point::RunCreate,
        Point::RunEnded,
        Point::CommitRename,
        Point::CommitDrop,
        Point::RetireRename,
        Point::RetireUnlock,
    ];
    let mut cases = Vec::new();
    for one in first {
        for two in Point::ALL {
            if is_reached(*two, durability) || RECOVERY.contains(two) {
                cases.push((one, *two));
            }
        }
    }
    side_by_side(&cases, |(one, two)| {
        let story = format!("kill -9 before {}, then before {}", one.name(), two.name());
        let bed = scenario();
        drain(&bed, durability, Some(&format!("kill:{}", one.name())))
            .about(&story)
            .killed();
        let again = drain(&bed, durability, Some(&format!("kill:{}", two.name())))
            .about(&story)
            .may_say(&["take over "])
            .killed_or(0);
        let crashes = 1 + usize::from(again.was_killed());
        drain(&bed, durability, None)
            .may_say(&["take over "])
            .expect(0);
        assert_promise(&bed, crashes, &story);
    });
}

#[test]
fn a_second_kill_during_recovery_loses_nothing() {
    kill_twice("process");
}

#[test]
fn every_point_of_recovery_is_reached_by_a_kill() {
    for point in RECOVERY {
        let bed = scenario();
        drain(&bed, "process", Some("kill:run.ended")).killed();
        let fault = format!("kill:{}", point.name());
        drain(&bed, "process", Some(&fault))
            .about(point.name())
            .may_say(&["take over "])
            .killed();
        drain(&bed, "process", None).says("take over").expect(0);
        assert_promise(&bed, 2, point.name());
    }
}

#[test]
fn an_io_error_at_any_point_is_reported_and_loses_nothing() {
    let mut cases = Vec::new();
    for point in Point::ALL {
        if is_reached(*point, "power") {
            for error in [
                ("enospc", "No space left"),
                ("eio", "Input/output error"),
                ("emfile", "Too many open files"),
            ] {
                cases.push((*point, error));
            }
        }
    }
    side_by_side(&cases, |(point, (error, text))| {
        let story = format!("{error} at {}", point.name());
        let bed = scenario();
        let ran = drain(&bed, "power", Some(&format!("{error}:{}", point.name())))
            .about(&story)
            .speaks()
            .expect(0);
        assert!(
            ran.stderr.contains(text),
            "{story} was not reported: {ran:?}"
        );
        assert_promise(&bed, 0, &story);
    });
}

#[test]
fn an_io_error_during_recovery_is_reported_and_loses_nothing() {
    let cases: Vec<Point> = RECOVERY
        .into_iter()
        .chain([Point::AdoptSweep, Point::RunAside])
        .collect();
    side_by_side(&cases, |point| {
        let story = format!("eio at {} after a crash", point.name());
        let bed = scenario();
        drain(&bed, "process", Some("kill:run.ended")).killed();
        let ran = drain(&bed, "process", Some(&format!("eio:{}", point.name())))
            .about(&story)
            .says("take over")
            .expect(0);
        assert!(
            ran.stderr.contains("Input/output error"),
            "{story} was not reported: {ran:?}"
        );
        assert_promise(&bed, 1, &story);
    });
}

#[test]
fn a_kill_or_an_error_while_sending_leaves_a_whole_task_or_none() {
    let cases: Vec<(Point, &str)> = [
        Point::SubmitCreate,
        Point::SubmitWrite,
        Point::SubmitSync,
        Point::SubmitRename,
        Point::SubmitSyncFolder,
    ]
    .into_iter()
    .flat_map(|point| ["kill", "enospc"].map(|mode| (point, mode)))
    .collect();
    side_by_side(&cases, |(point, mode)| {
        let story = format!("{mode} at {}", point.name());
        let bed = Bed::new();
        let ran = bed
            .orch(["send", "echo", "hello", "--name", "x"])
            .env("ORCH_FAULT", format!("{mode}:{}", point.name()))
            .run()
            .about(&story);
        let ran = match *mode {
            "kill" => ran.killed(),
            _ => ran.speaks().expect(1),
        };
        let accepted = bed.has("inbox/echo/x.task");
        assert_eq!(
            accepted,
            *point == Point::SubmitSyncFolder,
            "{story}: {ran:?}"
        );
        if *mode != "kill" {
            let left = names(&bed.root.join("inbox/echo"));
            assert!(
                left.iter().all(|name| name == "x.task"),
                "{story}: {left:?}"
            );
        }
        if accepted {
            assert_eq!(bed.read("inbox/echo/x.task"), "hello", "{story}");
        }
        bed.drain().expect(0);
        bed.orch(["send", "echo", "again", "--name", "y", "--wait"])
            .run()
            .expect(0);
    });
}

#[test]
fn a_task_that_a_crash_interrupts_three_times_fails() {
    let bed = Bed::new();
    bed.script("a", &format!("echo x >> {}/count", bed.outside.display()));
    bed.drop_task("a", "x", "work");
    for _ in 0..3 {
        drain(&bed, "process", Some("kill:run.ended"))
            .may_say(&["take over "])
            .killed();
    }
    drain(&bed, "process", None).says("take over").expect(1);
    assert_eq!(bed.count_lines("count"), 3);
    assert_eq!(bed.record("a/x")["error"]["kind"], "Interrupted");
    assert!(bed.has("processed/a/x.failed"));
    bed.orch(["retry", "a/x"])
        .run()
        .says("no watcher is running")
        .expect(0);
    drain(&bed, "process", None).expect(0);
    assert_eq!(bed.status("a/x"), "succeeded");
}
