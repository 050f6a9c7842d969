//! Runs that are gone back to: a follow-up to one that is done, and the one run of a singleton.

use super::*;

#[test]
fn a_reply_to_a_finished_run_goes_on_at_its_follow_up() {
    let bed = bed(&format!(
        "follow_up: more\nsteps:\n{}{}",
        says("first", "x", "    on: {success: {goto: _end}}\n"),
        says(
            "more",
            "so ${reply}",
            "    max_visits: 5\n    on_limit: _block\n"
        )
    ));
    run(&bed).expect(0);
    orch(&bed, &["reply", "last", " "]).fails(64);
    let ran = orch(&bed, &["reply", "last", "one more thing"])
        .says("no watcher is running")
        .expect(0);
    has(&ran.stdout, &["goes on at step `more`"]);
    has(&ran.stderr, &["no watcher is running"]);
    assert_eq!(state(&bed)["status"], "running");
    orch(&bed, &["resume", "last"]).expect(0);
    assert_eq!(result(&bed, "more")["output"], "so one more thing\n");
    let _watch = bed.watch(&[]);
    orch(&bed, &["reply", "last", "and another"]).expect(0);
    wait_for("the second follow-up", || {
        result(&bed, "more")["output"] == "so and another\n" && state(&bed)["status"] == "succeeded"
    });
    assert_eq!(counts(&bed), ["first", "more", "more"]);
    has(
        &orch(&bed, &["log", "last"]).expect(0).stdout,
        &["reply OK -> more | by ana"],
    );
    audit(&bed);
}

#[test]
fn a_singleton_goes_on_with_the_same_input_and_refuses_another() {
    let bed = bed(&format!(
        "singleton: true\nsteps:\n{}",
        says("write", "x", "    approval: plan\n")
    ));
    fs::write(bed.outside.join("a.yaml"), "n: 1\n").unwrap();
    fs::write(bed.outside.join("b.yaml"), "n: 2\n").unwrap();
    orch(&bed, &["run", "w", "--input", "a.yaml"]).fails(4);
    let id = only_run(&bed);
    let ran = orch(&bed, &["run", "w", "--input", "a.yaml"]).fails(4);
    has(&ran.stderr, &[&id, "same input"]);
    let ran = orch(&bed, &["run", "w", "--input", "b.yaml"]).fails(64);
    has(&ran.stderr, &[&id, "{\"n\":1}", "{\"n\":2}", "orch resume"]);
    assert_eq!(only_run(&bed), id);
    assert_eq!(counts(&bed), ["write"]);
    orch(&bed, &["approve", "last", "plan"]).expect(0);
    orch(&bed, &["run", "w", "--input", "b.yaml"]).fails(4);
    assert_eq!(bed.ls("workspace").len(), 2);
}

#[test]
fn a_singleton_has_one_run_however_many_tasks_ask_for_it() {
    let bed = bed(&format!(
        "singleton: true\nsteps:\n{}",
        says("write", "x", "    approval: plan\n")
    ));
    let input = |n: u32| format!("---\ninput: {{n: {n}}}\n---\nplease\n");
    for name in ["a", "b", "c", "d"] {
        bed.drop_task("w", name, input(1));
    }
    orch(&bed, &["watch", "--drain", "--jobs", "4"]).expect(4);
    let id = only_run(&bed);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(bed.record(&format!("w/{name}"))["run"], id.as_str());
    }
    bed.drop_task("w", "other", input(2));
    orch(&bed, &["watch", "--drain"]).expect(1);
    assert_eq!(bed.status("w/other"), "rejected");
    let told = bed.record("w/other")["error"].to_string();
    has(&told, &[&id, "one run at a time"]);
    assert_eq!(counts(&bed), ["write"]);
    assert_eq!(only_run(&bed), id);
}
