//! This process as a living watcher: its identity and guard, its signals, its engine.
//!
//! The order of starting matters and stands here once: nothing is inherited by children, the guard
//! is started before orphans are adopted, and signals are handled before anything can be claimed.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::agents::catalogue::Catalogue;
use crate::agents::process::{Duty, Processes, Signals, Tree, Wake, Watcher, tasks_above};
use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::sys;
use crate::text::error::{Fault, Kind, Result};
use crate::work::engine::{Engine, Summary, Watching};
use crate::work::notice::Listener;
use crate::work::scheduler::Options;

/// Asks the engine to stop.
type Stop = Box<dyn Fn() + Send>;

/// How a watch ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// What was done.
    pub summary: Summary,
    /// The exit code of the signal that ended it, if one did.
    pub signal: Option<u8>,
}

/// Works on a root until it is stopped or done. Must be called on the main thread, once.
pub fn watch(
    root: &Arc<Root>,
    durability: Durability,
    mut options: Options,
    listener: Arc<Listener>,
) -> Result<Ended> {
    start_diagnostics(root);
    // Agents without a folder of their own inherit this one. To send each there by its handle
    // would be a path through `/proc/self`, which the kernel makes and unmakes for every process.
    rustix::process::fchdir(&root.dir).map_err(|e| Fault::io("work in", &root.path, &e.into()))?;
    options.ancestors = tasks_above();
    let catalogue = Catalogue::load(&root.path)?;
    let wake = Wake::new().map_err(|e| system("prepare to wait", &e))?;
    let signal = Arc::new(AtomicU8::new(0));
    let stop: Arc<Mutex<Option<Stop>>> = Arc::default();
    let _signals = {
        let (signal, stop, wake) = (signal.clone(), stop.clone(), wake.clone());
        Signals::install(move |which| {
            signal.store(which.exit_code(), Ordering::SeqCst);
            match &*stop.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(stop) => stop(),
                None => wake.stop(),
            }
        })
        .map_err(|e| system("handle signals", &e))?
    };
    let duty = Duty {
        jobs: options.jobs,
        agents: options.agents.iter().map(ToString::to_string).collect(),
        only: options
            .only
            .as_ref()
            .map(|(agent, name)| format!("{agent}/{name}"))
            .or_else(|| options.only_run.clone()),
    };
    let watcher = Watcher::start(&root.dir, &duty)
        .map_err(|e| Fault::io("start a watcher in", root.logs.path(), &e))?;
    let tree = Tree::new().map_err(|e| system("see this process's children", &e))?;
    tracing::info!(
        id = watcher.id(),
        pid = std::process::id(),
        "watcher started"
    );
    let mailbox = Arc::new(Mailbox::new(root.clone(), Disk::new(durability)));
    let engine = Engine::new(
        mailbox,
        catalogue,
        Watching {
            processes: Processes::new(tree, watcher.places()),
            watcher_id: watcher.id().to_owned(),
        },
        &wake,
        options,
        listener,
    )?;
    *stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(engine.stopper()));
    if signal.load(Ordering::SeqCst) != 0 {
        engine.stopper()();
    }
    let summary = engine.run();
    if let Err(e) = watcher.finish() {
        tracing::warn!("cannot remove the watcher's lock file: {e}");
    }
    tracing::info!(?summary, "watcher ended");
    let signal = Some(signal.load(Ordering::SeqCst)).filter(|code| *code != 0);
    Ok(Ended {
        summary: summary?,
        signal,
    })
}

/// To be called first of all in a process that will start agents.
pub fn inherit_nothing() -> Result<()> {
    sys::cloexec_all_inherited().map_err(|e| system("close what was inherited", &e))
}

/// Sends the program's own diagnostics to `logs/orch.jsonl`. There is nothing per task in it.
fn start_diagnostics(root: &Root) {
    let Ok(file) = root.logs.append("orch.jsonl") else {
        return;
    };
    // A second call in one process keeps the first: that is the same root.
    let _ = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::INFO)
        .with_writer(Mutex::new(file))
        .try_init();
}

fn system(verb: &str, error: &std::io::Error) -> Fault {
    Fault::new(Kind::IoError, format!("cannot {verb}: {error}"))
}
