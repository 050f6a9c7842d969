//! Whether what a workflow names exists: files, agents, providers, directories; and whether its
//! paths stay inside the root.
//!
//! What exists is asked of [`Specs`]; nothing is opened here.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Specs;
use super::model::*;
use super::problem::Gather;
use crate::spec::agent::{self, Agent};
use crate::spec::policy::check_glob;
use crate::spec::provider::template::{Piece, RESERVED};
use crate::spec::provider::{self, Provider, ProviderConfig};
use crate::spec::vars::ROOTS;
use crate::text::suggest;

/// Paths may begin with these, and with nothing else that is absolute.
const ABSOLUTE: &[&str] = &["${run.root}", "${run.files}"];

/// Checks every name and path.
pub(super) fn check(workflow: &Workflow, specs: &dyn Specs, out: &mut Gather<'_>) {
    let agents = specs.agents();
    if agents.contains(&workflow.name.value) {
        let message = format!("there is an agent `{}` too", workflow.name.value);
        let hint = "a workflow and an agent cannot share an inbox: rename one of them";
        out.hinted(workflow.name.place, message, hint);
    }
    if let Some(stem) = stem_in_specs(out.file())
        && stem != workflow.name.value
    {
        let name = &workflow.name.value;
        let message = format!("the workflow is named `{name}`, and its file `{stem}`");
        let hint = format!(
            "a workflow in specs/ is found by its file, and its inbox by its name: write `name: {stem}`, or rename the file to `{name}.yaml`"
        );
        out.hinted(workflow.name.place, message, &hint);
    }
    let mut files = Files {
        workflow,
        specs,
        agents,
        read: HashMap::new(),
        out,
    };
    if let Some(schema) = &workflow.input_schema {
        files.path(schema);
        files.schema(schema);
    }
    for step in &workflow.steps {
        files.step(step);
    }
}

/// The name of a file that lies in `specs/` itself, without its ending.
fn stem_in_specs(file: &str) -> Option<&str> {
    let (folder, name) = file.rsplit_once('/')?;
    let is_specs = folder == "specs" || folder.ends_with("/specs");
    let stem = name
        .strip_suffix(".yaml")
        .or_else(|| name.strip_suffix(".yml"))?;
    is_specs.then_some(stem)
}

struct Files<'a, 't> {
    workflow: &'a Workflow,
    specs: &'a dyn Specs,
    agents: Vec<String>,
    /// Agents that were read; nothing for those that could not be.
    read: HashMap<String, Option<Arc<Agent>>>,
    out: &'a mut Gather<'t>,
}

impl Files<'_, '_> {
    fn step(&mut self, step: &Step) {
        match &step.work {
            Work::Agent(work) => self.agent(step, work),
            Work::Human(human) => {
                self.input(human.input_file.as_ref());
            }
            Work::Command(command) => self.command(command),
            Work::Wait(wait) => self.glob(&wait.glob),
            Work::Action(Action::LoadPlan { dir, .. } | Action::MarkPlan { dir, .. }) => {
                self.path(dir)
            }
            Work::Action(Action::ApplyFiles { into, .. }) => self.path(into),
            Work::Approval | Work::Parallel(_) | Work::ForEach(_) => {}
        }
        if let Some(When::Exists(glob) | When::NotExists(glob)) = &step.when {
            self.glob(glob);
        }
        match &step.home {
            Home::Cwd(cwd) => self.path(cwd),
            Home::Dir(dir) => self.dir(dir),
            Home::Default => {}
        }
        let depends = &step.depends_on;
        let evidence = step.approval.iter().flat_map(|a| &a.evidence);
        let globs = depends.required.iter().chain(&depends.optional);
        let writes = step.writes.iter().flatten();
        let reads = step.confine.reads.iter().flatten();
        globs
            .chain(writes)
            .chain(reads)
            .chain(evidence)
            .for_each(|glob| self.glob(glob));
        for glob in step.writes.iter().flatten() {
            self.not_own(glob);
        }
        if let Some(file) = &step.output_file {
            self.path(file);
        }
        if let Some(schema) = &step.output_schema {
            self.path(schema);
            self.schema(schema);
            if step.capture != Capture::Json {
                let message = "`output_schema` is for JSON, and the output is not read as JSON";
                self.out
                    .hinted(schema.place, message, "add `output_capture: json`");
            }
        }
        for secret in &step.secrets {
            self.variable(secret);
        }
    }

    /// orch's own folders are in no scope. What a variable stands for is looked at when it runs.
    fn not_own(&mut self, glob: &Text) {
        if glob.value.contains('$') {
            return;
        }
        if let Err(fault) = check_glob("writes", &glob.value)
            && fault.message.ends_with("own")
        {
            self.out.fault_with(glob.place, fault.message, fault.hint);
        }
    }

    fn variable(&mut self, name: &Text) {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let value = &name.value;
        if value.is_empty()
            || value.starts_with(|c: char| c.is_ascii_digit())
            || !value.chars().all(word)
        {
            let message = format!("`{value}` is not the name of a variable");
            let hint = "name it, such as `API_KEY`; its value stays in the environment";
            self.out.hinted(name.place, message, hint);
        }
    }

    fn command(&mut self, command: &[Text]) {
        if let Some(program) = command
            .first()
            .filter(|program| program.value.trim().is_empty())
        {
            self.out
                .fault(program.place, "the program of `command` is empty");
        }
    }

    /// A path must stay inside the root.
    fn path(&mut self, path: &Text) {
        let text = path.value.as_str();
        let inner = ABSOLUTE.iter().find_map(|start| text.strip_prefix(start));
        let why = if text.trim().is_empty() {
            "it is empty"
        } else if inner.is_none() && text.starts_with('/') {
            "it is absolute"
        } else if text == "~" || text.starts_with("~/") {
            "it leads to a home folder"
        } else if inner.unwrap_or(text).split('/').any(|part| part == "..") {
            "it leads upwards by `..`"
        } else if text.contains('\0') {
            "it holds a NUL byte"
        } else {
            return;
        };
        let message = format!("`{text}` is not a path that can be used: {why}");
        let hint = "write it relative to the root, or begin with `${run.files}` or `${run.root}`";
        self.out.hinted(path.place, message, hint);
    }

    fn glob(&mut self, glob: &Text) {
        self.path(glob);
        if let Err(error) = globset::Glob::new(&without_variables(&glob.value)) {
            let message = format!("`{}` is not a glob: {}", glob.value, error.kind());
            self.out.fault(glob.place, message);
        }
    }

    /// What a prompt begins with: from `specs/`, or whatever lies elsewhere when the step runs.
    fn input(&mut self, path: Option<&Text>) {
        let Some(path) = path else {
            return;
        };
        let inside = path.value.strip_prefix("${run.root}/");
        if inside.unwrap_or(&path.value).starts_with("specs/") {
            self.exists(path);
        } else {
            self.path(path);
        }
    }

    /// A file that must be there, unless its name is known only to the run.
    fn exists(&mut self, path: &Text) -> Option<String> {
        self.path(path);
        let name = match path.value.strip_prefix("${run.root}/") {
            Some(inside) => inside,
            None => &path.value,
        };
        if name.contains("${") || name.starts_with('/') || name.split('/').any(|part| part == "..")
        {
            return None;
        }
        match self.specs.file(name) {
            Ok(Some(text)) => return Some(text),
            Ok(None) => {
                let message = format!("there is no file `{name}`");
                let hint = match name.starts_with("specs/") {
                    true => "paths are relative to the root",
                    false => "it is looked for in `specs/` only: `specs/schemas/NAME.json`",
                };
                self.out.hinted(path.place, message, hint);
            }
            Err(fault) => self.out.fault_with(path.place, fault.message, fault.hint),
        }
        None
    }

    fn schema(&mut self, path: &Text) {
        let Some(text) = self.exists(path) else {
            return;
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(_) | Value::Bool(_)) => {}
            Ok(_) => {
                let message = format!("`{}` is not a JSON Schema", path.value);
                self.out.fault(path.place, message);
            }
            Err(error) => {
                let message = format!("`{}` is not valid JSON: {error}", path.value);
                self.out.fault(path.place, message);
            }
        }
    }

    fn dir(&mut self, dir: &Text) {
        let known = self.specs.dirs();
        if !known.contains(&dir.value) {
            let message = format!("there is no directory `{}` in the settings", dir.value);
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let hint = suggest::hint(&dir.value, &known)
                .unwrap_or_else(|| "name it under `dirs:` in `specs/orch.yaml`".to_owned());
            self.out.hinted(dir.place, message, &hint);
        }
    }

    fn agent(&mut self, step: &Step, work: &AgentWork) {
        self.input(work.input_file.as_ref());
        let nothing = Arc::new(Agent::default());
        let (agent, provider) = match &work.who {
            Who::Provider(provider) => (nothing, Some(provider.clone())),
            Who::Agent { name, provider } => {
                let Some(agent) = self.read_agent(name) else {
                    return;
                };
                let place = name.place;
                let own = agent
                    .provider
                    .clone()
                    .or_else(|| self.specs.default_provider());
                let own = own.map(|value| At { value, place });
                (agent, provider.clone().or(own))
            }
        };
        let Some(provider) = provider else {
            return;
        };
        if let Some(config) = self.provider(&provider) {
            self.placeholders(step, work, &agent, &provider, &config);
            self.transport(work, &provider, &config);
        }
        let asks =
            work.prompt.is_some() || work.input_file.is_some() || step.depends_on.inject.is_some();
        if !asks && !work.params.contains_key("prompt") {
            let message = format!(
                "step `{}` asks for nothing: it has no `prompt`",
                step.name.value
            );
            self.out.note(step.name.place, message);
        }
    }

    fn read_agent(&mut self, name: &At<crate::spec::task::AgentName>) -> Option<Arc<Agent>> {
        let key = name.value.as_str();
        if let Some(read) = self.read.get(key) {
            if read.is_none() {
                let message = format!("the agent `{key}` cannot be used, as said above");
                self.out.fault(name.place, message);
            }
            return read.clone();
        }
        let path = format!("specs/agents/{key}.md");
        let read = match self.specs.file(&path) {
            Err(fault) => {
                self.out.fault_with(name.place, fault.message, fault.hint);
                None
            }
            Ok(None) => {
                let known: Vec<&str> = self.agents.iter().map(String::as_str).collect();
                let message = format!("there is no agent `{key}`");
                let near =
                    suggest::suggest(key, known).map(|near| format!("did you mean `{near}`?"));
                let hint = near.unwrap_or_else(|| format!("write `{path}`"));
                self.out.hinted(name.place, message, &hint);
                return None;
            }
            Ok(Some(text)) => match agent::parse(&name.value, &text) {
                Ok((agent, _)) => Some(Arc::new(agent)),
                Err(fault) => {
                    self.out.fault_with(name.place, fault.message, fault.hint);
                    None
                }
            },
        };
        self.read.insert(key.to_owned(), read.clone());
        read
    }

    fn provider(&mut self, name: &Text) -> Option<Arc<ProviderConfig>> {
        if let Some(config) = self.workflow.providers.get(&name.value) {
            return Some(Arc::clone(config));
        }
        match provider::lookup(&name.value, self.specs.providers()) {
            Ok(Provider::Process(config)) => Some(config),
            Ok(_) => None,
            Err(fault) => {
                let own: Vec<&str> = self.workflow.providers.keys().map(String::as_str).collect();
                let near = suggest::suggest(&name.value, own);
                let hint = near
                    .map(|near| format!("did you mean `{near}`?"))
                    .or(fault.hint);
                self.out.fault_with(name.place, fault.message, hint);
                None
            }
        }
    }

    /// Every placeholder of the provider's command must have a value.
    fn placeholders(
        &mut self,
        step: &Step,
        work: &AgentWork,
        agent: &Agent,
        name: &Text,
        config: &ProviderConfig,
    ) {
        let given: [&Map<String, Value>; 3] = [&work.params, &agent.params, &config.defaults];
        let has = |key: &str| {
            let value = given.iter().find_map(|map| map.get(key));
            value.is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
        };
        let pieces = config
            .command
            .iter()
            .chain(&config.args)
            .flat_map(|arg| arg.pieces());
        for piece in pieces {
            let Piece::Key(key) = piece else { continue };
            let root = key.split('.').next().unwrap_or_default();
            let model = key == "model" && agent.model.is_some();
            let known =
                RESERVED.contains(&key.as_str()) || (ROOTS.contains(&root) && key != "item");
            let empty = match key.as_str() {
                "INPUT_FILE" => work.input_file.is_none(),
                "OUTPUT_FILE" => step.output_file.is_none(),
                _ => false,
            };
            if empty {
                let field = key.to_lowercase();
                let message = format!(
                    "the command of `{}` holds `${{{key}}}`, and the step has no `{field}`",
                    name.value
                );
                self.out
                    .hinted(step.name.place, message, &format!("add `{field}`"));
            } else if !known && !model && !has(key) {
                let message = format!(
                    "the placeholder `${{{key}}}` of provider `{}` has no value",
                    name.value
                );
                let hint = format!(
                    "add it under `provider_params`, or to the provider's `defaults`: `{key}: ...`"
                );
                self.out.hinted(step.name.place, message, &hint);
            }
        }
    }

    fn transport(&mut self, work: &AgentWork, name: &Text, config: &ProviderConfig) {
        let Some(transport) = &work.transport else {
            return;
        };
        if transport.mode == provider::PromptVia::TempFile && !config.wants_prompt_file() {
            let message = format!(
                "provider `{}` takes no prompt file: there is no `${{PROMPT_FILE}}` in its command",
                name.value
            );
            self.out
                .hinted(name.place, message, "use `stdin` or `argv`");
        }
    }
}

/// A glob with a word in the place of each variable.
fn without_variables(glob: &str) -> String {
    let mut out = String::new();
    let mut rest = glob;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        out.push('x');
        rest = rest[at..].find('}').map_or("", |end| &rest[at + end + 1..]);
    }
    out.push_str(rest);
    out
}
