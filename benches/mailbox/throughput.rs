//! How many tasks a second: 1,000 of `/bin/true`, from launch to the end.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{Lab, Result, Used, median, nothing};
use crate::peers::{self, PEERS, Peer};
use crate::table::{self, Goal};

/// How many tasks.
pub const TASKS: u32 = 1000;
const ROUNDS: usize = 3;
/// Of the limits and of orch, which are quick, there are more.
const MORE_ROUNDS: usize = 5;

/// One side of the contest.
enum Side {
    /// Only start and wait, on this many threads.
    Limit(u32),
    Orch(&'static str, &'static [&'static str]),
    Peer(&'static Peer),
}

const ORCH: [Side; 3] = [
    Side::Orch(
        "orch --jobs 2 --durability process",
        &["--jobs", "2", "--durability", "process"],
    ),
    Side::Orch(
        "orch --jobs 2 --durability power",
        &["--jobs", "2", "--durability", "power"],
    ),
    Side::Orch(
        "orch --jobs 1 --durability process",
        &["--jobs", "1", "--durability", "process"],
    ),
];

impl Side {
    fn name(&self) -> String {
        match self {
            Side::Limit(threads) => format!("spawn limit on {threads} threads"),
            Side::Orch(name, _) => (*name).to_owned(),
            Side::Peer(peer) => peer.name.to_owned(),
        }
    }

    /// The limit that it is held against.
    fn threads(&self) -> u32 {
        match self {
            Side::Limit(threads) => *threads,
            Side::Orch(_, words) if words[1] == "1" => 1,
            _ => 2,
        }
    }

    fn run(&self, lab: &Lab) -> Result<Used> {
        match self {
            Side::Limit(threads) => spawn_limit(*threads),
            Side::Orch(_, words) => orch(lab, words),
            Side::Peer(peer) => (peer.all)(lab).map(wall),
        }
    }
}

fn wall(wall: Duration) -> Used {
    Used {
        wall,
        cpu: Duration::ZERO,
    }
}

fn spawn_limit(threads: u32) -> Result<Used> {
    let began = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    (0..TASKS / threads).try_for_each(|_| nothing().status().map(drop))
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    Ok(wall(began.elapsed()))
}

fn orch(lab: &Lab, words: &[&str]) -> Result<Used> {
    let root = lab.root(&["/bin/true"])?;
    root.fill(TASKS)?;
    let words = [&["--drain"], words].concat();
    let used = root.watch(&words, Stdio::null())?.wait()?;
    root.check_done(TASKS)?;
    Ok(used)
}

pub fn run(lab: &Lab) -> Result<()> {
    let installed = PEERS
        .iter()
        .filter(|peer| peers::is_installed(peer))
        .map(Side::Peer);
    // The two limits come first: the others are held against them.
    let sides: Vec<Side> = [Side::Limit(2), Side::Limit(1)]
        .into_iter()
        .chain(ORCH)
        .chain(installed)
        .collect();
    let mut results: Vec<Vec<Used>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..MORE_ROUNDS {
        for (side, results) in sides.iter().zip(&mut results) {
            if round < ROUNDS || !matches!(side, Side::Peer(_)) {
                results.push(side.run(lab)?);
            }
        }
    }
    show(&sides, &results);
    Ok(())
}

fn show(sides: &[Side], results: &[Vec<Used>]) {
    let rate = |results: &[Used]| {
        let walls: Vec<Duration> = results.iter().map(|used| used.wall).collect();
        f64::from(TASKS) / median(&walls).as_secs_f64()
    };
    let rates: Vec<f64> = results.iter().map(|results| rate(results)).collect();
    // Against the limit of the same round: other work on the machine slows both.
    let share = |at: usize| {
        let limit = &results[usize::from(sides[at].threads() == 1)];
        let both = results[at].iter().zip(limit);
        let shares: Vec<f64> = both
            .map(|(used, limit)| limit.wall.as_secs_f64() / used.wall.as_secs_f64())
            .collect();
        median(&shares)
    };
    let best_peer = sides
        .iter()
        .zip(&rates)
        .filter(|(side, _)| matches!(side, Side::Peer(_)))
        .fold(0.0, |best, (_, rate)| f64::max(best, *rate));
    table::heading(
        "throughput, 1,000 x /bin/true, median of 3 or 5",
        ["tasks/s", "of limit", "own CPU/task"],
    );
    for (at, side) in sides.iter().enumerate() {
        let share = share(at);
        let cpus: Vec<Duration> = results[at].iter().map(|used| used.cpu).collect();
        let cpu = match side {
            Side::Orch(..) => format!("{} us", median(&cpus).as_micros() / u128::from(TASKS)),
            _ => String::new(),
        };
        let goal = matches!(side, Side::Orch(_, words) if words == &["--jobs", "2", "--durability", "process"]);
        let goal = goal.then(|| Goal {
            wanted: "0.75 of the limit, and ahead of every peer".to_owned(),
            reached: share >= 0.75 && rates[at] > best_peer,
        });
        table::line(
            &side.name(),
            [format!("{:.0}", rates[at]), format!("{share:.2}"), cpu],
            goal,
        );
    }
    PEERS
        .iter()
        .filter(|peer| !peers::is_installed(peer))
        .for_each(|peer| table::skipped(peer.name));
}
