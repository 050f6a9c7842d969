//! The configuration of a provider: as it is written, and as it is used.
//!
//! An [`Entry`] is what a file says; a [`ProviderConfig`] is complete, checked and compiled. It never
//! looks whether the program exists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pattern::{LoosePatterns, Patterns};
use super::rule::Rule;
use super::template::Template;
use crate::spec::access::Access;
use crate::spec::policy::Caps;
use crate::text::error::{Fault, Kind};

/// How the prompt reaches the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptVia {
    /// As its standard input: no limit of length. The default.
    #[default]
    Stdin,
    /// As an argument: at most 128 KiB.
    Argv,
    /// As a file whose path is `${PROMPT_FILE}`.
    TempFile,
}

/// What the program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// The answer itself.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON document on each line.
    Jsonl,
}

/// Where in JSON output things stand.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResultRules {
    /// The answer.
    pub text: Option<Rule>,
    /// True if it failed, whatever the exit code.
    pub failed: Option<Rule>,
    /// What the provider says went wrong.
    pub error: Option<Rule>,
    /// What the provider was not allowed to do.
    pub denied: Option<Rule>,
    /// Cost in US dollars.
    pub cost_usd: Option<Rule>,
    /// The session, to go on from.
    pub session: Option<Rule>,
    /// Tokens read.
    pub input_tokens: Option<Rule>,
    /// Tokens written.
    pub output_tokens: Option<Rule>,
    /// Tokens read from a cache.
    pub cached_tokens: Option<Rule>,
}

/// What counts as success, beyond the exit code.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Success {
    /// Exit codes that may be success.
    pub exit_codes: Vec<i32>,
    /// An empty answer is a failure.
    pub require_output: bool,
    /// An answer that matches one of these is a failure.
    pub fail_if_match: Patterns,
}

impl Default for Success {
    fn default() -> Self {
        Success {
            exit_codes: vec![0],
            require_output: false,
            fail_if_match: Patterns::default(),
        }
    }
}

/// Something for each access.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerAccess<T> {
    /// For `read`.
    pub read: Option<T>,
    /// For `edit`.
    pub edit: Option<T>,
    /// For `full`.
    pub full: Option<T>,
}

impl<T> PerAccess<T> {
    /// What is given for this access.
    #[must_use]
    pub fn of(&self, access: Access) -> Option<&T> {
        match access {
            Access::Read => self.read.as_ref(),
            Access::Edit => self.edit.as_ref(),
            Access::Full => self.full.as_ref(),
        }
    }

    fn over(self, base: PerAccess<T>) -> PerAccess<T> {
        PerAccess {
            read: self.read.or(base.read),
            edit: self.edit.or(base.edit),
            full: self.full.or(base.full),
        }
    }
}

/// Variables to set.
pub type Env = BTreeMap<String, String>;

/// What is different where the kernel holds a program to its scope: its own prompts and its own
/// sandbox are then in the way.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhenConfined {
    /// Arguments for each access, instead of the usual ones.
    pub access: PerAccess<Vec<Template>>,
    /// Variables that are set for it.
    pub set_env: Env,
}

impl WhenConfined {
    fn over(self, base: WhenConfined) -> WhenConfined {
        WhenConfined {
            access: self.access.over(base.access),
            set_env: merged(base.set_env, self.set_env),
        }
    }
}

/// A provider as a file describes it. Everything may be missing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Entry {
    /// The preset that this extends.
    pub preset: Option<String>,
    /// The program and its arguments.
    pub command: Option<Vec<Template>>,
    /// Values for placeholders that nobody gives.
    pub defaults: Map<String, Value>,
    /// How the prompt goes in.
    #[serde(alias = "input_mode")]
    pub prompt_via: Option<PromptVia>,
    /// What comes out.
    pub output: Option<OutputKind>,
    /// Where things stand in it.
    pub result: ResultRules,
    /// What counts as success.
    pub success: Option<Success>,
    /// Failures that pass: retried.
    pub transient: Option<LoosePatterns>,
    /// Failures that stay: never retried.
    pub fatal: Option<LoosePatterns>,
    /// Failures of a prompt that is too long for the model: never retried.
    pub too_long: Option<LoosePatterns>,
    /// Arguments for each access.
    pub access: PerAccess<Vec<Template>>,
    /// Variables for each access.
    pub access_env: PerAccess<Env>,
    /// Variables that it needs, passed if set.
    pub env: Option<Vec<String>>,
    /// Variables that are set for it.
    pub set_env: Env,
    /// Where it writes besides the task's own scope.
    pub also_writes: Option<Vec<String>>,
    /// Where it reads besides, where that is limited.
    pub also_reads: Option<Vec<String>>,
    /// How much it may take of the system.
    pub limits: Caps,
    /// Further arguments.
    pub args: Vec<Template>,
    /// Arguments that carry the system prompt as `${SYSTEM}`.
    pub system: Option<Vec<Template>>,
    /// Whether it can make use of a system prompt at all; where there is no flag for one, it goes
    /// in front of the prompt.
    pub takes_system: Option<bool>,
    /// Arguments that carry the model, used if there is one.
    pub model: Option<Vec<Template>>,
    /// Arguments that carry the tools as `${TOOLS}`, and as they are written, patterns included, as
    /// `${TOOL_PATTERNS}`; used if there are any.
    pub tools: Option<Vec<Template>>,
    /// It prints while it works, so that silence means something.
    pub idle: Option<bool>,
    /// A prompt that begins with one of these would be a command of the program.
    pub commands_start_with: Option<Vec<String>>,
    /// What is different where the kernel holds the program to its scope.
    pub when_confined: WhenConfined,
}

/// A provider that is ready to be used.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of `Entry`, complete")]
pub struct ProviderConfig {
    pub command: Vec<Template>,
    pub defaults: Map<String, Value>,
    pub prompt_via: PromptVia,
    pub output: OutputKind,
    pub result: ResultRules,
    pub success: Success,
    pub transient: LoosePatterns,
    pub fatal: LoosePatterns,
    pub too_long: LoosePatterns,
    pub access: PerAccess<Vec<Template>>,
    pub access_env: PerAccess<Env>,
    pub env: Vec<String>,
    pub set_env: Env,
    pub also_writes: Vec<String>,
    pub also_reads: Vec<String>,
    pub limits: Caps,
    pub args: Vec<Template>,
    pub system: Vec<Template>,
    pub takes_system: bool,
    pub model: Vec<Template>,
    pub tools: Vec<Template>,
    pub idle: bool,
    pub commands_start_with: Vec<String>,
    pub when_confined: WhenConfined,
}

impl Entry {
    /// This entry on top of a base: arguments are appended, maps are merged, the rest replaced.
    #[must_use]
    pub(super) fn over(self, base: Entry) -> Entry {
        Entry {
            preset: None,
            command: self.command.or(base.command),
            defaults: merged(base.defaults, self.defaults),
            prompt_via: self.prompt_via.or(base.prompt_via),
            output: self.output.or(base.output),
            result: self.result.over(base.result),
            success: self.success.or(base.success),
            transient: self.transient.or(base.transient),
            fatal: self.fatal.or(base.fatal),
            too_long: self.too_long.or(base.too_long),
            access: self.access.over(base.access),
            access_env: self.access_env.over(base.access_env),
            env: self.env.or(base.env),
            set_env: merged(base.set_env, self.set_env),
            also_writes: self.also_writes.or(base.also_writes),
            also_reads: self.also_reads.or(base.also_reads),
            limits: self.limits.or(base.limits),
            args: merged(base.args, self.args),
            system: self.system.or(base.system),
            takes_system: self.takes_system.or(base.takes_system),
            model: self.model.or(base.model),
            tools: self.tools.or(base.tools),
            idle: self.idle.or(base.idle),
            commands_start_with: self.commands_start_with.or(base.commands_start_with),
            when_confined: self.when_confined.over(base.when_confined),
        }
    }

    /// Fills in the defaults and checks what one field alone cannot tell.
    pub(super) fn complete(self, name: &str) -> Result<ProviderConfig, Fault> {
        let command = self.command.unwrap_or_default();
        let output = self
            .output
            .unwrap_or(match self.result == ResultRules::default() {
                true => OutputKind::Text,
                false => OutputKind::Json,
            });
        let prompt_via = match self.prompt_via {
            Some(via) => via,
            None if command.iter().any(|arg| arg.mentions("PROMPT")) => PromptVia::Argv,
            None if command.iter().any(|arg| arg.mentions("PROMPT_FILE")) => PromptVia::TempFile,
            None => PromptVia::Stdin,
        };
        let config = ProviderConfig {
            command,
            defaults: self.defaults,
            prompt_via,
            output,
            result: self.result,
            success: self.success.unwrap_or_default(),
            transient: self.transient.unwrap_or_default(),
            fatal: self.fatal.unwrap_or_default(),
            too_long: self.too_long.unwrap_or_default(),
            access: self.access,
            access_env: self.access_env,
            env: self.env.unwrap_or_default(),
            set_env: self.set_env,
            also_writes: self.also_writes.unwrap_or_default(),
            also_reads: self.also_reads.unwrap_or_default(),
            limits: self.limits,
            args: self.args,
            system: self.system.unwrap_or_default(),
            takes_system: self.takes_system.unwrap_or(true),
            model: self.model.unwrap_or_default(),
            tools: self.tools.unwrap_or_default(),
            idle: self.idle.unwrap_or(false),
            commands_start_with: self.commands_start_with.unwrap_or_default(),
            when_confined: self.when_confined,
        };
        config.check(name)?;
        Ok(config)
    }
}

fn merged<C, I>(mut base: C, over: C) -> C
where
    C: Extend<I> + IntoIterator<Item = I>,
{
    base.extend(over);
    base
}

impl ResultRules {
    fn over(self, base: ResultRules) -> ResultRules {
        ResultRules {
            text: self.text.or(base.text),
            failed: self.failed.or(base.failed),
            error: self.error.or(base.error),
            denied: self.denied.or(base.denied),
            cost_usd: self.cost_usd.or(base.cost_usd),
            session: self.session.or(base.session),
            input_tokens: self.input_tokens.or(base.input_tokens),
            output_tokens: self.output_tokens.or(base.output_tokens),
            cached_tokens: self.cached_tokens.or(base.cached_tokens),
        }
    }
}

impl ProviderConfig {
    /// Whether a file with the prompt is needed.
    #[must_use]
    pub fn wants_prompt_file(&self) -> bool {
        self.mentions("PROMPT_FILE")
    }

    /// Whether the command or the further arguments mention a placeholder.
    #[must_use]
    pub(super) fn mentions(&self, key: &str) -> bool {
        self.command
            .iter()
            .chain(&self.args)
            .any(|arg| arg.mentions(key))
    }

    /// The program, as it is written.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command
            .first()
            .and_then(Template::sole_text)
            .unwrap_or_default()
    }

    fn check(&self, name: &str) -> Result<(), Fault> {
        let bad = |message: String| {
            Fault::new(
                Kind::InvalidSettings,
                format!("provider `{name}`: {message}"),
            )
        };
        if self.program().is_empty() {
            return Err(bad("there is no program in `command`".into())
                .hint("write `command: [program, argument, ...]`"));
        }
        if self.prompt_via == PromptVia::TempFile && !self.wants_prompt_file() {
            return Err(
                bad("`prompt_via: temp_file` and no `${PROMPT_FILE}` in `command`".into())
                    .hint("put `${PROMPT_FILE}` where the program takes the file's path"),
            );
        }
        if self.prompt_via == PromptVia::Stdin && self.mentions("PROMPT") {
            return Err(
                bad("`prompt_via: stdin` and `${PROMPT}` in `command`".into())
                    .hint("take out one of the two"),
            );
        }
        for (place, args) in self.places() {
            for (key, home) in [
                ("SYSTEM", "system"),
                ("TOOLS", "tools"),
                ("TOOL_PATTERNS", "tools"),
            ] {
                if place != home && args.iter().any(|arg| arg.mentions(key)) {
                    return Err(bad(format!("`${{{key}}}` in `{place}`"))
                        .hint(format!("it has a value only in `{home}`")));
                }
            }
        }
        Ok(())
    }

    fn places(&self) -> [(&'static str, &[Template]); 5] {
        [
            ("command", &self.command),
            ("args", &self.args),
            ("system", &self.system),
            ("model", &self.model),
            ("tools", &self.tools),
        ]
    }
}
