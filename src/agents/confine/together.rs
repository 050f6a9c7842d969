//! Who works at the same time. A change that two could have made is not blamed on one.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::spec::policy::scope::Scope;

/// As many others are told apart; beyond that anyone may have made a change.
const MOST_MET: usize = 64;

/// The attempts that run in this process now.
#[derive(Debug, Default)]
pub struct Together {
    seats: Mutex<Vec<Seat>>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    /// `None` may write anywhere.
    scope: Option<Arc<Scope>>,
    met: Met,
}

/// Who else was there in the meantime.
#[derive(Debug, Default)]
pub(super) struct Met {
    scopes: Vec<Arc<Scope>>,
    /// One of them could write anywhere.
    pub anyone: bool,
}

impl Met {
    fn with(&mut self, scope: Option<&Arc<Scope>>) {
        match scope {
            Some(scope) if self.scopes.len() < MOST_MET => self.scopes.push(Arc::clone(scope)),
            _ => {
                self.anyone = true;
                self.scopes.clear();
            }
        }
    }

    /// Whether another may have changed this path.
    pub(super) fn may_be_of_another(&self, path: &Path) -> bool {
        self.anyone || self.scopes.iter().any(|scope| scope.allows(path))
    }
}

/// A place among those who work, until it is dropped.
#[derive(Debug)]
pub(super) struct Present<'t> {
    together: &'t Together,
    number: u64,
}

impl Together {
    /// Takes an attempt in that is not confined.
    #[must_use]
    pub fn unconfined(&self) -> impl Drop + '_ {
        self.enter(None)
    }

    pub(super) fn enter(&self, scope: Option<Arc<Scope>>) -> Present<'_> {
        let mut seats = self.lock();
        let number = seats.last().map_or(0, |seat| seat.number + 1);
        let mut met = Met::default();
        for seat in seats.iter_mut() {
            seat.met.with(scope.as_ref());
            met.with(seat.scope.as_ref());
        }
        seats.push(Seat { number, scope, met });
        Present {
            together: self,
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present<'_> {
    /// Whom it has met so far.
    pub(super) fn met(&self) -> Met {
        let mut seats = self.together.lock();
        let own = seats.iter_mut().find(|seat| seat.number == self.number);
        own.map(|seat| std::mem::take(&mut seat.met))
            .unwrap_or_default()
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.together
            .lock()
            .retain(|seat| seat.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::policy::scope::Pattern;

    fn scope(glob: &str) -> Arc<Scope> {
        Arc::new(Scope {
            root: "/r".into(),
            globs: vec![Pattern::parse("writes", glob).unwrap()],
            open: Vec::new(),
        })
    }

    #[test]
    fn a_change_is_blamed_on_nobody_where_another_could_have_made_it() {
        let together = Together::default();
        let first = together.enter(Some(scope("a/**")));
        assert!(!first.met().may_be_of_another(Path::new("/r/b/x")));
        let second = together.enter(Some(scope("b/**")));
        drop(second);
        let met = first.met();
        assert!(met.may_be_of_another(Path::new("/r/b/x")));
        assert!(!met.may_be_of_another(Path::new("/r/c/x")));
        drop(together.unconfined());
        assert!(first.met().anyone);
        let later = together.enter(Some(scope("c/**")));
        assert!(later.met().may_be_of_another(Path::new("/r/a/x")));
    }
}
