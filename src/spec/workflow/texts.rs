//! The texts of a step in which variables are substituted, and when that is.
//!
//! A list only, so that nobody has to remember it twice.

use super::check_vars::Moment;
use super::model::*;

/// The texts of a step in which variables are substituted, and when that is.
pub(super) fn texts(step: &Step) -> Vec<(&Text, Moment)> {
    use Moment::{After, Before};
    let mut texts: Vec<(&Text, Moment)> = Vec::new();
    let mut before: Vec<&Text> = Vec::new();
    match &step.work {
        Work::Agent(agent) => before.extend(agent.prompt.iter().chain(&agent.input_file)),
        Work::Human(human) => before.extend(human.prompt.iter().chain(&human.input_file)),
        Work::Command(command) => before.extend(command),
        Work::Wait(wait) => before.push(&wait.glob),
        Work::Action(Action::LoadPlan { dir, .. } | Action::MarkPlan { dir, .. }) => {
            before.push(dir)
        }
        Work::Action(Action::ApplyFiles { into, .. }) => before.push(into),
        Work::Approval | Work::Parallel(_) | Work::ForEach(_) => {}
    }
    match &step.when {
        Some(When::Equals(left, right)) => before.extend([left, right]),
        Some(When::Exists(glob) | When::NotExists(glob)) => before.push(glob),
        Some(When::If(_)) | None => {}
    }
    if let Home::Cwd(cwd) = &step.home {
        before.push(cwd);
    }
    before.extend(step.requires.iter().filter_map(|gate| gate.reason.as_ref()));
    before.extend(step.writes.iter().flatten());
    before.extend(step.confine.reads.iter().flatten());
    before.extend(
        step.depends_on
            .required
            .iter()
            .chain(&step.depends_on.optional),
    );
    before.extend(step.output_file.iter().chain(&step.output_schema));
    texts.extend(before.into_iter().map(|text| (text, Before)));
    let mut after: Vec<&Text> = Vec::new();
    after.extend(step.ensures.iter().filter_map(|gate| gate.reason.as_ref()));
    after.extend(step.approval.iter().flat_map(|approval| &approval.evidence));
    if let Flow::Rows { rows, .. } = &step.flow {
        after.extend(rows.iter().filter_map(|row| row.reason.as_ref()));
    }
    texts.extend(after.into_iter().map(|text| (text, After)));
    texts
}
