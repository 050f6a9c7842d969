//! From a task's text to everything that is needed to run it, or to the reason why it is rejected.
//!
//! A plan is made before the task is claimed, so nothing here may change anything, but that the
//! folders of the agent that comes next are made where they are missing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::agents::catalogue::{Catalogue, Setup};
use crate::agents::process::Limits;
use crate::agents::program::expand_home;
use crate::agents::secrets;
use crate::disk::mailbox::{Mailbox, PROMPT, file_name};
use crate::disk::safety::Dir;
use crate::run::mask::Masker;
use crate::spec::policy::Policy;
use crate::spec::provider::Provider;
use crate::spec::provider::invocation::{self, Invocation, Request};
use crate::spec::settings::Settings;
use crate::spec::task::{AgentName, Header, MAX_HOPS, MAX_TASK_BYTES, Task, TaskName, render};
use crate::text::cut;
use crate::text::error::{Fault, Kind, Result};
use crate::work::document::Document;

/// How a task will be run.
#[derive(Debug)]
pub struct Job {
    /// What the task says.
    pub task: Task,
    /// The agent and its provider.
    pub setup: Arc<Setup>,
    /// What is executed; `None` for providers without a process.
    pub invocation: Option<Invocation>,
    /// The folder to work in, where it is not the root.
    pub dir: Option<Dir>,
    /// When it is ended.
    pub limits: Limits,
    /// How often a failure that passes is tried again.
    pub retries: u32,
    /// Who gets the answer.
    pub chain: Option<Chain>,
    /// Whether `task` is the claimed file as it is; a step's prompt is made when it is claimed.
    pub as_dropped: bool,
    /// Whether `dir` is worked in by one task at a time, or by steps of one run.
    pub exclusive: bool,
    /// The copy of the canonical document that a step of a run gets.
    pub document: Option<Document>,
    /// What it may touch.
    pub policy: Policy,
    /// Secrets for the process, besides its environment.
    pub secrets: Vec<(OsString, OsString)>,
    /// What is kept out of everything that it prints.
    pub masker: Masker,
}

/// What a job is made from: the agents and the folders that there are now.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// Agents, providers and settings.
    pub catalogue: &'a Catalogue,
    /// The folders.
    pub mailbox: &'a Mailbox,
}

/// The rest of a `then:` chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The next agent.
    pub agent: AgentName,
    /// The agents after that; `None` leaves it to the next agent's own file.
    pub rest: Option<Vec<AgentName>>,
    /// How often the task has been handed on, this time included.
    pub hops: u8,
}

impl Planner<'_> {
    /// The job of a task in an agent's inbox.
    ///
    /// # Errors
    /// The task is rejected, with the reason.
    pub fn job(&self, agent: &AgentName, name: &TaskName, bytes: &[u8]) -> Result<Job> {
        let task = Task::parse(bytes)?;
        let header = &task.header;
        if let Some(workflow) = &header.workflow {
            return Err(Fault::new(
                Kind::UnknownWorkflow,
                format!("there is no workflow `{workflow}` in specs/"),
            )
            .hint("take `workflow` out of the front matter to give the text to the agent itself"));
        }
        if header.run.is_some() || header.step.is_some() || header.attempt.is_some() {
            return Err(Fault::new(
                Kind::InvalidTask,
                "`run`, `step` and `attempt` are orch's own keys, and no run waits for this task",
            )
            .hint("remove them from the front matter"));
        }
        let setup = self.catalogue.setup(agent, header.provider.as_deref())?;
        let names = setup.agent.secrets.iter().map(String::as_str);
        let own = |name: &str| setup.agent.env.get(name).map(String::as_str);
        let secrets = secrets::read(names, own)?;
        let chain = self.chain(header, &setup)?;
        let dir = self.working_dir(header, &setup)?;
        let invocation = match &setup.provider {
            Provider::Process(config) => {
                let prompt_file = self.prompt_path(agent, name);
                Some(invocation::build(&Request {
                    provider_name: &setup.provider_name,
                    config,
                    prompt: task.body(),
                    system: Some(setup.agent.system.trim()).filter(|text| !text.is_empty()),
                    model: header.model.as_deref().or(setup.agent.model.as_deref()),
                    access: header.access.or(setup.agent.access).unwrap_or_default(),
                    confined: self.catalogue.policy(&setup).confined(),
                    params: &merged(&setup.agent.params, &header.params),
                    tools: &setup.agent.tools,
                    prompt_file: Some(&prompt_file),
                    prompt_via: None,
                })?)
            }
            _ => None,
        };
        let masker = setup.masker.clone();
        secrets::refuse(&masker, task.body(), "the task")?;
        let invocation = invocation.map(|it| hidden(it, &masker)).transpose()?;
        Ok(Job {
            policy: self.catalogue.policy(&setup),
            limits: self.limits(header, &setup),
            retries: setup
                .agent
                .retries
                .unwrap_or_else(|| self.catalogue.limits().retries),
            invocation,
            dir,
            chain,
            setup,
            task,
            as_dropped: true,
            exclusive: true,
            document: None,
            secrets,
            masker,
        })
    }

    /// Where the prompt is put, for providers that read it from a file.
    pub(crate) fn prompt_path(&self, agent: &AgentName, name: &TaskName) -> String {
        let folder = self
            .mailbox
            .root
            .path
            .join("artifacts")
            .join(agent.as_str());
        folder.join(file_name(name, PROMPT)).display().to_string()
    }

    pub(crate) fn chain(&self, header: &Header, setup: &Setup) -> Result<Option<Chain>> {
        let explicit = header.then.is_some();
        let list = header.then.as_ref().unwrap_or(&setup.agent.then);
        let Some((first, rest)) = list.split_first() else {
            return Ok(None);
        };
        for agent in list {
            self.catalogue.knows(agent).map_err(|fault| Fault {
                message: format!("`then` names an {}", fault.message),
                ..fault
            })?;
        }
        match self.mailbox.agent(first) {
            // What the system is short of passes; a folder that is a link does not.
            Err(e) if e.raw_os_error().is_none() => {
                return Err(Fault::new(
                    Kind::SafetyViolation,
                    format!("`then` names `{first}`, whose folders cannot be used: {e}"),
                )
                .hint(format!("inbox/{first}, artifacts/{first} and processed/{first} must be real folders of the root")));
            }
            _ => {}
        }
        let hops = header.hops.unwrap_or(0).saturating_add(1);
        if hops > MAX_HOPS {
            return Err(Fault::new(
                Kind::LimitExceeded,
                format!("this task has been handed on {MAX_HOPS} times already"),
            )
            .hint("the agents' `then` lead in a circle; send it anew to go on"));
        }
        let rest = (explicit || !rest.is_empty()).then(|| rest.to_vec());
        Ok(Some(Chain {
            agent: first.clone(),
            rest,
            hops,
        }))
    }

    fn working_dir(&self, header: &Header, setup: &Setup) -> Result<Option<Dir>> {
        let settings = self.catalogue.settings();
        let named = header.dir.as_ref().or(setup.agent.dir.as_ref());
        let Some(name) = named.or(settings.dir.as_ref()) else {
            return Ok(None);
        };
        named_dir(&self.mailbox.root.path, &settings, name).map(Some)
    }

    fn limits(&self, header: &Header, setup: &Setup) -> Limits {
        let limits = self.catalogue.limits();
        let idle = header.idle_timeout.or(setup.agent.idle_timeout);
        let streams = match &setup.provider {
            Provider::Process(config) => config.idle,
            _ => false,
        };
        Limits {
            wall: header
                .timeout
                .or(setup.agent.timeout)
                .unwrap_or(limits.timeout)
                .0,
            idle: idle
                .or(streams.then_some(limits.idle_timeout))
                .map(|time| time.0),
            output: limits.output.0,
            grace: limits.grace.0,
        }
    }
}

impl Chain {
    /// The next task: the request, and below it the answer. The answer is cut where the whole would
    /// be too long for a task.
    pub(crate) fn next_task(
        &self,
        from: &str,
        agent: &AgentName,
        request: &str,
        answer: &str,
    ) -> String {
        let header = Header {
            then: self.rest.clone(),
            hops: Some(self.hops),
            from: Some(from.to_owned()),
            ..Header::default()
        };
        let heading = format!("\n\n--- answer of {agent} ---\n\n");
        let note = format!("\n[cut here; the whole answer is artifacts/{from}.out]\n");
        let room = MAX_TASK_BYTES.saturating_sub(request.len() + heading.len() + note.len() + 4096);
        let mut body = String::with_capacity(request.len() + answer.len().min(room) + 256);
        body.push_str(request.trim_end());
        body.push_str(&heading);
        if answer.len() <= room {
            body.push_str(answer);
        } else {
            body.push_str(cut::head(answer, room));
            body.push_str(&note);
        }
        render(&header, &body)
    }
}

/// The invocation, with no secret in its arguments or its prompt.
pub(crate) fn hidden(mut invocation: Invocation, masker: &Masker) -> Result<Invocation> {
    if masker.is_idle() {
        return Ok(invocation);
    }
    for arg in &invocation.argv {
        secrets::refuse(masker, arg, "the command line")?;
    }
    secrets::refuse(masker, &invocation.prompt_sent, "the prompt")?;
    masker.text(&mut invocation.prompt_sent);
    Ok(invocation)
}

/// Opens a directory of the settings.
pub(crate) fn named_dir(root: &Path, settings: &Settings, name: &str) -> Result<Dir> {
    let Some(dir) = settings.dirs.get(name) else {
        let known: Vec<_> = settings.dirs.keys().map(String::as_str).collect();
        return Err(
            Fault::new(Kind::UnknownDir, format!("unknown dir `{name}`")).hint(format!(
                "add it under `dirs` in specs/orch.yaml{}",
                if known.is_empty() {
                    String::new()
                } else {
                    format!("; known: {}", known.join(", "))
                }
            )),
        );
    };
    let path = expand_home(&dir.path).map_or_else(|| root.join(&dir.path), PathBuf::from);
    let opened = std::fs::canonicalize(&path).and_then(|path| Dir::open_named_by_user(&path));
    opened.map_err(|e| Fault {
        kind: Kind::UnknownDir,
        ..Fault::io(&format!("work in dir `{name}`, that is"), &path, &e)
            .hint("`dirs` in specs/orch.yaml must name a folder that exists")
    })
}

/// The agent's parameters, with the task's own on top.
pub(crate) fn merged(
    agent: &serde_json::Map<String, serde_json::Value>,
    task: &serde_json::Map<String, serde_json::Value>,
) -> serde_json::Map<String, serde_json::Value> {
    let mut all = agent.clone();
    all.extend(task.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}
