//! `mask`: see `tests/it/readers/mask.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::mask::holds(bytes));
