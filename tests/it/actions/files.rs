//! Files that a model printed: written below `into`, all or none, and nowhere else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{audited, bed, only_run, result, run, state};
use crate::crash::side_by_side;
use crate::harness::Bed;

/// A step `say` that prints the file `outside/said`, after this script, and one that applies it.
fn saying(text: &str, script: &str) -> Bed {
    let bed = bed(&format!(
        "steps:\n  - {{name: say, command: [sh, -c, '{script} cat ../outside/said', x, \"${{run.files}}\"]}}\n  - {{name: keep, action: apply_files, from: say, into: \"${{run.files}}\", on: {{failure: {{goto: _end}}}}}}\n"
    ));
    fs::write(bed.outside.join("said"), text).unwrap();
    bed
}

fn files(bed: &Bed) -> String {
    format!("workspace/{}/files", only_run(bed))
}

fn file(bed: &Bed, name: &str) -> String {
    bed.read(&format!("{}/{name}", files(bed)))
}

#[test]
fn what_was_printed_is_written_and_told() {
    let bed = saying(
        "Here you are.\n\n```python src/a.py\nprint(1)\n```\n\n**b.txt**\n```\ntwo\n```\n```sh .git/hooks/x\nexit\n```\n",
        "",
    );
    run(&bed).expect(0);
    assert_eq!(file(&bed, "src/a.py"), "print(1)\n");
    assert_eq!(file(&bed, "b.txt"), "two\n");
    let keep = result(&bed, "keep");
    assert_eq!(
        (&keep["status"], &keep["output"]),
        (&json!("succeeded"), &json!("3 files written"))
    );
    let told = &keep["json_data"]["files"][2];
    assert_eq!(told["path"], format!("{}/src/a.py", files(&bed)));
    assert_eq!(
        (&told["bytes"], told["sha256"].as_str().unwrap().len()),
        (&json!(9), 64)
    );
    let left = bed.ls(&format!("workspace/{}", only_run(&bed)));
    assert!(
        !left.iter().any(|name| name.contains("applying")),
        "{left:?}"
    );
    audited(&bed);
}

#[test]
fn a_diff_changes_what_is_there_and_keeps_its_permissions() {
    let before =
        "printf \"one\\ntwo\\n\" > \"$1/a.sh\"; chmod 755 \"$1/a.sh\"; echo x > \"$1/old\";";
    let bed = saying(
        "```diff\n--- a/a.sh\n+++ b/a.sh\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/new/n\n@@ -0,0 +1 @@\n+n\n```\n",
        before,
    );
    run(&bed).expect(0);
    assert_eq!(file(&bed, "a.sh"), "one\n2\n");
    assert_eq!(file(&bed, "new/n"), "n\n");
    let folder = bed.root.join(files(&bed));
    assert!(!folder.join("old").exists());
    let mode = fs::metadata(folder.join("a.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(result(&bed, "keep")["output"], "2 files written, 1 deleted");
}

#[test]
fn nothing_is_written_where_one_part_does_not_fit() {
    let bed = saying(
        "```diff\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n--- a/gone\n+++ b/gone\n@@ -1 +1 @@\n-a\n+b\n```\n",
        "",
    );
    run(&bed).expect(0);
    let keep = result(&bed, "keep");
    assert_eq!(
        (&keep["exit_code"], &keep["error"]["kind"]),
        (&json!(2), &json!("PatchError"))
    );
    assert!(
        keep["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`gone`, which does not exist"),
        "{keep}"
    );
    assert_eq!(bed.ls(&files(&bed)), [""; 0]);
}

#[test]
fn an_escape_stops_the_run_and_nothing_is_written() {
    let outside = |bed: &Bed| bed.outside.join("x.txt").display().to_string();
    let paths = |bed: &Bed| {
        vec![
            "../x.txt".to_owned(),
            "a/../../../../../outside/x.txt".to_owned(),
            outside(bed),
            "../state.json".to_owned(),
            "way/x.txt".to_owned(),
            "linked.txt".to_owned(),
            "nul\0x.txt".to_owned(),
        ]
    };
    let count = paths(&saying("", "")).len();
    let cases: Vec<usize> = (0..count * 2).collect();
    side_by_side(&cases, |case| {
        let links = "ln -s ../../../../outside \"$1/way\"; ln -s ../../../../outside/x.txt \"$1/linked.txt\";";
        let bed = saying("", links);
        let path = paths(&bed)[case / 2].clone();
        let said = match case % 2 {
            0 => json!({"files": {"good.txt": "fine", &path: "evil"}}).to_string(),
            _ => format!(
                "--- /dev/null\n+++ b/good.txt\n@@ -0,0 +1 @@\n+fine\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+evil\n"
            ),
        };
        fs::write(bed.outside.join("said"), &said).unwrap();
        // No handler catches it.
        run(&bed).about(&said).fails(2);
        assert_eq!(state(&bed)["status"], "failed");
        assert_eq!(
            result(&bed, "keep")["error"]["kind"],
            "SafetyViolation",
            "{said}"
        );
        assert!(!bed.outside.join("x.txt").exists(), "{said}");
        assert!(!bed.has(&format!("{}/good.txt", files(&bed))), "{said}");
        // An audit says that it was stopped, and that its log is sound.
        let audit = bed.orch(["audit", "last"]).run().expect(2);
        assert!(audit.stdout.contains("sound"), "{audit:?}");
    });
}

#[test]
fn orchs_own_folders_are_no_place_for_printed_files() {
    for path in [
        "inbox/shell/x.task",
        "specs/w.yaml",
        "workspace/other/files/x",
        "logs/x.jsonl",
        "artifacts/a/x.json",
    ] {
        let bed = bed(
            "steps:\n  - {name: say, command: [cat, ../outside/said]}\n  - {name: keep, action: apply_files, from: say, into: .}\n",
        );
        fs::write(
            bed.outside.join("said"),
            json!({"files": {path: "x"}}).to_string(),
        )
        .unwrap();
        run(&bed).fails(2);
        assert_eq!(
            result(&bed, "keep")["error"]["kind"],
            "SafetyViolation",
            "{path}"
        );
    }
}

#[test]
fn folders_and_files_in_the_way_are_faults() {
    for path in ["sub", "plain/x.txt", "sub/"] {
        let said = json!({"files": {"good.txt": "fine", path: "x"}}).to_string();
        let bed = saying(&said, "mkdir -p \"$1/sub/y\"; echo > \"$1/plain\";");
        run(&bed).expect(0);
        assert_eq!(
            result(&bed, "keep")["error"]["kind"],
            "PatchError",
            "{path}"
        );
        assert!(!bed.has(&format!("{}/good.txt", files(&bed))), "{path}");
    }
}

#[test]
fn nothing_found_is_a_failure_unless_the_step_wrote_files_itself() {
    let bed = saying("I could not do it.\n", "");
    run(&bed).expect(0);
    let keep = result(&bed, "keep");
    assert_eq!(
        (&keep["status"], &keep["exit_code"]),
        (&json!("failed"), &json!(1)),
        "{keep}"
    );
    let bed = saying("I have written it.\n", "echo x > \"$1/a.txt\";");
    run(&bed).expect(0);
    let keep = result(&bed, "keep");
    assert_eq!(keep["status"], "succeeded", "{keep}");
    assert_eq!(result(&bed, "say")["more"]["files_changed"], 1);
}

#[test]
fn files_are_applied_once_however_often_orch_is_killed() {
    let mut all = Vec::new();
    for point in [
        "apply.journal",
        "apply.sync",
        "apply.write",
        "apply.rename",
        "run.log-append",
        "commit.create",
        "retire.rename",
    ] {
        for nth in 1..=6 {
            all.push((point, nth));
        }
    }
    side_by_side(&all, |(point, nth)| {
        let story = format!("kill -9 before {point} for the {nth}th time");
        let before = "[ -e \"$1/a\" ] || { printf \"one\\none\\n\" > \"$1/a\"; printf \"two\\n\" > \"$1/b\"; };";
        // Applied twice, the first would be another text.
        let bed = saying(
            "--- a/a\n+++ b/a\n@@ -1,1 +1,2 @@\n one\n+one\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-two\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+three\n",
            before,
        );
        bed.drop_task("w", "go", "x");
        let fault = format!("kill:{point}:{nth}");
        bed.orch(["watch", "--drain"])
            .env("ORCH_FAULT", fault)
            .run()
            .about(&story)
            .killed_or(0);
        bed.drain().may_say(&["take over "]).expect(0);
        assert_eq!(
            result(&bed, "keep")["status"],
            "succeeded",
            "{story}: {}",
            result(&bed, "keep")
        );
        assert_eq!(file(&bed, "a"), "one\none\none\n", "{story}");
        assert_eq!(bed.ls(&files(&bed)), ["a", "c"], "{story}");
    });
}
