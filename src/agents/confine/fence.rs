//! The fence around one attempt: built before its start, looked at after its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::bwrap::{self, Plan};
use super::compare::Picture;
use super::grants::{self, DEVICES, SYSTEM};
use super::kernel::{bubblewrap, has_walls, kernel};
use super::launch::Launch;
use super::letter::{Method, Right};
use super::together::{Present, Together};
use super::walls::Walls;
use crate::agents::program::expand_home;
use crate::disk::root::Root;
use crate::spec::policy::scope::{Pattern, Scope, is_own};
use crate::spec::policy::{Caps, Network, Policy, Sandbox};
use crate::spec::provider::invocation::Confined;
use crate::text::error::{Fault, Kind, Result};

/// Of a git checkout, what is never open: each can make git run programs.
const CLOSED_IN_GIT: [&str; 4] = ["config", "hooks", "config.worktree", "commondir"];
/// As many paths are named.
const MOST_NAMED: usize = 5;

/// Where an attempt takes place.
#[derive(Debug)]
pub struct Place<'a> {
    /// The root.
    pub root: &'a Root,
    /// Whose inbox the task went through.
    pub agent: &'a str,
    /// What messages call it.
    pub target: &'a str,
    /// The run that it is a step of.
    pub run: Option<&'a str>,
    /// The folder that it works in.
    pub cwd: &'a Path,
    /// Whether that folder is a named one, which it may write to whatever `writes` says.
    pub owns_cwd: bool,
    /// What is executed.
    pub program: &'a Path,
    /// Where its provider writes besides.
    pub also_writes: &'a [String],
    /// Where its provider reads besides.
    pub also_reads: &'a [String],
    /// Files that are made for it to be written to.
    pub made_for_it: &'a [PathBuf],
}

/// The fence around one attempt.
#[derive(Debug)]
pub struct Fence<'t> {
    launch: Option<Launch>,
    temp: Option<TempDir>,
    notes: Vec<String>,
    guarded: Option<Guarded<'t>>,
    target: String,
}

/// What is compared.
#[derive(Debug)]
struct Guarded<'t> {
    scope: Arc<Scope>,
    closed: Vec<PathBuf>,
    tops: Vec<PathBuf>,
    before: Picture,
    present: Present<'t>,
}

/// How an attempt is held, and whether that is all that is needed.
struct Held {
    method: Method,
    bubblewrap: Option<PathBuf>,
    enforced: bool,
    notes: Vec<String>,
}

impl Policy {
    /// Why this cannot be held here, where it must be.
    #[must_use]
    pub fn refusal(&self) -> Option<Fault> {
        if self.sandbox != Some(Sandbox::Required) || bubblewrap().is_some() {
            return None;
        }
        let lacks = match (kernel().holds_writes(), kernel().holds_network()) {
            (false, _) => "Landlock of Linux 6.2 or later, nor bubblewrap",
            (true, false) if self.network == Some(Network::None) => {
                "Landlock for the network (Linux 6.7 or later), nor bubblewrap"
            }
            _ => return None,
        };
        let message = format!("`sandbox: required`, and this system has neither {lacks}");
        Some(Fault::new(Kind::InvalidSettings, message).hint(
            "`orch doctor` says what is there; `sandbox: landlock` runs with a warning instead",
        ))
    }

    /// Whether the kernel holds a program to this scope, so that the program's own checks are not
    /// needed.
    #[must_use]
    pub fn confined(&self) -> Confined {
        match self.confines() && self.held().is_ok_and(|held| held.enforced) {
            true => Confined::Yes,
            false => Confined::No,
        }
    }

    fn held(&self) -> Result<Held> {
        if let Some(fault) = self.refusal() {
            return Err(fault);
        }
        let plain = |enforced| Held {
            method: Method::Limits,
            bubblewrap: None,
            enforced,
            notes: Vec::new(),
        };
        if !self.confines() {
            return Ok(plain(true));
        }
        let mut notes = Vec::new();
        let wants_bubblewrap = match self.sandbox {
            Some(Sandbox::None) => return Ok(plain(false)),
            Some(Sandbox::Bwrap) => true,
            Some(Sandbox::Required) => {
                let network = self.network == Some(Network::None);
                !kernel().holds_writes() || (network && !kernel().holds_network())
            }
            Some(Sandbox::Landlock) | None => false,
        };
        if wants_bubblewrap {
            if let Some(program) = bubblewrap() {
                return Ok(Held {
                    method: Method::Bubblewrap,
                    bubblewrap: Some(program),
                    enforced: true,
                    notes,
                });
            }
            notes.push("bubblewrap is not installed: Landlock is used instead".to_owned());
        }
        let kernel = kernel();
        if !kernel.holds_writes() {
            notes.push(
                "this kernel cannot hold an agent to its `writes`: what it changes is only found afterwards".to_owned(),
            );
        }
        if self.network == Some(Network::None) && !kernel.holds_network() {
            notes.push("this kernel cannot keep an agent from the network".to_owned());
        }
        Ok(Held {
            method: match kernel.landlock {
                0 => Method::Limits,
                _ => Method::Landlock,
            },
            bubblewrap: None,
            enforced: kernel.holds_writes(),
            notes,
        })
    }
}

impl<'t> Fence<'t> {
    /// Opens what is open, makes a folder for temporary files, and looks at what is to be compared.
    ///
    /// # Errors
    /// Where it must be held and cannot be, or a scope is not one.
    pub fn build(policy: &Policy, place: &Place<'_>, together: &'t Together) -> Result<Fence<'t>> {
        let held = policy.held()?;
        let mut fence = Fence {
            launch: None,
            temp: None,
            notes: held.notes.clone(),
            guarded: None,
            target: place.target.to_owned(),
        };
        let mut grants = Vec::new();
        let (mut checkouts, mut closed) = (Vec::new(), Vec::new());
        if policy.confines() {
            let temp = private_temp()?;
            let globs = patterns("writes", policy.writes.as_deref())?;
            let open = open_folders(policy, place, temp.path());
            for pattern in &globs {
                grants::of_pattern(&mut grants, place.root, pattern)?;
            }
            for path in open
                .iter()
                .map(PathBuf::as_path)
                .chain(DEVICES.iter().map(Path::new))
            {
                grants::of_path(&mut grants, &place.root.path, path, Right::Write)?;
            }
            if policy.reads.is_some() {
                read_grants(&mut grants, policy, place)?;
            }
            checkouts = open.iter().map(|folder| folder.join(".git")).collect();
            checkouts.retain(|git| git.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
            closed = closed_paths(&checkouts);
            let tops = tops(held.enforced, place, &globs, &closed);
            let root = &place.root.path;
            let scope = Arc::new(Scope {
                root: root.clone(),
                globs,
                open,
            });
            fence.guarded = Some(Guarded {
                before: Picture::take(&tops, &|path| is_skipped(root, path)),
                present: together.enter(Some(Arc::clone(&scope))),
                scope,
                closed: closed.clone(),
                tops,
            });
            fence.temp = Some(temp);
        }
        if held.method == Method::Limits && policy.caps == Caps::default() {
            return Ok(fence);
        }
        let network = policy.network.unwrap_or(Network::All);
        let limit_reads = policy.reads.is_some();
        let told = |program| {
            let plan = Plan {
                grants: &grants,
                pinned: &checkouts,
                closed: &standing(&closed),
                limit_reads,
                network,
                cwd: place.cwd,
                root: &place.root.path,
            };
            (program, bwrap::arguments(&plan))
        };
        let bubblewrap = held.bubblewrap.map(told);
        let walls = (held.method == Method::Landlock && has_walls()).then(|| {
            let written = grants.iter().filter(|grant| grant.right == Right::Write);
            let open = written.map(|grant| grant.path.clone());
            // A checkout's own folder is a mount too, so that nobody can put another in its place.
            Walls::new(open.chain(checkouts.iter().cloned()), standing(&closed))
        });
        if held.method == Method::Landlock && walls.is_none() && !closed.is_empty() {
            only_compared(policy, &mut fence.notes)?;
        }
        if held.method != Method::Landlock {
            grants.clear();
        }
        fence.launch = Some(Launch {
            method: held.method,
            bubblewrap,
            grants,
            limit_reads,
            network,
            caps: policy.caps,
            walls,
        });
        Ok(fence)
    }

    /// How it is started, where that is not the usual way.
    #[must_use]
    pub fn launch(&self) -> Option<&Launch> {
        self.launch.as_ref()
    }

    /// Variables that the agent gets for it, unless it has its own.
    #[must_use]
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let temp = self.temp.as_ref().map(|temp| temp.path().as_os_str());
        temp.map(|path| ("TMPDIR".into(), path.to_owned()))
            .into_iter()
            .collect()
    }

    /// What a person should know about how it is held.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What it changed that it may not, if anything: to be asked when nothing of it runs any more.
    #[must_use]
    pub fn violation(&self) -> Option<Fault> {
        let guarded = self.guarded.as_ref()?;
        if guarded.tops.is_empty() {
            return None;
        }
        let root = &guarded.scope.root;
        let after = Picture::take(&guarded.tops, &|path| is_skipped(root, path));
        let met = guarded.present.met();
        let is_closed = |path: &Path| guarded.closed.iter().any(|closed| path.starts_with(closed));
        let found: Vec<String> = guarded
            .before
            .changes(&after)
            .into_iter()
            .filter(|path| is_closed(path) || !guarded.scope.allows(path))
            .filter(|path| !met.may_be_of_another(path))
            .map(|path| shown(root, path))
            .collect();
        if found.is_empty() {
            return None;
        }
        let more = match found.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = found[..found.len().min(MOST_NAMED)].join(", ");
        let message = format!(
            "`{}` changed what it may not write: {named}{more}",
            self.target
        );
        Some(
            Fault::new(Kind::ScopeViolation, message)
                .hint("put it back, or add it to `writes` if it is meant to be written"),
        )
    }
}

fn shown(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    format!("`{}`", path.display().to_string().escape_debug())
}

fn private_temp() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("orch-agent-").tempdir();
    made.map_err(|e| Fault::io("make a folder in", std::env::temp_dir(), &e))
}

fn patterns(field: &str, globs: Option<&[String]>) -> Result<Vec<Pattern>> {
    let globs = globs.unwrap_or_default().iter();
    globs.map(|glob| Pattern::parse(field, glob)).collect()
}

/// What is open as a whole: the default scope where none is declared, and what is always added.
fn open_folders(policy: &Policy, place: &Place<'_>, temp: &Path) -> Vec<PathBuf> {
    let root = place.root;
    let mut open = vec![temp.to_path_buf()];
    if policy.writes.is_none() {
        open.extend(
            place
                .run
                .map(|run| root.path.join("workspace").join(run).join("files")),
        );
        open.push(root.artifacts.path().join(place.agent));
        if place.cwd != root.path {
            open.push(place.cwd.to_path_buf());
        }
    } else if place.owns_cwd {
        open.push(place.cwd.to_path_buf());
    }
    open.extend(
        place
            .also_writes
            .iter()
            .map(|path| absolute(&root.path, path)),
    );
    open.extend(place.made_for_it.iter().cloned());
    open
}

fn absolute(root: &Path, path: &str) -> PathBuf {
    let path = expand_home(path).map_or_else(|| root.join(path), PathBuf::from);
    path.canonicalize().unwrap_or(path)
}

fn read_grants(
    grants: &mut Vec<super::launch::Grant>,
    policy: &Policy,
    place: &Place<'_>,
) -> Result<()> {
    let root = &place.root.path;
    for pattern in patterns("reads", policy.reads.as_deref())? {
        grants::of_reads(grants, root, &pattern)?;
    }
    let also = place.also_reads.iter().map(|path| absolute(root, path));
    let system = SYSTEM.iter().map(PathBuf::from);
    let program = grants::program_folders(place.program).into_iter();
    // Where the prompt lies, for those that read it from a file.
    let own = [place.root.artifacts.path().join(place.agent)];
    for path in also.chain(system).chain(program).chain(own) {
        grants::of_path(grants, root, &path, Right::Read)?;
    }
    if place.owns_cwd {
        grants::of_path(grants, root, place.cwd, Right::Read)?;
    }
    Ok(())
}

/// What stays closed in checkouts, whether it is there or not.
fn closed_paths(checkouts: &[PathBuf]) -> Vec<PathBuf> {
    let closed = checkouts.iter();
    closed
        .flat_map(|git| CLOSED_IN_GIT.map(|name| git.join(name)))
        .collect()
}

/// Those that are there; a link has no place of its own to put a wall around.
fn standing(paths: &[PathBuf]) -> Vec<PathBuf> {
    let stands = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|meta| !meta.is_symlink());
    paths.iter().filter(stands).cloned().collect()
}

/// What is closed in a checkout is found afterwards, where nothing can keep it closed.
fn only_compared(policy: &Policy, notes: &mut Vec<String>) -> Result<()> {
    let message = "this system cannot keep `.git/config` and `.git/hooks` closed to an agent that works in a git checkout";
    if policy.sandbox == Some(Sandbox::Required) {
        return Err(Fault::new(Kind::InvalidSettings, message)
            .hint("allow user namespaces, or install bubblewrap and say `sandbox: bwrap`"));
    }
    notes.push(format!(
        "{message}: changes there are only found afterwards"
    ));
    Ok(())
}

/// The folders that are compared: where the kernel holds the scope, only what a rule opens beyond
/// it; where it does not, everything that the step could be at home in.
fn tops(enforced: bool, place: &Place<'_>, globs: &[Pattern], closed: &[PathBuf]) -> Vec<PathBuf> {
    let root = &place.root.path;
    let mut tops: Vec<PathBuf> = closed.to_vec();
    for pattern in globs {
        let base = root.join(&pattern.base);
        if pattern.rest.is_empty() && !base.is_dir() {
            tops.extend(base.parent().map(Path::to_path_buf));
        } else if pattern.is_narrow() {
            tops.push(base);
        }
    }
    if !enforced {
        tops.push(root.clone());
        tops.push(place.cwd.to_path_buf());
        tops.extend(
            place
                .run
                .map(|run| root.join("workspace").join(run).join("files")),
        );
    }
    tops.sort_unstable();
    tops.dedup();
    tops
}

/// What is orch's, and what grows with every finished task, is not compared.
fn is_skipped(root: &Path, path: &Path) -> bool {
    let Ok(inside) = path.strip_prefix(root) else {
        return false;
    };
    let inside = inside.to_string_lossy();
    is_own(&inside) || inside == "artifacts" || inside == "workspace"
}
