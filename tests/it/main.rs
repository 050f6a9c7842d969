//! One integration binary: real files, real processes, a fresh root for every test.
//!
//! - `harness`: the test bed, and nothing that checks a promise
//! - `crash`: `kill -9` and I/O errors at every point of the order on disk
//! - `process`: the process room seen from outside: the guard, descriptors, signals

mod crash;
mod harness;
mod process;
