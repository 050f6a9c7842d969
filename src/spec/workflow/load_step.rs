//! One step of the tree: which work it does, and the fields that belong to that work.
//!
//! It judges what goes together; where a step leads and what it checks is read by `load_flow`.

use super::load::{Loader, flag, map_of, text, texts};
use super::model::*;
use crate::spec::access::Access;
use crate::spec::provider::PromptVia;
use crate::spec::task::AgentName;
use crate::text::yaml::tree::{Content, Node};

/// The fields that make a step do something.
const KINDS: &[&str] = &[
    "agent",
    "provider",
    "command",
    "command_override",
    "wait_for",
    "parallel",
    "for_each",
    "action",
];

/// Fields that have a meaning only for some kinds of work.
const ONLY: &[(&str, &[&str])] = &[
    ("provider_params", &["agent"]),
    ("prompt_transport", &["agent"]),
    ("access", &["agent"]),
    ("prompt", &["agent", "human"]),
    ("input_file", &["agent", "human"]),
    ("choices", &["human"]),
    ("from", &["apply_files"]),
    ("into", &["apply_files"]),
    ("as", &["mark_plan"]),
    ("own_ticks", &["load_plan"]),
    ("approval", &["agent", "command", "approval"]),
];

/// Common fields that do nothing where no process runs.
const OF_PROCESSES: &[&str] = &[
    "env",
    "secrets",
    "inherit_env",
    "writes",
    "reads",
    "network",
    "sandbox",
    "limits",
    "updates",
    "cwd",
    "timeout",
    "timeout_sec",
    "retries",
    "output_capture",
    "output_schema",
    "output_file",
    "allow_parse_error",
];

/// What a sub-step of a parallel step cannot have.
const NOT_PARALLEL: &[&str] = &[
    "on",
    "next",
    "approval",
    "evidence",
    "on_reject",
    "max_visits",
    "on_limit",
    "per",
];

/// Fields that need another one beside them.
const BESIDE: &[(&str, &str)] = &[
    ("on_limit", "max_visits"),
    ("per", "max_visits"),
    ("evidence", "approval"),
    ("on_reject", "approval"),
];

impl Loader<'_, '_, '_> {
    pub(super) fn step(&mut self, id: StepId) -> Step {
        let node = self.outline.nodes[id.0];
        let name = node.get("name").and_then(text).unwrap_or(At {
            value: String::new(),
            place: node.place,
        });
        let work = self.work(id, node, &name.value);
        self.pairs(id, node, &work);
        let get = |key: &str| node.get(key);
        Step {
            phase: get("phase")
                .and_then(text)
                .map_or_else(|| name.value.clone(), |phase| phase.value),
            level: self.outline.levels[id.0],
            when: self.when(node),
            requires: self.gates(get("requires")),
            ensures: self.gates(get("ensures")),
            approval: self.approval(id, node),
            flow: self.flow(id, node),
            limit: self.limit(id, node),
            once: flag(node, "once").unwrap_or(false),
            timeout: self.timeout(node),
            retries: self.retries(get("retries")),
            env: get("env")
                .map(Node::entries)
                .unwrap_or_default()
                .iter()
                .filter_map(|entry| Some((entry.key.clone(), text(&entry.value)?.value)))
                .collect(),
            secrets: texts(get("secrets")),
            inherit_env: get("inherit_env").map(|list| plain(texts(Some(list)))),
            writes: get("writes").map(|list| texts(Some(list))),
            confine: self.confine(node),
            updates: texts(get("updates")),
            home: self.home(node, &work),
            depends_on: depends_on(get("depends_on")),
            capture: match get("output_capture").and_then(Node::text) {
                Some("lines") => Capture::Lines,
                Some("json") => Capture::Json,
                _ => Capture::Text,
            },
            output_schema: get("output_schema").and_then(text),
            output_file: get("output_file").and_then(text),
            allow_parse_error: flag(node, "allow_parse_error").unwrap_or(false),
            name,
            work,
        }
    }

    fn work(&mut self, id: StepId, node: &Node, name: &str) -> Work {
        let mut kinds: Vec<&str> = Vec::new();
        for entry in node.entries() {
            let key = entry.key.as_str();
            let beside = matches!(
                (kinds.as_slice(), key),
                (["agent"], "provider") | (["provider"], "agent")
            );
            if !KINDS.contains(&key) || beside {
                continue;
            }
            if let Some(first) = kinds.first() {
                let message = format!("step `{name}` has both `{first}` and `{key}`");
                let hint = "a step does exactly one thing: make two steps of it";
                self.out.hinted(entry.place, message, hint);
            }
            kinds.push(key);
        }
        let kind = kinds.first().copied().unwrap_or("approval");
        let field = |key: &str| node.get(key);
        match kind {
            "agent" | "provider" => self.agent_or_human(node),
            "command" | "command_override" => Work::Command(texts(field(kind))),
            "wait_for" => Work::Wait(wait(field("wait_for"), node)),
            "parallel" => Work::Parallel(self.outline.children[id.0].clone()),
            "for_each" => self.for_each(id, node),
            "action" => self.action(node),
            _ => {
                if field("approval").is_none() {
                    let message = format!("step `{name}` does nothing");
                    let hint = "give it one of `agent`, `provider`, `command`, `wait_for`, `approval`, `parallel`, `for_each`, `action`";
                    self.out.hinted(node.place, message, hint);
                }
                Work::Approval
            }
        }
    }

    fn agent_or_human(&mut self, node: &Node) -> Work {
        let agent = node.get("agent").and_then(text);
        let provider = node.get("provider").and_then(text);
        let is_human = |who: &Option<Text>| who.as_ref().is_some_and(|who| who.value == "human");
        let prompt = node.get("prompt").and_then(text);
        let input_file = node.get("input_file").and_then(text);
        if is_human(&agent) || (agent.is_none() && is_human(&provider)) {
            if let (Some(_), Some(provider)) = (&agent, &provider) {
                let message = "a person has no provider";
                self.out
                    .hinted(provider.place, message, "take out `provider`");
            }
            return Work::Human(Human {
                prompt,
                input_file,
                choices: self.choices(node.get("choices")),
            });
        }
        let who = match (agent, provider) {
            (Some(agent), provider) => self.agent(agent, provider),
            (None, Some(provider)) => Who::Provider(provider),
            (None, None) => Who::Provider(At {
                value: String::new(),
                place: node.place,
            }),
        };
        Work::Agent(Box::new(AgentWork {
            who,
            params: map_of(node.get("provider_params")),
            prompt,
            input_file,
            transport: self.transport(node.get("prompt_transport")),
            access: match node.get("access").and_then(Node::text) {
                Some("read") => Some(Access::Read),
                Some("edit") => Some(Access::Edit),
                Some("full") => Some(Access::Full),
                _ => None,
            },
        }))
    }

    fn agent(&mut self, agent: Text, provider: Option<Text>) -> Who {
        match AgentName::parse(&agent.value) {
            Ok(value) => {
                if value.is_reserved() {
                    let message = format!("`{value}` is reserved, and no agent");
                    self.out.fault(agent.place, message);
                }
                let place = agent.place;
                let name = At { value, place };
                Who::Agent { name, provider }
            }
            Err(fault) => {
                self.out.fault_with(agent.place, fault.message, fault.hint);
                Who::Provider(agent)
            }
        }
    }

    fn choices(&mut self, node: Option<&Node>) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        for choice in texts(node) {
            if choice.value.trim().is_empty() {
                self.out.fault(choice.place, "a choice is empty");
            } else if seen.contains(&choice.value) {
                let message = format!("the choice `{}` is there twice", choice.value);
                self.out.fault(choice.place, message);
            } else {
                seen.push(choice.value);
            }
        }
        seen
    }

    fn transport(&mut self, node: Option<&Node>) -> Option<Transport> {
        let node = node?;
        let mode = match node.get("mode")?.text()? {
            "argv" => PromptVia::Argv,
            "stdin" => PromptVia::Stdin,
            "temp_file" => PromptVia::TempFile,
            _ => return None,
        };
        let template = node.get("argv_template");
        if let Some(template) = template.filter(|_| mode != PromptVia::Argv) {
            let message = "`argv_template` has a meaning only with `mode: argv`";
            self.out
                .hinted(template.place, message, "take it out, or change the mode");
        }
        Some(Transport {
            mode,
            argv_template: template.and_then(Node::text).map(str::to_owned),
        })
    }

    fn for_each(&mut self, id: StepId, node: &Node) -> Work {
        // Invariant: called only for a step with this key.
        let Some(each) = node.get("for_each") else {
            return Work::Approval;
        };
        let word = |key: &str| each.get(key).and_then(Node::text).map(str::to_owned);
        let items = match (each.get("items"), each.entry("items_from")) {
            (Some(_), Some(from)) => {
                let message = "`items` and `items_from` exclude each other";
                self.out
                    .hinted(from.place, message, "take out one of the two");
                Items::List(Vec::new())
            }
            (Some(items), None) => Items::List(items.items().iter().map(Node::to_value).collect()),
            (None, Some(from)) => Items::From(text(&from.value).unwrap_or(At {
                value: String::new(),
                place: from.place,
            })),
            (None, None) => {
                let message = "`for_each` has neither `items` nor `items_from`";
                self.out.hinted(
                    each.place,
                    message,
                    "write `items: [a, b]` or `items_from: steps.X.lines`",
                );
                Items::List(Vec::new())
            }
        };
        let name = word("as").unwrap_or_else(|| "item".to_owned());
        self.item_name(&name, each);
        if let (Some(needs), None) = (each.entry("needs"), each.get("key")) {
            let message = "`needs` names items by `key`, and there is no `key`";
            self.out.hinted(
                needs.place,
                message,
                "add `key:` with the field that identifies an item",
            );
        }
        Work::ForEach(Box::new(ForEach {
            items,
            name,
            key: word("key"),
            needs: word("needs"),
            conflicts: word("conflicts"),
            max_parallel: self
                .number(each.get("max_parallel"))
                .unwrap_or(Number::Fixed(1)),
            on_error: match each.get("on_error").and_then(Node::text) {
                Some("continue") => OnError::Continue,
                _ => OnError::Fail,
            },
            body: self.outline.children[id.0].clone(),
        }))
    }

    fn item_name(&mut self, name: &str, each: &Node) {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(word);
        let taken = name != "item" && crate::spec::vars::ROOTS.contains(&name);
        if good && !taken {
            return;
        }
        let place = each.get("as").map_or(each.place, |node| node.place);
        let message = match taken {
            true => format!("`as: {name}` hides the variable of that name"),
            false => format!("`as: {name}` is not a name for a variable"),
        };
        self.out.hinted(place, message, "use a word such as `task`");
    }

    fn action(&mut self, node: &Node) -> Work {
        let kind = node.get("action").and_then(Node::text).unwrap_or_default();
        let nothing = || At {
            value: String::new(),
            place: node.place,
        };
        let mut field = |key: &str| {
            let found = node.get(key).and_then(text);
            if found.is_none() {
                let message = format!("`action: {kind}` needs `{key}`");
                self.out.fault(node.place, message);
            }
            found.unwrap_or_else(nothing)
        };
        match kind {
            "load_plan" => Work::Action(Action::LoadPlan {
                dir: field("dir"),
                ticks: match flag(node, "own_ticks") {
                    Some(true) => Ticks::Own,
                    _ => Ticks::Any,
                },
            }),
            "mark_plan" => Work::Action(Action::MarkPlan {
                dir: field("dir"),
                mark: match node.get("as").and_then(Node::text) {
                    Some("skipped") => Mark::Skipped,
                    _ => Mark::Done,
                },
            }),
            "apply_files" => {
                let (_, into) = (field("from"), field("into"));
                let from = node
                    .get("from")
                    .and_then(|from| self.step_named("`from`:", from));
                match from {
                    Some(from) => Work::Action(Action::ApplyFiles { from, into }),
                    None => Work::Approval,
                }
            }
            _ => Work::Approval,
        }
    }

    fn home(&mut self, node: &Node, work: &Work) -> Home {
        let plan = matches!(work, Work::Action(_));
        match (node.get("cwd"), node.entry("dir").filter(|_| !plan)) {
            (Some(_), Some(dir)) => {
                let message = "`cwd` and `dir` exclude each other";
                self.out
                    .hinted(dir.place, message, "take out one of the two");
                Home::Default
            }
            (Some(cwd), None) => text(cwd).map_or(Home::Default, Home::Cwd),
            (None, Some(dir)) => text(&dir.value).map_or(Home::Default, Home::Dir),
            (None, None) => Home::Default,
        }
    }

    /// Fields that do not go with the work, the level, or without another field.
    fn pairs(&mut self, id: StepId, node: &Node, work: &Work) {
        let has_work = node
            .entries()
            .iter()
            .any(|e| KINDS.contains(&e.key.as_str()));
        let kind = match (work, node.get("action").and_then(Node::text)) {
            (_, Some(action)) => action,
            (work, None) => work.kind(),
        };
        for entry in node.entries() {
            let key = entry.key.as_str();
            let only = ONLY.iter().find(|(name, _)| *name == key);
            if let Some((_, kinds)) = only.filter(|(_, kinds)| !kinds.contains(&kind))
                && (has_work || key != "approval")
            {
                let message = format!("`{key}` has no meaning for a step with `{kind}`");
                let hint = format!("it belongs to a step with `{}`", kinds.join("` or `"));
                self.out.hinted(entry.place, message, &hint);
            }
            let process = matches!(work, Work::Agent(_) | Work::Command(_) | Work::Human(_));
            if OF_PROCESSES.contains(&key) && !process {
                let message = format!("`{key}` has no effect on a step with `{kind}`");
                self.out.note(entry.place, message);
            }
            let beside = BESIDE.iter().find(|(name, _)| *name == key);
            if let Some((_, other)) = beside.filter(|(_, other)| node.get(other).is_none()) {
                let message = format!("`{key}` has no meaning without `{other}`");
                self.out.fault(entry.place, message);
            }
        }
        match self.outline.levels[id.0] {
            Level::Top => {}
            Level::Parallel(_) => self.in_parallel(node, work),
            Level::Body(_) => self.in_body(node),
        }
    }

    fn in_parallel(&mut self, node: &Node, work: &Work) {
        if !matches!(work, Work::Agent(_) | Work::Command(_)) {
            let message = format!(
                "a parallel step holds agents and commands, not `{}`",
                work.kind()
            );
            self.out.fault(node.place, message);
        }
        for key in NOT_PARALLEL {
            if let Some(entry) = node.entry(key) {
                let message = format!("a step inside of `parallel` has no `{key}`");
                self.out
                    .hinted(entry.place, message, "put it on the parallel step itself");
            }
        }
    }

    fn in_body(&mut self, node: &Node) {
        if let Some(entry) = node.entry("for_each") {
            let message = "a loop cannot stand in the body of another";
            self.out.fault(entry.place, message);
        }
        if let Some(entry) = node.entry("approval") {
            let message = "a gate cannot stand in the body of a loop: every item would ask for it";
            let hint = "ask before or after the loop, or use `agent: human`";
            self.out.hinted(entry.place, message, hint);
        }
    }
}

fn plain(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}

fn wait(node: Option<&Node>, step: &Node) -> Wait {
    let number = |key: &str, other: u64| {
        let value = node.and_then(|node| node.get(key));
        value.and_then(Node::number).unwrap_or(other)
    };
    Wait {
        glob: node
            .and_then(|node| node.get("glob"))
            .and_then(text)
            .unwrap_or(At {
                value: String::new(),
                place: step.place,
            }),
        timeout_sec: number("timeout_sec", 300),
        poll_ms: number("poll_ms", 500),
        min_count: number("min_count", 1),
    }
}

fn depends_on(node: Option<&Node>) -> DependsOn {
    let get = |key: &str| node.and_then(|node| node.get(key));
    DependsOn {
        required: texts(get("required")),
        optional: texts(get("optional")),
        inject: get("inject").and_then(inject),
    }
}

fn inject(node: &Node) -> Option<Inject> {
    let word = |key: &str| node.get(key).and_then(Node::text);
    if node.content == Content::Bool(false) || word("mode") == Some("none") {
        return None;
    }
    Some(Inject {
        mode: match word("mode") {
            Some("content") => InjectMode::Content,
            _ => InjectMode::List,
        },
        instruction: word("instruction").map(str::to_owned),
        position: match word("position") {
            Some("append") => Position::Append,
            _ => Position::Prepend,
        },
    })
}
