//! The promises of the readers, as the ordinary tests hold them too.

#[path = "../../tests/it/readers/promises.rs"]
pub mod promises;
