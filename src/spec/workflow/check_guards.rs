//! Whether every expression can be read, and names something that there can be.
//!
//! What an expression means, and how long and deep it may be, is for [`crate::spec::expr`].

use super::check_vars::{Moment, Vars, Verdict};
use super::model::*;
use crate::spec::expr::{Expr, ExprFault, FaultKind};
use crate::spec::scope::ROOTS;
use crate::text::suggest;

impl<'a> Vars<'a, '_> {
    pub(super) fn guard(&mut self, id: StepId, guard: &Text, moment: Moment) {
        if guard.value.contains("${") {
            let hint = "an expression names variables without `${}`: `steps.x.exit_code == 0`";
            return self
                .out
                .hinted(guard.place, "`${...}` in an expression", hint);
        }
        match Expr::cached(&guard.value) {
            Err(fault) => self.unreadable(guard, fault),
            Ok(expr) => {
                for path in expr.paths() {
                    self.guard_path(id, &path.join("."), guard.place, moment);
                }
            }
        }
    }

    fn unreadable(&mut self, guard: &Text, fault: ExprFault) {
        let place = self.out.inside(guard.place, &guard.value, fault.at);
        let message = match fault.kind {
            FaultKind::Limit => fault.message,
            _ => format!("the expression cannot be read: {}", fault.message),
        };
        self.out.fault_with(place, message, fault.hint);
    }

    fn guard_path(&mut self, id: StepId, path: &str, place: Place, moment: Moment) {
        if let Err((message, hint)) = self.guard_name(id, path, moment) {
            let place = self.out.within(place, path);
            self.out.fault_with(place, message, hint);
        }
    }

    /// Whether what an expression names can be there.
    fn guard_name(&self, id: StepId, path: &str, moment: Moment) -> Verdict {
        let (root, rest) = path.split_once('.').unwrap_or((path, ""));
        let name = rest.split('.').next().unwrap_or_default();
        let item = self.item(id);
        if item.is_none() && matches!(root, "item" | "loop") {
            return Err((
                format!("`{root}` has a value only in the body of a loop"),
                None,
            ));
        }
        if Some(root) != item && !ROOTS.contains(&root) {
            let message = format!("there is no `{root}` for expressions");
            return Err((message, suggest::hint(root, ROOTS)));
        }
        if moment == Moment::Before && ROOTS[..4].contains(&root) {
            let message = format!("`{root}` has no value before the step has run");
            return Err((message, Some("name the step: `steps.X.output`".to_owned())));
        }
        let known: Vec<&str> = match root {
            "steps" | "visits" if self.names.contains_key(name) => return Ok(()),
            "steps" | "visits" => self.names.keys().copied().collect(),
            "approvals" => self.gate_names(),
            "snapshots" => self.lock_names(),
            _ => return Ok(()),
        };
        // The name of a gate may hold dots of its own.
        let is_named = |known: &&str| {
            let behind = rest.strip_prefix(known);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('.'))
        };
        if name.is_empty() || known.iter().any(is_named) {
            return Ok(());
        }
        let message = format!(
            "`{root}.{name}`: there is no such {}",
            root.trim_end_matches('s')
        );
        let near = suggest::suggest(name, known);
        Err((message, near.map(|near| format!("did you mean `{near}`?"))))
    }

    /// What the item is called in the body that the step stands in.
    pub(super) fn item(&self, id: StepId) -> Option<&'a str> {
        let workflow: &'a Workflow = self.workflow;
        match &workflow.step(workflow.loop_of(id)?).work {
            Work::ForEach(each) => Some(&each.name),
            _ => None,
        }
    }

    fn gate_names(&self) -> Vec<&'a str> {
        let approvals = self
            .workflow
            .steps
            .iter()
            .filter_map(|step| step.approval.as_ref());
        approvals
            .map(|approval| approval.gate.value.as_str())
            .collect()
    }

    fn lock_names(&self) -> Vec<&'a str> {
        let rows = self
            .workflow
            .steps
            .iter()
            .flat_map(|step| match &step.flow {
                Flow::Rows { rows, .. } => rows.as_slice(),
                Flow::Handlers { .. } => &[],
            });
        rows.filter_map(|row| row.lock.as_ref())
            .map(|lock| lock.value.as_str())
            .collect()
    }
}
