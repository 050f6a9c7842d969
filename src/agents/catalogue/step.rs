//! How the steps of a workflow are run: agents, the workflow's own providers, and commands.

use std::sync::{Arc, LazyLock};

use super::{Catalogue, Setup, agent_files, no_provider};
use crate::spec::agent::Agent;
use crate::spec::provider::{self, Entry, Provider, ProviderConfig, UserProviders};
use crate::spec::workflow::model::Who;
use crate::text::error::{Fault, Kind, Result};
use crate::text::suggest;

/// The name under which commands of steps are recorded.
pub const SHELL: &str = "shell";

/// A command as a provider: its output is the answer, its exit code decides.
static COMMAND: LazyLock<Option<Arc<ProviderConfig>>> = LazyLock::new(|| {
    let program = provider::template::Template::parse(SHELL).ok()?;
    let entry = Entry {
        command: Some(vec![program]),
        ..Entry::default()
    };
    provider::resolve(SHELL, entry).ok().map(Arc::new)
});

impl Catalogue {
    /// How a step's agent or provider is run. A provider alone has an empty agent.
    ///
    /// # Errors
    /// If there is no such agent or provider, or the agent's file is invalid.
    pub fn step_setup(&self, who: &Who, own: &UserProviders) -> Result<Arc<Setup>> {
        let (agent, name) = match who {
            Who::Provider(provider) => (Agent::default(), provider.value.clone()),
            Who::Agent { name, provider } => {
                let agent = self.agent_file(&name.value)?;
                let named = provider.as_ref().map(|text| text.value.clone());
                let name = named
                    .or_else(|| agent.provider.clone())
                    .or_else(|| self.settings().provider.clone())
                    .ok_or_else(|| no_provider(&name.value))?;
                (agent, name)
            }
        };
        let provider = match own.get(&name) {
            Some(config) => Provider::Process(Arc::clone(config)),
            None => provider::lookup(&name, &self.providers())?,
        };
        Ok(Arc::new(self.complete(agent, name, provider)))
    }

    /// How the command of a step is run.
    #[must_use]
    pub fn command_setup(&self) -> Arc<Setup> {
        let provider = match &*COMMAND {
            Some(config) => Provider::Process(Arc::clone(config)),
            // Invariant: the one entry above is valid.
            None => Provider::Echo,
        };
        Arc::new(self.complete(Agent::default(), SHELL.to_owned(), provider))
    }

    fn complete(&self, agent: Agent, name: String, provider: Provider) -> Setup {
        let root = self.places.root.clone();
        self.lock().complete(&root, agent, name, provider)
    }

    fn agent_file(&self, name: &crate::spec::task::AgentName) -> Result<Agent> {
        let mut state = self.lock();
        state.refresh_agent(&self.places.base, name);
        let known = state.agents.get(name).and_then(|known| known.agent.clone());
        match known.transpose()? {
            Some(agent) => Ok((*agent).clone()),
            None => {
                let others = agent_files(&self.places.base);
                let known: Vec<&str> = others.iter().map(String::as_str).collect();
                let hint = suggest::hint(name.as_str(), &known)
                    .unwrap_or_else(|| format!("write specs/agents/{name}.md"));
                let message = format!("there is no agent `{name}`");
                Err(Fault::new(Kind::UnknownAgent, message).hint(hint))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spec::task::AgentName;
    use crate::spec::workflow::model::{At, Place};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn at<T>(value: T) -> At<T> {
        At {
            value,
            place: Place::default(),
        }
    }

    fn agent(name: &str, provider: Option<&str>) -> Who {
        Who::Agent {
            name: at(AgentName::parse(name).unwrap()),
            provider: provider.map(|name| at(name.to_owned())),
        }
    }

    #[test]
    fn a_pinned_registry_reads_the_copy_and_works_in_the_root() {
        let temp = tempfile::tempdir().unwrap();
        let (root, base) = (
            temp.path().join("r"),
            temp.path().join("r/workspace/1/spec"),
        );
        write(&root, "specs/orch.yaml", "provider: cat\npath: [bin]\n");
        write(&base, "specs/orch.yaml", "provider: echo\npath: [bin]\n");
        write(&base, "specs/agents/a.md", "Be brief.");
        let catalogue = Catalogue::pinned(&base, &root).unwrap();
        let setup = catalogue
            .step_setup(&agent("a", None), &UserProviders::new())
            .unwrap();
        assert_eq!(setup.provider_name, "echo");
        assert_eq!(setup.agent.system.trim(), "Be brief.");
        assert!(setup.path.starts_with(root.join("bin").to_str().unwrap()));
        let variable = |name: &str| {
            let found = setup.env.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(variable("ORCH_ROOT"), root.as_os_str());
        assert!(setup.env.iter().any(|(key, _)| key == "PATH"));
    }

    #[test]
    fn the_workflows_own_providers_come_first_and_bash_is_allowed() {
        let temp = tempfile::tempdir().unwrap();
        write(temp.path(), "specs/orch.yaml", "");
        write(temp.path(), "specs/agents/a.md", "Be brief.");
        write(
            temp.path(),
            "specs/providers.yaml",
            "providers: {p: {command: [theirs]}}\n",
        );
        let own = provider::parse("providers: {p: {command: [ours]}}").unwrap();
        let catalogue = Catalogue::load(temp.path()).unwrap();
        let ask = |who: &Who, own: &UserProviders| catalogue.step_setup(who, own);
        let program = |setup: Arc<Setup>| match &setup.provider {
            Provider::Process(config) => config.program().to_owned(),
            _ => String::new(),
        };
        let alone = Who::Provider(at("p".to_owned()));
        assert_eq!(program(ask(&alone, &own).unwrap()), "ours");
        assert_eq!(
            program(ask(&alone, &UserProviders::new()).unwrap()),
            "theirs"
        );
        let bash = ask(&agent("a", Some("bash")), &own).unwrap();
        assert_eq!(bash.provider_name, "bash");
        assert_eq!(bash.agent.system.trim(), "Be brief.");
        let kind = |who: &Who| ask(who, &own).unwrap_err().kind;
        assert_eq!(kind(&agent("a", None)), Kind::UnknownProvider);
        assert_eq!(kind(&agent("b", Some("p"))), Kind::UnknownAgent);
        assert_eq!(kind(&Who::Provider(at("q".into()))), Kind::UnknownProvider);
    }

    #[test]
    fn a_command_is_judged_by_its_exit_code_alone() {
        let temp = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::load(temp.path()).unwrap();
        let setup = catalogue.command_setup();
        assert_eq!(setup.provider_name, "shell");
        let Provider::Process(config) = &setup.provider else {
            panic!("a command is a process");
        };
        assert_eq!(config.output, provider::OutputKind::Text);
        assert!(!config.success.require_output && !config.idle);
    }
}
