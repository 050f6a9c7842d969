//! The shipped workflows, each with its own file: every rule of theirs as a case.
//!
//! The agents are played: one script answers for all of them with what a test put down for the
//! step, so that any course of a run can be had, the honest ones and the others.

mod build;
mod feature;
mod four_pass;
mod lifecycle;
mod random;

use std::path::Path;

use serde_json::Value;

use crate::harness::{Bed, Ran};

/// Answers for the step at hand: `answers/STEP.N` at its Nth call, else `answers/STEP`. A file that
/// begins with `#!` is executed where the agent works, with what it was sent in the file `$PROMPT`;
/// any other is printed.
const ACTOR: &str = r#"
step=${ORCH_TASK##*/}; step=${step#*.}; step=${step#*-}
here=ANSWERS
echo "$step" >> "$here.calls"
count=$(grep -cx "$step" "$here.calls")
export PROMPT="$here.sent.$$"
cat > "$PROMPT"
ln -f "$PROMPT" "$here.prompt.$step.$count"
for answer in "$here/$step.$count" "$here/$step"; do
  [ -e "$answer" ] || continue
  case $(head -c 2 "$answer") in
    '#!') exec sh "$answer" ;;
    *) exec cat "$answer" ;;
  esac
done
echo "nobody says what $step answers" >&2
exit 9
"#;

/// A root with the shipped workflows, whose agents are played.
pub struct Stage {
    pub bed: Bed,
}

impl Stage {
    pub fn new() -> Stage {
        let bed = Bed::new();
        for (path, text) in orch::spec::shipped::WORKFLOWS
            .iter()
            .chain(orch::spec::shipped::PARTS)
        {
            bed.write(&format!("specs/{path}"), text);
        }
        bed.settings("provider: actor\nlimits: {grace: 200ms, backoff: 20ms}\n");
        let answers = bed.outside.join("answers");
        std::fs::create_dir(&answers).unwrap();
        let actor = bed.outside.join("actor");
        let script = ACTOR.replace("ANSWERS", &answers.display().to_string());
        std::fs::write(&actor, script).unwrap();
        let provider = format!(
            "providers:\n  actor:\n    command: [sh, {}]\n    prompt_via: stdin\n    also_writes: [{}]\n",
            actor.display(),
            bed.outside.display()
        );
        bed.write("specs/providers.yaml", provider);
        Stage { bed }
    }

    /// What a step answers, always (`STEP`) or the Nth time that it is called (`STEP.N`).
    pub fn answers(&self, step: &str, text: impl AsRef<[u8]>) -> &Stage {
        std::fs::write(self.bed.outside.join("answers").join(step), text).unwrap();
        self
    }

    /// The steps whose agents were called, in order.
    pub fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.bed.outside.join("answers.calls"));
        let calls = calls.unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// What the agent of a step was sent, the Nth time.
    pub fn prompt(&self, step: &str, count: usize) -> String {
        let file = format!("answers.prompt.{step}.{count}");
        std::fs::read_to_string(self.bed.outside.join(file)).unwrap()
    }

    pub fn orch(&self, words: &[&str]) -> Ran {
        self.bed.orch(words).run()
    }

    /// The id of the only run.
    pub fn run_id(&self) -> String {
        let runs: Vec<String> = self
            .bed
            .ls("workspace")
            .into_iter()
            .filter(|name| !name.starts_with('.'))
            .collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// The state of the only run.
    pub fn state(&self) -> Value {
        let text = self
            .bed
            .read(&format!("workspace/{}/state.json", self.run_id()));
        serde_json::from_str(&text).unwrap()
    }

    /// A file of the only run's working directory.
    pub fn file(&self, path: &str) -> std::path::PathBuf {
        let files = Path::new("workspace").join(self.run_id()).join("files");
        self.bed.root.join(files).join(path)
    }
}
