//! Agents as programs: started, confined, ended.
//!
//! `process` starts programs and leaves nothing of them behind, `confine` enforces a policy, `secrets`
//! reads secret values, and `catalogue` reads agents, providers and settings from `specs/`. Nothing here
//! knows about runs.

pub mod catalogue;
pub mod confine;
pub mod process;
pub mod program;
pub mod secrets;
