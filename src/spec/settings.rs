//! The settings of a root, `specs/orch.yaml`: text in, [`Settings`] with every default filled out.
//!
//! It never looks whether a path exists and never expands `~`: that belongs to whoever opens it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::spec::policy::{Caps, Sandbox};
use crate::text::error::hinted;
use crate::text::error::{Fault, Kind};
use crate::text::suggest;
use crate::text::units::{Size, Time};
use crate::text::yaml;

/// The file, as messages name it.
pub const FILE: &str = "specs/orch.yaml";
/// The layout of a root that this program knows.
pub const LAYOUT: u64 = 1;

/// What `specs/orch.yaml` says, with defaults for what it does not.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The layout of the root; always [`LAYOUT`].
    #[serde(default)]
    pub layout: Layout,
    /// The provider of agents that name none.
    #[serde(default)]
    pub provider: Option<String>,
    /// The dir of tasks that name none.
    #[serde(default)]
    pub dir: Option<String>,
    /// The only places outside the root, by name.
    #[serde(default, deserialize_with = "yaml::or_default")]
    pub dirs: BTreeMap<String, Dir>,
    /// Variables that every provider gets.
    #[serde(default, deserialize_with = "yaml::or_default")]
    pub pass_env: Vec<String>,
    /// Directories that go in front of PATH.
    #[serde(default, deserialize_with = "yaml::or_default")]
    pub path: Vec<String>,
    /// How long, how much, how often.
    #[serde(default, deserialize_with = "yaml::or_default")]
    pub limits: Limits,
    /// What holds agents in that do not say so themselves.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// How long finished things are kept.
    #[serde(default, deserialize_with = "yaml::or_default")]
    pub retention: Retention,
}

/// A place outside the root.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dir {
    /// Where it is; may begin with `~/`.
    pub path: String,
}

/// The limits of every task that does not set its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Wall clock of one attempt.
    pub timeout: Time,
    /// Silence of a provider that streams.
    pub idle_timeout: Time,
    /// Bytes of stdout and stderr.
    pub output: Size,
    /// Retries of what a provider calls transient.
    pub retries: u32,
    /// The wait before the first retry; it doubles.
    pub backoff: Time,
    /// Between TERM and KILL.
    pub grace: Time,
    /// How often a task that was cut off by a crash is begun again.
    pub interrupted: u32,
    /// Processes of the user who runs orch, while an agent runs.
    pub processes: Option<u64>,
    /// Memory of each of an agent's processes.
    pub memory: Option<Size>,
    /// The largest file that an agent may write.
    pub file: Option<Size>,
}

impl Limits {
    /// The limits that the system itself keeps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        Caps {
            processes: self.processes,
            memory: self.memory,
            file: self.file,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = |n| Time(Duration::from_secs(n));
        Limits {
            timeout: seconds(60 * 60),
            idle_timeout: seconds(10 * 60),
            output: Size(256 << 20),
            retries: 3,
            backoff: seconds(5),
            grace: seconds(5),
            interrupted: 3,
            processes: None,
            memory: None,
            file: None,
        }
    }
}

/// How long finished things are kept; nothing is removed where nothing is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Age at which files in `processed/` may go.
    #[serde(default)]
    pub processed: Option<Time>,
}

/// The layout's number, refused while its place is still known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout(pub u64);

impl Default for Layout {
    fn default() -> Self {
        Layout(LAYOUT)
    }
}

impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Layout;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the number of a layout")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Layout, E> {
                if number == LAYOUT {
                    return Ok(Layout(number));
                }
                let message = format!("layout {number} is not known to this version of orch");
                let hint =
                    format!("this version reads layout {LAYOUT}; a newer orch may read {number}");
                Err(E::custom(hinted(&message, Some(&hint))))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

impl Settings {
    /// Reads the text of `specs/orch.yaml`; an empty text gives the defaults.
    ///
    /// # Errors
    /// [`Kind::InvalidSettings`] with file, line and column; [`Kind::UnknownDir`] if the default
    /// dir is not among the dirs.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let settings: Settings =
            yaml::from_str(text).map_err(|fault| fault.fault(Kind::InvalidSettings, FILE, 0))?;
        if let Some(name) = &settings.dir {
            settings.dir(name)?;
        }
        Ok(settings)
    }

    /// The dir of this name.
    ///
    /// # Errors
    /// [`Kind::UnknownDir`] with the nearest name, or with how to add one.
    pub fn dir(&self, name: &str) -> Result<&Dir, Fault> {
        self.dirs.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.dirs.keys().map(String::as_str).collect();
            let hint = suggest::hint(name, &names).unwrap_or_else(|| {
                format!("add it: `dirs: {{{name}: {{path: ~/src/app}}}}` in `{FILE}`")
            });
            Fault::new(
                Kind::UnknownDir,
                format!("there is no dir `{name}` in `{FILE}`"),
            )
            .hint(hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_gives_the_defaults() {
        for text in ["", "# nothing yet\n", "layout: 1\n", "limits:\ndirs:\n"] {
            let settings = Settings::parse(text).unwrap();
            assert_eq!(settings, Settings::default(), "{text}");
            assert_eq!(settings.limits.timeout.0, Duration::from_secs(3600));
            assert_eq!(settings.limits.output.0, 268_435_456);
        }
    }

    #[test]
    fn everything_can_be_said() {
        let settings = Settings::parse(
            "layout: 1\nprovider: claude\ndir: app\ndirs:\n  app: {path: ~/src/app}\n\
             pass_env: [GH_TOKEN]\npath: [~/bin]\n\
             limits: {timeout: 5m, idle_timeout: 30s, output: 1MiB, retries: 0, backoff: 1s, grace: 2s, interrupted: 1, processes: 90, memory: 2GiB, file: 1GiB}\n\
             sandbox: required\nretention: {processed: 7d}\n",
        )
        .unwrap();
        assert_eq!(settings.dir("app").unwrap().path, "~/src/app");
        assert_eq!(settings.limits.output, Size(1 << 20));
        assert_eq!(settings.limits.caps().memory, Some(Size(2 << 30)));
        assert_eq!(settings.sandbox, Some(Sandbox::Required));
        assert_eq!(settings.limits.backoff.0, Duration::from_secs(1));
        assert_eq!(
            settings.retention.processed,
            Some(Time(Duration::from_secs(604_800)))
        );
    }

    #[test]
    fn one_limit_leaves_the_others_as_they_are() {
        let settings = Settings::parse("limits: {retries: 9}").unwrap();
        assert_eq!(
            settings.limits,
            Limits {
                retries: 9,
                ..Limits::default()
            }
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let table = [
            (
                "layout: 2",
                "specs/orch.yaml:1:9: layout: layout 2 is not known",
                "newer orch",
            ),
            (
                "provder: x",
                "specs/orch.yaml:1:1: unknown key `provder`",
                "`provider`",
            ),
            (
                "limits:\n  time: 5m",
                "specs/orch.yaml:2:3: unknown key `time` in `limits`",
                "`timeout`",
            ),
            ("limits: {timeout: 5}", "specs/orch.yaml:1:19: ", "15m"),
            ("dirs: {a: ~/x}", "specs/orch.yaml:1:11: ", ""),
            ("dirs: {app: {path: x}}\ndir: ap", "no dir `ap`", "`app`"),
            ("dir: app", "no dir `app`", "add it"),
        ];
        for (text, part, hint) in table {
            let fault = Settings::parse(text).unwrap_err();
            assert!(fault.message.contains(part), "{text}: {}", fault.message);
            let given = fault.hint.clone().unwrap_or_default();
            assert!(given.contains(hint), "{text}: {given}");
            assert_eq!(fault.exit_code(), 65);
        }
    }
}
