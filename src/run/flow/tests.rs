//! The promises of the dialect about what happens next.
//!
//! `scenario` plays the files under `tests/fixtures/flow`: events in, effects and parts of the state
//! out, nothing more. `random` throws events at small workflows and holds the run to what must be
//! true of every run. `cost` counts what an event does.

mod cost;
mod player;
mod random;
mod scenario;
