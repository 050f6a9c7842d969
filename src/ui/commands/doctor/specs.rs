//! What the user wrote in `specs/`: settings, agents, and the programs that they need.

use std::collections::BTreeMap;
use std::path::Path;

use super::Checks;
use crate::agents::catalogue::{Catalogue, Setup};
use crate::agents::program::expand_home;
use crate::agents::program::resolve_program;
use crate::disk::mailbox::Peek;
use crate::disk::root::Root;
use crate::disk::specs::{self, Folder};
use crate::spec::agent::{self, Agent};
use crate::spec::provider::{self, Provider, presets};
use crate::spec::settings;
use crate::spec::task::AgentName;
use crate::spec::workflow;
use crate::text::error::Fault;
use crate::ui::report::count;

pub(super) fn check(checks: &mut Checks, root: &Root) {
    checks.area("specs");
    let catalogue = match Catalogue::load(&root.path) {
        Ok(catalogue) => catalogue,
        Err(fault) => {
            checks.fault("settings", &fault);
            return;
        }
    };
    let own = catalogue.providers().len();
    checks.good(
        "settings",
        match own {
            0 => settings::FILE.to_owned(),
            n => format!(
                "{} and {n} of your own in {}",
                settings::FILE,
                provider::FILE
            ),
        },
    );
    check_dirs(checks, root, &catalogue);
    let setups = check_agents(checks, root, &catalogue);
    check_inboxes(checks, root, &catalogue);
    check_workflows(checks, root);
    checks.area("providers");
    check_programs(checks, &catalogue, &setups);
    check_presets(checks, &setups);
}

fn check_dirs(checks: &mut Checks, root: &Root, catalogue: &Catalogue) {
    for (name, dir) in &catalogue.settings().dirs {
        let path = expand_home(&dir.path).map_or_else(|| root.path.join(&dir.path), Into::into);
        if let Some(found) = path.canonicalize().ok().filter(|path| path.is_dir()) {
            checks.good(format!("dir `{name}`"), found.display().to_string());
        } else {
            let detail = format!("`{}` is not a folder", path.display());
            checks.bad(
                format!("dir `{name}`"),
                detail,
                format!("make it, or correct its path in {}", settings::FILE),
            );
        }
    }
}

/// Every agent that has a file; gives those that can work.
fn check_agents(
    checks: &mut Checks,
    root: &Root,
    catalogue: &Catalogue,
) -> Vec<(String, std::sync::Arc<Setup>)> {
    let mut setups = Vec::new();
    let agents = catalogue.all_agents();
    if agents.is_empty() {
        checks.advise(
            "agents",
            "there is none in specs/agents/",
            "write specs/agents/NAME.md, or send to a provider by its name",
        );
    }
    for (name, checked) in agents {
        let what = format!("agent `{name}`");
        if let Err(fault) = checked {
            checks.fault(what, &fault);
            continue;
        }
        let Ok(agent) = AgentName::parse(&name) else {
            continue;
        };
        let Ok(setup) = catalogue.setup(&agent, None) else {
            continue;
        };
        for note in notes(&root.path, &agent) {
            checks.note(&what, note);
        }
        match faults(catalogue, &setup.agent) {
            Some(fault) => checks.fault(&what, &fault),
            None => checks.good(&what, format!("provider `{}`", setup.provider_name)),
        }
        setups.push((name, setup));
    }
    setups
}

/// What in an agent's file is ignored.
fn notes(root: &Path, agent: &AgentName) -> Vec<String> {
    let path = root.join("specs/agents").join(format!("{agent}.md"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    agent::parse(agent, &text)
        .map(|(_, notes)| notes)
        .unwrap_or_default()
}

/// Whether all that an agent names is there.
fn faults(catalogue: &Catalogue, agent: &Agent) -> Option<Fault> {
    if let Some(dir) = &agent.dir
        && let Err(fault) = catalogue.settings().dir(dir)
    {
        return Some(fault);
    }
    agent
        .then
        .iter()
        .find_map(|next| catalogue.knows(next).err())
}

/// Inboxes that nobody works for.
fn check_inboxes(checks: &mut Checks, root: &Root, catalogue: &Catalogue) {
    for agent in Peek::agents_in(&root.inbox).unwrap_or_default() {
        let has_file = root
            .path
            .join("specs/agents")
            .join(format!("{agent}.md"))
            .exists();
        if has_file || agent.is_reserved() || catalogue.is_workflow(&agent) {
            continue;
        }
        if let Err(fault) = catalogue.knows(&agent) {
            let todo = fault.hint.unwrap_or_default();
            checks.advise(
                format!("inbox/{agent}"),
                "its tasks would be rejected: there is no such agent",
                todo,
            );
        }
    }
}

/// Every workflow in `specs/`; `orch check` says more of those that are not valid.
fn check_workflows(checks: &mut Checks, root: &Root) {
    let Ok(folder) = Folder::open(&root.path) else {
        // Said of the settings.
        return;
    };
    for file in specs::workflows(&root.path) {
        let what = format!("workflow {file}");
        let found = match specs::load(&root.path, &file) {
            Ok(found) => found,
            Err(fault) => {
                checks.fault(what, &fault);
                continue;
            }
        };
        let checked = workflow::check(&found.file, &found.text, &folder);
        match (checked.report.fault(), checked.workflow) {
            (None, Some(workflow)) => checks.good(what, count(workflow.steps.len(), "step")),
            (fault, _) => {
                let message = fault.map(|fault| fault.message).unwrap_or_default();
                checks.bad(
                    what,
                    message,
                    format!("`orch check {file}` shows every fault"),
                );
            }
        }
    }
}

/// The programs that agents need.
fn check_programs(
    checks: &mut Checks,
    catalogue: &Catalogue,
    setups: &[(String, std::sync::Arc<Setup>)],
) {
    let mut users: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for (agent, setup) in setups {
        if let Provider::Process(config) = &setup.provider {
            let key = (
                setup.provider_name.as_str(),
                config.program(),
                setup.path.as_str(),
            );
            users.entry(key).or_default().push(agent);
        }
    }
    for ((name, program, path), agents) in users {
        let what = format!("provider `{name}`");
        match catalogue.program(program, path) {
            Ok(found) => checks.good(what, found.display().to_string()),
            Err(fault) => {
                let detail = format!("{}, and needed by {}", fault.message, agents.join(", "));
                let todo = format!(
                    "install `{program}`, or name another provider in {}",
                    settings::FILE
                );
                checks.bad(what, detail, todo);
            }
        }
    }
}

/// The other built-in providers, for those who look for one.
fn check_presets(checks: &mut Checks, setups: &[(String, std::sync::Arc<Setup>)]) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_used = |name: &str| setups.iter().any(|(_, setup)| setup.provider_name == name);
    let is_found = |name: &str| {
        let config = presets::config(name);
        config
            .is_some_and(|config| resolve_program(config.program(), &path, Path::new("/")).is_ok())
    };
    let (found, missing): (Vec<&str>, Vec<&str>) = presets::names()
        .filter(|name| !is_used(name))
        .partition(|name| is_found(name));
    if !found.is_empty() {
        checks.good("also found", found.join(", "));
    }
    if !missing.is_empty() {
        checks.good("not found and not needed", missing.join(", "));
    }
}
