//! `orch status`: what waits, runs, is done and failed, and who is there to do it.
//!
//! Looks only: nothing is made, moved or taken over, and no finished task is opened.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::{run_target, run_view};
use crate::agents::catalogue::Catalogue;
use crate::agents::process::{WatcherRecord, living_watchers};
use crate::disk::mailbox::{Listing, Peek, Place, Stray, survey};
use crate::disk::root::Root;
use crate::spec::task::AgentName;
use crate::text::error::{Fault, Result, exit};
use crate::ui::cli;
use crate::ui::report::{
    Align, Paint, Table, age, ago, clean_line, count, print, print_json, short_duration,
};

/// So many names of one sort are shown; `--json` has them all.
const SHOWN: usize = 20;

pub(super) fn run(root: Option<&Path>, words: &cli::Status) -> Result<u8> {
    let root = Arc::new(Root::discover(root)?);
    if let Some(word) = &words.run {
        let runs = run_target::runs(&root);
        return run_view::status(&root, &runs.open(&runs.find(word)?)?, words.json);
    }
    let status = Status::of(&root)?;
    if words.json {
        print_json(&status)?;
    } else {
        print(&status.text(Paint::stdout()))?;
    }
    Ok(exit::DONE)
}

#[derive(Debug, Serialize)]
struct Status {
    root: String,
    agents: Vec<AgentStatus>,
    totals: Totals,
    /// Runs that are not finished.
    runs: Vec<run_view::Row>,
    strays: Vec<StrayStatus>,
    watchers: Vec<WatcherRecord>,
    /// Agents whose waiting tasks nobody will take.
    unwatched: Vec<String>,
    /// What is wrong with the settings.
    problem: Option<Fault>,
}

#[derive(Debug, Default, Serialize)]
struct Totals {
    waiting: usize,
    waiting_for_person: usize,
    running: usize,
    interrupted: usize,
    done: usize,
    failed: usize,
}

#[derive(Debug, Serialize)]
struct AgentStatus {
    agent: AgentName,
    human: bool,
    waiting: Vec<String>,
    running: Vec<Claimed>,
    interrupted: Vec<Claimed>,
    done: usize,
    failed: usize,
    /// Why its tasks would be rejected.
    problem: Option<Fault>,
}

/// A claimed task, and for how many seconds.
#[derive(Debug, Serialize)]
struct Claimed {
    task: String,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct StrayStatus {
    path: String,
    why: String,
}

impl From<Stray> for StrayStatus {
    fn from(stray: Stray) -> Self {
        StrayStatus {
            path: stray.path,
            why: stray.why,
        }
    }
}

impl Status {
    fn of(root: &Arc<Root>) -> Result<Status> {
        let (catalogue, problem) = match Catalogue::load(&root.path) {
            Ok(catalogue) => (Some(catalogue), None),
            Err(fault) => (None, Some(fault)),
        };
        let found = survey(root).map_err(|e| Fault::io("read", root.inbox.path(), &e))?;
        let mut agents = Vec::new();
        for (peek, listing) in &found.agents {
            agents.push(AgentStatus::of(peek, listing, catalogue.as_ref())?);
        }
        if let Some(catalogue) = &catalogue {
            add_idle(&mut agents, catalogue);
        }
        for agent in &mut agents {
            let known = run_view::is_of_runs(&root.path, agent.agent.as_str());
            agent.problem.take_if(|_| known);
        }
        let watchers =
            living_watchers(&root.logs).map_err(|e| Fault::io("read", root.logs.path(), &e))?;
        Ok(Status {
            root: root.path.display().to_string(),
            totals: Totals::of(&agents),
            unwatched: unwatched(&agents, &watchers),
            runs: run_view::unfinished(root),
            agents,
            strays: found.strays.into_iter().map(StrayStatus::from).collect(),
            watchers,
            problem,
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut text = format!("{}\n\n", paint.dim(clean_line(&self.root)));
        self.write_counts(&mut text, paint);
        let runs = run_view::lines(&self.runs, Timestamp::now());
        section(&mut text, paint, "runs", &runs);
        self.write_claims(&mut text, paint);
        self.write_people(&mut text, paint);
        self.write_watchers(&mut text, paint);
        self.write_strays(&mut text, paint);
        self.write_advice(&mut text, paint);
        text
    }

    fn write_counts(&self, text: &mut String, paint: Paint) {
        use Align::{Left, Right};
        let t = &self.totals;
        // A column that is nearly always empty is left out then.
        let keep = |cells: [String; 6]| {
            let shown = move |(at, cell)| (at != 3 || t.interrupted > 0).then_some(cell);
            cells.into_iter().enumerate().filter_map(shown)
        };
        let mut table = Table::new(&[Left, Right, Right, Right, Right, Right]);
        let heads = [
            "agent",
            "waiting",
            "running",
            "interrupted",
            "done",
            "failed",
        ];
        table.row(keep(heads.map(str::to_owned)));
        for a in &self.agents {
            let (running, interrupted) = (a.running.len(), a.interrupted.len());
            let counts = [a.waiting.len(), running, interrupted, a.done, a.failed];
            table.row(keep(numbers(a.agent.to_string(), counts)));
        }
        let waiting = t.waiting + t.waiting_for_person;
        let counts = [waiting, t.running, t.interrupted, t.done, t.failed];
        table.row(keep(numbers("total".to_owned(), counts)));
        let lines = table.lines();
        for (at, line) in lines.iter().enumerate() {
            let line = match at {
                0 => paint.dim(line),
                at if at + 1 == lines.len() => paint.strong(line),
                _ => line.clone(),
            };
            let _ = writeln!(text, "{line}");
        }
    }

    fn write_claims(&self, text: &mut String, paint: Paint) {
        let claims = |of: fn(&AgentStatus) -> &[Claimed], end: &str| -> Vec<String> {
            let line = |agent: &AgentName, claim: &Claimed| {
                let time =
                    std::time::Duration::try_from_secs_f64(claim.seconds).unwrap_or_default();
                format!("{agent}/{}  {}{end}", claim.task, short_duration(time))
            };
            let of_agent = |agent| of(agent).iter().map(move |claim| (agent, claim));
            let all = self.agents.iter().flat_map(of_agent);
            all.map(|(agent, claim)| line(&agent.agent, claim))
                .collect()
        };
        section(text, paint, "running", &claims(|a| &a.running, ""));
        let note = "  interrupted (its watcher died; the next one takes it over)";
        section(
            text,
            paint,
            "interrupted",
            &claims(|a| &a.interrupted, note),
        );
    }

    fn write_people(&self, text: &mut String, paint: Paint) {
        let humans = self.agents.iter().filter(|agent| agent.human);
        let lines: Vec<String> = humans
            .flat_map(|a| {
                a.waiting
                    .iter()
                    .map(move |task| format!("{}/{task}", a.agent))
            })
            .collect();
        section(text, paint, "waiting for a person", &lines);
        if !lines.is_empty() {
            let how = "to answer: write below a line `--- answer` in inbox/AGENT/NAME.task, then rename it to NAME.reply";
            let _ = writeln!(text, "  {}", paint.dim(how));
        }
    }

    fn write_watchers(&self, text: &mut String, paint: Paint) {
        let now = Timestamp::now();
        let lines: Vec<String> = self.watchers.iter().map(|w| watcher_line(w, now)).collect();
        section(text, paint, "watchers", &lines);
    }

    fn write_strays(&self, text: &mut String, paint: Paint) {
        let line = |s: &StrayStatus| format!("{}: {}", clean_line(&s.path), clean_line(&s.why));
        let lines: Vec<String> = self.strays.iter().map(line).collect();
        section(text, paint, "not tasks, left alone", &lines);
    }

    fn write_advice(&self, text: &mut String, paint: Paint) {
        let mut advice = Vec::new();
        if let Some(fault) = &self.problem {
            advice.push(fault_line(fault));
        }
        for agent in self.agents.iter().filter(|agent| !agent.waiting.is_empty()) {
            advice.extend(agent.problem.as_ref().map(fault_line));
        }
        let left: usize = self
            .agents
            .iter()
            .filter(|agent| self.unwatched.contains(&agent.agent.to_string()))
            .map(|agent| agent.waiting.len() + agent.interrupted.len())
            .sum();
        if left > 0 {
            let waits = if left == 1 { "waits" } else { "wait" };
            advice.push(format!(
                "{} {waits} and no watcher takes {}: type `orch watch`, or `orch watch --drain` to stop when all is done",
                count(left, "task"),
                if left == 1 { "it" } else { "them" },
            ));
        }
        for line in advice {
            let _ = writeln!(text, "\n{} {line}", paint.odd("!"));
        }
    }
}

impl AgentStatus {
    fn of(peek: &Peek, listing: &Listing, catalogue: Option<&Catalogue>) -> Result<AgentStatus> {
        let agent = &peek.agent;
        let io = |e| Fault::io("look at the tasks of", agent.as_str(), &e);
        let retired = peek.retirements().map_err(io)?;
        let mut status = AgentStatus {
            agent: agent.clone(),
            human: catalogue.is_some_and(|catalogue| catalogue.is_human(agent)),
            waiting: listing.waiting.iter().map(str::to_owned).collect(),
            running: Vec::new(),
            interrupted: Vec::new(),
            done: retired.done,
            failed: retired.failed,
            problem: catalogue.and_then(|catalogue| catalogue.knows(agent).err()),
        };
        let now = Timestamp::now();
        for name in &listing.claimed {
            let claimed = |since| Claimed {
                task: name.to_string(),
                seconds: age(now, since).as_secs_f64(),
            };
            match peek.claim(name).map_err(io)? {
                Some(Place::Running(since)) => status.running.push(claimed(since)),
                Some(Place::Interrupted(since)) => status.interrupted.push(claimed(since)),
                // Finished between the two looks.
                _ => {}
            }
        }
        Ok(status)
    }
}

impl Totals {
    fn of(agents: &[AgentStatus]) -> Totals {
        let mut totals = Totals::default();
        for agent in agents {
            let waiting = if agent.human {
                &mut totals.waiting_for_person
            } else {
                &mut totals.waiting
            };
            *waiting += agent.waiting.len();
            totals.running += agent.running.len();
            totals.interrupted += agent.interrupted.len();
            totals.done += agent.done;
            totals.failed += agent.failed;
        }
        totals
    }
}

/// Agents that have a file and no folder yet.
fn add_idle(agents: &mut Vec<AgentStatus>, catalogue: &Catalogue) {
    let known: BTreeSet<AgentName> = agents.iter().map(|a| a.agent.clone()).collect();
    for (name, checked) in catalogue.all_agents() {
        let Ok(agent) = AgentName::parse(&name) else {
            continue;
        };
        if known.contains(&agent) {
            continue;
        }
        agents.push(AgentStatus {
            human: catalogue.is_human(&agent),
            agent,
            waiting: Vec::new(),
            running: Vec::new(),
            interrupted: Vec::new(),
            done: 0,
            failed: 0,
            problem: checked.err(),
        });
    }
    agents.sort_by(|a, b| a.agent.cmp(&b.agent));
}

fn unwatched(agents: &[AgentStatus], watchers: &[WatcherRecord]) -> Vec<String> {
    let has_work =
        |a: &&AgentStatus| (!a.waiting.is_empty() && !a.human) || !a.interrupted.is_empty();
    let covered = |a: &&AgentStatus| watchers.iter().any(|w| w.duty.covers(a.agent.as_str()));
    let left = agents.iter().filter(has_work).filter(|a| !covered(a));
    left.map(|a| a.agent.to_string()).collect()
}

fn numbers(name: String, numbers: [usize; 5]) -> [String; 6] {
    let shown = |n: usize| {
        if n == 0 {
            "-".to_owned()
        } else {
            n.to_string()
        }
    };
    let [a, b, c, d, e] = numbers.map(shown);
    [name, a, b, c, d, e]
}

fn watcher_line(watcher: &WatcherRecord, now: Timestamp) -> String {
    // The end of an id is random, its beginning the time.
    let short = watcher.id.rsplit('-').next().unwrap_or_default();
    let duty = match (&watcher.duty.only, watcher.duty.agents.as_slice()) {
        (Some(task), _) => format!("only {task}"),
        (None, []) => "all agents".to_owned(),
        (None, agents) => format!("only {}", agents.join(", ")),
    };
    let since = ago(now, &watcher.started)
        .map(|ago| format!(", started {ago}"))
        .unwrap_or_default();
    let jobs = count(usize::from(watcher.duty.jobs), "job");
    clean_line(&format!(
        "{short}  pid {}, {jobs}, {duty}{since}",
        watcher.pid
    ))
}

fn fault_line(fault: &Fault) -> String {
    let hint = fault.hint.as_ref().map(|hint| format!("; {hint}"));
    clean_line(&format!("{}{}", fault.message, hint.unwrap_or_default()))
}

/// A heading and its lines, of which the first few are shown; nothing where there are none.
fn section(text: &mut String, paint: Paint, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", paint.strong(heading));
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > SHOWN {
        let _ = writeln!(
            text,
            "  {}",
            paint.dim(format!("... and {} more", lines.len() - SHOWN))
        );
    }
}
