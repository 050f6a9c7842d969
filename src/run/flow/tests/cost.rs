//! What an event costs does not grow with the events before it.

use std::time::{Duration, Instant};

use serde_json::Map;

use super::player::{Player, result, workflow};
use crate::run::flow::{Moment, step, wanted};
use crate::run::state::{Event, Facts, RunState};
use crate::spec::workflow::Workflow;

const ITEMS: usize = 3_000;

/// Each item needs the one before it, so that a wave is one item.
fn chain(body: &str) -> Workflow {
    let item = |n: usize| {
        format!(
            "{{id: i{n}, needs: [i{}], files: [f{}]}}",
            n.wrapping_sub(1) % ITEMS,
            n % 7
        )
    };
    let first = "{id: i0, files: [f0]}".to_owned();
    let items: Vec<String> = std::iter::once(first).chain((1..ITEMS).map(item)).collect();
    let text = format!(
        "max_transitions: 100000\nsteps:\n- name: L\n  for_each:\n    items: [{}]\n    key: id\n    needs: needs\n    conflicts: files\n    max_parallel: 4\n    steps:\n    - {body}\n",
        items.join(", ")
    );
    workflow(&text).unwrap_or_else(|report| panic!("{report}"))
}

fn apply(workflow: &Workflow, state: &mut RunState, event: &Event) -> Duration {
    let before = std::mem::replace(state, crate::run::flow::nothing());
    let begin = Instant::now();
    *state = step(workflow, before, "t", event).expect("it is legal").0;
    begin.elapsed()
}

/// Enters and finishes the item that is pending.
fn one_item(workflow: &Workflow, state: &mut RunState) -> Duration {
    let pending = state.pending[0].clone();
    let mut event = Event::Entered {
        task: pending.task.clone(),
        attempt: 1,
        facts: Facts::default(),
    };
    let entered = apply(workflow, state, &event);
    let mut own = result(&pending, 0);
    own.attempt = 1;
    own.output = Some("x".repeat(1_000));
    let id = workflow.find(&pending.step).expect("it exists");
    let begin = Instant::now();
    assert!(wanted(workflow, state, id, pending.item, Moment::Finishing(&own)).is_empty());
    let asked = begin.elapsed();
    event = Event::Finished {
        task: pending.task,
        result: Box::new(own),
        changes: Default::default(),
        facts: Facts::default(),
    };
    entered + asked + apply(workflow, state, &event)
}

/// The time of the fastest of some items: what the machine does besides does not count.
fn fastest(times: &[Duration]) -> Duration {
    times.iter().copied().min().unwrap_or_default()
}

fn late_items_cost_what_early_ones_do(body: &str) {
    let workflow = chain(body);
    let mut player = Player::new(workflow.clone());
    player.create(Map::new()).expect("a run begins");
    let pending = player.state.pending[0].clone();
    player.enter(&pending).expect("the loop begins");
    let mut state = player.state;
    let times: Vec<Duration> = (1..ITEMS)
        .map(|_| one_item(&workflow, &mut state))
        .collect();
    let (early, late) = (
        fastest(&times[50..250]),
        fastest(&times[ITEMS - 202..ITEMS - 2]),
    );
    assert!(
        late < early * 3 + Duration::from_micros(20),
        "{early:?} became {late:?}"
    );
}

#[test]
fn an_event_late_in_a_long_loop_costs_what_an_early_one_does() {
    late_items_cost_what_early_ones_do("{name: A, command: [x]}");
}

#[test]
fn a_guard_late_in_a_long_loop_costs_what_an_early_one_does() {
    let guard = "{name: A, command: [x], next: [{if: \"steps.A.exit_code == 0 && item.id != output\", goto: _next}]}";
    late_items_cost_what_early_ones_do(guard);
}
