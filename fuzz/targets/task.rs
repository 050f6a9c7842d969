//! `task`: see `tests/it/readers/task.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::task::holds(bytes));
