//! Folders that are missing, removed, read-only, elsewhere or full, and a system that is short of
//! descriptors: orch recovers or says so, and loses nothing.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::harness::{Bed, End, Ran, needs, orch, program, wait_for, write_executable};

/// Two agents with a task each; `a` counts its executions.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.script(
        "a",
        &format!(
            "cat; echo trouble >&2; echo x >> {}/count",
            bed.outside.display()
        ),
    );
    bed.script("b", "cat");
    bed.drop_task("a", "x", "text");
    bed.drop_task("b", "y", "text");
    bed
}

/// An agent `a` that ends when there is a file `go`.
fn waiting_agent() -> Bed {
    let bed = Bed::new();
    let outside = bed.outside.display();
    bed.script("a", &format!(
        "cat; echo trouble >&2; echo x >> {outside}/count; until [ -e {outside}/go ]; do sleep 0.01; done; echo end"
    ));
    bed.drop_task("a", "x", "text\n");
    bed
}

#[test]
fn folders_that_are_missing_are_made() {
    let bed = bed();
    bed.drain().expect(0);
    for folder in ["artifacts/a", "processed/a", "logs", "workspace"] {
        assert!(bed.root.join(folder).is_dir(), "{folder}");
    }
}

#[test]
fn folders_that_are_removed_while_an_agent_works_are_made_again_and_the_answer_is_there() {
    for folder in ["artifacts/a", "artifacts", "processed/a", "processed"] {
        let bed = waiting_agent();
        let watch = bed.watch(&[]);
        wait_for("the agent to begin", || bed.count_lines("count") == 1);
        fs::remove_dir_all(bed.root.join(folder)).unwrap();
        fs::write(bed.outside.join("go"), "").unwrap();
        wait_for("the task", || bed.has("processed/a/x.task"));
        assert_eq!(bed.read("artifacts/a/x.out"), "text\nend\n", "{folder}");
        assert_eq!(bed.read("artifacts/a/x.err"), "trouble\n", "{folder}");
        assert_eq!(bed.record("a/x")["output"], "text\nend\n", "{folder}");
        bed.drop_task("a", "later", "text\n");
        wait_for("a later task", || bed.has("processed/a/later.task"));
        assert_eq!(
            bed.count_lines("count"),
            2,
            "{folder}: nothing is run twice"
        );
        assert_eq!(bed.ls("inbox/a"), [""; 0], "{folder}");
        drop(watch);
    }
}

#[test]
fn folders_that_are_removed_between_two_tasks_are_made_again() {
    let bed = bed();
    let watch = bed.watch(&[]);
    for (n, folder) in [
        "artifacts/a",
        "processed/a",
        "artifacts",
        "processed",
        "inbox/a",
        "inbox",
    ]
    .iter()
    .enumerate()
    {
        wait_for("everything to be done", || {
            bed.ls("inbox/a").is_empty() && bed.has("processed/b/y.task")
        });
        fs::remove_dir_all(bed.root.join(folder)).unwrap();
        let name = format!("after{n}");
        bed.drop_task("a", &name, "text");
        wait_for(folder, || bed.has(&format!("processed/a/{name}.task")));
        assert_eq!(
            bed.read(&format!("artifacts/a/{name}.out")),
            "text",
            "{folder}"
        );
        bed.drop_task("b", "y", "text");
    }
    drop(watch);
}

#[test]
fn an_inbox_that_is_renamed_is_another_agents_inbox() {
    let bed = bed();
    let watch = bed.watch(&[]);
    wait_for("everything to be done", || {
        bed.has("processed/a/x.task") && bed.has("processed/b/y.task")
    });
    let inbox = bed.root.join("inbox");
    fs::remove_dir(inbox.join("b")).unwrap();
    fs::rename(inbox.join("a"), inbox.join("b")).unwrap();
    fs::create_dir(inbox.join("a")).unwrap();
    bed.drop_task("b", "for-b", "text");
    bed.drop_task("a", "for-a", "text");
    wait_for("both", || {
        bed.has("processed/b/for-b.task") && bed.has("processed/a/for-a.task")
    });
    assert_eq!(bed.count_lines("count"), 2);
    drop(watch);
}

/// Makes the bed somebody's who is not root, and gives what runs orch as them.
fn as_nobody(bed: &Bed) -> Option<impl Fn() -> Ran> {
    const NOBODY: u32 = 65534;
    let copy = bed.outside.join("orch");
    write_executable(&copy, fs::read(orch()).unwrap());
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        if !needs::programs(&["setpriv"]) {
            return None;
        }
        let base = bed.root.parent().unwrap();
        for entry in walkdir::WalkDir::new(base) {
            chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let (root, outside) = (bed.root.clone(), bed.outside.clone());
    Some(move || {
        let started = match is_root {
            true => program("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .args([&copy]),
            false => program(&copy),
        };
        started
            .args(["watch", "--drain", "--durability", "process"])
            .env("ORCH_ROOT", &root)
            .current_dir(&outside)
            .run()
    })
}

fn set_mode(bed: &Bed, path: &str, mode: u32) {
    fs::set_permissions(bed.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_or_file_without_permission_is_reported_and_stops_nobody_else() {
    for (path, forbidden, allowed) in [
        ("artifacts/a", 0o555, 0o755),
        ("processed/a", 0o555, 0o755),
        ("inbox/a", 0o555, 0o755),
        ("inbox/a", 0o000, 0o755),
        ("inbox/a/x.task", 0o000, 0o644),
    ] {
        let bed = bed();
        fs::create_dir_all(bed.root.join("artifacts/a")).unwrap();
        fs::create_dir_all(bed.root.join("processed/a")).unwrap();
        let Some(drain) = as_nobody(&bed) else { return };
        set_mode(&bed, path, forbidden);
        let ran = drain().about(path).says(path).says("may not be");
        ran.expect(0);
        assert_eq!(bed.status("b/y"), "succeeded", "{path}");
        assert!(
            !bed.has("processed/a/x.task") && bed.count_lines("count") == 0,
            "{path}"
        );
        set_mode(&bed, path, allowed);
        drain().noisy().expect(0);
        assert_eq!(bed.status("a/x"), "succeeded", "{path}");
        assert_eq!(bed.count_lines("count"), 1, "{path}");
    }
}

#[test]
fn a_root_that_may_not_be_written_in_is_refused_with_a_hint() {
    let bed = bed();
    let Some(drain) = as_nobody(&bed) else { return };
    set_mode(&bed, "", 0o555);
    drain().says("hint:").says("may write in").expect(1);
    set_mode(&bed, "", 0o755);
}

/// Runs a script with file systems of its own: `$ROOT`, `$OUT` and `$ORCH` are set.
fn with_own_mounts(bed: &Bed, script: &str) -> Option<Ran> {
    needs::mounts().then(|| {
        bed.program("unshare")
            .args(["-m", "sh", "-euc", script])
            .env("ROOT", &bed.root)
            .env("OUT", &bed.outside)
            .env("ORCH", orch())
            .run()
    })
}

#[test]
fn an_area_on_another_file_system_is_a_safety_violation() {
    for area in ["inbox", "artifacts", "processed", "workspace", "logs"] {
        let bed = bed();
        let script = format!(
            "mkdir -p $ROOT/{area}; mount -t tmpfs tmpfs $ROOT/{area}; exec $ORCH watch --drain"
        );
        let Some(ran) = with_own_mounts(&bed, &script) else {
            return;
        };
        ran.says(format!("{area}` is on another file system"))
            .says("hint: ")
            .expect(2);
        assert_eq!(bed.count_lines("count"), 0);
    }
}

#[test]
fn an_agents_folder_on_another_file_system_is_refused_and_stops_nobody_else() {
    for area in ["inbox", "artifacts", "processed"] {
        let bed = bed();
        let script = format!(
            "mkdir -p $ROOT/{area}/a; mount -t tmpfs tmpfs $ROOT/{area}/a; exec $ORCH watch --drain"
        );
        let Some(ran) = with_own_mounts(&bed, &script) else {
            return;
        };
        ran.says(format!("{area}/a`: it is on another file system"))
            .expect(0);
        assert_eq!(bed.status("b/y"), "succeeded");
        assert!(bed.has("inbox/a/x.task"));
    }
}

#[test]
fn a_result_that_finds_no_room_is_committed_when_there_is_some_and_never_run_again() {
    let bed = Bed::new();
    let (root, outside) = (bed.root.display(), bed.outside.display());
    bed.script(
        "a",
        &format!(
            "cat; echo x >> {outside}/count; cat /dev/zero > {root}/filler 2> /dev/null; exit 0"
        ),
    );
    bed.script("b", "cat");
    let specs = bed.outside.join("specs");
    fs::rename(bed.root.join("specs"), &specs).unwrap();
    let script = "
        mount -t tmpfs -o size=1m tmpfs $ROOT
        mkdir -p $ROOT/inbox/a $ROOT/inbox/b; cp -r $OUT/specs $ROOT/
        echo text > $ROOT/inbox/a/x.task; echo text > $ROOT/inbox/b/y.task
        $ORCH watch --drain 2> $OUT/stderr & orch=$!
        until grep -q 'No space left' $OUT/stderr; do sleep 0.02; done
        [ -e $ROOT/inbox/a/x.claimed ]; [ ! -e $ROOT/artifacts/a/x.json ]; [ -e $ROOT/inbox/b/y.task ]
        sleep 1.5; [ -e $ROOT/inbox/b/y.task ]
        rm $ROOT/filler
        wait $orch
        ls -A $ROOT/inbox/a $ROOT/processed/a; cat $ROOT/artifacts/a/x.out $ROOT/artifacts/b/y.out $ROOT/artifacts/a/x.json";
    let Some(ran) = with_own_mounts(&bed, script) else {
        return;
    };
    let stderr = fs::read_to_string(bed.outside.join("stderr")).unwrap_or_default();
    let stdout = ran.about(&stderr).expect(0).stdout;
    assert!(
        stdout.contains("\"status\": \"succeeded\"") && stdout.contains("text\ntext\n"),
        "{stdout}"
    );
    assert!(stderr.contains("the commit is tried again"), "{stderr}");
    assert_eq!(bed.count_lines("count"), 1, "it was run again");
}

#[test]
fn too_few_descriptors_are_reported_and_nothing_is_lost() {
    for limit in [10, 16, 24] {
        let bed = bed();
        let script = format!(
            "ulimit -n {limit}; exec {} watch --drain --jobs 4",
            orch().display()
        );
        let mut drain = bed.program("sh").args(["-c", &script]).start();
        // It says so and goes on as long as it may, or has enough.
        let said = drain.says_or_ends("Too many open files");
        if said {
            drain.signal("TERM");
        }
        let ran = drain.wait().about(limit).noisy();
        let stderr = match said {
            true => {
                ran.one_of(&[End::Code(1), End::Code(143), End::Signal(15)])
                    .stderr
            }
            false => ran.expect(0).stderr,
        };
        bed.drain().expect(0);
        assert_eq!(bed.status("a/x"), "succeeded", "limit {limit}");
        assert_eq!(bed.status("b/y"), "succeeded", "limit {limit}");
        assert_eq!(bed.ls("inbox/a"), [""; 0], "limit {limit}");
        assert_eq!(bed.count_lines("count"), 1, "limit {limit}: {stderr}");
    }
}

#[test]
fn tasks_from_the_future_and_from_1970_are_tasks() {
    let bed = Bed::new();
    bed.script("a", "cat");
    let day = Duration::from_secs(86400);
    let times = [
        SystemTime::now() + 400 * day,
        SystemTime::UNIX_EPOCH,
        SystemTime::now() - 4000 * day,
    ];
    for (n, time) in times.into_iter().enumerate() {
        bed.write(&format!("inbox/a/t{n}.task"), "text");
        let file = File::open(bed.root.join(format!("inbox/a/t{n}.task"))).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    bed.drain().expect(0);
    assert_eq!(bed.ls("processed/a"), ["t0.task", "t1.task", "t2.task"]);
    let record = bed.record("a/t0");
    assert!(
        record["end_time"].as_str() >= record["start_time"].as_str(),
        "{record}"
    );
    assert!(record["duration"].as_f64().unwrap() >= 0.0);
}

#[test]
fn a_root_reached_by_a_link_is_the_root_itself() {
    let bed = bed();
    let link: PathBuf = bed.outside.join("link");
    std::os::unix::fs::symlink(&bed.root, &link).unwrap();
    bed.orch(["watch", "--drain"])
        .env("ORCH_ROOT", &link)
        .run()
        .expect(0);
    assert_eq!(bed.status("a/x"), "succeeded");
}

#[test]
fn a_file_system_without_second_names_is_no_trouble() {
    let bed = Bed::new();
    bed.agent("a", "provider: echo", "");
    bed.drop_task("a", "x", "hello");
    let Some(ran) = crate::confine::without(&bed, "linkat:error=EPERM", &["watch", "--drain"])
    else {
        return;
    };
    ran.expect(0);
    assert_eq!(bed.status("a/x"), "succeeded");
    assert_eq!(bed.ls("processed/a"), ["x.task"]);
    assert!(!bed.has("processed/a/.x.json"));
}
