//! A person adopts the workflow as it is now: what the run stands at must be in the new one, and be
//! of the same kind.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::facts::group_key;
use super::{Illegal, Run, illegal};
use crate::run::state::Asks;
use crate::spec::workflow::model::{Level, Work};

impl Run<'_> {
    /// The workflow of this event is the new one. The document, the results and the counts stay as
    /// they are; the context gets the defaults that it lacks.
    pub(super) fn spec_updated(
        &mut self,
        workflow_sha256: &str,
        spec_sha256: &str,
    ) -> Result<(), Illegal> {
        let name = &self.workflow.name.value;
        if *name != self.state.workflow_name {
            return illegal(format!(
                "it is a run of `{}`, and the new workflow is named `{name}`",
                self.state.workflow_name
            ));
        }
        self.stands_in_the_new_one()?;
        self.still_asked()?;
        for index in 0..self.state.pending.len() {
            let id = self.id(&self.state.pending[index].step)?;
            if self.state.pending[index].asks.is_some() {
                continue;
            }
            let inbox = self.workflow.step(id).inbox();
            inbox.clone_into(&mut self.state.pending[index].agent);
        }
        for approval in self
            .workflow
            .steps
            .iter()
            .filter_map(|s| s.approval.as_ref())
        {
            let approvals = &mut self.state.governance.approvals;
            approvals
                .entry(approval.gate.value.clone())
                .or_insert(Value::Bool(false));
        }
        self.state.workflow_sha256 = workflow_sha256.to_owned();
        let variables = &mut self.state.variables;
        variables.entry("run").or_insert_with(|| json!({}))["spec_sha256"] = json!(spec_sha256);
        let context = variables
            .entry("context")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(context) = context.as_object_mut() {
            for (key, default) in &self.workflow.context {
                context
                    .entry(key.clone())
                    .or_insert_with(|| default.clone());
            }
        }
        Ok(())
    }

    /// Every question that is open: an answer to it must lead somewhere.
    fn still_asked(&self) -> Result<(), Illegal> {
        for pending in &self.state.pending {
            let step = self.workflow.step(self.id(&pending.step)?);
            let asks = match pending.asks {
                None => continue,
                Some(Asks::Reply) => matches!(step.work, Work::Human(_) | Work::Agent(_)),
                Some(Asks::Approval) => step.approval.as_ref().is_some_and(|approval| {
                    let approvals = &self.state.governance.approvals;
                    approvals.contains_key(&approval.gate.value)
                }),
            };
            if !asks {
                return illegal(format!(
                    "a person is being asked for step `{}`, which asks for something else in the new workflow",
                    pending.step
                ));
            }
        }
        Ok(())
    }

    /// Every step and group that the run is in the middle of.
    fn stands_in_the_new_one(&self) -> Result<(), Illegal> {
        let state = &self.state;
        let pending = state.pending.iter().map(|p| (&p.step, p.item));
        let blocks = state.blocks.iter().map(|b| (&b.step, b.item));
        let stands: Vec<_> = pending.chain(blocks).collect();
        for (step, item) in &stands {
            let Some(id) = self.workflow.find(step) else {
                return illegal(format!(
                    "it stands at step `{step}`, which the new workflow does not have"
                ));
            };
            let parent = self.workflow.loop_of(id);
            let parent = parent.map(|id| &self.workflow.step(id).name.value);
            let fits = match (item, parent) {
                (None, None) => true,
                (Some(_), Some(parent)) => state.loops.contains_key(parent),
                _ => false,
            };
            let in_group = match self.workflow.step(id).level {
                Level::Parallel(group) => {
                    let name = &self.workflow.step(group).name.value;
                    state.groups.contains_key(&group_key(name, *item))
                }
                Level::Top | Level::Body(_) => true,
            };
            if !fits || !in_group {
                return illegal(format!(
                    "it stands at step `{step}`, which lies in another loop or parallel step in the new workflow"
                ));
            }
        }
        for (key, group) in &state.groups {
            let name = key.split('[').next().unwrap_or_default();
            let new: BTreeSet<&str> = self.workflow.find(name).map_or_else(BTreeSet::new, |id| {
                let children = self.workflow.children(id).iter();
                children
                    .map(|&id| self.workflow.step(id).name.value.as_str())
                    .collect()
            });
            let here = stands.iter().filter(|(_, item)| *item == group.item);
            let here = here
                .map(|(step, _)| step.as_str())
                .filter(|step| new.contains(step));
            let done = group.results.keys().chain(group.held.keys());
            let old: BTreeSet<&str> = done.map(String::as_str).chain(here).collect();
            if new != old {
                return illegal(format!(
                    "it is in the middle of `{name}`, which has other sub-steps in the new workflow"
                ));
            }
        }
        Ok(())
    }
}
