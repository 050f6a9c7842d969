//! `workflow`: see `tests/it/readers/workflow.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::workflow::holds(bytes));
