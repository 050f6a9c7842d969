//! The workflows that come with orch, with their agents, prompts, schemas and examples.
//!
//! They are this repository's own `specs/`, word for word, so that there is one text of each. Data
//! only: nothing in the program knows what any of them says.

/// A file of `specs/`: its path in there, and its text.
pub type File = (&'static str, &'static str);

macro_rules! files {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!("../../specs/", $path))),)*]
    };
}

/// The workflows.
pub const WORKFLOWS: &[File] = files![
    "build.yaml",
    "feature.yaml",
    "four-pass.yaml",
    "handoff.yaml",
    "lifecycle.yaml",
];

/// What they are made of.
pub const PARTS: &[File] = files![
    "agents/architect.md",
    "agents/code-explorer.md",
    "agents/code-implementer.md",
    "agents/code-quality.md",
    "agents/decider.md",
    "agents/deployer.md",
    "agents/designer.md",
    "agents/engineer.md",
    "agents/executor.md",
    "agents/generator.md",
    "agents/patcher.md",
    "agents/requirements-analyst.md",
    "agents/researcher.md",
    "agents/reviewer.md",
    "agents/task-planner.md",
    "agents/tester.md",
    "agents/ux-dx-quality.md",
    "agents/verifier.md",
    "examples/build.yaml",
    "prompts/build/generate.md",
    "prompts/build/patch.md",
    "prompts/feature/analyse.md",
    "prompts/feature/clarify.md",
    "prompts/feature/complete.md",
    "prompts/feature/explore.md",
    "prompts/feature/fix-phase.md",
    "prompts/feature/fix.md",
    "prompts/feature/implement.md",
    "prompts/feature/plan.md",
    "prompts/feature/quality.md",
    "prompts/feature/research.md",
    "prompts/feature/review.md",
    "prompts/feature/triage.md",
    "prompts/feature/validate.md",
    "prompts/four-pass/decide.md",
    "prompts/four-pass/execute.md",
    "prompts/four-pass/patch.md",
    "prompts/four-pass/verify.md",
    "prompts/lifecycle/architecture.md",
    "prompts/lifecycle/code.md",
    "prompts/lifecycle/deploy.md",
    "prompts/lifecycle/design.md",
    "prompts/lifecycle/test.md",
    "prompts/plan-grammar.md",
    "schemas/build/spec.json",
    "schemas/feature/analysis.json",
    "schemas/feature/clarify.json",
    "schemas/feature/gate.json",
    "schemas/feature/implement.json",
    "schemas/feature/triage.json",
    "schemas/feature/validation.json",
    "schemas/four-pass/decision.json",
    "schemas/four-pass/issues.json",
    "schemas/four-pass/patch.json",
    "schemas/lifecycle/architecture.json",
    "schemas/lifecycle/code.json",
    "schemas/lifecycle/deployment.json",
    "schemas/lifecycle/design.json",
    "schemas/lifecycle/tests.json",
];

/// Agents that are of use on their own, and get an inbox at once.
pub const FIRST_AGENTS: [&str; 3] = ["architect", "engineer", "reviewer"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn everything_in_specs_is_shipped_but_the_settings() {
        let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
        let mut there: Vec<String> = walkdir::WalkDir::new(&specs)
            .into_iter()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| {
                entry
                    .path()
                    .strip_prefix(&specs)
                    .unwrap()
                    .display()
                    .to_string()
            })
            .collect();
        there.retain(|path| {
            !["orch.yaml", "providers.yaml", "schemas/workflow.json"].contains(&path.as_str())
        });
        there.sort();
        let mut shipped: Vec<&str> = WORKFLOWS
            .iter()
            .chain(PARTS)
            .map(|(path, _)| *path)
            .collect();
        shipped.sort_unstable();
        assert_eq!(shipped, there);
    }

    #[test]
    fn every_shipped_agent_can_be_read() {
        let agents = PARTS.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix("agents/")?.strip_suffix(".md")?;
            Some((crate::spec::task::AgentName::parse(name).unwrap(), text))
        });
        let mut count = 0;
        for (name, text) in agents {
            let (agent, notes) = crate::spec::agent::parse(&name, text).unwrap();
            assert!(
                notes.is_empty() && !agent.system.is_empty(),
                "{name}: {notes:?}"
            );
            count += 1;
        }
        assert!(count > FIRST_AGENTS.len());
    }
}
