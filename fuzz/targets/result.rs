//! `result`: see `tests/it/readers/result.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::result::holds(bytes));
