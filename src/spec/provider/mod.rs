//! Providers: which program works on a task, how it is called, and what its output means.
//!
//! Everything here is data and judgement. No program is started and no file is read: the process
//! room takes an [`invocation::Invocation`] and comes back with what was observed, on which
//! `run::verdict` decides.

pub mod config;
pub mod invocation;
pub mod pattern;
pub mod presets;
pub mod rule;
pub mod template;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

pub use config::{Entry, OutputKind, PromptVia, ProviderConfig};

use crate::text::error::{Fault, Kind};
use crate::text::suggest;
use crate::text::yaml;

/// The file, as messages name it.
pub const FILE: &str = "specs/providers.yaml";

/// Providers without a process.
const BUILT_IN: &[(&str, Builtin)] = &[
    ("echo", Builtin::Echo),
    ("replay", Builtin::Replay),
    ("human", Builtin::Human),
];

/// A provider that orch itself plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// Answers with the prompt.
    Echo,
    /// Plays recorded answers.
    Replay,
    /// Waits for a person.
    Human,
}

/// Who works on a task.
#[derive(Debug, Clone)]
pub enum Provider {
    /// A program.
    Process(Arc<ProviderConfig>),
    /// Orch itself, with the prompt.
    Echo,
    /// Orch itself, with a recorded answer.
    Replay,
    /// A person.
    Human,
}

impl From<Builtin> for Provider {
    fn from(builtin: Builtin) -> Self {
        match builtin {
            Builtin::Echo => Provider::Echo,
            Builtin::Replay => Provider::Replay,
            Builtin::Human => Provider::Human,
        }
    }
}

/// The user's own providers by name.
pub type UserProviders = BTreeMap<String, Arc<ProviderConfig>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvidersFile {
    #[serde(default, deserialize_with = "yaml::or_default")]
    providers: BTreeMap<String, Entry>,
}

/// Reads the text of `specs/providers.yaml`.
///
/// # Errors
/// [`Kind::InvalidSettings`] with file, line and column.
pub fn parse(text: &str) -> Result<UserProviders, Fault> {
    let file: ProvidersFile =
        yaml::from_str(text).map_err(|fault| fault.fault(Kind::InvalidSettings, FILE, 0))?;
    let label = |fault: Fault| Fault {
        message: format!("{FILE}: {}", fault.message),
        ..fault
    };
    file.providers
        .into_iter()
        .map(|(name, entry)| {
            let config = resolve(&name, entry).map_err(label)?;
            Ok((name, Arc::new(config)))
        })
        .collect()
}

/// Completes one entry, on top of its preset if it has one: the one that `preset` names, or the one
/// of the same name if there is no `command`.
///
/// # Errors
/// [`Kind::InvalidSettings`] that names the provider; [`Kind::UnknownProvider`] for its preset.
pub fn resolve(name: &str, entry: Entry) -> Result<ProviderConfig, Fault> {
    if BUILT_IN.iter().any(|(builtin, _)| *builtin == name) {
        let message = format!("provider `{name}` is built in and cannot be described");
        return Err(Fault::new(Kind::InvalidSettings, message).hint("give it another name"));
    }
    let base = match (&entry.preset, &entry.command) {
        (Some(preset), _) => Some(presets::entry(preset).ok_or_else(|| {
            let known: Vec<&str> = presets::names().collect();
            let message = format!("provider `{name}`: there is no preset `{preset}`");
            let fault = Fault::new(Kind::UnknownProvider, message);
            match suggest::hint(preset, &known) {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        })?),
        (None, Some(_)) => None,
        (None, None) => presets::entry(name),
    };
    match base {
        Some(base) => entry.over(base.clone()),
        None => entry,
    }
    .complete(name)
}

/// Every provider that needs no description: presets, then the ones that orch plays itself.
pub fn names() -> impl Iterator<Item = &'static str> {
    presets::names().chain(BUILT_IN.iter().map(|(name, _)| *name))
}

/// The provider of this name: the user's own first, then the built-in ones.
///
/// # Errors
/// [`Kind::UnknownProvider`] with the nearest name.
pub fn lookup(name: &str, user: &UserProviders) -> Result<Provider, Fault> {
    if let Some(config) = user.get(name) {
        return Ok(Provider::Process(Arc::clone(config)));
    }
    if let Some((_, builtin)) = BUILT_IN.iter().find(|(builtin, _)| *builtin == name) {
        return Ok((*builtin).into());
    }
    if let Some(config) = presets::config(name) {
        return Ok(Provider::Process(config));
    }
    let mut known: Vec<&str> = user.keys().map(String::as_str).collect();
    names().for_each(|name| known.push(name));
    let message = format!("there is no provider `{name}`");
    let hint = suggest::hint(name, &known).unwrap_or_default();
    Err(Fault::new(Kind::UnknownProvider, message)
        .hint(format!("{hint}; or describe it in `{FILE}`")))
}

#[cfg(test)]
mod tests;
