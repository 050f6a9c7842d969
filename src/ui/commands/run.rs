//! `orch run`: starts a run of a workflow and sees it through. It is `send` plus a watcher for that
//! one run: there is no second way through the engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::drive::{Drive, Tail};
use super::input;
use super::resume::{go_on, stopping};
use super::target::say_if_nobody_watches;
use crate::agents::secrets;
use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::specs::is_inside_specs;
use crate::disk::store::{PATIENCE, Runs, Spec};
use crate::run::flow;
use crate::run::state::RunState;
use crate::spec::scope::Scope;
use crate::spec::task::{AgentName, Header, Task, TaskName, render};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::outline::Outline;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::yaml;
use crate::ui::cli;
use crate::ui::report::{clean_line, print, print_json, print_line};
use crate::work::pinned::{self, PinnedRun};
use crate::work::runtime;
use crate::work::{inputs, start};

pub(super) fn run(root: Option<&Path>, words: &cli::Run) -> Result<u8> {
    runtime::inherit_nothing()?;
    let path = Root::locate(root)?;
    let (workflow, spec) = start::load_workflow(&path, &words.workflow)?;
    let order = Order::of(words, &workflow, &spec)?;
    let Order {
        request,
        input,
        context,
    } = &order;
    secrets::refuse_order(&workflow, request, input.as_ref(), context)?;
    if words.dry_run {
        return outline(&path, &workflow, &order, words.json);
    }
    order.say_what_is_clamped(&workflow)?;
    start::refuse_unconfined(&path, &workflow)?;
    let root = Arc::new(Root::open(&path)?);
    let mailbox = Mailbox::new(root.clone(), Disk::new(Durability::Power));
    let runs = Runs::new(root.clone(), Disk::new(Durability::Power));
    let mut agent = Some(AgentName::parse(&workflow.name.value)?);
    if workflow.singleton {
        make_readable(&mailbox, &runs, &workflow.name.value)?;
    }
    let run_id = match start::unfinished(&runs, &workflow, order.input.as_ref())? {
        Some(earlier) => {
            agent = None;
            super::refuse_to_agents("run")?;
            let run = runs.open(&earlier)?;
            let pinned = stopping(&mailbox, &run, None, pinned::workflow(&run))?;
            let pinned = PinnedRun::with(run, pinned)?;
            let state = go_on(&mailbox, &pinned);
            let state = stopping(&mailbox, &pinned.run, Some(&pinned.workflow), state)?;
            eprintln!("{earlier} is of the same input and not finished: it goes on");
            order.say_what_stays(&state);
            earlier
        }
        None => order.submit(&mailbox, &workflow, words, &spec)?,
    };
    if words.detach {
        say_started(&run_id, words.json)?;
        if let Some(agent) = &agent {
            say_if_nobody_watches(&mailbox, agent);
        }
        return Ok(exit::DONE);
    }
    let drive = Drive {
        root: &root,
        mailbox: &mailbox,
        runs: &runs,
        run_id: &run_id,
        inboxes: start::inboxes(&workflow)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        start: agent,
        jobs: words.jobs,
        record: words.record,
        deadline: words.timeout.map(|timeout| Instant::now() + timeout),
        json: words.json,
    };
    if !words.json {
        print_line(&run_id)?;
    }
    drive.run(&mut Tail::from_start(&root, &run_id, words.json))
}

fn say_started(run_id: &str, json: bool) -> Result<()> {
    match json {
        true => print_json(&json!({"run": run_id}))?,
        false => print_line(run_id)?,
    };
    Ok(())
}

/// What a run is given.
struct Order {
    request: String,
    input: Option<Value>,
    /// Only what differs from the workflow's defaults.
    context: Map<String, Value>,
}

impl Order {
    fn of(words: &cli::Run, workflow: &Workflow, spec: &Spec) -> Result<Order> {
        let input = words.input.as_deref().map(document).transpose()?;
        inputs::check_input(workflow, spec, input.as_ref())?;
        Ok(Order {
            request: request(words)?,
            input,
            context: context(words, workflow)?,
        })
    }

    /// Puts the task that starts the run into the workflow's inbox, under the run's own id.
    fn submit(
        &self,
        mailbox: &Mailbox,
        workflow: &Workflow,
        words: &cli::Run,
        spec: &Spec,
    ) -> Result<String> {
        let agent = AgentName::parse(&workflow.name.value)?;
        let run_id = start::fresh_id(agent.as_str(), Timestamp::now(), &uuid::Uuid::now_v7());
        let header = Header {
            workflow: Some(word_for_engine(words, spec)?),
            run: Some(run_id.clone()),
            context: self.context.clone(),
            input: self.input.clone(),
            ..Header::default()
        };
        let text = render(&header, &self.request);
        Task::parse(text.as_bytes())?;
        mailbox
            .submit(&agent, &TaskName::parse(&run_id)?, &text)
            .map_err(|e| Fault::io("put a task in", format!("inbox/{agent}"), &e))?;
        Ok(run_id)
    }

    /// What is given to a run that goes on already has its value.
    fn say_what_stays(&self, state: &RunState) {
        for (key, value) in &self.context {
            let has = &state.variables["context"][key];
            if has != value {
                let line = format!("warning: `{key}` stays {has}, as at the run's start");
                eprintln!("{}", clean_line(&line));
            }
        }
    }

    /// The numbers that are not taken as they are given.
    fn say_what_is_clamped(&self, workflow: &Workflow) -> Result<()> {
        let context = inputs::context(workflow, &self.context)?;
        let mut variables = Map::new();
        variables.insert("context".to_owned(), context.into());
        variables.insert("input".to_owned(), self.input.clone().unwrap_or_default());
        for line in flow::clamped(workflow, &variables) {
            eprintln!("{}", clean_line(&format!("warning: {line}")));
        }
        Ok(())
    }
}

/// Makes the states of this workflow's runs anew that are lost or torn; a run that cannot be trusted
/// is ended for good.
fn make_readable(mailbox: &Mailbox, runs: &Runs, name: &str) -> Result<()> {
    for id in runs.list()? {
        let of = id
            .split_once('-')
            .and_then(|(_, rest)| rest.rsplit_once('-'));
        let Ok(run) = runs.open(&id) else { continue };
        if of.is_none_or(|(workflow, _)| workflow != name) || run.peek().is_ok() {
            continue;
        }
        let workflow = stopping(mailbox, &run, None, pinned::workflow(&run))?;
        let locked = run.lock(PATIENCE)?;
        let loaded = locked.load(&workflow);
        drop(locked);
        stopping(mailbox, &run, Some(&workflow), loaded)?;
        run.lock(PATIENCE)?.rebuild(&workflow)?;
    }
    Ok(())
}

/// How the engine finds the workflow again: by its name in `specs/`, where it has to lie.
fn word_for_engine(words: &cli::Run, spec: &Spec) -> Result<String> {
    let word = &words.workflow;
    let is_path = word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml");
    if is_path && !is_inside_specs(word) {
        let message = format!("`{word}` does not lie in specs/ of the root");
        return Err(Fault::new(Kind::Usage, message)
            .hint("a run goes by the files in specs/: put it there; `--dry-run` takes any path"));
    }
    let path = &spec.workflow;
    let name = path.strip_prefix("specs/").unwrap_or(path);
    Ok(match name.rsplit_once('.') {
        Some((stem, _)) if !name.contains('/') => stem.to_owned(),
        _ => path.clone(),
    })
}

fn request(words: &cli::Run) -> Result<String> {
    match (&words.text, &words.file) {
        (Some(dash), None) if dash == "-" => input::stdin(),
        (Some(text), None) => Ok(text.clone()),
        (None, Some(path)) => input::file(path),
        _ => Ok(String::new()),
    }
}

fn context(words: &cli::Run, workflow: &Workflow) -> Result<Map<String, Value>> {
    let mut given = Map::new();
    if let Some(path) = &words.context_file {
        let Value::Object(file) = document(path)? else {
            let message = format!("`{}` is not a map of keys and values", path.display());
            return Err(Fault::new(Kind::Usage, message));
        };
        for (key, value) in file {
            let value = inputs::fitting(workflow, &key, value)?;
            given.insert(key, value);
        }
    }
    for pair in &words.context {
        let (key, text) = pair
            .split_once('=')
            .ok_or_else(|| Fault::new(Kind::Usage, format!("`--context {pair}` is not K=V")))?;
        given.insert(key.to_owned(), inputs::typed(workflow, key, text)?);
    }
    if let Some(most) = words.max_retries {
        if !workflow.uses_max_retries {
            let name = &workflow.name.value;
            let message = format!("workflow `{name}` does not use `context.max_retries`");
            let hint = "--max-retries would change nothing: leave it out";
            return Err(Fault::new(Kind::Usage, message).hint(hint));
        }
        given.insert(inputs::MAX_RETRIES.to_owned(), json!(most));
    }
    Ok(given)
}

/// A YAML or JSON file; JSON is YAML too, but for its size.
fn document(path: &Path) -> Result<Value> {
    let text = input::file(path)?;
    if let Ok(value) = serde_json::from_str(&text) {
        return Ok(value);
    }
    yaml::from_str(&text)
        .map_err(|fault| fault.fault(Kind::InvalidTask, &path.display().to_string(), 0))
}

/// `--dry-run`: what would be done, and nothing else.
fn outline(root: &Path, workflow: &Workflow, order: &Order, json: bool) -> Result<u8> {
    let context = inputs::context(workflow, &order.context)?;
    let mut scope = Scope::new()
        .with("context", context)
        .with("input", order.input.clone().unwrap_or_else(|| json!({})))
        .with("state", workflow.state.clone())
        .with("run", later(root));
    if !order.request.is_empty() {
        scope.set("request", order.request.clone());
    }
    let outline = Outline::of(workflow, &scope);
    match json {
        true => print_json(&outline)?,
        false => print(&outline.text())?,
    };
    Ok(exit::DONE)
}

/// What only a run has stands for itself.
fn later(root: &Path) -> Value {
    json!({
        "root": root.display().to_string(),
        "id": "${run.id}",
        "files": "${run.files}",
        "timestamp_utc": "${run.timestamp_utc}",
    })
}
