//! STUB
pub(super) fn run(_: &crate::cli::Demo) -> crate::error::Result<u8> { unreachable!() }
