//! A root of its own for a chapter about a shipped workflow, with agents that are played.

use super::Stage;
use crate::spec::shipped;
use crate::text::error::Result;

const SETTINGS: &str = "layout: 1\nprovider: played\npath: [bin]\nlimits: {grace: 200ms}\n";
const PROVIDER: &str = "providers:\n  played: {command: [played], prompt_via: stdin}\n";

impl Stage {
    /// The shipped workflows in a folder of this name, and what the agents of their steps answer.
    pub(super) fn played(&self, folder: &str, answers: &[(&str, &str)]) -> Result<Stage> {
        let stage = Stage {
            paint: self.paint,
            program: self.program.clone(),
            root: self.root.join(folder),
        };
        for (path, text) in shipped::WORKFLOWS.iter().chain(shipped::PARTS) {
            stage.write(&format!("specs/{path}"), text)?;
        }
        stage.write("specs/orch.yaml", SETTINGS)?;
        stage.write("specs/providers.yaml", PROVIDER)?;
        stage.program("bin/played", include_str!("played.sh"))?;
        for (step, answer) in answers {
            stage.write(&format!("answers/{step}"), answer)?;
        }
        stage.folder("inbox")?;
        Ok(stage)
    }
}
