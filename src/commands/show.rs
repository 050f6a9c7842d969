//! STUB
pub(super) fn run(_: Option<&std::path::Path>, _: &crate::cli::Show) -> crate::error::Result<u8> {
    unreachable!()
}
