//! `orch init`: makes a root. Nothing that exists is changed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::agents::program::resolve_program;
use crate::disk::root::RUNTIME_FOLDERS;
use crate::disk::safety::Dir;
use crate::spec::provider::{self, presets};
use crate::spec::shipped;
use crate::spec::workflow::schema;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::suggest;
use crate::ui::cli;
use crate::ui::report::{Paint, clean_line, print};

const SETTINGS: &str = include_str!("init/orch.yaml");
const PROVIDERS: &str = include_str!("init/providers.yaml");
const GITIGNORE: &str = include_str!("init/gitignore");
/// What stands under `dirs` in a root that is on its own.
const NO_DIRS: &str = "# dirs:\n#   app: {path: ~/src/app}\n# dir: app";
/// The same for a root inside the project that it works on.
const PROJECT_DIRS: &str = "dirs:\n  project: {path: ..}\ndir: project";

pub(super) fn run(words: &cli::Init) -> Result<u8> {
    let provider = Choice::make(words.provider.as_deref())?;
    let named = words.dir.as_deref().unwrap_or(Path::new("."));
    std::fs::create_dir_all(named).map_err(|e| Fault::io("make", named, &e))?;
    let path = std::fs::canonicalize(named).map_err(|e| Fault::io("find", named, &e))?;
    if path.join("inbox").exists() && path.join("specs/orch.yaml").exists() {
        return Err(Fault::new(
            Kind::Usage,
            format!("`{}` is an orch root already", path.display()),
        )
        .hint("nothing was changed; `orch doctor` checks it"));
    }
    let made = make(&path, provider.name()).map_err(|e| {
        Fault::io("make a root in", &path, &e)
            .hint("what was made so far stays; mend the cause and repeat the command")
    })?;
    print(&made.text(&path, &provider))?;
    Ok(exit::DONE)
}

/// Which provider the agents get, and why.
#[derive(Debug)]
enum Choice {
    Named(String),
    Found(&'static str, PathBuf),
    /// There is none on PATH.
    Echo,
}

impl Choice {
    fn make(named: Option<&str>) -> Result<Choice> {
        if let Some(name) = named {
            let known: Vec<&str> = provider::names().collect();
            if known.contains(&name) {
                return Ok(Choice::Named(name.to_owned()));
            }
            let fault = Fault::new(Kind::Usage, format!("there is no provider `{name}`"));
            let hint = suggest::hint(name, &known).unwrap_or_default();
            return Err(fault.hint(format!(
                "{hint}; one of your own goes in {} later",
                provider::FILE
            )));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let agents = presets::names().filter(|name| *name != "bash");
        for name in agents {
            let Some(config) = presets::config(name) else {
                continue;
            };
            if let Ok(found) = resolve_program(config.program(), &path, Path::new("/")) {
                return Ok(Choice::Found(name, found));
            }
        }
        Ok(Choice::Echo)
    }

    fn name(&self) -> &str {
        match self {
            Choice::Named(name) => name,
            Choice::Found(name, _) => name,
            Choice::Echo => "echo",
        }
    }

    fn text(&self) -> String {
        match self {
            Choice::Named(name) => format!("its agents use `{name}`"),
            Choice::Found(name, path) => {
                format!("its agents use `{name}`, found at {}", clean_line(&path.display().to_string()))
            }
            Choice::Echo => "no provider was found on PATH: its agents use `echo`, which only repeats the prompt;\n\
                 install one, such as claude or codex, and put its name in specs/orch.yaml"
                .to_owned(),
        }
    }
}

/// What there was already.
#[derive(Debug, Default)]
struct Made {
    untouched: Vec<String>,
}

impl Made {
    fn text(&self, path: &Path, provider: &Choice) -> String {
        let mut text = format!(
            "made an orch root in {}\n",
            clean_line(&path.display().to_string())
        );
        for file in &self.untouched {
            let more = match file.as_str() {
                ".gitignore" => format!(
                    "; what is in {} should be in it",
                    RUNTIME_FOLDERS.join(", ")
                ),
                _ => String::new(),
            };
            text.push_str(&format!("left as it was: {file}{more}\n"));
        }
        text.push_str(&format!("{}\n\nnext:\n", provider.text()));
        for (line, why) in next_lines(path, provider) {
            text.push_str(&format!(
                "  {line:46}  {}\n",
                Paint::stdout().dim(format!("# {why}"))
            ));
        }
        text
    }
}

/// What to type, and why.
fn next_lines(path: &Path, provider: &Choice) -> [(String, &'static str); 3] {
    let shown = clean_line(&path.display().to_string());
    let first = match is_found_from_here(path) {
        true if path.ends_with(".orch") => (
            "ls .orch/specs/agents".to_owned(),
            "the agents of the five workflows",
        ),
        true => (
            "ls specs/agents".to_owned(),
            "the agents of the five workflows",
        ),
        false => (format!("cd {shown}"), "where orch finds it"),
    };
    let text = if provider.name() == "bash" {
        "echo hello"
    } else {
        "Say hello"
    };
    let send = format!("orch send engineer \"{text}\" --wait");
    let watch = (
        "orch watch".to_owned(),
        "works on every inbox/AGENT/NAME.task",
    );
    [first, (send, "one task, seen through"), watch]
}

/// Whether a command typed here takes this root for its own.
fn is_found_from_here(path: &Path) -> bool {
    std::env::current_dir().is_ok_and(|here| here == *path || here.join(".orch") == *path)
}

fn make(path: &Path, provider: &str) -> io::Result<Made> {
    let root = Dir::open_named_by_user(path)?;
    let mut made = Made::default();
    for folder in RUNTIME_FOLDERS {
        let dir = root.make(folder)?;
        made.file(&dir, "", ".gitkeep", "")?;
    }
    let specs = root.make("specs")?;
    let inbox = root.sub("inbox")?;
    for agent in shipped::FIRST_AGENTS {
        inbox.make(agent)?;
    }
    for (path, text) in shipped::WORKFLOWS.iter().chain(shipped::PARTS) {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folders = folders.split('/').filter(|folder| !folder.is_empty());
        let dir = folders.try_fold(root.sub("specs")?, |dir, folder| dir.make(folder))?;
        let place = format!("specs/{}", &path[..path.len() - name.len()]);
        made.file(&dir, &place, name, text)?;
    }
    let schemas = specs.make("schemas")?;
    let schema = schema::text();
    made.file(&schemas, "specs/schemas/", "workflow.json", &schema)?;
    made.file(&specs, "specs/", "providers.yaml", PROVIDERS)?;
    made.file(&root, "", ".gitignore", GITIGNORE)?;
    // Last: with it, the folder is a root.
    made.file(&specs, "specs/", "orch.yaml", &settings(path, provider))?;
    Ok(made)
}

impl Made {
    /// Writes a file, unless it is there already.
    fn file(&mut self, dir: &Dir, place: &str, name: &str, text: &str) -> io::Result<()> {
        match dir.create_new(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !text.is_empty() {
                    self.untouched.push(format!("{place}{name}"));
                }
                Ok(())
            }
            other => other?.write_all(text.as_bytes()),
        }
    }
}

fn settings(path: &Path, provider: &str) -> String {
    let is_inside_project = path.file_name().is_some_and(|name| name == ".orch");
    let dirs = if is_inside_project {
        PROJECT_DIRS
    } else {
        NO_DIRS
    };
    SETTINGS
        .replace("{{provider}}", provider)
        .replace("{{dirs}}", dirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::settings::Settings;

    #[test]
    fn the_templates_are_valid_and_show_every_default() {
        let alone = settings(Path::new("/x"), "echo");
        assert_eq!(
            Settings::parse(&alone).unwrap().provider.as_deref(),
            Some("echo")
        );
        let inside = Settings::parse(&settings(Path::new("/x/.orch"), "echo")).unwrap();
        assert_eq!(inside.dir("project").unwrap().path, "..");
        assert!(provider::parse(PROVIDERS).unwrap().is_empty());
    }

    #[test]
    fn what_is_commented_out_is_valid_too_and_gives_the_defaults() {
        let lines = settings(Path::new("/x"), "echo");
        let is_setting = |line: &&str| {
            let key = line
                .trim_start_matches("# ")
                .split(':')
                .next()
                .unwrap_or_default()
                .trim();
            line.contains(':') && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        let all: Vec<String> = lines
            .lines()
            .filter(is_setting)
            .map(|line| line.replacen("# ", "", 1))
            .collect();
        let text = all.join("\n").replace("~/src/app", "/src/app");
        let parsed = Settings::parse(&text).unwrap();
        assert_eq!(parsed.limits, Settings::default().limits);
        assert_eq!(parsed.dir.as_deref(), Some("app"));
        assert!(parsed.retention.processed.is_some());
        let providers = PROVIDERS
            .replace("providers: {}", "providers:")
            .replace("\n#", "\n");
        assert_eq!(provider::parse(&providers).unwrap().len(), 2);
    }

    #[test]
    fn nothing_that_exists_is_changed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(".gitignore"), "mine").unwrap();
        let made = make(temp.path(), "echo").unwrap();
        assert_eq!(made.untouched, [".gitignore"]);
        assert_eq!(
            std::fs::read_to_string(temp.path().join(".gitignore")).unwrap(),
            "mine"
        );
        assert!(temp.path().join("inbox/reviewer").is_dir());
        crate::disk::root::Root::open(temp.path()).unwrap();
    }

    #[test]
    fn an_unknown_provider_is_bad_usage_with_the_nearest_name() {
        let fault = Choice::make(Some("cluade")).unwrap_err();
        assert_eq!(fault.kind, Kind::Usage);
        assert!(fault.hint.unwrap().contains("`claude`"));
    }
}
