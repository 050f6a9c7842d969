//! Four passes, of which the third finds something: what was locked, found and mended is told.

use super::{Stage, file_names};
use crate::text::error::{Fault, Result};

const ANSWERS: [(&str, &str); 4] = [
    ("decide", include_str!("four-pass/decide.json")),
    ("execute", include_str!("four-pass/execute.txt")),
    ("verify", include_str!("four-pass/verify.json")),
    ("patch", include_str!("four-pass/patch.json")),
];

impl Stage {
    pub(super) fn four_passes(&self) -> Result<()> {
        self.chapter("Four passes: what is decided is locked, what is found is mended");
        self.say("specs/four-pass.yaml: decide, execute, verify, patch. Each is run once, and the decision is locked with its hash. This time the third finds a BLOCKER:");
        let stage = self.played("four-pass", &ANSWERS)?;
        let ran = stage.orch(&["run", "four-pass", "a script that greets people"])?;
        let mended = ran.contains("[PATCH] patch OK -> keep_patched");
        stage.expect(mended, "the BLOCKER was not patched")?;
        let runs = file_names(&stage.root.join("workspace"))?;
        let run = runs.first().map(String::as_str).unwrap_or_default();
        stage.cat(&format!("workspace/{run}/files/final/greet.sh"))?;
        self.say("What was decided, and when it was locked; what was found; what was done about it, and why:");
        let audit = stage.orch(&["audit", "last"])?;
        let told = ["sound", "locked 20", "severity: BLOCKER", "status: FIXED"];
        stage.expect(
            told.iter().all(|part| audit.contains(part)),
            "the audit leaves a question open",
        )?;
        self.say("Somebody has second thoughts about the locked decision:");
        let path = format!("workspace/{run}/snapshots/decision.json");
        stage.command(&format!("sed -i s/greets/insults/ {path}"));
        let decision = stage.root.join(&path);
        let text = std::fs::read_to_string(&decision);
        let text = text.map_err(|e| Fault::io("read", &decision, &e))?;
        stage.write(&path, &text.replace("greets", "insults"))?;
        let audit = stage.orch(&["audit", "last"])?;
        stage.expect(
            audit.contains("1 finding") && audit.contains("snapshots/decision.json"),
            "the changed decision was not found",
        )
    }
}
