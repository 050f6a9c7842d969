//! What lies in an inbox and is not a task: never opened, never moved, never run, told once. A folder
//! that leads elsewhere is refused, and stops nobody else.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, mknodat};

use crate::harness::{Bed, Ended, names, needs, wait_for};

/// An agent `a` with a good task behind whatever else is put there.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.script("a", "cat");
    bed.drop_task("a", "zz-good", "good");
    bed
}

/// Drains; whatever was in the inbox but the good task is still there, and told once.
#[track_caller]
fn drain_around(bed: &Bed, told: usize) -> Ended {
    let before: Vec<_> = bed
        .ls("inbox/a")
        .into_iter()
        .filter(|name| name != "zz-good.task")
        .collect();
    let ran = bed.drain().may_say(&["note: "]).expect(0);
    assert_eq!(bed.ls("inbox/a"), before, "{ran:?}");
    assert_eq!(bed.ls("processed/a"), ["zz-good.task"]);
    assert_eq!(bed.ls("artifacts/a"), ["zz-good.json", "zz-good.out"]);
    assert_eq!(
        ran.stderr.matches("is not a task").count(),
        told,
        "{}",
        ran.stderr
    );
    let tame = |c: char| c == '\n' || !c.is_control();
    assert!(
        ran.stderr.chars().chain(ran.stdout.chars()).all(tame),
        "{ran:?}"
    );
    ran
}

#[test]
fn names_that_break_the_rules_are_left_alone_and_told_once() {
    let bed = bed();
    let long = format!("{}.task", "n".repeat(250));
    let odd: [&[u8]; 12] = [
        b"two words.task",
        b"new\nline.task",
        b"tab\t.task",
        b"-rf.task",
        "emoji-\u{1f600}.task".as_bytes(),
        long.as_bytes(),
        b"escape\x1b]0;title\x07\x1b[2J.task",
        "turn\u{202e}ksat.task".as_bytes(),
        b"bytes\xff\xfe.task",
        b"tilde~1.task",
        b"no-suffix",
        b"x.TASK",
    ];
    for name in odd {
        fs::write(
            bed.root.join("inbox/a").join(OsStr::from_bytes(name)),
            "text",
        )
        .unwrap();
    }
    drain_around(&bed, odd.len());
    for name in odd {
        let text = fs::read(bed.root.join("inbox/a").join(OsStr::from_bytes(name))).unwrap();
        assert_eq!(text, b"text");
    }
}

#[test]
fn temporary_and_hidden_files_are_not_even_told() {
    let bed = bed();
    for name in [
        ".hidden.task",
        "x.task.tmp",
        "x.tmp",
        "x.task~",
        ".x.task.swp",
    ] {
        bed.write(&format!("inbox/a/{name}"), "text");
    }
    drain_around(&bed, 0);
}

#[test]
fn a_file_outside_of_any_agents_folder_is_told_and_kept() {
    let bed = bed();
    bed.write("inbox/x.task", "text");
    bed.write("inbox/Upper-Case/x.task", "text");
    fs::create_dir(bed.root.join("inbox/has space")).unwrap();
    let ran = drain_around(&bed, 3);
    for word in ["inbox/x.task", "Upper-Case", "has space", "lower-case"] {
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    assert_eq!(bed.read("inbox/x.task"), "text");
    assert_eq!(bed.read("inbox/Upper-Case/x.task"), "text");
    assert!(!bed.has("artifacts/Upper-Case"));
}

#[test]
fn links_fifos_sockets_and_folders_with_a_tasks_name_are_never_opened() {
    let bed = bed();
    let inbox = bed.root.join("inbox/a");
    symlink("/etc/passwd", inbox.join("link.task")).unwrap();
    symlink("nowhere", inbox.join("dangling.task")).unwrap();
    fs::create_dir(inbox.join("folder.task")).unwrap();
    let _socket = UnixListener::bind(inbox.join("socket.task")).unwrap();
    mknodat(
        CWD,
        inbox.join("fifo.task"),
        FileType::Fifo,
        0o666.into(),
        0,
    )
    .unwrap();
    let ran = drain_around(&bed, 5);
    for kind in ["link", "folder", "socket", "fifo"] {
        assert!(ran.stderr.contains(kind), "{ran:?}");
    }
    assert!(!ran.stdout.contains("root:") && !ran.stderr.contains("root:"));
}

#[test]
fn a_device_with_a_tasks_name_is_never_opened() {
    let bed = bed();
    let path = bed.root.join("inbox/a/null.task");
    let made = mknodat(
        CWD,
        &path,
        FileType::CharacterDevice,
        0o666.into(),
        rustix::fs::makedev(1, 3),
    );
    if let Err(e) = made {
        return needs::skip_here(&format!("a device cannot be made: {e}"));
    }
    let ran = drain_around(&bed, 1);
    assert!(ran.stderr.contains("device"), "{ran:?}");
}

#[test]
fn a_file_with_a_second_name_is_left_alone() {
    let bed = bed();
    let outside = bed.outside.join("secret");
    fs::write(&outside, "secret").unwrap();
    fs::hard_link(&outside, bed.root.join("inbox/a/x.task")).unwrap();
    let ran = drain_around(&bed, 1);
    assert!(ran.stderr.contains("hard link"), "{ran:?}");
    fs::remove_file(outside).unwrap();
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "secret");
}

#[test]
fn a_delivery_by_link_and_unlink_is_a_task() {
    let bed = Bed::new();
    bed.script("a", "cat");
    bed.write("inbox/a/x.tmp", "text");
    let folder = bed.root.join("inbox/a");
    fs::hard_link(folder.join("x.tmp"), folder.join("x.task")).unwrap();
    let watch = bed.watch(&[]);
    bed.drop_task("a", "y", "another");
    wait_for("a task beside it", || bed.has("processed/a/y.task"));
    assert!(bed.has("inbox/a/x.task"));
    fs::remove_file(folder.join("x.tmp")).unwrap();
    wait_for("the delivered task", || bed.has("processed/a/x.task"));
    watch.signal("TERM");
    let ran = watch.wait().expect(143);
    assert_eq!(bed.read("artifacts/a/x.out"), "text", "{ran:?}");
}

#[test]
fn what_has_the_name_of_a_claim_and_is_none_is_left_alone() {
    let bed = bed();
    let inbox = bed.root.join("inbox/a");
    symlink("/etc/passwd", inbox.join("link.claimed")).unwrap();
    fs::create_dir(inbox.join("folder.claimed")).unwrap();
    fs::write(bed.outside.join("other"), "text").unwrap();
    fs::hard_link(bed.outside.join("other"), inbox.join("twice.claimed")).unwrap();
    drain_around(&bed, 3);
}

#[test]
fn a_watcher_tells_of_a_stray_once_and_not_at_every_scan() {
    let bed = bed();
    bed.write("inbox/a/two words.task", "text");
    let watch = bed.watch(&["--poll", "20ms"]);
    for n in 0..10 {
        let name = format!("t{n}");
        bed.drop_task("a", &name, "text");
        wait_for("a task", || bed.has(&format!("processed/a/{name}.task")));
    }
    watch.signal("TERM");
    let ran = watch.wait().speaks().expect(143);
    assert_eq!(
        ran.stderr.matches("two words").count(),
        2,
        "in path and reason: {}",
        ran.stderr
    );
}

/// A bed whose agent `bad` has a task and a link to the outside in the place of one folder.
fn linked(area: &str) -> (Bed, std::path::PathBuf) {
    let bed = bed();
    bed.script("bad", "cat");
    bed.drop_task("bad", "x", "text");
    let target = bed.outside.join("target");
    let place = bed.root.join(area).join("bad");
    fs::create_dir(&target).unwrap();
    fs::create_dir_all(bed.root.join(area)).unwrap();
    if place.exists() {
        fs::rename(place.join("x.task"), target.join("x.task")).unwrap();
        fs::remove_dir(&place).unwrap();
    }
    symlink(&target, &place).unwrap();
    (bed, target)
}

#[track_caller]
fn assert_refused(bed: &Bed, target: &Path, before: &[String]) {
    bed.drain().says("link").says("bad").expect(0);
    assert_eq!(names(target), before, "something was written outside");
    assert_eq!(bed.status("a/zz-good"), "succeeded");
    let sent = bed.orch(["send", "bad", "text"]).run().fails_somehow();
    assert!(sent.stderr.contains("link"), "{sent:?}");
    assert_eq!(names(target), before, "something was written outside");
}

#[test]
fn an_inbox_that_is_a_link_is_refused() {
    let (bed, target) = linked("inbox");
    assert_refused(&bed, &target, &["x.task".to_owned()]);
}

#[test]
fn artifacts_that_are_a_link_are_refused_and_the_task_waits() {
    let (bed, target) = linked("artifacts");
    assert_refused(&bed, &target, &[]);
    assert_eq!(bed.ls("inbox/bad"), ["x.task"]);
    fs::remove_file(bed.root.join("artifacts/bad")).unwrap();
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/bad/x.out"), "text");
}

#[test]
fn a_processed_folder_that_is_a_link_is_refused_and_the_task_waits() {
    let (bed, target) = linked("processed");
    assert_refused(&bed, &target, &[]);
    assert_eq!(bed.ls("inbox/bad"), ["x.task"]);
}

#[test]
fn a_chain_to_an_agent_whose_folder_is_a_link_is_rejected() {
    let (bed, target) = linked("artifacts");
    bed.drop_task("a", "chain", "---\nthen: bad\n---\ntext");
    bed.drain().speaks().expect(1);
    assert_eq!(bed.record("a/chain")["error"]["kind"], "SafetyViolation");
    assert_eq!(names(&target), [""; 0]);
    assert_eq!(bed.status("a/zz-good"), "succeeded");
}

#[test]
fn a_whole_area_that_is_a_link_is_a_safety_violation() {
    for area in ["inbox", "artifacts", "processed", "logs", "workspace"] {
        let bed = bed();
        let (here, there) = (bed.root.join(area), bed.outside.join(area));
        if here.exists() {
            fs::rename(&here, &there).unwrap();
        } else {
            fs::create_dir(&there).unwrap();
        }
        let before = names(&there);
        symlink(&there, &here).unwrap();
        let ran = bed.drain().fails(2);
        assert!(ran.stderr.contains("not links"), "{area}: {ran:?}");
        assert_eq!(names(&there), before, "{area}");
    }
}

#[test]
fn the_diagnostics_never_go_through_a_link_and_never_wait_for_a_fifo() {
    let bed = bed();
    let outside = bed.outside.join("log");
    fs::create_dir(bed.root.join("logs")).unwrap();
    symlink(&outside, bed.root.join("logs/orch.jsonl")).unwrap();
    bed.drain().expect(0);
    assert!(!outside.exists());
    fs::remove_file(bed.root.join("logs/orch.jsonl")).unwrap();
    mknodat(
        CWD,
        bed.root.join("logs/orch.jsonl"),
        FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    bed.drop_task("a", "y", "text");
    bed.drain().expect(0);
}
