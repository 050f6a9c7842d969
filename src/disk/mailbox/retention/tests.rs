//! What goes, what stays, and by which clock.

use super::*;
use std::fs;

fn root() -> (tempfile::TempDir, Root) {
    let temp = tempfile::tempdir().unwrap();
    for dir in ["specs", "inbox/a", "processed/a", "artifacts/a/folder.out"] {
        fs::create_dir_all(temp.path().join(dir)).unwrap();
    }
    fs::write(temp.path().join("specs/orch.yaml"), "").unwrap();
    let root = Root::open(temp.path()).unwrap();
    (temp, root)
}

fn write(temp: &tempfile::TempDir, files: &[&str]) {
    for file in files {
        fs::write(temp.path().join(file), "x").unwrap();
    }
}

fn now_ns() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}

fn names(old: &Old) -> Vec<String> {
    let of = |task: &OldTask| -> Vec<String> {
        task.files
            .iter()
            .map(|f| format!("{}/{}", f.area.as_str(), f.file))
            .collect()
    };
    old.tasks.iter().flat_map(of).collect()
}

#[test]
fn a_retired_task_goes_with_its_results_and_nothing_else_does() {
    let (temp, root) = root();
    write(
        &temp,
        &[
            "processed/a/x.task",
            "processed/a/x~1.failed",
            "processed/a/.x.json",
            "processed/a/notes.md",
        ],
    );
    write(
        &temp,
        &[
            "artifacts/a/x.out",
            "artifacts/a/x.json",
            "artifacts/a/x~1.err",
        ],
    );
    write(
        &temp,
        &[
            "artifacts/a/x.png",
            "artifacts/a/report.json",
            "artifacts/a/x~1.json.foreign",
        ],
    );
    write(
        &temp,
        &[
            "processed/a/live.task",
            "artifacts/a/live.out",
            "inbox/a/live.claimed",
        ],
    );
    std::os::unix::fs::symlink("/etc/passwd", temp.path().join("artifacts/a/x.err")).unwrap();
    let old = Old::find(&root, now_ns() + 1_000_000_000).unwrap();
    assert_eq!(old.live, 1);
    assert_eq!(
        names(&old),
        [
            "artifacts/x.json",
            "artifacts/x.out",
            "artifacts/x~1.err",
            "processed/x.task",
            "processed/x~1.failed",
        ]
    );
    let peek = Peek::at(&root, &old.tasks[0].agent).unwrap();
    let mut count = 0;
    assert_eq!(
        old.tasks[0].remove(&peek, |_| count += 1).unwrap(),
        Removal::Done
    );
    assert_eq!(count, 5);
    assert!(!temp.path().join("processed/a/.x.json").exists());
    for stays in [
        "processed/a/notes.md",
        "artifacts/a/x.png",
        "artifacts/a/report.json",
        "artifacts/a/folder.out",
    ] {
        assert!(temp.path().join(stays).exists(), "{stays}");
    }
    assert!(temp.path().join("artifacts/a/x.err").is_symlink());
}

#[test]
fn the_time_of_the_move_counts() {
    let (temp, root) = root();
    write(
        &temp,
        &[
            "processed/a/old.task",
            "processed/a/both~1.task",
            "artifacts/a/both~1.out",
        ],
    );
    std::thread::sleep(std::time::Duration::from_millis(30));
    let between = now_ns();
    std::thread::sleep(std::time::Duration::from_millis(30));
    write(
        &temp,
        &["new.task", "processed/a/both.task", "artifacts/a/both.out"],
    );
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options()
        .write(true)
        .open(temp.path().join("new.task"))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    fs::rename(
        temp.path().join("new.task"),
        temp.path().join("processed/a/new.task"),
    )
    .unwrap();
    let old = Old::find(&root, between).unwrap();
    assert_eq!(
        names(&old),
        [
            "artifacts/both~1.out",
            "processed/both~1.task",
            "processed/old.task"
        ]
    );
}

#[test]
fn what_changed_since_it_was_found_stays() {
    let (temp, root) = root();
    write(&temp, &["processed/a/x.task", "artifacts/a/x.out"]);
    let old = Old::find(&root, now_ns() + 1_000_000_000).unwrap();
    fs::rename(
        temp.path().join("processed/a/x.task"),
        temp.path().join("inbox/a/x.task"),
    )
    .unwrap();
    let peek = Peek::at(&root, &old.tasks[0].agent).unwrap();
    assert_eq!(old.tasks[0].remove(&peek, |_| ()).unwrap(), Removal::Kept);
    assert!(temp.path().join("artifacts/a/x.out").exists());
}
