//! Files: the only room that opens paths under the root.
//!
//! `safety` goes from names to handles, `order` numbers the points of the order on disk, `lock` and `sys`
//! are the system calls. On top of these, `mailbox` owns the files of tasks and `store` the files of runs;
//! nobody else moves or writes them. Starts no process, and decides nothing about a run.

pub mod globs;
pub(crate) mod hash;
pub mod lock;
pub mod mailbox;
pub mod order;
pub mod paths;
pub mod recording;
pub mod root;
pub mod safety;
pub mod specs;
pub mod store;
pub mod sys;
