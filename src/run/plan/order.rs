//! The order in which the tasks of a phase may be done.
//!
//! Two tasks run in parallel only if one names the other under `Parallel With`, neither depends on the
//! other, and they have no file in common. Otherwise the first in the plan goes first. A phase without
//! any `Parallel With` runs task by task.

use std::collections::BTreeSet;

use super::Task;

/// For each of these tasks of one phase, in plan order, the ids of those among them that must be done
/// before it. Indirect dependencies are left out.
pub(super) fn needs(tasks: &[Task], open: &[usize]) -> Vec<Vec<String>> {
    let order = sorted(tasks, open);
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); open.len()];
    let mut needs: Vec<Vec<String>> = vec![Vec::new(); open.len()];
    for (rank, &own) in order.iter().enumerate() {
        let task = &tasks[open[own]];
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let mut direct: Vec<usize> = Vec::new();
        for &other in order[..rank].iter().rev() {
            let earlier = &tasks[open[other]];
            let must = task.depends_on.contains(&earlier.id) || !side_by_side(earlier, task);
            if must && !reached.contains(&other) {
                reached.extend(&before[other]);
                reached.insert(other);
                direct.push(other);
            }
        }
        direct.sort_unstable();
        needs[own] = direct
            .iter()
            .map(|other| tasks[open[*other]].id.clone())
            .collect();
        before[own] = reached;
    }
    needs
}

/// Plan order, but every task after those it depends on.
fn sorted(tasks: &[Task], open: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    let mut rest: Vec<usize> = (0..open.len()).collect();
    while !rest.is_empty() {
        let waits = |own: &usize| {
            let wanted = &tasks[open[*own]].depends_on;
            let open_need =
                |other: &usize| other != own && wanted.contains(&tasks[open[*other]].id);
            rest.iter().any(open_need)
        };
        // A valid plan has no cycle; if there were one, the first task goes.
        let next = rest.iter().position(|own| !waits(own)).unwrap_or(0);
        order.push(rest.remove(next));
    }
    order
}

/// Whether two tasks of a phase may run at the same time.
fn side_by_side(one: &Task, two: &Task) -> bool {
    let named = one.parallel_with.contains(&two.id) || two.parallel_with.contains(&one.id);
    let shared = |path: &String| two.files.iter().any(|other| overlap(path, other));
    named && !one.files.iter().any(shared)
}

/// Whether two paths or globs can mean the same file, or one lies below the other.
pub(super) fn overlap(one: &str, two: &str) -> bool {
    let fixed = |path: &str| {
        path.find(['*', '?', '[', '{'])
            .map(|at| path[..at].to_owned())
    };
    let (one_start, two_start) = (fixed(one), fixed(two));
    match (one_start, two_start) {
        (None, None) => below(one, two) || below(two, one),
        (one_start, two_start) => {
            let one = one_start.unwrap_or_else(|| one.to_owned());
            let two = two_start.unwrap_or_else(|| two.to_owned());
            one.starts_with(&two) || two.starts_with(&one)
        }
    }
}

/// Whether `path` is `folder` or lies below it.
fn below(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
