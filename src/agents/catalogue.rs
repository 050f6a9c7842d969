//! The catalogue of `specs/`: settings, providers and agents, read again when they change.
//!
//! The files belong to the user, who may edit them at any time and may use links. If the settings become
//! invalid while orch runs, the error is reported and the last valid ones stay in force. An invalid
//! agent file rejects that agent's tasks.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::agents::program::{expand_home, resolve_program};
use crate::agents::secrets;
use crate::disk::specs::read_text;
use crate::run::mask::Masker;
use crate::spec::agent::Agent;
use crate::spec::policy::Policy;
use crate::spec::provider::{self, Provider, UserProviders};
use crate::spec::settings::{self, Limits, Settings};
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result};
use crate::text::suggest::suggest;

mod files;
mod step;

use files::{Stamp, agent_files, read_agent, stamps};

/// Variables that every agent gets, if they are set.
const BASE_ENV: [&str; 6] = ["HOME", "LANG", "TERM", "USER", "TMPDIR", "LOGNAME"];

/// How an agent's tasks are run.
#[derive(Debug)]
pub struct Setup {
    /// The agent's file; empty for the inbox of a provider.
    pub agent: Agent,
    /// The provider's name.
    pub provider_name: String,
    /// The provider.
    pub provider: Provider,
    /// The environment, complete except for the markers.
    pub env: Vec<(OsString, OsString)>,
    /// The PATH for programs.
    pub path: String,
    /// Masks the secrets of the environment.
    pub masker: Masker,
}

/// The specs of one root.
#[derive(Debug)]
pub struct Catalogue {
    places: Places,
    state: Mutex<State>,
}

/// Where the specs are, and the root that they are for.
#[derive(Debug, Clone)]
struct Places {
    /// The folder that contains `specs/`: the root itself, or a run's copy.
    base: PathBuf,
    /// The root: programs, PATH and ORCH_ROOT are relative to it.
    root: PathBuf,
}

#[derive(Debug)]
struct State {
    settings: Arc<Settings>,
    providers: Arc<UserProviders>,
    stamps: [Stamp; 2],
    agents: HashMap<AgentName, Known>,
    setups: HashMap<(AgentName, Option<String>), Arc<Setup>>,
    programs: HashMap<(String, String), PathBuf>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    agent: Option<Result<Arc<Agent>>>,
    checked: bool,
}

impl Catalogue {
    /// Reads the specs of a root.
    pub fn load(root: &Path) -> Result<Catalogue> {
        Catalogue::pinned(root, root)
    }

    /// Reads the specs that a run is pinned to. `base` contains its copy of `specs/`; everything else is
    /// relative to the root.
    pub fn pinned(base: &Path, root: &Path) -> Result<Catalogue> {
        let state = State::read(base)?;
        Ok(Catalogue {
            places: Places {
                base: base.to_path_buf(),
                root: root.to_path_buf(),
            },
            state: Mutex::new(state),
        })
    }

    /// Reads again what changed. If the settings became invalid, the error is reported and the last valid
    /// ones stay.
    pub fn refresh(&self, report: &dyn Fn(&Fault)) {
        let mut state = self.lock();
        for known in state.agents.values_mut() {
            known.checked = false;
        }
        if state.stamps == stamps(&self.places.base) {
            return;
        }
        match State::read(&self.places.base) {
            Ok(new) => *state = new,
            Err(fault) => {
                state.stamps = stamps(&self.places.base);
                drop(state);
                report(&fault.hint("the last valid settings stay in force"));
            }
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.lock().settings.clone()
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.lock().settings.limits.clone()
    }

    /// The user's own providers.
    #[must_use]
    pub fn providers(&self) -> Arc<UserProviders> {
        self.lock().providers.clone()
    }

    /// Whether a person does this agent's work.
    #[must_use]
    pub fn is_human(&self, agent: &AgentName) -> bool {
        agent.as_str() == "human"
            || self
                .setup(agent, None)
                .is_ok_and(|setup| matches!(setup.provider, Provider::Human))
    }

    /// Whether this names a workflow in `specs/` and not an agent.
    #[must_use]
    pub fn is_workflow(&self, agent: &AgentName) -> bool {
        let has = |ending: &str| {
            self.places
                .root
                .join(format!("specs/{agent}.{ending}"))
                .is_file()
        };
        !agent.is_reserved()
            && !matches!(agent.as_str(), "orch" | "providers")
            && (has("yaml") || has("yml"))
            && self.setup(agent, None).is_err()
    }

    /// Checks that an agent exists.
    pub fn knows(&self, agent: &AgentName) -> Result<()> {
        if agent.as_str() == "human" {
            return Ok(());
        }
        self.setup(agent, None).map(|_| ())
    }

    /// How an agent's tasks are run; with the task's provider, if it names one.
    pub fn setup(&self, agent: &AgentName, provider: Option<&str>) -> Result<Arc<Setup>> {
        let mut state = self.lock();
        let key = (agent.clone(), provider.map(str::to_owned));
        let fresh = state.refresh_agent(&self.places.base, agent);
        if fresh && let Some(setup) = state.setups.get(&key) {
            return Ok(setup.clone());
        }
        let setup = Arc::new(state.assemble(&self.places, agent, provider)?);
        state.setups.insert(key, setup.clone());
        Ok(setup)
    }

    /// The absolute path of a program, looked up once.
    pub fn program(&self, name: &str, path: &str) -> Result<PathBuf> {
        let key = (name.to_owned(), path.to_owned());
        if let Some(found) = self.lock().programs.get(&key) {
            return Ok(found.clone());
        }
        let found = resolve_program(name, path, &self.places.root)?;
        self.lock().programs.insert(key, found.clone());
        Ok(found)
    }

    /// Forgets the paths of programs, after one could not be started.
    pub fn forget_programs(&self) {
        self.lock().programs.clear();
    }

    /// What an agent's tasks may touch, according to its file, its provider and the settings.
    #[must_use]
    pub fn policy(&self, setup: &Setup) -> Policy {
        let settings = self.settings();
        let root = Policy {
            sandbox: settings.sandbox,
            caps: settings.limits.caps(),
            ..Policy::default()
        };
        let provider = match &setup.provider {
            Provider::Process(config) => Policy {
                caps: config.limits,
                ..Policy::default()
            },
            _ => Policy::default(),
        };
        setup.agent.policy().over(provider.over(root))
    }

    /// Every agent that has a file, and the error in it.
    pub fn all_agents(&self) -> Vec<(String, Result<()>)> {
        let mut names: Vec<String> = walkdir::WalkDir::new(self.places.base.join("specs/agents"))
            .max_depth(1)
            .follow_links(true)
            .into_iter()
            .filter_map(std::result::Result::ok)
            .filter(|entry| entry.file_type().is_file())
            .filter_map(|entry| entry.file_name().to_str().map(str::to_owned))
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .collect();
        names.sort_unstable();
        let check = |name: &String| {
            let agent = AgentName::parse(name)?;
            self.setup(&agent, None).map(|_| ())
        };
        names
            .into_iter()
            .map(|name| {
                let checked = check(&name);
                (name, checked)
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change replaces a whole value, so a panic elsewhere does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read(root: &Path) -> Result<State> {
        let before = stamps(root);
        let settings =
            Settings::parse(&read_text(&root.join(settings::FILE))?.unwrap_or_default())?;
        let providers = match read_text(&root.join(provider::FILE))? {
            Some(text) => provider::parse(&text)?,
            None => UserProviders::new(),
        };
        Ok(State {
            settings: Arc::new(settings),
            providers: Arc::new(providers),
            stamps: before,
            agents: HashMap::new(),
            setups: HashMap::new(),
            programs: HashMap::new(),
        })
    }

    /// Reads an agent's file if it changed; returns whether the setups made from it are still valid.
    fn refresh_agent(&mut self, root: &Path, agent: &AgentName) -> bool {
        let path = root.join("specs/agents").join(format!("{agent}.md"));
        if let Some(known) = self.agents.get_mut(agent) {
            if known.checked {
                return true;
            }
            if known.stamp == Stamp::of(&path) {
                known.checked = true;
                return true;
            }
        }
        let known = Known {
            stamp: Stamp::of(&path),
            agent: read_agent(&path, agent).transpose(),
            checked: true,
        };
        self.agents.insert(agent.clone(), known);
        self.setups.retain(|(name, _), _| name != agent);
        false
    }

    fn assemble(
        &self,
        places: &Places,
        agent: &AgentName,
        provider: Option<&str>,
    ) -> Result<Setup> {
        let known = self.agents.get(agent).and_then(|known| known.agent.clone());
        let file = known.transpose()?;
        let name = match (provider, &file) {
            (Some(provider), _) => self.allowed_in_task(agent, provider)?,
            (None, Some(file)) => file
                .provider
                .clone()
                .or_else(|| self.settings.provider.clone())
                .ok_or_else(|| no_provider(agent))?,
            (None, None) => self.provider_inbox(&places.base, agent)?,
        };
        let provider = provider::lookup(&name, &self.providers)?;
        let agent = file.map(|file| (*file).clone()).unwrap_or_default();
        Ok(self.complete(&places.root, agent, name, provider))
    }

    fn complete(&self, root: &Path, agent: Agent, name: String, provider: Provider) -> Setup {
        let path = self.path(root);
        let env = self.environment(root, &agent, &provider, &path);
        Setup {
            masker: masker(&agent, &env),
            env,
            agent,
            provider_name: name,
            provider,
            path,
        }
    }

    /// A task may choose among the programs of agents, but not a shell.
    fn allowed_in_task(&self, agent: &AgentName, provider: &str) -> Result<String> {
        if matches!(provider, "bash" | "shell") {
            return Err(Fault::new(
                Kind::InvalidTask,
                format!("a task may not choose the provider `{provider}`"),
            )
            .hint(format!(
                "write `provider: {provider}` in specs/agents/{agent}.md instead"
            )));
        }
        Ok(provider.to_owned())
    }

    /// An inbox without an agent's file must be named after a provider.
    fn provider_inbox(&self, root: &Path, agent: &AgentName) -> Result<String> {
        let name = agent.as_str();
        let is_provider = provider::lookup(name, &self.providers).is_ok();
        if is_provider && name != "bash" {
            return Ok(name.to_owned());
        }
        let others = agent_files(root);
        let close = suggest(name, others.iter().map(String::as_str));
        let hint = match close {
            Some(close) => format!(
                "did you mean `{close}`? otherwise write specs/agents/{agent}.md, with `provider: NAME` between two lines `---` and the system prompt below"
            ),
            None => format!(
                "write specs/agents/{agent}.md, with `provider: NAME` between two lines `---` and the system prompt below"
            ),
        };
        Err(Fault::new(Kind::UnknownAgent, format!("unknown agent `{agent}`")).hint(hint))
    }

    fn path(&self, root: &Path) -> String {
        let own = self.settings.path.iter().map(|dir| {
            expand_home(dir)
                .map_or_else(|| root.join(dir), PathBuf::from)
                .display()
                .to_string()
        });
        let inherited =
            std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        own.chain([inherited]).collect::<Vec<_>>().join(":")
    }

    fn environment(
        &self,
        root: &Path,
        agent: &Agent,
        provider: &Provider,
        path: &str,
    ) -> Vec<(OsString, OsString)> {
        let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut pass = |name: &str| {
            if let Some(value) = std::env::var_os(name) {
                env.insert(name.into(), value);
            }
        };
        BASE_ENV.iter().for_each(|name| pass(name));
        std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| name.starts_with("LC_"))
            .for_each(|name| pass(&name));
        self.settings.pass_env.iter().for_each(|name| pass(name));
        agent.pass_env.iter().for_each(|name| pass(name));
        if let Provider::Process(config) = provider {
            config.env.iter().for_each(|name| pass(name));
        }
        agent.secrets.iter().for_each(|name| pass(name));
        for (name, value) in &agent.env {
            env.insert(name.into(), value.into());
        }
        env.insert("PATH".into(), path.into());
        env.insert("ORCH_ROOT".into(), root.into());
        env.into_iter().collect()
    }
}

/// Masks the secrets of an environment: those of the agent's file, and variables named like keys.
fn masker(agent: &Agent, env: &[(OsString, OsString)]) -> Masker {
    let is_secret = |name: &OsString, value: &OsString| {
        let declared = |secret: &String| name == secret.as_str();
        agent.secrets.iter().any(declared) || secrets::is_key(name, value)
    };
    let values = env.iter().filter(|(name, value)| is_secret(name, value));
    Masker::new(values.map(|(_, value)| value.as_bytes()))
}

fn no_provider(agent: &AgentName) -> Fault {
    Fault::new(
        Kind::UnknownProvider,
        format!("agent `{agent}` has no provider"),
    )
    .hint(format!(
        "write `provider: NAME` in specs/agents/{agent}.md, or for all agents in {}",
        settings::FILE
    ))
}
