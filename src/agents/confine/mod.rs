//! Confinement: an agent gets what the workflow gives it, and no more.
//!
//! What a root, an agent and a step say becomes a policy; a policy with something in it becomes a
//! [`Fence`] around one attempt. Where the kernel can hold it, it does: orch starts itself again as
//! a small helper, which limits itself with Landlock, behind mounts of its own where it may have
//! some, and then becomes the agent, or hands over to bubblewrap. What the kernel cannot hold is found by comparing the folders before and after.
//!
//! The map: `policy` is what was declared, `scope` which paths that means, `grants` opens them,
//! `launch` starts the helper with a `letter`, `helper` is what runs on the other side, `walls` are
//! its mounts, `compare`
//! looks at folders before and after, `together` knows who ran at the same time, `kernel` what this
//! system offers. An attempt that declares nothing never comes here: it keeps the fast start.

mod bwrap;
mod compare;
mod fence;
mod grants;
mod helper;
mod kernel;
mod launch;
mod letter;
mod together;
mod walls;

pub use fence::{Fence, Place};
pub use helper::{HELPER, run as run_helper};
pub use kernel::{Kernel, bubblewrap, has_walls, kernel};
pub(crate) use launch::Start;
pub use launch::{Launch, Refused};
pub use together::Together;
