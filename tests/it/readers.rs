//! What every reader promises about any bytes, held with the seeds of the fuzz targets and with all
//! that once broke a promise.

#[path = "readers/promises.rs"]
mod promises;

use std::fs;
use std::path::Path;

#[test]
fn every_seed_keeps_the_promises_of_its_reader() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, holds) in promises::ALL {
        let folder = fs::read_dir(seeds.join(name)).expect(name);
        let files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 3, "`{name}` has {} seeds", files.len());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            let kept = std::panic::catch_unwind(|| holds(&bytes));
            assert!(kept.is_ok(), "{}", file.display());
        }
    }
}

#[test]
fn every_reader_has_a_fuzz_target() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    for (name, _) in promises::ALL {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
