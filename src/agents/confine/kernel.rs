//! What this system offers to hold an agent in.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::helper::{HELPER, TRY_WALLS};
use crate::agents::program::resolve_program;
use crate::disk::sys;

/// The first version of Landlock in which nothing of a file can be changed past it: before, a file
/// could still be truncated.
const WHOLE: i32 = 3;
/// The first version with rules for TCP.
const NETWORK: i32 = 4;
/// The first version that keeps signals and abstract sockets in.
const SIGNALS: i32 = 6;

/// What the kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// The version of Landlock; 0 is none.
    pub landlock: i32,
}

impl Kernel {
    /// Whether writes are held as a whole.
    #[must_use]
    pub fn holds_writes(self) -> bool {
        self.landlock >= WHOLE
    }

    /// Whether TCP is held.
    #[must_use]
    pub fn holds_network(self) -> bool {
        self.landlock >= NETWORK
    }

    /// Whether signals and abstract sockets are held.
    #[must_use]
    pub fn holds_signals(self) -> bool {
        self.landlock >= SIGNALS
    }
}

/// What the kernel can do, asked once.
#[must_use]
pub fn kernel() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| Kernel {
        landlock: sys::landlock_version(),
    })
}

/// Whether the helper can have mounts of its own, tried once.
#[must_use]
pub fn has_walls() -> bool {
    static WALLS: OnceLock<bool> = OnceLock::new();
    *WALLS.get_or_init(|| {
        let mut helper = Command::new("/proc/self/exe");
        helper.args([HELPER, TRY_WALLS]).env_clear();
        let quiet = helper.stdin(Stdio::null()).stdout(Stdio::null());
        let status = quiet.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

/// Where bubblewrap is, by the PATH of orch itself.
#[must_use]
pub fn bubblewrap() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    resolve_program("bwrap", path, std::path::Path::new("/")).ok()
}
