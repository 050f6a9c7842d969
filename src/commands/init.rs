//! STUB
pub(super) fn run(_: &crate::cli::Init) -> crate::error::Result<u8> {
    unreachable!()
}
