//! Expressions as [`crate::spec::expr`] reads them.

use super::{GuardFault, Guards};
use crate::spec::expr::Expr;

/// Reads expressions as CEL, each text once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cel;

impl Guards for Cel {
    fn check(&self, guard: &str) -> Result<Vec<String>, GuardFault> {
        match Expr::cached(guard) {
            Ok(expr) => Ok(expr.paths().iter().map(|path| path.join(".")).collect()),
            Err(fault) => Err(GuardFault {
                message: fault.message,
                hint: fault.hint,
                at: fault.at,
            }),
        }
    }
}
