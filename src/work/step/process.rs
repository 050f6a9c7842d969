//! The process of a step: what is executed, where, with which environment and for how long.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::prepare::{View, output_file};
use super::prompt;
use crate::agents::catalogue::Setup;
use crate::agents::process::Limits;
use crate::agents::secrets;
use crate::disk::mailbox::{PROMPT, file_name};
use crate::disk::paths;
use crate::disk::safety::Dir;
use crate::spec::agent::Agent;
use crate::spec::policy::Policy;
use crate::spec::provider::invocation::{self, Invocation, MAX_ARG_BYTES, Request, StdinPlan};
use crate::spec::provider::template::{Piece, RESERVED, Template};
use crate::spec::provider::{OutputKind, PromptVia, Provider, ProviderConfig};
use crate::spec::task::{Header, Task};
use crate::spec::vars;
use crate::spec::workflow::model::{AgentWork, Home, Number, Text, Timeout, Transport};
use crate::text::error::{Fault, Kind, Result};
use crate::text::units::{parse_duration, show_size};
use crate::work::document::{self, Document};
use crate::work::job::{Job, hidden, merged, named_dir};

/// The plan of an agent's step.
pub(super) fn agent(view: &View<'_>, work: &AgentWork) -> Result<Job> {
    let source = view.source;
    let setup = source
        .pinned
        .catalogue
        .step_setup(&work.who, &source.pinned.workflow.providers)?;
    if matches!(setup.provider, Provider::Human) {
        let message = "a person does this: it has no process";
        return Err(Fault::new(Kind::WorkflowValidationError, message));
    }
    let dir = home(view, &setup.agent)?;
    let params = params(view, &work.params)?;
    let header = Header {
        model: text_of(params.get("model")),
        access: work.access,
        params,
        ..header(view)
    };
    let prompt = prompt::compose(view, work.into(), dir.is_none())?;
    let invocation = match &setup.provider {
        Provider::Process(config) => Some(called(view, work, &setup, config, &header, &prompt)?),
        _ => None,
    };
    plan(view, setup, Task::made(header, prompt), invocation, dir)
}

/// The plan of a command: no shell, and nothing on its standard input.
pub(super) fn command(view: &View<'_>, command: &[Text]) -> Result<Job> {
    prompt::dependencies(view)?;
    let mut argv = Vec::new();
    for text in command {
        argv.extend(view.arguments(&text.value)?);
    }
    check_command(&argv)?;
    let mut invocation = Invocation {
        shown: argv.clone(),
        argv,
        prompt_sent: String::new(),
        stdin: StdinPlan::Null,
        wants_prompt_file: false,
        output: OutputKind::Text,
        set_env: view.step.env.clone(),
        notes: Vec::new(),
    };
    if document::is_wanted(view.step) {
        lend_document(view, &mut invocation);
    }
    let setup = view.source.pinned.catalogue.command_setup();
    let dir = home(view, &setup.agent)?;
    let task = Task::made(header(view), String::new());
    plan(view, setup, task, Some(invocation), dir)
}

fn header(view: &View<'_>) -> Header {
    Header {
        run: Some(view.source.pinned.run.id().to_owned()),
        step: Some(view.step.name.value.clone()),
        ..Header::default()
    }
}

fn plan(
    view: &View<'_>,
    setup: Arc<Setup>,
    task: Task,
    invocation: Option<Invocation>,
    dir: Option<Dir>,
) -> Result<Job> {
    let asks = |invocation: &Invocation| invocation.set_env.contains_key(document::VARIABLE);
    let document = invocation
        .as_ref()
        .map_or_else(|| document::is_wanted(view.step), asks)
        .then(|| Document::of(view.step, view.source.state));
    let exclusive = match &view.step.home {
        Home::Dir(_) => true,
        Home::Default => dir.is_some(),
        Home::Cwd(_) => false,
    };
    let step = view.step;
    let names = step.secrets.iter().map(|name| name.value.as_str());
    let secrets = secrets::read(names, |name| step.env.get(name).map(String::as_str))?;
    let own = setup.agent.secrets.iter().map(String::as_str);
    let in_file = |name: &str| setup.agent.env.get(name).map(String::as_str);
    let mut all = secrets::read(own, in_file)?;
    all.extend(secrets);
    let masker = view.source.pinned.masker.and(&setup.masker);
    secrets::refuse(&masker, task.body(), "the prompt")?;
    let invocation = invocation.map(|it| hidden(it, &masker)).transpose()?;
    Ok(Job {
        policy: policy(view, &setup)?,
        secrets: all,
        masker,
        limits: limits(view, &setup)?,
        setup: inheriting(view, setup),
        task,
        invocation,
        dir,
        retries: 0,
        chain: None,
        as_dropped: false,
        exclusive,
        document,
    })
}

/// What the step may touch: its own words before those of its agent.
fn policy(view: &View<'_>, setup: &Setup) -> Result<Policy> {
    let confine = &view.step.confine;
    let filled = |globs: &Option<Vec<Text>>| -> Result<Option<Vec<String>>> {
        let fill = |glob: &Text| {
            let glob = view.fill(glob)?;
            paths::relative(&view.source.root().path, &glob)
        };
        let Some(globs) = globs else { return Ok(None) };
        globs.iter().map(fill).collect::<Result<_>>().map(Some)
    };
    let own = Policy {
        sandbox: confine.sandbox,
        writes: filled(&view.step.writes)?,
        reads: filled(&confine.reads)?,
        network: confine.network,
        caps: confine.caps,
    };
    Ok(own.over(view.source.pinned.catalogue.policy(setup)))
}

fn check_command(argv: &[String]) -> Result<()> {
    let bad = |message: String| Err(Fault::new(Kind::InvalidTask, message));
    if argv.first().is_none_or(|program| program.trim().is_empty()) {
        return bad("the program of `command` is empty".to_owned());
    }
    for arg in argv {
        let head: String = arg.chars().filter(|c| !c.is_control()).take(40).collect();
        if arg.len() >= MAX_ARG_BYTES {
            let (size, most) = (show_size(arg.len() as u64), show_size(MAX_ARG_BYTES as u64));
            return bad(format!(
                "the argument `{head}` is {size}, and an argument can be {most} at most"
            ));
        }
        if let Some(at) = arg.find('\0') {
            return bad(format!(
                "the argument `{head}` has a NUL byte at offset {at}, which no argument can carry"
            ));
        }
    }
    Ok(())
}

/// The command line of an agent's provider.
fn called(
    view: &View<'_>,
    work: &AgentWork,
    setup: &Setup,
    config: &ProviderConfig,
    header: &Header,
    prompt: &str,
) -> Result<Invocation> {
    let agent = &setup.agent;
    let flagged = flagged(config, work.transport.as_ref())?;
    let config = flagged.as_ref().unwrap_or(config);
    let mut params = merged(&agent.params, &header.params);
    placeholders(view, work, config, &mut params)?;
    let (owner, name) = view.source.mailbox_task;
    let folder = view.source.root().artifacts.path().join(owner.as_str());
    let prompt_file = folder.join(file_name(name, PROMPT)).display().to_string();
    let mut invocation = invocation::build(&Request {
        provider_name: &setup.provider_name,
        config,
        prompt,
        system: Some(agent.system.trim()).filter(|text| !text.is_empty()),
        model: header.model.as_deref().or(agent.model.as_deref()),
        access: header.access.or(agent.access).unwrap_or_default(),
        confined: policy(view, setup)?.confined(),
        params: &params,
        tools: &agent.tools,
        prompt_file: Some(&prompt_file),
        prompt_via: work.transport.as_ref().map(|transport| transport.mode),
    })?;
    invocation.set_env.extend(view.step.env.clone());
    let lists = [&config.command, &config.args];
    let mut named = lists.into_iter().flatten();
    if document::is_wanted(view.step) || named.any(|arg| arg.mentions(document::ASKED_BY)) {
        lend_document(view, &mut invocation);
    }
    Ok(invocation)
}

/// Says where the step's copy of the document lies.
fn lend_document(view: &View<'_>, invocation: &mut Invocation) {
    let path = view.state_file();
    invocation
        .set_env
        .insert(document::VARIABLE.to_owned(), path);
}

/// The provider with the step's own flag before the prompt, where its command does not place it.
fn flagged(
    config: &ProviderConfig,
    transport: Option<&Transport>,
) -> Result<Option<ProviderConfig>> {
    let flag = transport
        .filter(|transport| transport.mode == PromptVia::Argv)
        .and_then(|transport| transport.argv_template.as_deref());
    let places = |key: &str| {
        let args = config.command.iter().chain(&config.args);
        args.into_iter().any(|arg| arg.mentions(key))
    };
    let Some(flag) = flag.filter(|_| !places("PROMPT") && !places("PROMPT_FILE")) else {
        return Ok(None);
    };
    let bad = |message: String| Fault::new(Kind::WorkflowValidationError, message);
    let mut config = config.clone();
    for arg in [flag, "${PROMPT}"] {
        config.args.push(Template::parse(arg).map_err(bad)?);
    }
    Ok(Some(config))
}

/// Values for what a provider's command names of the run: files, and variables.
fn placeholders(
    view: &View<'_>,
    work: &AgentWork,
    config: &ProviderConfig,
    params: &mut Map<String, Value>,
) -> Result<()> {
    if let Some(path) = &work.input_file {
        let path = view.readable_path(&view.fill(path)?)?;
        params.insert("INPUT_FILE".to_owned(), path.into());
    }
    params.insert(document::ASKED_BY.to_owned(), view.state_file().into());
    if let Some(path) = output_file(view.source)? {
        let path = view.source.root().path.join(path).display().to_string();
        params.insert("OUTPUT_FILE".to_owned(), path.into());
    }
    let lists = [&config.command, &config.args, &config.model, &config.system];
    let pieces = lists.into_iter().flatten().flat_map(Template::pieces);
    for piece in pieces {
        let Piece::Key(key) = piece else { continue };
        let root = key.split('.').next().unwrap_or_default();
        let given = params.contains_key(key) || config.defaults.contains_key(key);
        let known = vars::ROOTS.contains(&root) || view.scope.root(root).is_some();
        if !given && known && !RESERVED.contains(&key.as_str()) {
            let value = param(view, &format!("${{{key}}}"))?;
            params.insert(key.clone(), value);
        }
    }
    Ok(())
}

/// The parameters of a step, every text in them filled.
fn params(view: &View<'_>, raw: &Map<String, Value>) -> Result<Map<String, Value>> {
    let filled = |(key, value): (&String, &Value)| Ok((key.clone(), filled(view, value)?));
    raw.iter().map(filled).collect()
}

fn filled(view: &View<'_>, value: &Value) -> Result<Value> {
    match value {
        Value::String(text) => param(view, text),
        Value::Array(items) => items.iter().map(|item| filled(view, item)).collect(),
        Value::Object(fields) => params(view, fields).map(Value::Object),
        other => Ok(other.clone()),
    }
}

/// A text that is one variable with a list stays a list: it may be several arguments.
fn param(view: &View<'_>, text: &str) -> Result<Value> {
    let mut all = view.arguments(text)?;
    Ok(match (all.pop(), all.is_empty()) {
        (Some(one), true) => one.into(),
        (last, _) => all.into_iter().chain(last).collect(),
    })
}

fn text_of(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// The folder to work in, where it is not the root.
fn home(view: &View<'_>, agent: &Agent) -> Result<Option<Dir>> {
    let (source, settings) = (view.source, view.source.pinned.catalogue.settings());
    let name = match (&view.step.home, &agent.dir) {
        (Home::Cwd(path), _) => return paths::folder(source.root(), &view.fill(path)?),
        (Home::Dir(name), _) => &name.value,
        (Home::Default, Some(name)) => name,
        (Home::Default, None) => return Ok(None),
    };
    named_dir(&source.root().path, &settings, name).map(Some)
}

/// The environment, cut down to what the step lists where it does.
fn inheriting(view: &View<'_>, setup: Arc<Setup>) -> Arc<Setup> {
    let Some(names) = &view.step.inherit_env else {
        return setup;
    };
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    for name in names {
        if let Some(value) = std::env::var_os(name) {
            env.insert(name.into(), value);
        }
    }
    let own = setup.agent.env.iter();
    env.extend(own.map(|(name, value)| (name.into(), value.into())));
    let always = |(name, _): &&(OsString, OsString)| name == "PATH" || name == "ORCH_ROOT";
    env.extend(setup.env.iter().filter(always).cloned());
    Arc::new(Setup {
        agent: setup.agent.clone(),
        provider_name: setup.provider_name.clone(),
        provider: setup.provider.clone(),
        env: env.into_iter().collect(),
        path: setup.path.clone(),
        masker: setup.masker.clone(),
    })
}

fn limits(view: &View<'_>, setup: &Setup) -> Result<Limits> {
    let limits = view.source.pinned.catalogue.limits();
    let streams = matches!(&setup.provider, Provider::Process(config) if config.idle);
    let idle = setup.agent.idle_timeout;
    let usual = setup.agent.timeout.unwrap_or(limits.timeout).0;
    Ok(Limits {
        wall: match &view.step.timeout {
            Some(timeout) => wall(timeout, &view.source.state.variables)?,
            None => usual,
        },
        idle: idle
            .or(streams.then_some(limits.idle_timeout))
            .map(|time| time.0),
        output: limits.output.0,
        grace: limits.grace.0,
    })
}

/// The step's own wall-clock limit.
fn wall(timeout: &Timeout, variables: &Map<String, Value>) -> Result<Duration> {
    match timeout {
        Timeout::Seconds(number) => taken(number, variables, &|value| match value {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_u64(),
        })
        .map(Duration::from_secs),
        Timeout::Millis(number) => taken(number, variables, &|value| {
            let time = parse_duration(value.as_str()?.trim()).ok()?;
            u64::try_from(time.as_millis()).ok()
        })
        .map(Duration::from_millis),
    }
}

fn taken(
    number: &Number,
    variables: &Map<String, Value>,
    read: &dyn Fn(&Value) -> Option<u64>,
) -> Result<u64> {
    let (path, default, min, max) = match number {
        Number::Fixed(fixed) => return Ok(*fixed),
        Number::From {
            path,
            default,
            min,
            max,
        } => (path, default, min.unwrap_or(0), max.unwrap_or(u64::MAX)),
    };
    let mut parts = path.split('.');
    let first = parts.next().and_then(|root| variables.get(root));
    let found = first.and_then(|value| parts.try_fold(value, |value, part| value.get(part)));
    let asked = match (found.filter(|value| !value.is_null()), default) {
        (Some(value), _) => read(value).ok_or_else(|| {
            let message = format!("`{path}` is `{value}`, which is not a timeout");
            Fault::new(Kind::WorkflowValidationError, message)
                .hint("`timeout` takes a text such as `15m`, `timeout_sec` a number of seconds")
        })?,
        (None, Some(default)) => *default,
        (None, None) => {
            let message = format!("`{path}` is undefined, and the timeout comes from it");
            return Err(Fault::new(Kind::UndefinedVariableError, message)
                .hint("give it a `default`, or set it with `--context`"));
        }
    };
    Ok(asked.clamp(min, max.max(min)))
}
