//! The files of `specs/` that a catalogue reads, and whether they have changed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::disk::specs::read_text;
use crate::spec::agent::{self, Agent};
use crate::spec::provider;
use crate::spec::settings;
use crate::spec::task::AgentName;
use crate::text::error::Result;

/// Shows whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp(Option<(u64, u64, i64, i64, u64)>);

impl Stamp {
    pub(super) fn of(path: &Path) -> Stamp {
        let meta = std::fs::metadata(path).ok();
        Stamp(meta.map(|m| (m.dev(), m.ino(), m.ctime(), m.ctime_nsec(), m.size())))
    }
}

/// The stamps of the two files that apply to all agents.
pub(super) fn stamps(root: &Path) -> [Stamp; 2] {
    [settings::FILE, provider::FILE].map(|file| Stamp::of(&root.join(file)))
}

/// The names of all agents that have a file.
pub(super) fn agent_files(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join("specs/agents")) else {
        return Vec::new();
    };
    entries
        .filter_map(io::Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .collect()
}

/// Reads an agent's file, if there is one.
pub(super) fn read_agent(path: &Path, name: &AgentName) -> Result<Option<Arc<Agent>>> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    let (agent, notes) = agent::parse(name, &text)?;
    for note in notes {
        tracing::info!(agent = name.as_str(), "{note}");
    }
    Ok(Some(Arc::new(agent)))
}
