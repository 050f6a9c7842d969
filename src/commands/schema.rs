//! `orch schema`: the JSON Schema of workflow files. Needs no root.

use crate::error::{Result, exit};
use crate::report::print;
use crate::workflow::schema;

pub(super) fn run() -> Result<u8> {
    print(&schema::text())?;
    Ok(exit::DONE)
}
