//! How much an agent may do: read, edit or everything.
//!
//! Only the word itself; what it means for a provider stands in that provider's configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The access that a task, an agent or a step asks for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Look, change nothing.
    Read,
    /// Change files where it works. The default.
    #[default]
    Edit,
    /// Anything the provider can do. Never a default.
    Full,
}

impl Access {
    /// The word as it is written in front matter.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Edit => "edit",
            Access::Full => "full",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
