//! A feature: a gate that fails and is fixed on the second try, then one that no fix helps.

use super::{Stage, file_names};
use crate::text::error::Result;

const FAILS_01: &str =
    r#"{"status": "FAIL", "failing": ["01"], "summary": "01 counts an empty text as one word"}"#;
const PASSES: &str = r#"{"status": "PASS", "failing": [], "summary": "all criteria are met"}"#;
const FAILS_02: &str =
    r#"{"status": "FAIL", "failing": ["02"], "summary": "02 prints no JSON for empty input"}"#;

const ANSWERS: [(&str, &str); 14] = [
    (
        "clarify",
        r#"{"verdict": "REQUIREMENTS_CLEAR", "questions": [], "summary": "count words, with --json"}"#,
    ),
    ("plan", include_str!("feature/plan.txt")),
    (
        "code",
        r#"{"status": "done", "blocking": false, "summary": "written and built"}"#,
    ),
    (
        "apply",
        r#"{"status": "done", "blocking": false, "summary": "changed as the analysis says"}"#,
    ),
    ("quality.1", FAILS_01),
    ("quality.2", PASSES),
    ("quality", FAILS_02),
    (
        "analyse.1",
        r#"{"tasks": [{"id": "01", "files": ["words"], "root_cause": "split on one space", "instructions": "split on runs of space"}], "summary": "split on runs of space"}"#,
    ),
    (
        "analyse",
        r#"{"tasks": [{"id": "02", "files": ["words"], "root_cause": "nothing is printed where nothing is read", "instructions": "print zero"}], "summary": "print zero"}"#,
    ),
    (
        "validate",
        r#"{"status": "PASS", "findings": [], "summary": "the suite passes"}"#,
    ),
    (
        "review",
        r#"{"status": "PASS", "findings": [], "summary": "it reads well"}"#,
    ),
    ("complete", include_str!("feature/complete.json")),
    ("research", "nothing that is not known"),
    ("explore", "no code yet"),
];

impl Stage {
    pub(super) fn a_feature_escalates(&self) -> Result<()> {
        self.chapter(
            "A feature: one approval, quality gates, and a person where fixes do not help",
        );
        self.say("specs/feature.yaml: the plan is made, read by orch, and put before you:");
        let stage = self.played("feature", &ANSWERS)?;
        let ran = stage.orch(&["run", "feature", "a command that counts words"])?;
        stage.expect(
            ran.contains("`plan` waits for approval"),
            "the plan was not put before anybody",
        )?;
        stage.orch(&["approve", "last", "plan"])?;
        self.say("Phase 1 fails its gate, is analysed and fixed, and passes. Phase 2 fails three times, and that is the limit:");
        let ran = stage.orch(&["resume", "last"])?;
        stage.expect(
            ran.matches("-> analyse").count() >= 3,
            "the gate did not fail as it should",
        )?;
        stage.expect(
            ran.contains("-> escalate"),
            "nobody was asked after the third failure",
        )?;
        let asked = file_names(&stage.root.join("inbox/human"))?;
        let question = asked.first().map(String::as_str).unwrap_or_default();
        stage.cat(&format!("inbox/human/{question}"))?;
        stage.orch(&["reply", "last", "skip --json can wait"])?;
        let ran = stage.orch(&["resume", "last"])?;
        stage.expect(ran.contains("-> _end"), "the run did not come to its end")?;
        self.say("The plan says what was done and what was skipped; only orch ticks it:");
        let runs = file_names(&stage.root.join("workspace"))?;
        let run = runs.first().map(String::as_str).unwrap_or_default();
        stage.cat(&format!("workspace/{run}/files/tasks/MASTER_PLAN.md"))
    }
}
