//! The work itself: who watches, what was left behind, what lies in the wrong place.

use super::Checks;
use crate::mailbox::{Place, Survey, survey};
use crate::process::living_watchers;
use crate::report::{count, short_duration};
use crate::root::Root;

/// So many strays are named.
const SHOWN: usize = 10;

pub(super) fn check(checks: &mut Checks, root: &Root) {
    checks.area("work");
    let watchers = match living_watchers(root.logs.path()) {
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
            check_claims(checks, &found, watchers.is_empty());
            check_strays(checks, &found);
        }
        Err(e) => checks.bad(
            "inboxes",
            format!("cannot be read: {e}"),
            "make inbox/ and what is in it readable",
        ),
    }
}

fn check_claims(checks: &mut Checks, found: &Survey, nobody_watches: bool) {
    let now = jiff::Timestamp::now();
    let (mut running, mut stale, mut waiting) = (0, Vec::new(), 0);
    for (peek, listing) in &found.agents {
        waiting += listing.waiting.len();
        for name in &listing.claimed {
            match peek.claim(name) {
                Ok(Some(Place::Interrupted(since))) => {
                    let age = short_duration(crate::report::age(now, since));
                    stale.push(format!("{}/{name} ({age})", peek.agent));
                }
                Ok(Some(_)) => running += 1,
                Ok(None) | Err(_) => {}
            }
        }
    }
    let detail = format!("{} waiting, {running} running", count(waiting, "task"));
    if waiting > 0 && nobody_watches {
        checks.advise("tasks", detail, "nobody works on them: type `orch watch`");
    } else {
        checks.good("tasks", detail);
    }
    if stale.is_empty() {
        checks.good("claims of dead watchers", "none");
    } else {
        checks.advise(
            "claims of dead watchers",
            stale.join(", "),
            "`orch watch` takes them over",
        );
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
