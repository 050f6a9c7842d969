//! Where an attempt meets its confinement: the fence is built before it, and asked after it.

use super::AttemptRunner;
use crate::agents::confine::{Fence, Place};
use crate::disk::mailbox::{Claim, STATE, file_name};
use crate::run::record::{Record, Status};
use crate::spec::provider::Provider;
use crate::spec::provider::invocation::Invocation;
use crate::text::error::{Fault, Kind, Result};
use crate::work::job::Job;

impl AttemptRunner {
    /// The fence around an attempt; `None` where nothing is declared.
    pub(super) fn fence(
        &self,
        claim: &Claim,
        job: &Job,
        invocation: &Invocation,
    ) -> Result<Option<Fence<'_>>> {
        if job.policy.is_empty() {
            return Ok(None);
        }
        let program = match invocation.argv.first() {
            Some(program) => self.shared.catalogue.program(program, &job.setup.path)?,
            None => return Ok(None),
        };
        let (also_writes, also_reads) = match &job.setup.provider {
            Provider::Process(config) => (&config.also_writes[..], &config.also_reads[..]),
            _ => (&[][..], &[][..]),
        };
        let target = claim.target();
        let artifacts = claim.folders.artifacts.path();
        let document = job.document.as_ref();
        let made_for_it: Vec<_> = document
            .map(|_| artifacts.join(file_name(&claim.name, STATE)))
            .into_iter()
            .collect();
        let place = Place {
            root: &self.shared.mailbox.root,
            agent: claim.folders.agent.as_str(),
            target: &target,
            run: job.task.header.run.as_deref(),
            cwd: self.cwd(job),
            owns_cwd: job.dir.is_some() && job.exclusive,
            program: &program,
            also_writes,
            also_reads,
            made_for_it: &made_for_it,
        };
        let fence = Fence::build(&job.policy, &place, &self.together)?;
        for note in fence.notes() {
            self.shared
                .reporter
                .trouble(&Fault::new(Kind::PermissionDenied, note.clone()).hint(
                "`sandbox: required` refuses to run instead; `orch doctor` says what is missing",
            ));
        }
        Ok(Some(fence))
    }
}

/// What an attempt changed outside of its scope is its result, whatever else it did.
pub(super) fn apply_violation(fence: Option<&Fence<'_>>, record: &mut Record) {
    let Some(fault) = fence.and_then(Fence::violation) else {
        return;
    };
    record.status = Status::Failed;
    record.exit_code = Some(2);
    record.error = Some(fault);
}
