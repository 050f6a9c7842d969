//! From a configuration and a task to the command line, and how the prompt goes in.
//!
//! Plain data out; nothing is started. What was substituted is never parsed again and never meets a
//! shell.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::config::{Env, OutputKind, PromptVia, ProviderConfig};
use super::template::{Piece, Template};
use crate::spec::access::Access;
use crate::text::error::{Fault, Kind};
use crate::text::units::show_size;

/// The longest argument that the kernel takes, its final NUL included.
pub const MAX_ARG_BYTES: usize = 128 * 1024;

/// What is asked of a provider.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The provider's name, for messages.
    pub provider_name: &'a str,
    /// Its configuration.
    pub config: &'a ProviderConfig,
    /// What is to be done.
    pub prompt: &'a str,
    /// The agent's system prompt.
    pub system: Option<&'a str>,
    /// The model, if one is asked for.
    pub model: Option<&'a str>,
    /// How much it may do.
    pub access: Access,
    /// Whether the kernel holds it to its scope.
    pub confined: Confined,
    /// Values for placeholders.
    pub params: &'a Map<String, Value>,
    /// The tools that it may use.
    pub tools: &'a [String],
    /// The file that holds the prompt; without it `${PROMPT_FILE}` stays as it is.
    pub prompt_file: Option<&'a str>,
    /// How the prompt goes in, if the step says so.
    pub prompt_via: Option<PromptVia>,
}

/// Whether the kernel holds a program to its scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Confined {
    /// It does.
    Yes,
    /// It does not: the program's own checks are all there is.
    #[default]
    No,
}

/// What the program's standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinPlan {
    /// `/dev/null`.
    Null,
    /// A file with the prompt.
    Prompt,
}

/// How a program is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The same for people and records: prompt and system prompt as placeholders.
    pub shown: Vec<String>,
    /// What is sent as the prompt, the system prompt in front where there is no flag for it.
    pub prompt_sent: String,
    /// What standard input is.
    pub stdin: StdinPlan,
    /// A file with `prompt_sent` must exist, at the path given as `${PROMPT_FILE}`.
    pub wants_prompt_file: bool,
    /// What comes out.
    pub output: OutputKind,
    /// Variables to set.
    pub set_env: Env,
    /// What of the request has no meaning for this provider.
    pub notes: Vec<String>,
}

/// Builds the command line.
///
/// # Errors
/// [`Kind::MissingTemplateKeyError`] for a placeholder without a value; [`Kind::InvalidTask`] for
/// what no argument can carry.
pub fn build(request: &Request<'_>) -> Result<Invocation, Fault> {
    let config = request.config;
    let via = via(request)?;
    let mut line = Line::new(request, prompt_sent(request));
    let (head, held) = hold_positional(&config.command);
    line.extend(head, "command")?;
    line.options()?;
    match held {
        Some(_) => line.positional_prompt(ends_options(head)),
        None if via == PromptVia::Argv && !config.mentions("PROMPT") => {
            line.positional_prompt(false)
        }
        None => {}
    }
    check_arguments(request, &line)?;
    let mut set_env = config.set_env.clone();
    if let Some(more) = config.access_env.of(request.access) {
        set_env.extend(more.clone());
    }
    if request.confined == Confined::Yes {
        set_env.extend(config.when_confined.set_env.clone());
    }
    let (argv, shown) = line
        .args
        .into_iter()
        .map(|arg| (arg.real, arg.shown))
        .unzip();
    Ok(Invocation {
        argv,
        shown,
        prompt_sent: line.prompt.into_owned(),
        stdin: match via {
            PromptVia::Stdin => StdinPlan::Prompt,
            PromptVia::Argv | PromptVia::TempFile => StdinPlan::Null,
        },
        wants_prompt_file: config.wants_prompt_file(),
        output: config.output,
        set_env,
        notes: notes(request),
    })
}

/// The command decides where it mentions the prompt; else the step, else the configuration.
fn via(request: &Request<'_>) -> Result<PromptVia, Fault> {
    let config = request.config;
    if config.mentions("PROMPT") {
        return Ok(PromptVia::Argv);
    }
    if config.wants_prompt_file() {
        return Ok(PromptVia::TempFile);
    }
    match request.prompt_via.unwrap_or(config.prompt_via) {
        PromptVia::TempFile => {
            let message = format!(
                "provider `{}` takes no prompt file: there is no `${{PROMPT_FILE}}` in its command",
                request.provider_name
            );
            Err(Fault::new(Kind::InvalidTask, message).hint("use `stdin` or `argv`"))
        }
        via => Ok(via),
    }
}

/// What goes in front of a prompt that would otherwise be a command of the program.
const NOT_A_COMMAND: &str = "Task:\n";

fn prompt_sent<'a>(request: &Request<'a>) -> Cow<'a, str> {
    let prompt = match request.system.filter(|text| !text.trim().is_empty()) {
        Some(system) if request.config.takes_system && request.config.system.is_empty() => {
            Cow::Owned(format!("{}\n\n{}", system.trim_end(), request.prompt))
        }
        _ => Cow::Borrowed(request.prompt),
    };
    let mut starts = request.config.commands_start_with.iter();
    match starts.any(|start| prompt.trim_start().starts_with(start)) {
        true => Cow::Owned(format!("{NOT_A_COMMAND}{prompt}")),
        false => prompt,
    }
}

fn notes(request: &Request<'_>) -> Vec<String> {
    let config = request.config;
    let name = request.provider_name;
    let mut notes = Vec::new();
    if !config.takes_system && request.system.is_some_and(|text| !text.trim().is_empty()) {
        notes.push(format!(
            "the system prompt is ignored: provider `{name}` has no use for one"
        ));
    }
    if !request.tools.is_empty() && config.tools.is_empty() {
        notes.push(format!(
            "`tools` is ignored: provider `{name}` has no flag for it"
        ));
    }
    let uses_model =
        !config.model.is_empty() || config.command.iter().any(|arg| arg.mentions("model"));
    if request.model.is_some()
        && !uses_model
        && !config.args.iter().any(|arg| arg.mentions("model"))
    {
        notes.push(format!(
            "`model` is ignored: provider `{name}` has no flag for it"
        ));
    }
    notes
}

/// A prompt that is the command's last word on its own goes behind the options, with the `--` that
/// stands before it. After a flag it is that flag's value and stays where it is.
fn hold_positional(command: &[Template]) -> (&[Template], Option<&Template>) {
    let Some((last, head)) = command.split_last() else {
        return (command, None);
    };
    let before = head
        .last()
        .and_then(Template::sole_text)
        .unwrap_or_default();
    let is_value = before.starts_with('-') && before != "--";
    if last.sole_key() == Some("PROMPT") && !is_value {
        return (head, Some(last));
    }
    (command, None)
}

fn ends_options(head: &[Template]) -> bool {
    head.last().and_then(Template::sole_text) == Some("--")
}

/// One argument, real and as it is shown.
struct Arg {
    real: String,
    shown: String,
}

/// The command line as it grows.
struct Line<'a> {
    request: &'a Request<'a>,
    prompt: Cow<'a, str>,
    args: Vec<Arg>,
}

impl<'a> Line<'a> {
    fn new(request: &'a Request<'a>, prompt: Cow<'a, str>) -> Self {
        Line {
            request,
            prompt,
            args: Vec::new(),
        }
    }

    /// Model, access, system prompt, tools, further arguments; before a final `--` of the command.
    fn options(&mut self) -> Result<(), Fault> {
        let (request, config) = (self.request, self.request.config);
        let end = self.args.pop_if(|arg| arg.real == "--");
        if self.value("model").is_some() {
            self.extend(&config.model, "model")?;
        }
        let when_confined = match request.confined {
            Confined::Yes => config.when_confined.access.of(request.access),
            Confined::No => None,
        };
        if let Some(args) = when_confined.or(config.access.of(request.access)) {
            self.extend(args, "access")?;
        }
        if request.system.is_some_and(|text| !text.trim().is_empty()) {
            self.extend(&config.system, "system")?;
        }
        if !request.tools.is_empty() {
            self.extend(&config.tools, "tools")?;
        }
        self.extend(&config.args, "args")?;
        self.args.extend(end);
        Ok(())
    }

    fn extend(&mut self, templates: &[Template], place: &str) -> Result<(), Fault> {
        for template in templates {
            self.push(template, place)?;
        }
        Ok(())
    }

    fn push(&mut self, template: &Template, place: &str) -> Result<(), Fault> {
        if let Some(Value::Array(items)) = template.sole_key().and_then(|key| self.param(key)) {
            self.args.extend(items.iter().map(|item| Arg {
                real: spell(item),
                shown: spell(item),
            }));
            return Ok(());
        }
        let mut arg = Arg {
            real: String::new(),
            shown: String::new(),
        };
        for piece in template.pieces() {
            match piece {
                Piece::Text(text) => {
                    arg.real.push_str(text);
                    arg.shown.push_str(text);
                }
                Piece::Key(key) => self.put(key, place, &mut arg)?,
            }
        }
        if template.sole_key() == Some("PROMPT") && arg.real.starts_with('-') {
            self.shield(&mut arg);
        }
        self.args.push(arg);
        Ok(())
    }

    /// The value of a flag that looks like a flag: a space in front takes that away, and every
    /// program understands it.
    fn shield(&mut self, arg: &mut Arg) {
        arg.real.insert(0, ' ');
        self.prompt.to_mut().insert(0, ' ');
    }

    fn put(&self, key: &str, place: &str, arg: &mut Arg) -> Result<(), Fault> {
        let request = self.request;
        let hidden = match key {
            "PROMPT" => Some(self.prompt.as_ref()),
            "SYSTEM" => request.system.map(str::trim_end),
            _ => None,
        };
        if let Some(text) = hidden {
            arg.real.push_str(text);
            arg.shown.push_str(&format!("${{{key}}}"));
            return Ok(());
        }
        let value = match key {
            "PROMPT_FILE" => Some(request.prompt_file.unwrap_or("${PROMPT_FILE}").to_owned()),
            "TOOLS" => Some(tool_names(request.tools)),
            "TOOL_PATTERNS" => Some(request.tools.join(",")),
            key => self.value(key),
        };
        let value = value.ok_or_else(|| self.missing(key, place))?;
        arg.real.push_str(&value);
        arg.shown.push_str(&value);
        Ok(())
    }

    /// A value with something in it.
    fn value(&self, key: &str) -> Option<String> {
        let model = self.request.model.filter(|_| key == "model");
        let value = match model {
            Some(model) if !model.is_empty() => Some(model.to_owned()),
            _ => self.param(key).map(spell),
        };
        value.filter(|text| !text.is_empty())
    }

    fn param(&self, key: &str) -> Option<&'a Value> {
        let (request, says) = (self.request, |value: &&Value| !value.is_null());
        let given = request.params.get(key).filter(says);
        given.or_else(|| request.config.defaults.get(key).filter(says))
    }

    fn positional_prompt(&mut self, options_ended: bool) {
        if self.prompt.starts_with('-') && !options_ended {
            self.args.push(Arg {
                real: "--".into(),
                shown: "--".into(),
            });
        }
        self.args.push(Arg {
            real: self.prompt.clone().into_owned(),
            shown: "${PROMPT}".into(),
        });
    }

    fn missing(&self, key: &str, place: &str) -> Fault {
        let name = self.request.provider_name;
        let home = match key {
            "model" => "write `model: ...` in the task or in the agent's file".to_owned(),
            key => format!("write `params: {{{key}: ...}}` in the task or in the agent's file"),
        };
        Fault::new(
            Kind::MissingTemplateKeyError,
            format!("`${{{key}}}` in `{place}` of provider `{name}` has no value"),
        )
        .hint(format!(
            "{home}, or `defaults: {{{key}: ...}}` of `{name}` in `{}`",
            super::FILE
        ))
    }
}

/// The tools without the patterns behind their names: `Bash(git *)` is `Bash`. Each once.
fn tool_names(tools: &[String]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for tool in tools {
        let name = tool.split('(').next().unwrap_or_default().trim();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(",")
}

/// A value as an argument: text as it is, everything else as compact JSON.
fn spell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What no process can be given: an argument that is too long or has a NUL in it.
fn check_arguments(request: &Request<'_>, line: &Line<'_>) -> Result<(), Fault> {
    for arg in &line.args {
        let what = match arg.shown.as_str() {
            shown if shown.contains("${PROMPT}") => "the prompt".to_owned(),
            shown if shown.contains("${SYSTEM}") => "the system prompt".to_owned(),
            shown => {
                let head: String = shown.chars().take(40).collect();
                format!("the argument `{head}`")
            }
        };
        let name = request.provider_name;
        if arg.real.len() >= MAX_ARG_BYTES {
            let (size, limit) = (
                show_size(arg.real.len() as u64),
                show_size(MAX_ARG_BYTES as u64),
            );
            let message = format!("{what} is {size}, and an argument can be {limit} at most");
            return Err(Fault::new(Kind::InvalidTask, message).hint(format!(
                "use `prompt_via: stdin` for provider `{name}`, or shorten it"
            )));
        }
        if let Some(at) = arg.real.find('\0') {
            let message =
                format!("{what} has a NUL byte at offset {at}, which no argument can carry");
            return Err(Fault::new(Kind::InvalidTask, message).hint(format!(
                "take it out, or use `prompt_via: stdin` for provider `{name}`"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "invocation_tests.rs"]
mod tests;
