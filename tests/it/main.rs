//! One integration binary: real files, real processes, a fresh root for every test.
//!
//! - `harness`: the test bed, and nothing that checks a promise
//! - `props`: gates and unique words for tests of running agents
//! - `agents`: a provider's life: start, environment, limits, output, and nothing left of it
//! - `chains`: answers that go on: `then`, people, recordings
//! - `crash`: `kill -9` and I/O errors at every point of the order on disk
//! - `power`: power cuts at every point, on a file system of their own (root only)
//! - `readme`: what the README shows and lists
//! - `process`: the process room seen from outside: the guard, descriptors, signals
//! - `providers`: the real programs, played by scripts: answers, refusals, flags, prompts
//! - `sending`: `send`, `cancel`, `retry`, as a person types them
//! - `signals`: watchers that are stopped or killed with agents running
//! - `watchers`: several watchers on one root, and watchers inside agents

mod agents;
mod chains;
mod crash;
mod harness;
mod power;
mod process;
mod props;
mod providers;
mod readme;
mod sending;
mod signals;
mod watchers;
