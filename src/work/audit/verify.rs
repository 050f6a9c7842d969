//! What lies on disk beside the log: the cached state, artifacts, snapshots and the spec.
//!
//! Every file is reached through handles from the root, by names of one component; a record that
//! names a path elsewhere is a finding, and is not followed.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::Audit;
use super::derive::Derived;
use crate::disk::hash::sha256;
use crate::disk::store::{
    RunDir, STATE_FILE, check_sealed, manifest_in, open_below, read_below, verified,
};
use crate::run::record::FileEntry;
use crate::run::state::{RunState, RunStatus, VERSION};
use crate::text::error::{Kind, Result};

/// `state.json` as it is, and what it says if it can be read.
pub(super) struct Kept {
    place: String,
    document: Option<Value>,
}

impl Kept {
    pub(super) fn read(run: &RunDir, audit: &mut Audit) -> Result<Kept> {
        let place = format!("workspace/{}/{STATE_FILE}", run.id());
        // What is a newer orch's cannot be judged by this one.
        if let Err(fault) = run.peek()
            && fault.kind == Kind::NewerVersion
        {
            return Err(fault);
        }
        let document = match read_below(run.dir(), STATE_FILE) {
            Ok(bytes) => document(&place, &bytes, audit),
            Err(e) => {
                audit.find(&place, reading(&e));
                None
            }
        };
        Ok(Kept { place, document })
    }

    /// The number of the event that it is at.
    pub(super) fn seq(&self) -> Option<u64> {
        self.document.as_ref()?["seq"].as_u64()
    }

    /// The state that it holds, for where the log leads nowhere.
    pub(super) fn state(&self) -> Option<RunState> {
        serde_json::from_value(self.document.clone()?).ok()
    }

    /// Holds it against what the log adds up to.
    pub(super) fn compare(&self, derived: &Derived, audit: &mut Audit) {
        let Some(document) = &self.document else {
            return;
        };
        audit.hashes += 1;
        let head = document["log_head"].as_str();
        let seq = self.seq().unwrap_or(0);
        if let Some(hash) = &derived.wanted_head
            && head != Some(hash)
        {
            let line = format!("logs/{}.jsonl line {seq}", audit.run);
            audit.find(
                line,
                "its hash is not the one that `state.json` names: one of the two was changed",
            );
        }
        match (&derived.wanted, &derived.wanted_head) {
            (Some(state), _) => {
                let mut state = state.clone();
                if document["version"].as_u64() < Some(u64::from(VERSION)) {
                    state.version = document["version"].as_u64().unwrap_or(0) as u32;
                }
                let expected = serde_json::to_value(state).unwrap_or_default();
                differences(&self.place, "", document, &expected, audit);
            }
            (None, None) => audit.find(
                &self.place,
                format!("it is at event {seq}, which the log does not have"),
            ),
            (None, Some(_)) => {
                audit.find(
                    &self.place,
                    "it cannot be compared: the log does not lead there",
                );
            }
        }
    }
}

fn document(place: &str, bytes: &[u8], audit: &mut Audit) -> Option<Value> {
    let document: Value = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        Err(e) => {
            audit.find(place, format!("it cannot be read: {e}"));
            return None;
        }
    };
    if pretty(&document) != bytes {
        audit.find(place, "it is not written as orch writes it");
    }
    Some(document)
}

fn pretty(document: &impl serde::Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(document).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Names every field in which two documents differ.
fn differences(place: &str, path: &str, is: &Value, should: &Value, audit: &mut Audit) {
    match (is, should) {
        (Value::Object(is), Value::Object(should)) => {
            let more = should.keys().filter(|key| !is.contains_key(*key));
            for key in is.keys().chain(more) {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match (is.get(key), should.get(key)) {
                    (Some(is), Some(should)) => differences(place, &path, is, should, audit),
                    (Some(_), None) => audit.find(
                        format!("{place} {path}"),
                        "it is there, and by the log it is not",
                    ),
                    _ => audit.find(
                        format!("{place} {path}"),
                        "it is missing, and by the log it is there",
                    ),
                }
            }
        }
        (Value::Array(is), Value::Array(should)) if is.len() == should.len() => {
            for (index, (is, should)) in is.iter().zip(should).enumerate() {
                differences(place, &format!("{path}[{index}]"), is, should, audit);
            }
        }
        (is, should) if is == should => {}
        (is, should) => {
            let what = format!("it is {}, and by the log {}", short(is), short(should));
            audit.find(format!("{place} {path}"), what);
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Every artifact that a result records.
pub(super) fn artifacts(run: &RunDir, files: &BTreeMap<String, FileEntry>, audit: &mut Audit) {
    for (path, entry) in files {
        audit.hashes += 1;
        match hashed(run, path) {
            Ok((bytes, sha256)) if bytes == entry.bytes && sha256 == entry.sha256 => {}
            Ok((bytes, _)) if bytes != entry.bytes => {
                let what = format!("it has {bytes} bytes, and {} were recorded", entry.bytes);
                audit.find(path, what);
            }
            Ok(_) => audit.find(path, "it was changed: its hash is not the recorded one"),
            Err(e) => audit.find(path, reading(&e)),
        }
    }
}

fn hashed(run: &RunDir, path: &str) -> io::Result<(u64, String)> {
    sha256(&open_below(&run.root().dir, path)?)
}

pub(super) fn snapshot_bytes(run: &RunDir, name: &str) -> io::Result<Vec<u8>> {
    read_below(run.dir(), &format!("snapshots/{name}.json"))
}

/// Every snapshot that is locked, and none beside them.
pub(super) fn snapshots(run: &RunDir, state: &RunState, audit: &mut Audit) {
    let folder = format!("workspace/{}/snapshots", run.id());
    for (name, snapshot) in &state.snapshots {
        audit.hashes += 1;
        let place = format!("{folder}/{name}.json");
        match snapshot_bytes(run, name) {
            Ok(bytes)
                if snapshot["sha256"].as_str() == Some(&crate::disk::store::sha256(&bytes)) => {}
            Ok(_) => audit.find(
                place,
                "it was changed: its hash is not the one that was locked",
            ),
            Err(e) => audit.find(place, reading(&e)),
        }
    }
    // One is written before its event, so that a run that goes on may have one more.
    if state.status == RunStatus::Running {
        return;
    }
    let mut names = Vec::new();
    let listed = run
        .dir()
        .sub("snapshots")
        .and_then(|dir| dir.entries(|name, _| names.push(name.to_string_lossy().into_owned())));
    if let Err(e) = listed {
        audit.find(&folder, reading(&e));
    }
    names.sort_unstable();
    for name in names {
        let known = name
            .strip_suffix(".json")
            .is_some_and(|name| state.snapshots.contains_key(name));
        if !known {
            audit.find(format!("{folder}/{name}"), "the log knows nothing of it");
        }
    }
}

/// Every file of the spec that the run is pinned to, and of those that it had before.
pub(super) fn specs(run: &RunDir, derived: &Derived, audit: &mut Audit) {
    let state = &derived.state;
    if let Some(latest) = spec(run, "spec", audit) {
        let place = format!("workspace/{}/spec", run.id());
        let recorded = state
            .variables
            .get("run")
            .and_then(|run| run["spec_sha256"].as_str());
        if recorded.is_some_and(|hash| hash != latest.sha256) {
            let what = "it was changed after the run began";
            audit.find(format!("{place}/MANIFEST.json"), what);
        }
        if state.seq > 0 && latest.workflow_sha256.as_ref() != Some(&state.workflow_sha256) {
            let what = "it is not the workflow that the log names: the hash differs";
            audit.find(format!("{place}/{}", latest.workflow), what);
        }
    }
    let past = match run.past_specs() {
        Ok(past) => past,
        Err(fault) => return audit.find(format!("workspace/{}", run.id()), fault.message),
    };
    for folder in past {
        let known = spec(run, &folder, audit);
        if known.is_some_and(|found| !derived.specs.contains(&found.sha256)) {
            let place = format!("workspace/{}/{folder}", run.id());
            audit.find(place, "the log knows nothing of it");
        }
    }
}

/// What a manifest says.
struct Listed {
    sha256: String,
    workflow: String,
    workflow_sha256: Option<String>,
}

/// Every file of the spec in one folder of the run.
fn spec(run: &RunDir, folder: &str, audit: &mut Audit) -> Option<Listed> {
    let place = format!("workspace/{}/{folder}", run.id());
    let list = format!("{place}/MANIFEST.json");
    let (manifest, top) = match manifest_in(run.dir(), folder) {
        Ok(found) => found,
        Err(fault) => {
            audit.find(list, fault.message);
            return None;
        }
    };
    let bytes = pretty(&manifest);
    let before = audit.findings.len();
    if read_below(&top, "MANIFEST.json").ok().as_ref() != Some(&bytes) {
        audit.find(&list, "it was changed after the run began");
    }
    for (path, expected) in &manifest.files {
        audit.hashes += 1;
        if let Err(why) = verified(&top, path, expected) {
            audit.find(format!("{place}/{path}"), format!("it {why}"));
        }
    }
    // What is there beside the files that are listed.
    if audit.findings.len() == before
        && let Err(fault) = check_sealed(run.dir(), folder)
    {
        audit.find(&place, fault.message);
    }
    Some(Listed {
        sha256: crate::disk::store::sha256(&bytes),
        workflow_sha256: manifest.files.get(&manifest.workflow).cloned(),
        workflow: manifest.workflow,
    })
}

fn reading(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is missing".to_owned(),
        _ => format!("it cannot be read: {error}"),
    }
}
