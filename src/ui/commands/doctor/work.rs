//! The work itself: who watches, what was left behind, what lies in the wrong place.

use super::Checks;
use crate::agents::catalogue::Catalogue;
use crate::agents::process::living_watchers;
use crate::disk::mailbox::{Place, Survey, survey};
use crate::disk::root::Root;
use crate::spec::task::AgentName;
use crate::ui::report::{age, count, short_duration};

/// So many strays are named.
const SHOWN: usize = 10;

pub(super) fn check(checks: &mut Checks, root: &Root) {
    checks.area("work");
    let watchers = match living_watchers(&root.logs) {
        Ok(watchers) => watchers,
        Err(e) => {
            checks.bad(
                "watchers",
                format!("cannot read the locks in logs/: {e}"),
                "make logs/ readable",
            );
            Vec::new()
        }
    };
    let pids: Vec<String> = watchers.iter().map(|w| format!("pid {}", w.pid)).collect();
    match pids.as_slice() {
        [] => checks.good("watchers", "none is running"),
        all => checks.good(
            "watchers",
            format!("{} running: {}", all.len(), all.join(", ")),
        ),
    }
    match survey(root) {
        Ok(found) => {
            let catalogue = Catalogue::load(&root.path).ok();
            let is_human =
                |agent: &AgentName| catalogue.as_ref().is_some_and(|r| r.is_human(agent));
            let waiting = waiting(&found, &is_human);
            check_waiting(checks, waiting, watchers.is_empty());
            check_claims(checks, &found);
            check_strays(checks, &found);
        }
        Err(e) => checks.bad(
            "inboxes",
            format!("cannot be read: {e}"),
            "make inbox/ and what is in it readable",
        ),
    }
}

/// How many tasks wait: for a watcher, and for a person.
fn waiting(found: &Survey, is_human: &dyn Fn(&AgentName) -> bool) -> (usize, usize) {
    let (mut agents, mut people) = (0, 0);
    for (peek, listing) in &found.agents {
        let sum = if is_human(&peek.agent) {
            &mut people
        } else {
            &mut agents
        };
        *sum += listing.waiting.len();
    }
    (agents, people)
}

fn check_waiting(checks: &mut Checks, (agents, people): (usize, usize), nobody_watches: bool) {
    let detail = format!("{} waiting", count(agents, "task"));
    if agents > 0 && nobody_watches {
        checks.advise("tasks", detail, "nobody works on them: type `orch watch`");
    } else {
        checks.good("tasks", detail);
    }
    if people > 0 {
        let detail = format!("{} waiting for a person", count(people, "task"));
        checks.advise(
            "people",
            detail,
            "`orch status` names them, and tells how to answer",
        );
    }
}

fn check_claims(checks: &mut Checks, found: &Survey) {
    let now = jiff::Timestamp::now();
    let (mut running, mut stale) = (0, Vec::new());
    for (peek, listing) in &found.agents {
        for name in &listing.claimed {
            match peek.claim(name) {
                Ok(Some(Place::Interrupted(since))) => {
                    let age = short_duration(age(now, since));
                    stale.push(format!("{}/{name} ({age})", peek.agent));
                }
                Ok(Some(_)) => running += 1,
                Ok(None) | Err(_) => {}
            }
        }
    }
    checks.good("claims", format!("{} running", count(running, "task")));
    if !stale.is_empty() {
        let todo = "`orch watch` takes them over";
        checks.advise("claims of dead watchers", stale.join(", "), todo);
    }
}

fn check_strays(checks: &mut Checks, found: &Survey) {
    if found.strays.is_empty() {
        return checks.good("strays", "none");
    }
    for stray in found.strays.iter().take(SHOWN) {
        let detail = format!("{}, and is left alone", stray.why);
        checks.advise(
            &stray.path,
            detail,
            "if it is meant as a task, rename it to NAME.task",
        );
    }
    if found.strays.len() > SHOWN {
        checks.note("strays", format!("{} more", found.strays.len() - SHOWN));
    }
}
