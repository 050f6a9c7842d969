//! `variables`: see `tests/it/readers/variables.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::variables::holds(bytes));
