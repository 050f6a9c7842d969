//! How fast the mailbox is: against the limit of this machine, against its peers, at scale, and in
//! workflows.
//!
//! Everything is measured in one run and told as ratios, since a machine is never as fast twice.
//! Each side starts with a fresh folder in memory. Slow is not broken: the exit code is not 0 only
//! where a side did not do its work.
//!
//! `cargo bench` runs it all; `cargo bench -- latency` only the parts that are named, of
//! `throughput`, `latency`, `scale`, `steps` and `confine`. Nothing is ever installed: peers that are
//! missing are skipped, and that is said.

#[path = "mailbox/confine.rs"]
mod confine;
#[path = "mailbox/lab.rs"]
mod lab;
#[path = "mailbox/latency.rs"]
mod latency;
#[path = "mailbox/peers.rs"]
mod peers;
#[path = "mailbox/scale.rs"]
mod scale;
#[path = "mailbox/steps.rs"]
mod steps;
#[path = "mailbox/table.rs"]
mod table;
#[path = "mailbox/throughput.rs"]
mod throughput;

use std::process::ExitCode;
use std::time::Instant;

use lab::{Lab, Result};

/// A part of the measurements, by its name.
type Part = (&'static str, fn(&Lab) -> Result<()>);

const PARTS: [Part; 5] = [
    ("throughput", throughput::run),
    ("latency", latency::run),
    ("scale", scale::run),
    ("steps", steps::run),
    ("confine", confine::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` starts this too, without the word.
    if !words.iter().any(|word| word == "--bench") {
        println!("nothing is measured without `--bench`: use `cargo bench`");
        return ExitCode::SUCCESS;
    }
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("broken: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let began = Instant::now();
    let lab = Lab::new()?;
    let named = |part: &str| words.iter().any(|word| word == part);
    let all = !PARTS.iter().any(|(part, _)| named(part));
    for (part, measure) in PARTS {
        if all || named(part) {
            measure(&lab)?;
        }
    }
    println!("\n{:.0} s in all", began.elapsed().as_secs_f64());
    Ok(())
}
