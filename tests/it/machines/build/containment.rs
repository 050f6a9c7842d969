//! What is generated and patched lies below the run's own folder, or the build is stopped for good.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::harness::End;

/// Paths that lead out, or to where a model has no business.
const OUT: [&str; 6] = [
    "../evil",
    "../../../specs/evil.yaml",
    "sub/../../evil",
    "/tmp/orch-evil-of-a-build",
    "../state.json",
    "link/evil",
];

fn stopped(stage: &Stage, story: &str, ran: Ran) {
    ran.about(story).fails(2);
    let state = stage.state();
    assert_eq!(state["status"], "failed", "{story}");
    assert_eq!(state["error"]["kind"], "SafetyViolation", "{story}");
    assert_eq!(state["pending"], json!([]), "{story}");
    assert!(!stage.bed.has("specs/evil.yaml"), "{story}");
    assert!(!stage.bed.outside.join("evil").exists(), "{story}");
    assert!(!std::path::Path::new("/tmp/orch-evil-of-a-build").exists());
    // Neither a resume nor another start brings it back to life.
    let id = stage.run_id();
    stage.orch(&["resume", &id]).about(story).fails(2);
}

#[test]
fn a_generated_path_that_leads_out_stops_the_build() {
    for path in OUT {
        let stage = Stage::new();
        stage.checked();
        // The link is made by the agent, in its own folder, where it may.
        let outside = stage.bed.outside.display().to_string();
        let files = json!({"files": {"code.txt": "good\n", path: "x"}});
        stage.answers(
            "generate",
            format!("#!/bin/sh\nln -s {outside} link\ncat <<'X'\n{files}\nX\n"),
        );
        let ran = stage.build(&[]);
        stopped(&stage, path, ran);
        assert!(!stage.file("code.txt").exists(), "{path}: all or nothing");
        assert_eq!(stage.tested(), 0, "{path}");
    }
}

#[test]
fn a_patched_path_that_leads_out_stops_the_build() {
    let forms = [
        "--- /dev/null\n+++ b/../evil\n@@ -0,0 +1 @@\n+x\n".to_owned(),
        "```text ../evil\nx\n```\n".to_owned(),
        json!({"files": {"code.txt": "good\n", "/etc/evil": "x"}}).to_string(),
    ];
    for patch in forms {
        let stage = Stage::new();
        stage
            .checked()
            .answers("generate", BAD)
            .answers("patch", &patch);
        let ran = stage.build(&[]);
        stopped(&stage, &patch, ran);
        assert_eq!(
            std::fs::read_to_string(stage.file("code.txt")).unwrap(),
            "bad\n"
        );
        assert_eq!(stage.tested(), 1, "{patch}");
    }
}

#[test]
fn a_file_that_is_a_link_is_not_written_through() {
    let stage = Stage::new();
    let kept = stage.bed.outside.join("kept");
    std::fs::write(&kept, "mine").unwrap();
    stage.checked();
    let link = format!(
        "#!/bin/sh\nln -s {} code.txt\nprintf '{GOOD}'",
        kept.display()
    );
    stage.answers("generate", link);
    let ran = stage.build(&[]);
    stopped(&stage, "a link in the place of a file", ran);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "mine");
}

#[test]
fn agents_and_tests_cannot_write_elsewhere_themselves() {
    let stage = Stage::new();
    let root = stage.bed.root.display().to_string();
    let grab = format!(
        "for f in {root}/specs/evil.yaml {root}/inbox/evil {root}/logs/evil ../evil; do echo x > $f; done 2> /dev/null"
    );
    stage.spec(&["sh", "-c", &format!("{grab}; {CHECK}")]);
    stage.answers("generate", format!("#!/bin/sh\n{grab}\nprintf '{GOOD}'"));
    // Where the kernel cannot hold them, the comparison afterwards stops the build instead.
    let ran = stage.build(&[]).one_of(&[End::Code(0), End::Code(2)]);
    for place in ["specs/evil.yaml", "inbox/evil", "logs/evil"] {
        assert!(
            !stage.bed.has(place) || ran.code() == 2,
            "{place}: {ran:#?}"
        );
    }
}

#[test]
fn a_build_whose_folder_was_swapped_for_a_link_is_stopped() {
    let stage = Stage::new();
    stage.checked().answers("generate", BAD);
    stage.answers("patch", "#!/bin/sh\nexit 1");
    stage.build(&[]).fails(1);
    let id = stage.run_id();
    stage.orch(&["reset", &id]).expect(0);
    let files = stage.bed.root.join("workspace").join(&id).join("files");
    std::fs::remove_dir_all(&files).unwrap();
    symlink(&stage.bed.outside, &files).unwrap();
    let ran = stage.orch(&["resume", &id]).fails_somehow();
    assert!(!stage.bed.outside.join("code.txt").exists(), "{ran:#?}");
}
