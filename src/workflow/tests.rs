//! Workflows good and bad, by the sections of the dialect, with the place of every fault.
//!
//! `support` plays the disk and reads just enough of expressions; nothing here touches a file.

pub(crate) mod support;

use support::{bad, good, with};

#[test]
fn a_loop_cannot_stand_in_the_body_of_another() {
    let steps = "- name: L\n  for_each:\n    items: [1]\n    steps:\n    - name: M\n      for_each: {items: [2], steps: [{name: A, command: [x]}]}\n";
    bad(
        &with(steps),
        9,
        7,
        "a loop cannot stand in the body of another",
    );
    good(&with("- {name: A, command: [x]}\n"));
}
