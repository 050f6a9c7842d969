//! One integration binary: real files, real processes, a fresh root for every test.
//!
//! - `harness`: the test bed, and nothing that checks a promise
//! - `crash`: `kill -9` and I/O errors at every point of the order on disk
//! - `power`: power cuts at every point, on a file system of their own (root only)
//! - `process`: the process room seen from outside: the guard, descriptors, signals

mod crash;
mod harness;
mod power;
mod process;
