//! The work itself: tasks and steps are claimed, run and committed here.
//!
//! Never prints: what happens goes to a listener. From the bottom to the top:
//!
//! - `job` is a task ready to run; `start` and `pinned` are what a run is made of; `step` prepares and
//!   reads a step of a run; `actions` and `document` are what orch itself does for one.
//! - `shared` is what all workers share: mailbox, catalogue, `queue`, reporter (`notice`).
//! - `attempt` runs a process; `commit` ends a claimed task; both end in an `outcome`.
//! - `task_worker` works on bare tasks, `step_worker` on runs; `dispatch` puts what a run waits for into
//!   inboxes; `waits` attends to steps that wait for files. `worker` hands out the work.
//! - `scheduler` scans (with `recovery` and `watch`) and decides when to end.
//! - `engine` is all of that together, and `runtime` the process around it.
//! - `cancel` ends tasks from outside, and `audit` proves what happened.

pub mod actions;
mod attempt;
pub mod audit;
pub mod cancel;
pub mod clock;
mod commit;
pub mod dispatch;
pub mod document;
mod engine;
pub mod inputs;
pub mod job;
pub mod notice;
mod outcome;
pub mod pinned;
mod queue;
mod recovery;
pub mod runtime;
pub mod scheduler;
mod shared;
mod skipped;
pub mod start;
pub mod step;
mod step_worker;
mod task_key;
mod task_worker;
mod waits;
pub mod watch;
mod worker;
