//! The integration tests: one file per promise.

mod process;
