//! `plan`: see `tests/it/readers/plan.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::plan::holds(bytes));
