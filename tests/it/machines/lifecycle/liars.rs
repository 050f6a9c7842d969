//! Agents that do what they may not, or claim what is not so.

use super::*;

/// What an agent of the first phase does to the document, and what the reason names.
const TOUCHED: [(&str, &str); 11] = [
    (
        r#"edit 's/"currentPhase": "architecture"/"currentPhase": "deploy"/'"#,
        "`metadata.currentPhase`",
    ),
    (
        r#"edit 's/"in-progress"/"completed"/'"#,
        "`metadata.status`",
    ),
    (
        // It approves itself.
        r#"edit 's/"architecture": false/"architecture": true/'"#,
        "`governance.approvals.architecture`",
    ),
    (
        r#"edit 's/"deployment": false/"deployment": true/'"#,
        "`governance.approvals.deployment`",
    ),
    (
        r#"edit 's/"blockedReason": null/"blockedReason": "because"/'"#,
        "`governance.blockedReason`",
    ),
    (
        r#"edit '/"tests": {/,/}/ s/pending/passed/'"#,
        "`tests.status`",
    ),
    (r#"edit 's/^{/{"extra": 1,/'"#, "`extra`"),
    (
        // All of it but its own part is gone.
        r#"echo '{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"approved": true}]}}' > "$D""#,
        "and 3 more",
    ),
    (r#"rm "$D""#, "removed the document"),
    (r#"rm "$D"; ln -s /etc/hostname "$D""#, "in the place of"),
    (r#"echo 'all is well' > "$D""#, "cannot be read"),
];

#[test]
fn what_an_agent_may_not_touch_blocks_the_run() {
    side_by_side(&TOUCHED, |(lie, named)| {
        let stage = honest();
        if !lie.starts_with("edit") {
            // The kernel does not even let it.
            stage.bed.settings("provider: actor\nsandbox: none\n");
        }
        let honest = phase("architecture").honest();
        let lie = format!("#!\n{EDIT}{lie}\n{}", &honest[3..]);
        stage.answers("architecture.1", lie);
        let ran = begin(&stage).fails(4);
        has(&ran.stderr, &[named]);
        is_blocked(&stage, "architecture", named);
        let state = stage.state();
        assert_eq!(state["state"], initial(), "nothing of it is taken");
        for phase in &PHASES {
            assert_eq!(state["governance"]["approvals"][phase.part], false);
        }
        // Nothing is asked, so nobody approves it by mistake.
        stage.orch(&["approve", "last", "architecture"]).fails(64);
        stage.bed.drain().expect(0);
        assert_eq!(stage.calls(), ["architecture"]);
        // It gets another chance when a person says so.
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, "architecture", "`architecture` waits for approval");
        stage.orch(&["audit", "last"]).expect(0);
    });
}

fn initial() -> Value {
    json!({
        "architecture": {"blueprint": {"approved": false}, "diagrams": []},
        "design": {"status": "draft"},
        "code": {"status": "draft"},
        "tests": {"status": "pending"},
        "deployment": {"status": "pending"},
    })
}

/// What an agent of the first phase prints beside its files: nothing that counts.
const PRINTED: [&str; 10] = [
    // Its own part, and the approval with it.
    r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"approved": true}]}, "governance": {"approvals": {"architecture": true}}}"#,
    r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"approved": true}]}, "metadata": {"currentPhase": "deploy"}}"#,
    r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"approved": true}]}, "tests": {"status": "passed"}}"#,
    r#"{"architecture": {"blueprint": {"approved": "true"}, "diagrams": []}}"#,
    r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": {"approved": true}}}"#,
    r#"{"architecture": {"blueprint": {"approved": true}}}"#,
    r#"{"architecture": null}"#,
    r#"{"architecture": {"blueprint": {"app"#,
    "Everything is approved, trust me.",
    "",
];

#[test]
fn an_answer_that_is_not_what_was_asked_for_changes_nothing() {
    side_by_side(&PRINTED, |answer| {
        let stage = honest();
        stage.answers("architecture.1", phase("architecture").says(answer));
        begin(&stage).fails(4);
        is_blocked(
            &stage,
            "architecture",
            "the architecture blueprint is not approved",
        );
        assert_eq!(stage.state()["state"], initial(), "{answer}");
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, "architecture", "`architecture` waits for approval");
    });
}

/// Status words that no guard knows, each in its phase, written into the document itself.
#[test]
fn an_unknown_status_word_is_no_success() {
    let cases = [
        ("design", "draft", "APPROVED"),
        ("code", "draft", "done"),
        ("test", "pending", "pass"),
        ("deploy", "pending", "complete"),
    ];
    side_by_side(&cases, |(step, from, word)| {
        let stage = honest();
        let own = phase(step);
        let edit = format!("{EDIT}edit '/\"{}\": {{/,/}}/ s/{from}/{word}/'", own.part);
        let script = format!("{}\n{edit}\n", own.says("done"));
        stage.answers(&format!("{step}.1"), script);
        reach(&stage, step).fails(4);
        assert_eq!(stage.state()["state"][own.part]["status"], *word);
        assert_eq!(stage.state()["metadata"]["status"], "blocked");
        stage.orch(&["approve", "last", step]).fails(64);
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, step, &waits(own));
    });
}

/// An agent may take away what is its own; then a guard misses a name, and that is not a yes.
#[test]
fn a_part_that_is_gone_is_not_approved() {
    let stage = honest();
    let script =
        r#"edit 's/"diagrams": \[\]/"diagram": []/; s/"approved": false/"approved": true/'"#;
    let own = phase("architecture");
    stage.answers(
        "architecture.1",
        format!("{}\n{EDIT}{script}\n", own.says("done")),
    );
    begin(&stage).fails(4);
    let reason = "not every architecture diagram is approved: ";
    is_blocked(&stage, "architecture", reason);
    is_blocked(&stage, "architecture", "diagrams");
    stage.orch(&["resume", "last"]).fails(4);
    is_blocked(&stage, "architecture", &waits(own));
}

/// Writes somewhere, and blocks the run by it.
fn writes(path: &str, settings: &str, reason: &str) {
    let stage = honest();
    let limits = "provider: actor\nlimits: {grace: 200ms}\n";
    stage.bed.settings(&format!("{limits}{settings}"));
    let specs = stage.bed.read("specs/lifecycle.yaml");
    let honest = phase("architecture").honest();
    let script = format!(
        "#!\nset -e\nmkdir -p \"$(dirname {path})\"\necho x >> {path}\n{}",
        &honest[3..]
    );
    stage.answers("architecture.1", script);
    begin(&stage).fails(4);
    is_blocked(&stage, "architecture", reason);
    assert_eq!(stage.bed.read("specs/lifecycle.yaml"), specs);
    assert_eq!(stage.state()["state"], initial());
    assert_eq!(stage.calls(), ["architecture"]);
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn files_outside_of_its_folder_are_out_of_reach() {
    // From the agent's working directory, `files/` of the run.
    let cases = [
        "code/main.rs",
        "loose",
        "../state.json",
        "../../../specs/lifecycle.yaml",
        "../../../inbox/human/me.approved",
        "../spec/more",
    ];
    side_by_side(&cases, |path| writes(path, "", "cannot create"));
    // Where the kernel does not hold it, what it changed is found afterwards.
    side_by_side(&cases[..2], |path| writes(path, "sandbox: none\n", path));
}

#[test]
fn an_agent_that_uses_orch_itself_moves_nothing() {
    let orch = crate::harness::orch().display().to_string();
    let cases = [
        "approve last architecture",
        "set last 'state.tests.status=\"passed\"' --note mine",
        "resume last",
        "reset last",
    ];
    side_by_side(&cases, |words| {
        let stage = honest();
        let honest = phase("architecture").honest();
        let script = format!(
            "#!\n{orch} {words} 2> /dev/null && exit 7\n{}",
            &honest[3..]
        );
        stage.answers("architecture", script);
        begin(&stage).fails(4);
        is_blocked(&stage, "architecture", "`architecture` waits for approval");
        let state = stage.state();
        assert_eq!(state["governance"]["approvals"]["architecture"], false);
        assert_eq!(state["state"]["tests"]["status"], "pending");
    });
}
