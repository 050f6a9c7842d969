//! How work names a task: its agent and its name, as in `AGENT/NAME`.

use crate::spec::task::{AgentName, TaskName};

/// `AGENT/NAME`.
pub(crate) type TaskKey = (AgentName, TaskName);
