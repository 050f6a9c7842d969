//! Confinement as a person declares it: scopes, violations, limits, and systems that cannot hold it.

use std::fs;
use std::path::{Path, PathBuf};

use orch::agents::confine::HELPER;

use crate::harness::{Bed, Program, Ran, needs, orch, program, write_executable};

/// A workflow of one command step, which runs this script in the root, with more lines.
fn workflow(bed: &Bed, head: &str, script: &str, lines: &str) {
    let path = bed.outside.join("step.sh");
    write_executable(&path, format!("#!/bin/sh\n{script}\n"));
    let mut text = format!(
        "version: \"1\"\nname: w\n{head}steps:\n  - name: a\n    command: [{}]\n",
        path.display()
    );
    for line in lines.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    bed.write("specs/w.yaml", text);
}

fn run(bed: &Bed) -> Ran {
    bed.orch(["run", "w"]).run()
}

fn only_run(bed: &Bed) -> String {
    bed.ls("workspace").pop().unwrap()
}

#[test]
fn a_narrow_glob_is_held_by_comparison_and_a_violation_goes_by_on_violation() {
    for (word, code) in [("block", 4), ("stop", 2), ("reject", 1)] {
        let bed = Bed::new();
        let head = format!("on_violation: {word}\n");
        let script = "echo x > src/a.md && echo x > src/a.txt && echo ok";
        workflow(&bed, &head, script, "writes: [\"src/*.md\"]");
        run(&bed).about(word).fails(code);
        let state = bed.read(&format!("workspace/{}/state.json", only_run(&bed)));
        assert!(state.contains("ScopeViolation"), "{word}: {state}");
        assert!(
            state.contains("src/a.txt") && !state.contains("src/a.md"),
            "{state}"
        );
    }
}

#[test]
fn what_is_inside_of_the_scope_is_no_violation() {
    let bed = Bed::new();
    let script = "mkdir -p src/deep && echo x > src/deep/a.md && rm src/old.md && echo \"$TMPDIR\" && echo t > \"$TMPDIR/t\"";
    bed.write("src/old.md", "x");
    workflow(&bed, "", script, "writes: [\"src/**/*.md\", \"src/deep\"]");
    run(&bed).expect(0);
    let name = bed
        .ls("artifacts/shell")
        .into_iter()
        .find(|name| name.ends_with(".out"));
    let temp = bed.read(&format!("artifacts/shell/{}", name.unwrap()));
    assert!(temp.contains("orch-agent-"), "{temp}");
    assert!(!std::path::Path::new(temp.trim()).exists());
}

#[test]
fn the_default_scope_is_the_files_of_the_run() {
    let bed = Bed::new();
    let script = "d=$(ls -d workspace/*/files) || exit 9; echo x > $d/made || exit 8; echo x > made 2>/dev/null && exit 7; exit 0";
    workflow(&bed, "", script, "sandbox: landlock");
    run(&bed).expect(0);
    assert!(bed.has(&format!("workspace/{}/files/made", only_run(&bed))));
    assert!(!bed.has("made"));
}

#[test]
fn the_settings_confine_everybody_and_a_step_cannot_take_required_back() {
    let bed = Bed::new();
    bed.settings("sandbox: required\n");
    workflow(&bed, "", "echo x > made", "sandbox: none");
    run(&bed).fails(1);
    assert!(!bed.has("made"));
    bed.script("plain", "echo x > made; echo done");
    bed.drop_task("plain", "t", "x");
    bed.drain().expect(0);
    assert!(!bed.has("made"));
}

#[test]
fn reads_are_limited_to_what_is_declared() {
    let bed = Bed::new();
    bed.write("src/a.txt", "public");
    bed.write("secret/a.txt", "hidden");
    let script = "cat src/a.txt || exit 9; cat secret/a.txt && exit 8; ls secret && exit 7; exit 0";
    workflow(&bed, "", script, "reads: [\"src/**\"]");
    run(&bed).expect(0);
}

/// A folder outside of the root that looks like a git checkout.
fn checkout(bed: &Bed) -> PathBuf {
    let app = bed.outside.join("app");
    fs::create_dir_all(app.join(".git/hooks")).unwrap();
    fs::write(app.join(".git/config"), "").unwrap();
    fs::write(app.join(".git/hooks/sample"), "").unwrap();
    bed.settings(&format!("dirs: {{app: {{path: {}}}}}\n", app.display()));
    app
}

/// What would make git run a program of the agent's.
const ON_GIT: [&str; 8] = [
    "echo x > .git/hooks/pre-commit",
    "echo x >> .git/config",
    "echo x > new && mv -f new .git/config",
    "rm .git/config && echo x > .git/config",
    "rm -r .git/hooks && mkdir .git/hooks",
    "mv .git/hooks .git/other && mkdir .git/hooks",
    "mv .git .other && cp -R .other .git",
    "chmod 777 .git/hooks/sample",
];

#[test]
fn the_dir_of_a_step_is_open_but_not_what_makes_git_run_programs() {
    let bed = Bed::new();
    let app = checkout(&bed);
    let lines = "dir: app\nwrites: []";
    workflow(&bed, "", "echo x > made && echo x > .git/index", lines);
    run(&bed).expect(0);
    assert!(app.join("made").exists());
    if !has_walls(program(orch())) {
        return needs::skip_here("the helper may have no mounts of its own");
    }
    for script in ON_GIT {
        workflow(&bed, "", script, lines);
        run(&bed).about(script).fails(1);
        assert_eq!(fs::read(app.join(".git/config")).unwrap(), b"", "{script}");
        let hooks = crate::harness::names(&app.join(".git/hooks"));
        assert_eq!(hooks, ["sample"], "{script}");
    }
    // What is not there has no wall around it: it is found.
    workflow(&bed, "", "echo x > .git/config.worktree", lines);
    let ran = run(&bed).fails(4);
    assert!(ran.stdout.contains("config.worktree"), "{}", ran.stdout);
}

#[test]
fn where_there_can_be_no_walls_a_change_of_git_is_found_and_required_is_refused() {
    let bed = Bed::new();
    checkout(&bed);
    let no_namespaces = "unshare:error=EPERM";
    workflow(&bed, "", ON_GIT[0], "dir: app\nwrites: []");
    let Some(ran) = without(&bed, no_namespaces, &["run", "w"]) else {
        return;
    };
    let ran = ran.says("cannot keep `.git/config`").expect(4);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("pre-commit"), "{said}");
    let lines = "dir: app\nwrites: []\nsandbox: required";
    workflow(&bed, "", "echo x > made", lines);
    without(&bed, no_namespaces, &["run", "w"])
        .unwrap()
        .says("cannot keep `.git/config`")
        .fails_somehow();
    assert!(!bed.outside.join("app/made").exists());
}

/// A root may lie in shared memory, and shared memory is no device.
#[test]
fn shared_memory_is_a_folder_like_any_other() {
    if !needs::folder("/dev/shm") {
        return;
    }
    let inside = Bed::in_folder(Path::new("/dev/shm"));
    let outside = Bed::new();
    let stray = inside.root.join("stray");
    for sandbox in ["landlock", "bwrap"] {
        if sandbox == "bwrap" && !needs::bubblewrap() {
            return;
        }
        let lines = format!("sandbox: {sandbox}\nwrites: [\"out/**\"]");
        workflow(&inside, "", "echo x > out/a && ! echo x > stray", &lines);
        run(&inside).expect(0);
        assert_eq!(inside.ls("out"), ["a"], "{sandbox}");
        let script = format!("echo x > {}; exit 0", stray.display());
        workflow(&outside, "", &script, &lines);
        run(&outside).expect(0);
        assert!(!stray.exists(), "{sandbox}");
    }
}

#[test]
fn steps_side_by_side_are_not_blamed_for_each_other() {
    let bed = Bed::new();
    let text = "version: \"1\"\nname: w\nsteps:\n  - name: both\n    parallel:\n      \
        - {name: a, command: [sh, -c, 'for i in 1 2 3 4 5; do echo x > out/a$i.md; sleep 0.05; done'], writes: [\"out/a*.md\"]}\n      \
        - {name: b, command: [sh, -c, 'for i in 1 2 3 4 5; do echo x > out/b$i.md; sleep 0.05; done'], writes: [\"out/b*.md\"]}\n";
    bed.write("specs/w.yaml", text);
    bed.orch(["run", "w", "--jobs", "2"]).run().expect(0);
}

#[test]
fn orchs_own_folders_are_in_no_scope() {
    let bed = Bed::new();
    workflow(&bed, "", "true", "writes: [\"inbox/**\"]");
    let ran = run(&bed).fails(65);
    assert!(ran.stderr.contains("orch's own"), "{}", ran.stderr);
}

/// Whether the helper, started so, may have mounts of its own: then there is a wall around what
/// Landlock has no rules for.
pub fn has_walls(helper: Program) -> bool {
    helper.args([HELPER, "walls"]).run().noisy().succeeds()
}

/// `orch` on a kernel without Landlock.
fn without_landlock(bed: &Bed, args: &[&str]) -> Option<Ran> {
    without(bed, "landlock_create_ruleset:error=ENOSYS", args)
}

/// `orch` on a kernel that lacks something, as `strace` plays it.
pub fn without(bed: &Bed, what: &str, args: &[&str]) -> Option<Ran> {
    let strace = needs::find("strace")?;
    let traced = bed
        .program(strace)
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(["-e", &format!("trace={}", what.split(':').next().unwrap())])
        .args(["-e", &format!("inject={what}")])
        .args([orch()])
        .args(args)
        // Without bubblewrap either.
        .env("PATH", &bed.outside);
    Some(traced.run())
}

#[test]
fn without_landlock_required_is_refused_and_the_rest_is_compared_with_a_warning() {
    let bed = Bed::new();
    workflow(&bed, "", "echo x > made", "sandbox: required");
    let Some(ran) = without_landlock(&bed, &["run", "w"]) else {
        return;
    };
    ran.says("step `a`: `sandbox: required`").expect(65);
    assert!(!bed.has("made") && bed.ls("workspace").is_empty());
    workflow(&bed, "", "echo x > made", "writes: [\"out/**\"]");
    let ran = without_landlock(&bed, &["run", "w"]).unwrap().fails(4);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("cannot hold an agent"), "{said}");
    assert!(said.contains("`made`"), "{said}");
    let doctor = without_landlock(&bed, &["doctor"])
        .unwrap()
        .noisy()
        .any_code();
    assert!(doctor.stdout.contains("no Landlock"), "{}", doctor.stdout);
}

#[test]
fn bubblewrap_is_told_everything_by_a_descriptor_and_has_no_environment() {
    let bed = Bed::new();
    let bin = bed.outside.join("bin");
    fs::create_dir(&bin).unwrap();
    let fake = bin.join("bwrap");
    let script = "#!/bin/sh\n{ echo \"argv: $*\"; tr '\\0' ' ' < /proc/self/environ; echo; tr '\\0' '\\n' <&\"$2\"; } > \"$(dirname \"$0\")/told\"\nshift 3\nexec \"$@\"\n";
    write_executable(&fake, script);
    let lines = "sandbox: bwrap\nnetwork: none\nwrites: [\"out/**\"]\nenv: {TOKEN: hush-hush, LD_PRELOAD: \"\"}";
    workflow(&bed, "", "echo ran", lines);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    bed.orch(["run", "w"]).env("PATH", path).run().expect(0);
    let told = fs::read_to_string(bin.join("told")).unwrap();
    let (argv, rest) = told.split_once('\n').unwrap();
    let (environ, words) = rest.split_once('\n').unwrap();
    assert!(
        !argv.contains("hush-hush") && argv.contains("step.sh"),
        "{argv}"
    );
    assert!(!environ.contains("hush-hush"), "{environ}");
    assert!(words.contains("--setenv\nTOKEN\nhush-hush\n"), "{words}");
    for word in [
        "--unshare-net",
        "--unshare-pid",
        "--die-with-parent",
        "--clearenv",
    ] {
        assert!(words.contains(&format!("{word}\n")), "{word}: {words}");
    }
    let out = bed.root.join("out").display().to_string();
    assert!(
        words.contains(&format!("--bind\n{out}\n{out}\n")),
        "{words}"
    );
}

#[test]
fn a_program_that_cannot_be_started_is_told_as_without_a_fence() {
    let bed = Bed::new();
    let script = bed.outside.join("bad.sh");
    write_executable(&script, "#!/no/such/interpreter\n");
    let provider = format!("providers:\n  bad: {{command: [{}]}}\n", script.display());
    bed.write("specs/providers.yaml", provider);
    bed.agent("a", "provider: bad\nwrites: []", "");
    bed.drop_task("a", "t", "x");
    bed.drain().expect(1);
    let error = bed.record("a/t")["error"].to_string();
    assert!(
        error.contains("its interpreter `/no/such/interpreter`"),
        "{error}"
    );
}
