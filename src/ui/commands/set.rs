//! `orch set`: a person corrects the canonical document of a run that is blocked.
//!
//! All of the values or none; the log keeps them with the note that says why.

use std::path::Path;

use serde_json::{Map, Value};

use super::run_target::{self, Named};
use crate::run::flow::document::RESERVED;
use crate::run::output;
use crate::run::state::{Event, RunStatus};
use crate::text::canonical::MAX_JSON_DEPTH;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{clean_line, print_line};
use crate::work::pinned;

pub(super) fn run(root: Option<&Path>, words: &cli::Set) -> Result<u8> {
    super::refuse_to_agents("set")?;
    let set = values(&words.values)?;
    let note = words.note.trim();
    if note.is_empty() {
        return Err(usage("`--note` says nothing").hint("say why: the log keeps it"));
    }
    let Named { run, .. } = run_target::open(root, &words.run)?;
    let workflow = pinned::workflow(&run)?;
    let id = run.id();
    pinned::apply_with(&run, &workflow, |state| match state.status {
        RunStatus::Blocked => Ok(Event::Corrected {
            set: set.clone(),
            note: note.to_owned(),
        }),
        status => {
            let message = format!(
                "run `{id}` is {}, and only a blocked one can be corrected",
                status.as_str()
            );
            Err(usage(message).hint(format!("`orch status {id}` tells how it stands")))
        }
    })?;
    for (path, value) in &set {
        print_line(&clean_line(&format!("state.{path} = {value}")))?;
    }
    print_line(&format!("{id} is corrected: `orch resume {id}` goes on"))?;
    Ok(exit::DONE)
}

/// `state.a.b=JSON`, each path once.
fn values(words: &[String]) -> Result<Map<String, Value>> {
    let mut set = Map::new();
    for word in words {
        let Some((path, json)) = word.split_once('=') else {
            let message = format!("`{word}` is not of the form `state.path=JSON`");
            return Err(usage(message).hint("such as `state.tests.status='\"passed\"'`"));
        };
        let bare = path.strip_prefix("state.").unwrap_or(path);
        if RESERVED.contains(&bare.split('.').next().unwrap_or_default()) {
            let message = format!("`{path}` is reserved: nobody sets it by hand");
            return Err(usage(message)
                .hint("`orch approve RUN GATE` opens a gate, and `orch resume RUN` goes on"));
        }
        let inner = path.strip_prefix("state.").filter(|path| !path.is_empty());
        let Some(inner) = inner else {
            let message = format!("`{path}` is not a path under `state.`");
            return Err(usage(message).hint(format!("write `state.{path}={json}`")));
        };
        let value: Value = serde_json::from_str(json).map_err(|e| {
            usage(format!("`{path}`: `{json}` is not JSON: {e}")).hint(format!(
                "a text needs quotes of its own: '{path}=\"{json}\"'"
            ))
        })?;
        if output::is_deeper(&value, MAX_JSON_DEPTH) {
            let message = format!(
                "`{path}` is nested more than {} levels deep",
                MAX_JSON_DEPTH
            );
            return Err(usage(message));
        }
        if set.insert(inner.to_owned(), value).is_some() {
            return Err(usage(format!("`{path}` is given twice")));
        }
    }
    Ok(set)
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::new(Kind::Usage, clean_line(&message.into()))
}
