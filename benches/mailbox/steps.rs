//! What a workflow costs: a step over a bare task, the 5,000th step over the 50th, `orch check`.
//!
//! The log of a run counts in milliseconds, which is about what a step takes. So the time of a step
//! is that between two lines of the watcher, by the clock of this program.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{AGENT, Lab, Result, Root, Watcher, median, must};
use crate::table::{self, Goal};

/// The workflow, and the run.
const NAME: &str = "again";
const RUN: &str = "20260101T000000Z-again-0001";
const ONE_JOB: [&str; 5] = ["--drain", "--jobs", "1", "--durability", "process"];

/// How many steps and how many bare tasks are held against each other.
const SHORT: u32 = 300;
/// The steps of the run that is long: the last window has to fit.
const LONG: u32 = 5100;
const EARLY: usize = 50;
const LATE: usize = 5000;
/// How many steps around each of the two.
const WINDOW: usize = 50;
/// The steps of the workflow that is checked.
const CHECKED: u32 = 500;
const ROUNDS: usize = 3;

pub fn run(lab: &Lab) -> Result<()> {
    let (mut bare, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(tasks(lab)?);
        steps.push(run_of(lab, SHORT)?);
    }
    let long = run_of(lab, LONG)?;
    let checks = checks(lab)?;
    show_cost(&bare, &steps);
    show_length(&long)?;
    show_check(&checks);
    Ok(())
}

/// What a watcher said when, and what it used.
struct Told {
    /// When each step or task was over, from the launch.
    ends: Vec<Duration>,
    cpu: Duration,
}

impl Told {
    /// The time of each but the first, which has the launch in it.
    fn each(&self) -> Vec<f64> {
        let between = |pair: &[Duration]| (pair[1] - pair[0]).as_secs_f64() * 1e6;
        self.ends.windows(2).map(between).collect()
    }

    /// Microseconds of the watcher's own for each.
    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ends.len() as f64
    }
}

/// Reads a watcher to its end: each line with `marked` is one step or task.
fn listen(mut watcher: Watcher, marked: &str) -> Result<Told> {
    let mut ends = Vec::new();
    for line in watcher.lines()? {
        if line?.contains(marked) {
            ends.push(watcher.began.elapsed());
        }
    }
    let used = watcher.wait()?;
    Ok(Told {
        ends,
        cpu: used.cpu,
    })
}

fn tasks(lab: &Lab) -> Result<Told> {
    let root = lab.root(&["/bin/true"])?;
    root.fill(SHORT)?;
    let told = listen(root.watch(&ONE_JOB, Stdio::piped())?, &format!("{AGENT}/"))?;
    root.check_done(SHORT)?;
    Ok(told)
}

/// One run of a step that leads to itself this often.
fn run_of(lab: &Lab, count: u32) -> Result<Told> {
    let root = lab.root(&["/bin/true"])?;
    let workflow = format!(
        "version: \"1\"\nname: {NAME}\nmax_transitions: {}\nsteps:\n  - name: once\n    \
         command: [/bin/true]\n    max_visits: {count}\n    on_limit: _end\n    \
         on: {{success: {{goto: once}}}}\n",
        count + 10
    );
    fs::write(root.path.join(format!("specs/{NAME}.yaml")), workflow)?;
    let inbox = root.path.join("inbox").join(NAME);
    fs::create_dir_all(&inbox)?;
    let task = format!("---\nworkflow: {NAME}\nrun: {RUN}\n---\nplease\n");
    fs::write(inbox.join("go.task"), task)?;
    let told = listen(root.watch(&ONE_JOB, Stdio::piped())?, "shell/")?;
    check_run(&root, count, told.ends.len())?;
    Ok(told)
}

/// That the run has ended well, and after as many steps.
fn check_run(root: &Root, count: u32, told: usize) -> Result<()> {
    let log = fs::read_to_string(root.path.join(format!("logs/{RUN}.jsonl")))?;
    let entered = log.matches("\"event\":\"entered\"").count();
    if entered != count as usize || told != entered {
        return Err(format!("{entered} steps in the log, {told} told, of {count}").into());
    }
    let state = fs::read_to_string(root.path.join(format!("workspace/{RUN}/state.json")))?;
    if !state.contains("\"status\": \"succeeded\"") {
        return Err("the run did not succeed".into());
    }
    Ok(())
}

/// A workflow in which every step has a limit, a condition, a variable and a way back.
fn checks(lab: &Lab) -> Result<Vec<f64>> {
    let root = lab.root(&["/bin/true"])?;
    let mut text = "version: \"1\"\nname: large\nsteps:\n".to_owned();
    for n in 0..CHECKED {
        let back = n.saturating_sub(1);
        write!(
            text,
            "  - name: s{n}\n    agent: {AGENT}\n    \
             prompt: 'go ${{steps.s{back}.output:-x}} ${{request}}'\n    max_visits: 5\n    \
             ensures: [{{check: 'output != \"\"', reason: empty}}]\n    \
             on: {{failure: {{goto: s{back}}}}}\n"
        )?;
    }
    fs::write(root.path.join("specs/large.yaml"), text)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        must(
            Command::new(env!("CARGO_BIN_EXE_orch"))
                .arg("--root")
                .arg(&root.path)
                .args(["check", "large"]),
        )?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn show_cost(bare: &[Told], steps: &[Told]) {
    table::heading(
        "300 of /bin/true one by one, median of 3",
        ["us each", "ratio", "own CPU each"],
    );
    let of = |all: &[Told]| {
        let each: Vec<f64> = all.iter().map(|told| median(&told.each())).collect();
        let cpu: Vec<f64> = all.iter().map(Told::cpu_us).collect();
        (median(&each), median(&cpu))
    };
    let (base, base_cpu) = of(bare);
    for (name, all) in [("bare tasks", bare), ("steps of one run", steps)] {
        let (each, cpu) = of(all);
        let ratio = each / base;
        let cpu = format!("{cpu:.0} us ({:.2})", cpu / base_cpu);
        table::line(
            name,
            [format!("{each:.0}"), format!("{ratio:.2}"), cpu],
            None,
        );
    }
}

fn show_length(long: &Told) -> Result<()> {
    table::heading("one run, 50 steps around", ["us each", "ratio", ""]);
    let each = long.each();
    let around = |step: usize| -> Result<f64> {
        let from = step - WINDOW / 2;
        let window = each
            .get(from..from + WINDOW)
            .ok_or("the run is too short")?;
        Ok(median(window))
    };
    let base = around(EARLY)?;
    for (name, step) in [("step 50", EARLY), ("step 5,000", LATE)] {
        let time = around(step)?;
        let ratio = time / base;
        let goal = (step == LATE).then(|| Goal::at_most(ratio, 1.3, "1.3"));
        table::line(
            name,
            [format!("{time:.0}"), format!("{ratio:.2}"), String::new()],
            goal,
        );
    }
    Ok(())
}

fn show_check(times: &[f64]) {
    table::heading("orch check, median of 3", ["ms", "", ""]);
    let time = median(times);
    table::line(
        "a workflow of 500 steps",
        [format!("{time:.0}"), String::new(), String::new()],
        Some(Goal::at_most(time, 500.0, "half a second")),
    );
}
