//! A build whose tests fail twice: the third time they pass, and nobody but they could say so.

use super::{Stage, file_names};
use crate::text::error::Result;

const ANSWERS: [(&str, &str); 3] = [
    ("generate", include_str!("build/generate.txt")),
    ("patch.1", include_str!("build/patch-1.txt")),
    ("patch.2", include_str!("build/patch-2.txt")),
];

impl Stage {
    pub(super) fn a_build_goes_green(&self) -> Result<()> {
        self.chapter(
            "A build: generate, test, patch, until the tests pass or the retries are used",
        );
        self.say("specs/build.yaml: a specification with its test command goes in. The model here only prints; orch writes its files, and a diff, itself:");
        let stage = self.played("build", &ANSWERS)?;
        stage.write("slug.yaml", include_str!("build/spec.yaml"))?;
        stage.cat("slug.yaml")?;
        let ran = stage.orch(&["run", "build", "--spec", "slug.yaml", "--max-retries", "99"])?;
        let red = ran.matches("test FAIL -> patch").count();
        let green = ran.contains("test OK -> _end");
        stage.expect(red == 2 && green, "it was not green on the third run")?;
        let told = ran.contains("50 is taken instead");
        stage.expect(told, "99 retries were taken as they are")?;
        let runs = file_names(&stage.root.join("workspace"))?;
        let run = runs.first().map(String::as_str).unwrap_or_default();
        stage.cat(&format!("workspace/{run}/files/slug.sh"))?;
        self.say("What the tests said each time is kept:");
        let shown = stage.orch(&["log", "--failed"])?;
        stage.expect(
            shown.contains("expected hello-world"),
            "what the tests said is lost",
        )
    }
}
