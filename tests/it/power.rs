//! A power cut at every point of the order on disk: what was accepted and what was committed is
//! still there when the machine comes back.
//!
//! The root lies on an ext4 of its own in a file, mounted through a loop device, and the cut is the
//! kernel's own: the file system is shut down without writing its journal. That needs root.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use orch::disk::order::Point;
use serde_json::Value;
use tempfile::TempDir;

use crate::crash::{assert_promise, drain, fill, is_reached, side_by_side};
use crate::harness::{Bed, Program, needs, program, wait_for};
use crate::runs;

/// A file system that can lose its power.
struct Machine {
    image: PathBuf,
    mount: PathBuf,
}

impl Machine {
    /// A new one, mounted.
    fn new(temp: &TempDir) -> Machine {
        let base = temp.path().canonicalize().unwrap();
        let machine = Machine {
            image: base.join("disk.img"),
            mount: base.join("disk"),
        };
        std::fs::create_dir(&machine.mount).unwrap();
        File::create(&machine.image)
            .unwrap()
            .set_len(24 << 20)
            .unwrap();
        let mkfs = program("mkfs.ext4").args(["-qF"]);
        mkfs.args([&machine.image]).run().expect(0);
        machine.reboot();
        machine
    }

    fn boot(&self) -> bool {
        let mount = program("mount").args(["-o", "loop"]);
        does(mount.args([&self.image, &self.mount]))
    }

    /// Everything that is not on the disk yet is gone.
    #[expect(unsafe_code, reason = "there is no safe way to this ioctl")]
    fn cut_power(&self) {
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        const WITHOUT_THE_JOURNAL: u32 = 2;
        let disk = File::open(&self.mount).unwrap();
        // SAFETY: the descriptor is open, and the argument is a number that the kernel only reads.
        let done = unsafe { libc::ioctl(disk.as_raw_fd(), SHUTDOWN, &WITHOUT_THE_JOURNAL) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        drop(disk);
        // The guard of the watcher that was killed may still be looking at it.
        wait_for("the dead disk to be free", || self.unmount());
        // It is mounted wherever somebody has mounts of their own, as other tests do, until they end:
        // what is mounted anew before that is the same dead disk.
        wait_for("the dead disk to be gone", || !self.is_attached());
    }

    fn is_attached(&self) -> bool {
        let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
        let mut files = devices.map(|device| device.path().join("loop/backing_file"));
        let image = self.image.as_os_str().as_encoded_bytes();
        files.any(|file| std::fs::read(file).is_ok_and(|path| path.trim_ascii() == image))
    }

    /// The machine comes back. Loop devices are handed out to whoever is first.
    fn reboot(&self) {
        wait_for("a loop device", || self.boot());
    }

    fn unmount(&self) -> bool {
        does(program("umount").args([&self.mount]))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A guard that is about to end may still look at it: then it goes when that has gone.
        does(program("umount").args(["-l"]).args([&self.mount]));
    }
}

fn does(program: Program) -> bool {
    program.run().noisy().succeeds()
}

fn sync() {
    program("sync").run().expect(0);
}

/// Checks that the tasks survive a cut at this point.
fn cut_at(point: Point, durability: &str) {
    let temp = TempDir::with_prefix("orch-power-").unwrap();
    let machine = Machine::new(&temp);
    let bed = fill(Bed::with_root(machine.mount.join("root"), temp));
    // What was dropped is accepted: the user's own programs have synced it.
    sync();
    let fault = format!("kill:{}", point.name());
    drain(&bed, durability, Some(&fault))
        .about(point.name())
        .killed();
    bed.assert_nothing_runs();
    machine.cut_power();
    machine.reboot();
    drain(&bed, durability, None)
        .may_say(&["take over "])
        .expect(0);
    assert_promise(&bed, 1, &format!("power cut before {}", point.name()));
    // Before the folder that it is mounted in is removed with the bed.
    drop(machine);
}

/// Says so where it is not permitted to cut anything.
fn can_cut_power() -> bool {
    if !(needs::root("cut the power") && needs::programs(&["mkfs.ext4", "mount"])) {
        return false;
    }
    let has_loops = std::path::Path::new("/dev/loop-control").exists();
    if !has_loops {
        needs::skip_here("there are no loop devices");
    }
    has_loops && needs::mounts()
}

#[test]
fn a_power_cut_at_any_point_loses_nothing() {
    if !can_cut_power() {
        return;
    }
    let cases: Vec<Point> = Point::ALL
        .iter()
        .copied()
        .filter(|point| is_reached(*point, "power"))
        .collect();
    side_by_side(&cases, |point| cut_at(*point, "power"));
}

/// Checks that a run ends as if nothing had happened; gives whether the point was come to.
fn cut_run_at(point: Point, nth: u32, expected: &Value) -> bool {
    let story = format!("power cut before {} for the {nth}th time", point.name());
    let temp = TempDir::with_prefix("orch-power-").unwrap();
    let machine = Machine::new(&temp);
    let bed = runs::fill_five(Bed::with_root(machine.mount.join("root"), temp));
    // What the steps count lies beside the root, on a disk that keeps its power.
    std::os::unix::fs::symlink(&bed.outside, machine.mount.join("outside")).unwrap();
    sync();
    let ran = runs::drain(&bed, Some(&format!("kill:{}:{nth}", point.name())))
        .about(&story)
        .may_say(&["take over ", "retry "])
        .killed_or(0);
    bed.assert_nothing_runs();
    machine.cut_power();
    machine.reboot();
    let after = runs::drain(&bed, None)
        .about(format!("{story}: {ran:?}"))
        .may_say(&["take over ", "retry "])
        .expect(0);
    assert_eq!(
        runs::lasting(runs::state(&bed)),
        *expected,
        "{story}: {after:?}"
    );
    // One for each step, one for the second try of the flaky one, one more for what was cut off.
    let most = 8 + usize::from(ran.was_killed());
    assert!(
        bed.count_lines("count") <= most,
        "{story}: finished work was done again"
    );
    bed.orch(["audit", runs::RUN]).run().expect(0);
    drop(machine);
    ran.was_killed()
}

#[test]
fn a_run_whose_machine_loses_power_ends_as_if_nothing_had_happened() {
    if !can_cut_power() {
        return;
    }
    let whole = runs::fill_five(Bed::new());
    runs::drain(&whole, None).says("retry ").expect(0);
    let expected = runs::lasting(runs::state(&whole));
    let of_runs = |point: &&Point| point.name().starts_with("run.");
    let mut cases = Vec::new();
    for point in Point::ALL.iter().filter(of_runs) {
        cases.extend([(*point, 1), (*point, 3)]);
    }
    let cut = AtomicUsize::new(0);
    side_by_side(&cases, |(point, nth)| {
        let come_to = cut_run_at(*point, *nth, &expected);
        cut.fetch_add(usize::from(come_to), Ordering::Relaxed);
    });
    assert!(
        cut.into_inner() >= 15,
        "the points are not come to any more"
    );
}

#[test]
fn what_send_accepted_survives_a_power_cut() {
    if !can_cut_power() {
        return;
    }
    let temp = TempDir::with_prefix("orch-power-").unwrap();
    let machine = Machine::new(&temp);
    let bed = Bed::with_root(machine.mount.join("root"), temp);
    std::fs::create_dir(bed.root.join("inbox/echo")).unwrap();
    sync();
    bed.orch(["send", "echo", "hello", "--name", "x"])
        .run()
        .says("no watcher is running")
        .expect(0);
    machine.cut_power();
    machine.reboot();
    assert_eq!(bed.read("inbox/echo/x.task"), "hello");
    drop(machine);
}
