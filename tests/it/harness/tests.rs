//! What the harness promises: nothing hangs, nothing is skipped in silence, and no end is taken for
//! granted. A harness that lies would make every other test lie.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Bed, Program, needs, processes_with, program, shell, wait_for};
use crate::props::nap;

/// Set in the process that plays a test below.
const PLAYS: &str = "ORCH_TEST_PLAYS";

/// What a test that does this fails with.
fn failure(test: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(test)).expect_err("it did not fail");
    panic.downcast_ref::<String>().unwrap().clone()
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn what_hangs_is_told_and_ended_with_all_that_it_started() {
    let nap = nap(&Bed::new(), 0);
    let script = format!("echo so far; echo loud >&2; (setsid sleep {nap} & wait) & wait");
    let patience = Duration::from_secs(3);
    let told = failure(|| drop(shell(&script).patience(patience).run().expect(0)));
    has(
        &told,
        &["in vain for its end", &nap, "\nso far\n", "\nloud\n"],
    );
    wait_for("the sleeper to end", || processes_with(&nap).is_empty());
}

#[test]
fn what_holds_the_output_of_the_dead_is_named_and_ended() {
    let nap = nap(&Bed::new(), 0);
    let daemon = shell(&format!("setsid -f sleep {nap}")).patience(Duration::from_secs(3));
    let told = failure(|| drop(daemon.run().expect(0)));
    has(&told, &["the end of its output", &format!("sleep {nap}")]);
    wait_for("the sleeper to end", || processes_with(&nap).is_empty());
}

#[test]
fn words_that_are_waited_for_come_or_that_is_told() {
    let mut running = shell("echo no; echo right >&2; sleep 1000").start();
    running.until_it_says("right");
    let mut running = shell("echo wrong >&2").start();
    let told = failure(|| running.until_it_says("right"));
    has(&told, &["ended before it said `right`", "\nwrong\n"]);
    let mut running = shell("sleep 1000").patience(Duration::ZERO).start();
    let told = failure(|| running.until_it_says("right"));
    has(&told, &["in vain for it to say `right`"]);
}

#[test]
fn silence_and_the_code_are_what_is_expected() {
    let quiet = || shell("echo out").run();
    let loud = || shell("echo err >&2; exit 3").run();
    let error = || shell("echo 'error: no' >&2; exit 3").run();
    assert_eq!(quiet().expect(0).stdout, "out\n");
    loud().says("err").expect(3);
    loud().speaks().expect(3);
    loud().noisy().any_code();
    quiet().noisy().expect(0);
    error().fails(3);
    error().fails_somehow();
    let wrong: [fn() -> String; 8] = [
        || failure(|| drop(shell("exit 3").run().expect(0))),
        || failure(|| drop(shell("echo err >&2").run().expect(0))),
        || failure(|| drop(shell("echo err >&2").run().says("other").expect(0))),
        || failure(|| drop(shell(":").run().speaks().expect(0))),
        || failure(|| drop(shell("echo err >&2; exit 3").run().fails(3))),
        || failure(|| drop(shell("echo 'error: no' >&2").run().fails_somehow())),
        || failure(|| drop(shell(":").run().killed())),
        || failure(|| drop(shell("kill -9 $$").run().any_code())),
    ];
    for wrong in wrong {
        has(&wrong(), &["expected ", "\n$ "]);
    }
    shell("kill -9 $$").run().killed_or(0);
}

/// What every watcher says is no noise, and everything else of it is.
#[test]
fn the_words_of_every_watcher_are_no_noise() {
    let say = |words: &str| shell(&format!("true watch --drain; echo '{words}' >&2")).run();
    for words in [
        "watching /r/inbox (2 tasks at a time; Ctrl-C stops)",
        "0 done",
        "12 done, 3 failed, 1 task waiting for a person",
        "0 done, 2 tasks waiting for a person",
    ] {
        say(words).expect(0);
    }
    for words in ["trouble: 1 done", "1 done, more", "done", "put back a/x"] {
        say(words).speaks().expect(0);
    }
}

fn play(test: &str) -> Program {
    let words = ["--exact", &format!("harness::tests::{test}"), "--quiet"];
    program(std::env::current_exe().unwrap())
        .args(words)
        .env(PLAYS, "1")
        .env("ORCH_TEST_STRICT", "0")
}

fn is_played() -> bool {
    std::env::var_os(PLAYS).is_some()
}

/// Not a test by itself.
#[test]
fn play_a_skip() {
    if is_played() {
        needs::skip("no such thing");
    }
}

/// Not a test by itself.
#[test]
fn play_a_skip_here() {
    if is_played() {
        needs::skip_here("not on this machine");
    }
}

#[test]
fn a_skip_is_seen_and_a_strict_run_fails_by_it() {
    let said = "skipped: harness::tests::play_a_skip: no such thing";
    play("play_a_skip").run().says(said).expect(0);
    let strict = play("play_a_skip").env("ORCH_TEST_STRICT", "1");
    strict.run().says(said).expect(101);
    let said = "skipped: harness::tests::play_a_skip_here: not on this machine";
    let strict = play("play_a_skip_here").env("ORCH_TEST_STRICT", "1");
    strict.run().says(said).expect(0);
}

/// Not a test by itself: what it starts has the signals of a terminal as they are at one, and is out of
/// reach of those that are kept from this process.
#[test]
fn play_behind_a_shield() {
    if !is_played() {
        return;
    }
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let looks = shell("cat /proc/self/status; cut -d ' ' -f 1,5 /proc/$$/stat; echo $$");
    let seen = looks.run().expect(0).stdout;
    let ignored = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        // Those of the C library's own are not for anybody else.
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap() & 0x7fff_ffff
    };
    assert_eq!(ignored(&own) & 0b111, 0b111, "{own}");
    assert_eq!(ignored(&seen), 0, "{seen}");
    let mut last = seen.lines().rev();
    let (pid, group) = (last.next().unwrap(), last.next().unwrap());
    assert_eq!(group, format!("{pid} {pid}"));
}

#[test]
fn ignored_signals_are_not_handed_down() {
    let behind = "trap '' HUP INT QUIT; exec \"$0\" \"$@\"";
    shell(behind)
        .args([std::env::current_exe().unwrap()])
        .args(["--exact", "harness::tests::play_behind_a_shield", "--quiet"])
        .env(PLAYS, "1")
        .run()
        .expect(0);
}
