//! Plans: faults with a line of their file, a plan that holds together, and marks that change
//! nothing but what they mark.
//!
//! The first part is the master plan; each `=== name.md` begins another file.

use std::collections::BTreeSet;

use orch::run::plan::{Folder, MASTER, Plan, PlanFault, Tick, mark, read};
use orch::spec::workflow::model::Mark;

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let folder = folder(text);
    match read(&folder) {
        Err(faults) => {
            assert!(!faults.is_empty());
            faults.iter().for_each(|fault| placed(fault, &folder));
        }
        Ok(plan) => {
            fits_together(&plan, &folder);
            for number in plan.phases.iter().map(|phase| phase.number) {
                marked(&folder, &plan, number, Mark::Done);
                marked(&folder, &plan, number, Mark::Skipped);
            }
        }
    }
}

fn folder(text: &str) -> Folder {
    let mut parts = text.split("\n=== ");
    let mut folder = Folder {
        master: parts.next().unwrap_or_default().to_owned(),
        ..Folder::default()
    };
    for part in parts {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        if name.ends_with(".md") && name != MASTER && !name.contains('/') {
            folder.files.insert(name.to_owned(), text.to_owned());
        }
    }
    folder
}

fn placed(fault: &PlanFault, folder: &Folder) {
    let text = match fault.file.as_str() {
        MASTER => Some(&folder.master),
        name => folder.files.get(name),
    };
    let text = text.unwrap_or_else(|| panic!("{fault} is about no file"));
    assert!(fault.line <= text.split('\n').count(), "{fault}");
    assert!(!fault.message.is_empty() && !fault.hint.is_empty());
}

fn fits_together(plan: &Plan, folder: &Folder) {
    let ids: BTreeSet<&str> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids.len(), plan.tasks.len(), "an id stands for two tasks");
    let in_phases: Vec<usize> = plan.phases.iter().flat_map(|p| p.tasks.clone()).collect();
    assert_eq!(in_phases, (0..plan.tasks.len()).collect::<Vec<_>>());
    assert!(plan.phases.is_sorted_by_key(|phase| phase.number));
    for task in &plan.tasks {
        assert!(folder.files.contains_key(&task.file), "{task:?}");
        for other in task.depends_on.iter().chain(&task.parallel_with) {
            assert!(
                ids.contains(other.as_str()) && *other != task.id,
                "{task:?}"
            );
        }
        for path in &task.files {
            let up = path.split(['/', '\\']).any(|part| part == "..");
            assert!(!up && !path.starts_with(['/', '\\', '~']), "{task:?}");
        }
    }
    ends(plan);
    let value = plan.to_value("plan");
    assert!(plan.undone(&value).is_empty());
    assert_eq!(value["done"], plan.done());
    assert_eq!(value["current"].is_null(), plan.current().is_none());
}

/// Whoever takes the tasks that wait for nothing comes to the end of them.
fn ends(plan: &Plan) {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    while done.len() < plan.tasks.len() {
        let before = done.len();
        for task in &plan.tasks {
            if task.depends_on.iter().all(|id| done.contains(id.as_str())) {
                done.insert(&task.id);
            }
        }
        assert!(done.len() > before, "tasks wait for each other");
    }
}

fn marked(folder: &Folder, plan: &Plan, number: u32, how: Mark) {
    let mut after = folder.clone();
    for (name, text) in mark(folder, number, how) {
        match name.as_str() {
            MASTER => after.master = text,
            _ => assert!(after.files.insert(name, text).is_some()),
        }
    }
    let again = read(&after).unwrap_or_else(|faults| panic!("marked: {faults:?}\n{after:?}"));
    let tick = match how {
        Mark::Done => Tick::Done,
        Mark::Skipped => Tick::Skipped,
    };
    let place = plan.phases.iter().position(|phase| phase.number == number);
    for (at, (before, now)) in plan.phases.iter().zip(&again.phases).enumerate() {
        match Some(at) == place {
            false => assert_eq!(before, now),
            true => assert_ne!(now.status, Tick::Open, "{after:?}"),
        }
    }
    for (before, now) in plan.tasks.iter().zip(&again.tasks) {
        let mut expected = before.clone();
        let own = &plan.phases[place.expect("it is one of them")].tasks;
        if before.tick == Tick::Open && own.iter().any(|at| plan.tasks[*at].id == before.id) {
            expected.tick = tick;
        }
        assert_eq!(&expected, now);
    }
    assert!(
        mark(&after, number, how).is_empty(),
        "marked twice: {after:?}"
    );
}
