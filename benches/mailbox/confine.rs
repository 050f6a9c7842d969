//! What confinement costs: the same tasks with and without, as a ratio.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use crate::lab::{Lab, Result, median};
use crate::table;

const TASKS: u32 = 300;
const ROUNDS: usize = 3;
const ONE_JOB: [&str; 5] = ["--drain", "--jobs", "1", "--durability", "process"];

pub fn run(lab: &Lab) -> Result<()> {
    let (mut plain, mut limited, mut confined) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(tasks(lab, "")?);
        limited.push(tasks(lab, "limits: {file: 1GiB}\n")?);
        confined.push(tasks(lab, "sandbox: landlock\n")?);
    }
    table::heading(
        "confinement of `/bin/true`, 1 job",
        ["tasks/s", "ms each", "ratio"],
    );
    let base = median(&plain);
    for (name, rates) in [
        ("not confined", &plain),
        ("limits alone", &limited),
        ("Landlock", &confined),
    ] {
        let rate = median(rates);
        let columns = [
            format!("{rate:.0}"),
            format!("{:.2}", 1000.0 / rate),
            format!("{:.2}", base / rate),
        ];
        table::line(name, columns, None);
    }
    Ok(())
}

/// Tasks in a second, with these lines more in the settings.
fn tasks(lab: &Lab, settings: &str) -> Result<f64> {
    let root = lab.root(&["/bin/true"])?;
    let path = root.path.join("specs/orch.yaml");
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(settings.as_bytes())?;
    root.fill(TASKS)?;
    let began = Instant::now();
    root.watch(&ONE_JOB, Stdio::null())?.wait()?;
    let rate = f64::from(TASKS) / began.elapsed().as_secs_f64();
    root.check_done(TASKS)?;
    Ok(rate)
}
