//! Many tasks: all of them are done, in an order that can be told beforehand, in bounded memory, and
//! whatever the kernel's queue of events has lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, mknodat};
use serde_json::Value;

use crate::harness::{Bed, needs, wait_for};

/// Makes many waiting tasks; the names do not sort as they count.
fn drop_many(bed: &Bed, agent: &str, count: usize) {
    let folder = bed.root.join("inbox").join(agent);
    fs::create_dir_all(&folder).unwrap();
    for n in 0..count {
        fs::write(folder.join(format!("t{n}.task")), "text").unwrap();
    }
}

/// In memory where there is such a place: many files are made and removed.
fn quick_bed() -> Bed {
    match Path::new("/dev/shm") {
        shm if shm.is_dir() => Bed::in_folder(shm),
        _ => Bed::new(),
    }
}

#[test]
fn thousands_of_tasks_are_all_done_agents_in_turn_and_names_in_order() {
    const EACH: usize = 1000;
    let bed = quick_bed();
    let agents = ["alpha", "beta", "gamma"];
    for agent in agents {
        bed.agent(agent, "provider: echo", "");
        drop_many(&bed, agent, EACH);
    }
    let ran = bed
        .orch(["watch", "--drain", "--json", "--durability", "process"])
        .run()
        .expect(0);
    let started: Vec<String> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event"] == "started")
        .map(|event| event["task"].as_str().unwrap().to_owned())
        .collect();
    let mut names: Vec<String> = (0..EACH).map(|n| format!("t{n}")).collect();
    names.sort_unstable();
    let expected: Vec<String> = names
        .iter()
        .flat_map(|name| agents.map(|agent| format!("{agent}/{name}")))
        .collect();
    assert_eq!(started.len(), expected.len());
    let differs = started
        .iter()
        .zip(&expected)
        .position(|(is, should)| is != should);
    assert_eq!(
        differs,
        None,
        "{:?}",
        differs.map(|n| (&started[n], &expected[n]))
    );
    for agent in agents {
        assert_eq!(bed.ls(&format!("processed/{agent}")).len(), EACH);
        assert_eq!(bed.ls(&format!("inbox/{agent}")), [""; 0]);
    }
}

#[test]
fn an_overflow_of_the_kernels_events_loses_nothing() {
    let limit: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(16384);
    if limit > 50_000 {
        return needs::skip_here(&format!("the kernel's queue holds {limit} events"));
    }
    let bed = quick_bed();
    bed.agent("a", "provider: echo", "");
    bed.drop_task("a", "first", "text");
    let watch = bed.watch(&[]);
    wait_for("the first task", || bed.has("processed/a/first.task"));
    watch.signal("STOP");
    // Each is a create, two writes' worth of events and a rename: several times what fits.
    let folder = bed.root.join("inbox/a");
    for n in 0..limit {
        let temporary = folder.join(format!("noise{n}.tmp"));
        fs::write(&temporary, "text").unwrap();
        fs::remove_file(&temporary).unwrap();
    }
    for n in 0..300 {
        bed.drop_task("a", &format!("late{n}"), "text");
    }
    watch.signal("CONT");
    wait_for("all of them", || bed.ls("processed/a").len() == 301);
    assert_eq!(bed.ls("inbox/a"), [""; 0]);
    drop(watch);
}

#[test]
fn a_hundred_thousand_waiting_tasks_fit_in_little_memory() {
    let bed = quick_bed();
    let go = bed.outside.join("go");
    mknodat(CWD, &go, FileType::Fifo, 0o600.into(), 0).unwrap();
    bed.script("a", &format!("read x < {}", go.display()));
    drop_many(&bed, "a", 100_000);
    let watch = bed.watch(&[]);
    wait_for("the first task to begin", || bed.has("artifacts/a/t0.out"));
    let status = fs::read_to_string(format!("/proc/{}/status", watch.pid())).unwrap();
    let fields: BTreeMap<&str, &str> = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let kib: u64 = fields["VmHWM"]
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(kib < 64 * 1024, "the watcher used {kib} KiB");
    watch.signal("TERM");
    let ran = watch.wait().says("put back").expect(143);
    assert_eq!(bed.ls("inbox/a").len(), 100_000, "{ran:?}");
    bed.assert_nothing_runs();
}

#[test]
fn a_crowd_of_empty_files_is_rejected_and_a_task_beside_it_is_done() {
    let bed = quick_bed();
    bed.agent("a", "provider: echo", "");
    bed.agent("b", "provider: echo", "");
    let folder = bed.root.join("inbox/a");
    fs::create_dir_all(&folder).unwrap();
    for n in 0..1000 {
        fs::write(folder.join(format!("t{n}.task")), "").unwrap();
    }
    bed.drop_task("b", "y", "text");
    bed.drain().expect(1);
    assert_eq!(bed.ls("processed/a").len(), 1000);
    assert_eq!(bed.status("b/y"), "succeeded");
}
