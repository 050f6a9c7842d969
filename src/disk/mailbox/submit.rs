//! SUBMIT: drops a task that orch writes itself. It appears complete or not at all.

use std::io;

use jiff::Timestamp;

use super::{CLAIMED, Mailbox, TASK, file_name};
use crate::disk::order::{Publish, SUBMIT};
use crate::spec::task::{AgentName, TaskName};

impl Mailbox {
    /// Puts a task in an agent's inbox. Fails with `AlreadyExists` if the name is waiting or being worked
    /// on.
    pub fn submit(&self, agent: &AgentName, name: &TaskName, text: &str) -> io::Result<()> {
        let folders = self.agent(agent)?;
        if folders.inbox.has(&file_name(name, CLAIMED))? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.disk.publish(
            &SUBMIT as &Publish,
            &folders.inbox,
            &format!(".{name}.tmp"),
            &folders.inbox,
            &file_name(name, TASK),
            text.as_bytes(),
        )
    }
}

/// A unique name for a task without one; names sort by time.
#[must_use]
pub fn fresh_name(now: Timestamp, random: &uuid::Uuid) -> TaskName {
    let text = format!(
        "{}-{:04x}",
        now.strftime("%Y%m%dT%H%M%S%3f"),
        random.as_u128() & 0xffff
    );
    TaskName::parse(&text).expect("digits, letters and dashes make a name")
}
