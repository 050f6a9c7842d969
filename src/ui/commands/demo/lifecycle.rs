//! A governed run: an approval that is missing and then given, and an agent that approves itself.

use super::{Stage, file_names};
use crate::text::error::{Fault, Result};

const ANSWERS: [(&str, &str); 5] = [
    ("architecture", include_str!("lifecycle/architecture.sh")),
    ("design", include_str!("lifecycle/design-lies.sh")),
    ("code", include_str!("lifecycle/code.sh")),
    ("test", include_str!("lifecycle/test.sh")),
    ("deploy", include_str!("lifecycle/deploy.sh")),
];

impl Stage {
    pub(super) fn a_governed_lifecycle(&self) -> Result<()> {
        self.chapter("Five phases, each behind an approval that only a person gives");
        self.say("specs/lifecycle.yaml, with `orch watch` in one terminal. In another:");
        let stage = self.played("lifecycle", &ANSWERS)?;
        let watcher = stage.watch()?;
        let ran = stage.orch(&["run", "lifecycle", "a command that counts words"])?;
        let asked = "`architecture` waits for approval";
        stage.expect(ran.contains(asked), "the approval was not missed")?;
        self.say("Blocked: no agent runs and nothing is tried again until somebody answers. From a third terminal, and the watcher goes on. The next agent writes its own approval into the document:");
        stage.orch(&[
            "approve",
            "last",
            "architecture",
            "--note",
            "small and clear",
        ])?;
        stage.until("governance.approvals.design")?;
        let told = stage.orch(&["status", "last"])?;
        stage.expect(
            told.contains("`governance.approvals.design`") && told.contains("blocked"),
            "the agent that approved itself was not caught",
        )?;
        stage.nobody_approved("design")?;
        self.say("It was caught, nothing of it was taken, and the phase has not moved. It may try again when a person says so; an honest answer this time:");
        stage.write("answers/design", include_str!("lifecycle/design.sh"))?;
        stage.orch(&["resume", "last"])?;
        for gate in ["design", "code", "tests", "deployment"] {
            stage.until(&format!("`{gate}` waits for approval"))?;
            let said = stage.orch(&["approve", "last", gate])?;
            stage.expect(said.contains("is approved"), &format!("`{gate}` is closed"))?;
        }
        let log = stage.orch(&["log", "last"])?;
        stage.expect(
            log.contains("[deploy] deploy APPROVED -> _end"),
            "the run did not come to its end",
        )?;
        watcher.stop()
    }

    /// The state of the only run.
    fn state_text(&self) -> Result<String> {
        let runs = file_names(&self.root.join("workspace"))?;
        let run = runs.first().map(String::as_str).unwrap_or_default();
        let path = self.root.join("workspace").join(run).join("state.json");
        std::fs::read_to_string(&path).map_err(|e| Fault::io("read", &path, &e))
    }

    /// Waits until the reason why the only run is blocked says this.
    fn until(&self, reason: &str) -> Result<()> {
        let deadline = std::time::Instant::now() + super::PATIENCE;
        loop {
            let state: serde_json::Value =
                serde_json::from_str(&self.state_text()?).unwrap_or_default();
            let told = state["governance"]["blockedReason"].as_str();
            if told.is_some_and(|told| told.contains(reason)) {
                return Ok(());
            }
            let in_time = std::time::Instant::now() < deadline;
            self.expect(in_time, &format!("the run was not blocked by {reason}"))?;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn nobody_approved(&self, gate: &str) -> Result<()> {
        let state: serde_json::Value =
            serde_json::from_str(&self.state_text()?).unwrap_or_default();
        self.expect(
            state["governance"]["approvals"][gate] == false,
            &format!("an agent opened `{gate}`"),
        )
    }
}
