//! `orch schema`: the JSON Schema of workflow files. Needs no root.

use crate::spec::workflow::schema;
use crate::text::error::{Result, exit};
use crate::ui::report::print;

pub(super) fn run() -> Result<u8> {
    print(&schema::text())?;
    Ok(exit::DONE)
}
