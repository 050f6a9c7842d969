//! `orch log --follow`: new records as they appear.
//!
//! The watch is put on before the first listing, so nothing falls between the two. An event says
//! which file to look at; where events were lost, or do not come at all, everything is listed again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use notify::event::{EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use super::Log;
use crate::agents::process::Signals;
use crate::disk::mailbox::Peek;
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::report::Reader;

/// How often to look where there are no events.
const POLL: Duration = Duration::from_secs(1);

enum News {
    /// Something has appeared here.
    At(PathBuf),
    /// Events were lost.
    Anything,
    /// Stop, with this exit code.
    Stop(u8),
}

pub(super) fn run(log: &mut Log) -> Result<u8> {
    let (tell, news) = mpsc::channel();
    let _signals = {
        let tell = tell.clone();
        Signals::install(move |signal| {
            let _ = tell.send(News::Stop(signal.exit_code()));
        })
        .map_err(|e| Fault::new(Kind::IoError, format!("cannot handle signals: {e}")))?
    };
    let mut watches = Watches::new(tell)?;
    watches.on(log.root.artifacts.path())?;
    watches.add_agents(log)?;
    if log.print_all()? == Reader::Gone {
        return Ok(exit::DONE);
    }
    let pause = if log.root.remote {
        POLL
    } else {
        Duration::from_secs(60)
    };
    loop {
        let reader = match news.recv_timeout(pause) {
            Ok(News::Stop(code)) => return Ok(code),
            Ok(News::At(path)) => watches.look(log, &path)?,
            Ok(News::Anything) | Err(RecvTimeoutError::Timeout) => {
                watches.add_agents(log)?;
                log.print_all()?
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(exit::DONE),
        };
        if reader == Reader::Gone {
            return Ok(exit::DONE);
        }
    }
}

/// The watches on `artifacts/` and on every agent's folder in it.
struct Watches {
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
}

impl Watches {
    fn new(tell: Sender<News>) -> Result<Watches> {
        let handler = move |event: notify::Result<Event>| {
            for news in sort_out(event) {
                let _ = tell.send(news);
            }
        };
        let watcher = notify::recommended_watcher(handler).map_err(|e| unwatchable(&e))?;
        Ok(Watches {
            watcher,
            watched: HashSet::new(),
        })
    }

    fn on(&mut self, folder: &Path) -> Result<()> {
        if self.watched.insert(folder.to_path_buf()) {
            let watched = self.watcher.watch(folder, RecursiveMode::NonRecursive);
            watched.map_err(|e| unwatchable(&e))?;
        }
        Ok(())
    }

    fn add_agents(&mut self, log: &Log) -> Result<()> {
        let agents = Peek::agents_in(&log.root.artifacts)
            .map_err(|e| Fault::io("read", log.root.artifacts.path(), &e))?;
        for agent in agents.iter().filter(|agent| log.wants(agent)) {
            // By the handle's path: a link put in its place is not followed.
            if let Some(dir) = log.peek(agent)?.artifacts {
                self.on(dir.path())?;
            }
        }
        Ok(())
    }

    /// Looks at what an event named: a record, or a new agent's folder.
    fn look(&mut self, log: &mut Log, path: &Path) -> Result<Reader> {
        let name = |path: &Path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .map(str::to_owned)
        };
        let (Some(file), Some(folder)) = (name(path), path.parent()) else {
            return Ok(Reader::There);
        };
        if folder == log.root.artifacts.path() {
            self.watched.remove(path);
            self.add_agents(log)?;
            return log.print_all();
        }
        let agent = name(folder).and_then(|name| AgentName::parse(&name).ok());
        match agent.filter(|agent| log.wants(agent)) {
            Some(agent) => log.print_one(&agent, &file),
            None => Ok(Reader::There),
        }
    }
}

fn sort_out(event: notify::Result<Event>) -> Vec<News> {
    let Ok(event) = event else {
        return vec![News::Anything];
    };
    if event.need_rescan() {
        return vec![News::Anything];
    }
    let appeared = match event.kind {
        EventKind::Create(_) => true,
        EventKind::Modify(ModifyKind::Name(mode)) => mode != RenameMode::From,
        _ => false,
    };
    let newest = event.paths.into_iter().next_back();
    newest
        .filter(|_| appeared)
        .map(News::At)
        .into_iter()
        .collect()
}

fn unwatchable(error: &notify::Error) -> Fault {
    Fault::new(Kind::IoError, format!("cannot watch artifacts/: {error}"))
        .hint("`orch doctor` shows the limits on watches; without --follow the list works")
}
