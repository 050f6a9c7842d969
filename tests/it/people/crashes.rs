//! `kill -9` at every point between an answer and its commit: it is not lost, and counts once.

use super::*;
use crate::harness::{End, KILLED};

const POINTS: [&str; 22] = [
    "claim.open",
    "claim.lock",
    "claim.lease",
    "claim.aside",
    "claim.rename",
    "claim.check",
    "commit.answer",
    "commit.sync-output",
    "run.log-append",
    "run.log-sync",
    "run.state-write",
    "run.state-rename",
    "submit.create",
    "submit.write",
    "submit.rename",
    "commit.create",
    "commit.write",
    "commit.sync",
    "commit.rename",
    "retire.rename",
    "retire.sync-processed",
    "retire.unlock",
];

fn chain() -> Bed {
    bed(&format!(
        "steps:\n{}{}{}",
        says("write", "x", "    approval: plan\n"),
        ASK,
        says("go", "${steps.ask.output}", "")
    ))
}

/// What holds at the end, whatever happened on the way.
fn assert_counted_once(bed: &Bed, point: &str) {
    assert_eq!(state(bed)["status"], "succeeded", "{point}");
    assert_eq!(counts(bed), ["write", "go"], "{point}");
    let log = bed.read(&format!("logs/{}.jsonl", only_run(bed)));
    assert_eq!(log.matches("\"event\":\"answered\"").count(), 2, "{point}");
    assert_eq!(bed.ls("inbox/human"), [""; 0], "{point}");
    assert_eq!(bed.ls("inbox/shell"), [""; 0], "{point}");
    audit(bed);
}

#[test]
fn an_answer_by_file_survives_the_death_of_the_watcher_at_every_point() {
    let mut struck = 0;
    for point in POINTS {
        let bed = chain();
        run(&bed).fails(4);
        for (ending, text) in [("approved", "fine\n"), ("reply", "this\n")] {
            mv(&bed, ending, text);
            let killed = bed
                .orch(["watch", "--drain"])
                .env("ORCH_FAULT", format!("kill:{point}"))
                .run()
                .about(point)
                .one_of(&[KILLED, End::Code(0), End::Code(4)]);
            struck += usize::from(killed.was_killed());
            bed.drain()
                .may_say(&["take over ", "put back "])
                .one_of(&[End::Code(0), End::Code(4)]);
        }
        bed.drain().expect(0);
        assert_eq!(
            state(&bed)["governance"]["decisions"]["plan"]["note"],
            "fine",
            "{point}"
        );
        assert_eq!(result(&bed, "ask")["output"], "this", "{point}");
        assert_counted_once(&bed, point);
    }
    assert!(struck >= 2 * POINTS.len() - 8, "only {struck} kills");
}

#[test]
fn an_answer_by_command_counts_once_wherever_the_command_dies() {
    let mut struck = 0;
    for point in POINTS {
        let bed = chain();
        run(&bed).fails(4);
        for words in [
            vec!["approve", "last", "plan"],
            vec!["reply", "last", "this"],
        ] {
            let killed = bed
                .orch(&words)
                .env("ORCH_FAULT", format!("kill:{point}"))
                .run()
                .about(point)
                .killed_or(0);
            struck += usize::from(killed.was_killed());
            // A watcher takes over what the dead one left; then what did not count is typed again.
            bed.drain()
                .may_say(&["take over ", "put back "])
                .one_of(&[End::Code(0), End::Code(4)]);
            if state(&bed)["status"] == "blocked" && questions(&bed).len() == 1 {
                let again = bed.orch(&words).run().about(point).noisy();
                again.one_of(&[End::Code(0), End::Code(64)]);
            }
            bed.drain().one_of(&[End::Code(0), End::Code(4)]);
        }
        bed.drain().expect(0);
        assert_counted_once(&bed, point);
    }
    assert!(struck >= 2 * POINTS.len() - 8, "only {struck} kills");
}
