//! Agents as the system sees them: started, confined, ended.
//!
//! `process` starts programs and leaves nothing of them behind, `confine` enforces a policy, `secrets` reads
//! secret values, and `catalogue` reads `specs/` into what an agent is. Knows nothing about runs.

pub mod catalogue;
pub mod confine;
pub mod process;
pub mod program;
pub mod secrets;
