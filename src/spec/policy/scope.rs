//! Which paths a scope means: pure, over texts.
//!
//! A glob is split into the folder that it names without a wildcard, its base, and the rest. The
//! kernel can hold a base and everything below it; a glob that is narrower than its base is
//! `narrow`, and what it leaves out is found by comparison. orch's own folders are in no scope.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::spec::task::AgentName;
use crate::text::error::{Fault, Kind, Result};

/// The folders of a root that no scope opens.
const OWN_FOLDERS: [&str; 4] = ["inbox", "processed", "logs", "specs"];

/// A glob of `writes` or `reads`.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// The folder without a wildcard, relative to the root; empty is the root itself.
    pub base: String,
    /// The part after it; empty where the base is all.
    pub rest: String,
    matcher: GlobMatcher,
}

impl Pattern {
    /// Reads a glob that is relative to the root.
    pub(crate) fn parse(field: &str, glob: &str) -> Result<Pattern> {
        let text = glob.trim_end_matches('/');
        let bad = |why: &str| {
            let message = format!("`{glob}` in `{field}` {why}");
            Fault::new(Kind::WorkflowValidationError, message)
        };
        let leaves = text.starts_with('/') || text.split('/').any(|part| part == "..");
        if leaves {
            return Err(bad("leads out of the root").hint("paths are relative to the root"));
        }
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        let whole = parts.join("/");
        if field == "writes" && is_own(&whole) && !is_named_inbox(&whole) {
            return Err(bad("is orch's own").hint(
                "inbox/, processed/, logs/, specs/ and the state of runs belong to orch and to people",
            ));
        }
        let is_wild = |part: &str| part.contains(['*', '?', '[', '{', '\\']);
        let plain = parts.iter().take_while(|part| !is_wild(part)).count();
        let compiled = GlobBuilder::new(&whole).literal_separator(true).build();
        let matcher = compiled
            .map_err(|e| bad(&format!("is not a glob: {}", e.kind())))?
            .compile_matcher();
        Ok(Pattern {
            base: parts[..plain].join("/"),
            rest: parts[plain..].join("/"),
            matcher,
        })
    }

    /// Whether the glob means less than everything below its base.
    pub(crate) fn is_narrow(&self) -> bool {
        !matches!(self.rest.as_str(), "" | "**" | "**/*")
    }

    /// Whether something below a folder entry of the base, by its name, can match.
    pub(crate) fn may_match(&self, name: &str) -> bool {
        let first = self.rest.split('/').next().unwrap_or_default();
        if first.is_empty() || first == "**" {
            return true;
        }
        let compiled = GlobBuilder::new(first).literal_separator(true).build();
        compiled.is_ok_and(|glob| glob.compile_matcher().is_match(name))
    }

    /// Whether a path, relative to the root, is meant. A plain path means what is below it too.
    pub(crate) fn matches(&self, path: &str) -> bool {
        if self.matcher.is_match(path) {
            return true;
        }
        let below = |base: &str| {
            let inside = Path::new(path).strip_prefix(base);
            base.is_empty() || inside.is_ok()
        };
        !self.is_narrow() && below(&self.base)
    }
}

/// Whether a glob of `writes` or `reads` is one, and leads nowhere that it must not.
///
/// # Errors
/// Why it is not.
pub fn check_glob(field: &str, glob: &str) -> Result<()> {
    Pattern::parse(field, glob).map(|_| ())
}

/// Whether a path relative to the root is orch's own: of `workspace/`, only the `files/` of a run
/// are not.
pub(crate) fn is_own(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("workspace") => {
            let files = parts.nth(1);
            files.is_some_and(|name| name != "files" && !name.contains(['*', '?', '[', '{']))
        }
        Some(first) => OWN_FOLDERS.contains(&first),
        None => false,
    }
}

/// Whether a path or glob lies in the inbox of one agent, by its very name: a step that hands work
/// on may say so.
pub(crate) fn is_named_inbox(path: &str) -> bool {
    let agent = path
        .strip_prefix("inbox/")
        .map(|rest| rest.split('/').next());
    agent
        .flatten()
        .is_some_and(|agent| AgentName::parse(agent).is_ok())
}

/// How a folder lies to what must be kept out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Nothing of it is orch's.
    Free,
    /// All of it is.
    Own,
    /// Something below it is.
    Around,
}

/// How an absolute path lies to orch's own folders of a root.
pub(crate) fn cover(root: &Path, path: &Path) -> Cover {
    if root.starts_with(path) {
        return Cover::Around;
    }
    let Ok(inside) = path.strip_prefix(root) else {
        return Cover::Free;
    };
    let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
    let first = parts.first().map(AsRef::as_ref).unwrap_or_default();
    match (first, parts.len()) {
        ("workspace", 1 | 2) => Cover::Around,
        ("workspace", _) if parts[2] == "files" => Cover::Free,
        ("workspace", _) => Cover::Own,
        (first, _) if OWN_FOLDERS.contains(&first) => Cover::Own,
        _ => Cover::Free,
    }
}

/// What one attempt may write, as far as it can be said in paths.
#[derive(Debug)]
pub(crate) struct Scope {
    /// The root.
    pub root: PathBuf,
    /// The globs.
    pub globs: Vec<Pattern>,
    /// Folders and files that are open as a whole, absolute.
    pub open: Vec<PathBuf>,
}

impl Scope {
    /// Whether a path, absolute, may be written.
    pub(crate) fn allows(&self, path: &Path) -> bool {
        if self.open.iter().any(|open| path.starts_with(open)) {
            return true;
        }
        let Ok(inside) = path.strip_prefix(&self.root) else {
            return false;
        };
        let inside = inside.to_string_lossy();
        let handed_on =
            |pattern: &Pattern| is_named_inbox(&pattern.base) && pattern.matches(&inside);
        if is_own(&inside) {
            return self.globs.iter().any(handed_on);
        }
        let within = |pattern: &Pattern| {
            // The folders on the way to a match are made along with it.
            let leads =
                !pattern.base.is_empty() && Path::new(&pattern.base).starts_with(inside.as_ref());
            leads || pattern.matches(&inside)
        };
        self.globs.iter().any(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(glob: &str) -> Pattern {
        Pattern::parse("writes", glob).unwrap()
    }

    #[test]
    fn a_glob_is_split_where_its_first_wildcard_is() {
        let table = [
            ("src/**", "src", false),
            ("src", "src", false),
            ("./src/a/", "src/a", false),
            ("**", "", false),
            ("src/*.rs", "src", true),
            ("a/*/b/**", "a", true),
            ("*.md", "", true),
        ];
        for (glob, base, narrow) in table {
            let pattern = pattern(glob);
            assert_eq!((pattern.base.as_str(), pattern.is_narrow()), (base, narrow));
        }
    }

    #[test]
    fn what_leads_out_or_is_orchs_own_is_refused() {
        for glob in [
            "/etc/**",
            "../x",
            "a/../../b",
            "inbox/**",
            "specs",
            "logs/x",
            "workspace/r/spec/**",
            "workspace/r/state.json",
        ] {
            let fault = Pattern::parse("writes", glob).unwrap_err();
            assert!(fault.hint.is_some(), "{glob}");
        }
        assert!(Pattern::parse("writes", "a[").is_err());
        assert!(Pattern::parse("reads", "inbox/**").is_ok());
        assert!(Pattern::parse("writes", "inbox/*/x").is_err());
        assert!(Pattern::parse("writes", "inbox/next/*.task").is_ok());
        assert!(Pattern::parse("writes", "workspace/r/files/**").is_ok());
    }

    #[test]
    fn two_stars_never_match_orchs_own() {
        let scope = Scope {
            root: "/r".into(),
            globs: vec![pattern("**")],
            open: vec!["/tmp/x".into()],
        };
        for (path, allowed) in [
            ("/r/src/a", true),
            ("/r/inbox/a/x.task", false),
            ("/r/specs/orch.yaml", false),
            ("/r/workspace/1/state.json", false),
            ("/r/workspace/1/lock", false),
            ("/r/workspace/1/files/a", true),
            ("/tmp/x/y", true),
            ("/tmp/xy", false),
        ] {
            assert_eq!(scope.allows(Path::new(path)), allowed, "{path}");
        }
    }

    #[test]
    fn a_narrow_glob_allows_what_it_matches_and_the_way_to_it() {
        let scope = Scope {
            root: "/r".into(),
            globs: vec![pattern("out/deep/*.md")],
            open: Vec::new(),
        };
        for (path, allowed) in [
            ("/r/out", true),
            ("/r/out/deep", true),
            ("/r/out/deep/a.md", true),
            ("/r/out/deep/a.txt", false),
            ("/r/out/other", false),
            ("/r/out/deep/b/a.md", false),
        ] {
            assert_eq!(scope.allows(Path::new(path)), allowed, "{path}");
        }
    }

    #[test]
    fn a_folder_lies_free_own_or_around() {
        let lies = |path: &str| cover(Path::new("/a/r"), Path::new(path));
        assert_eq!(lies("/a"), Cover::Around);
        assert_eq!(lies("/a/r"), Cover::Around);
        assert_eq!(lies("/a/r/workspace/1"), Cover::Around);
        assert_eq!(lies("/a/r/workspace/1/files/x"), Cover::Free);
        assert_eq!(lies("/a/r/workspace/1/spec"), Cover::Own);
        assert_eq!(lies("/a/r/inbox/x"), Cover::Own);
        assert_eq!(lies("/a/r/src"), Cover::Free);
        assert_eq!(lies("/b"), Cover::Free);
    }
}
