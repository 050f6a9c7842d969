//! What 100,000 waiting or finished tasks change: the first start, memory, the cost of the next.

use std::fs::File;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{Lab, Result, Root, median};
use crate::table::{self, Goal};

const MANY: u32 = 100_000;
const FEW: u32 = 1000;
const ROUNDS: usize = 3;

/// What one sample of 1,000 tasks showed.
#[derive(Clone, Copy)]
struct Sample {
    first: f64,
    wall_us: f64,
    cpu_us: f64,
    memory: f64,
}

pub fn run(lab: &Lab) -> Result<()> {
    let waiting = lab.root(&["/bin/true"])?;
    waiting.fill(MANY)?;
    let finished = lab.root(&["/bin/true"])?;
    finish(&finished)?;
    let mut samples = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let few = lab.root(&["/bin/true"])?;
        few.fill(FEW)?;
        samples[0].push(sample(&few)?);
        samples[1].push(sample(&waiting)?);
        refill(&finished, round)?;
        samples[2].push(sample(&finished)?);
    }
    show(&samples);
    Ok(())
}

/// The files of tasks that were done long ago.
fn finish(root: &Root) -> Result<()> {
    let (artifacts, processed) = (root.folder("artifacts"), root.folder("processed"));
    let make = |from: u32| -> std::io::Result<()> {
        for n in (from..MANY).step_by(2) {
            File::create(artifacts.join(format!("old{n:06}.out")))?;
            File::create(artifacts.join(format!("old{n:06}.json")))?;
            File::create(processed.join(format!("old{n:06}.task")))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| make(1));
        make(0)?;
        other.join().unwrap_or(Ok(()))
    })?;
    Ok(())
}

fn refill(root: &Root, round: usize) -> Result<()> {
    for n in 0..FEW {
        std::fs::write(
            root.folder("inbox").join(format!("r{round}-{n:06}.task")),
            "task\n",
        )?;
    }
    Ok(())
}

/// Starts a watcher, takes the time of 1,000 tasks, and stops it again.
fn sample(root: &Root) -> Result<Sample> {
    let mut watcher = root.watch(&["--jobs", "2", "--durability", "process"], Stdio::piped())?;
    let mut lines = watcher.lines()?;
    let mut next = || {
        lines
            .next()
            .ok_or("orch ended early")?
            .map_err(Box::<dyn std::error::Error>::from)
    };
    next()?;
    let first = watcher.began.elapsed();
    let (cpu, began) = (watcher.cpu()?, Instant::now());
    for _ in 1..FEW {
        next()?;
    }
    let tasks = f64::from(FEW - 1);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / tasks;
    let sample = Sample {
        first: first.as_secs_f64(),
        wall_us: each(began.elapsed()),
        cpu_us: each(watcher.cpu()?.saturating_sub(cpu)),
        memory: watcher.peak_memory()?,
    };
    // What it still prints must not block it while it ends.
    let rest = thread::spawn(move || lines.count());
    watcher.stop()?;
    let _ = rest.join();
    Ok(sample)
}

fn show(samples: &[Vec<Sample>; 3]) {
    let of = |samples: &[Sample], field: fn(&Sample) -> f64| {
        median(&samples.iter().map(field).collect::<Vec<f64>>())
    };
    let base = of(&samples[0], |sample| sample.wall_us);
    let base_cpu = of(&samples[0], |sample| sample.cpu_us);
    table::heading(
        "the next 1,000 tasks, median of 3",
        ["us/task", "ratio", "own CPU/task"],
    );
    let names = [
        "1,000 waiting",
        "100,000 waiting",
        "100,000 finished, 1,000 waiting",
    ];
    for (name, samples) in names.into_iter().zip(samples) {
        let (wall, cpu) = (of(samples, |s| s.wall_us), of(samples, |s| s.cpu_us));
        let ratio = wall / base;
        let goal = (name != names[0]).then(|| Goal::at_most(ratio, 1.2, "1.2"));
        let cpu = format!("{cpu:.0} us ({:.2})", cpu / base_cpu);
        table::line(
            name,
            [format!("{wall:.0}"), format!("{ratio:.2}"), cpu],
            goal,
        );
    }
    table::heading("launch, and the most memory", ["first s", "MiB", ""]);
    for (name, samples) in names.into_iter().zip(samples) {
        let (first, memory) = (of(samples, |s| s.first), of(samples, |s| s.memory));
        let goal = Goal {
            wanted: "first result within 1 s, 64 MiB".to_owned(),
            reached: first <= 1.0 && memory <= 64.0,
        };
        table::line(
            name,
            [format!("{first:.3}"), format!("{memory:.1}"), String::new()],
            Some(goal),
        );
    }
}
