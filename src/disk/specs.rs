//! The files that a workflow uses: agents, prompts, schemas, providers and settings.
//!
//! [`Folder`] reads them from a root, [`Recorder`] remembers which files were read, and [`Pinned`] reads
//! from what was remembered, so that a run continues with the files that it started with. Only files
//! below `specs/` are read. They belong to the user and may be links to elsewhere. Nothing here writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::spec::provider::{self, UserProviders};
use crate::spec::settings::{self, Settings};
use crate::spec::workflow::Specs;
use crate::text::error::{Fault, Kind, Result};

mod find;
mod read;

pub use find::{Found, find, load, workflows};
pub(crate) use read::read_text;

/// Files by their path from the root.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Whether a path from the root leads to something below `specs/`.
#[must_use]
pub fn is_inside_specs(path: &str) -> bool {
    let good = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.strip_prefix("specs/")
        .is_some_and(|rest| rest.split('/').all(good))
}

/// The two files that apply to all agents: settings and providers.
#[derive(Debug)]
struct Common {
    settings: Settings,
    providers: UserProviders,
}

impl Common {
    fn read(file: impl Fn(&str) -> Result<Option<String>>) -> Result<Common> {
        let settings = Settings::parse(&file(settings::FILE)?.unwrap_or_default())?;
        let providers = match file(provider::FILE)? {
            Some(text) => provider::parse(&text)?,
            None => UserProviders::new(),
        };
        Ok(Common {
            settings,
            providers,
        })
    }

    fn dirs(&self) -> Vec<String> {
        self.settings.dirs.keys().cloned().collect()
    }
}

/// The specs of a root, as they are now.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    common: Common,
    /// The texts that `common` was read from, so that exactly these are recorded.
    read: BTreeMap<&'static str, Option<String>>,
}

impl Folder {
    /// Reads the settings and providers of a root.
    ///
    /// # Errors
    /// One of them cannot be read, or is not valid.
    pub fn open(root: &Path) -> Result<Folder> {
        let mut read = BTreeMap::new();
        for file in [settings::FILE, provider::FILE] {
            read.insert(file, read_text(&root.join(file))?);
        }
        let common = Common::read(|file| Ok(read.get(file).cloned().flatten()))?;
        Ok(Folder {
            root: root.to_path_buf(),
            common,
            read,
        })
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Specs for Folder {
    fn file(&self, path: &str) -> Result<Option<String>> {
        match self.read.get(path) {
            Some(text) => Ok(text.clone()),
            None if is_inside_specs(path) => read_text(&self.root.join(path)),
            None => Ok(None),
        }
    }

    fn agents(&self) -> Vec<String> {
        let files = find::names_in(&self.root.join("specs/agents"));
        let names = files.iter().filter_map(|name| name.strip_suffix(".md"));
        names.map(str::to_owned).collect()
    }

    fn providers(&self) -> &UserProviders {
        &self.common.providers
    }

    fn default_provider(&self) -> Option<String> {
        self.common.settings.provider.clone()
    }

    fn dirs(&self) -> Vec<String> {
        self.common.dirs()
    }
}

/// Specs that remember which of their files were read.
pub struct Recorder<'s> {
    specs: &'s dyn Specs,
    used: RefCell<Files>,
}

impl<'s> Recorder<'s> {
    /// Starts recording; settings and providers count as read.
    ///
    /// # Errors
    /// One of those two cannot be read.
    pub fn new(specs: &'s dyn Specs) -> Result<Self> {
        let recorder = Recorder {
            specs,
            used: RefCell::default(),
        };
        for file in [settings::FILE, provider::FILE] {
            recorder.file(file)?;
        }
        Ok(recorder)
    }

    /// Adds a file that was read elsewhere: the workflow's own.
    pub fn add(&self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.used.borrow_mut().insert(path.into(), bytes.into());
    }

    /// Every file that was read so far.
    #[must_use]
    pub fn used(&self) -> Files {
        self.used.borrow().clone()
    }
}

impl Specs for Recorder<'_> {
    fn file(&self, path: &str) -> Result<Option<String>> {
        let text = self.specs.file(path)?;
        if let Some(text) = &text {
            self.add(path, text.as_bytes());
        }
        Ok(text)
    }

    fn agents(&self) -> Vec<String> {
        self.specs.agents()
    }

    fn providers(&self) -> &UserProviders {
        self.specs.providers()
    }

    fn default_provider(&self) -> Option<String> {
        self.specs.default_provider()
    }

    fn dirs(&self) -> Vec<String> {
        self.specs.dirs()
    }
}

/// The specs that a run was started with.
#[derive(Debug)]
pub struct Pinned {
    files: Files,
    common: Common,
}

impl Pinned {
    /// Takes what [`Recorder::used`] gave.
    ///
    /// # Errors
    /// The settings or providers among them are not valid.
    pub fn new(files: Files) -> Result<Pinned> {
        let common = Common::read(|path| text_of(&files, path))?;
        Ok(Pinned { files, common })
    }
}

impl Specs for Pinned {
    fn file(&self, path: &str) -> Result<Option<String>> {
        text_of(&self.files, path)
    }

    fn agents(&self) -> Vec<String> {
        let name = |path: &String| {
            let name = path.strip_prefix("specs/agents/")?.strip_suffix(".md")?;
            Some(name.to_owned())
        };
        self.files.keys().filter_map(name).collect()
    }

    fn providers(&self) -> &UserProviders {
        &self.common.providers
    }

    fn default_provider(&self) -> Option<String> {
        self.common.settings.provider.clone()
    }

    fn dirs(&self) -> Vec<String> {
        self.common.dirs()
    }
}

fn text_of(files: &Files, path: &str) -> Result<Option<String>> {
    let Some(bytes) = files.get(path) else {
        return Ok(None);
    };
    match String::from_utf8(bytes.clone()) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Fault::new(
            Kind::InvalidSettings,
            format!("`{path}` is not UTF-8"),
        )),
    }
}

#[cfg(test)]
mod tests;
