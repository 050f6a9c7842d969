//! A task that an event names goes straight to a worker that is idle, and a scan follows.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::disk::mailbox::Mailbox;
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;

fn folders(temp: &tempfile::TempDir) -> Arc<AgentBox> {
    for folder in ["inbox/a", "specs"] {
        std::fs::create_dir_all(temp.path().join(folder)).unwrap();
    }
    std::fs::write(temp.path().join("specs/orch.yaml"), "").unwrap();
    let root = Arc::new(Root::open(temp.path()).unwrap());
    let mailbox = Mailbox::new(root, Disk::new(Durability::Process));
    mailbox.agent(&AgentName::parse("a").unwrap()).unwrap()
}

/// A queue whose last scan found the agent and no task.
fn scanned(folders: &Arc<AgentBox>) -> Queue {
    let queue = Queue::default();
    queue.begin_scan();
    let turn = Turn {
        folders: folders.clone(),
        names: Names::default(),
        suffix: TASK,
    };
    queue.publish(vec![turn], Vec::new());
    queue
}

fn until_idle(queue: &Queue, how_many: usize) {
    while queue.lock().idle < how_many {
        thread::yield_now();
    }
}

#[test]
fn a_named_task_goes_straight_to_an_idle_worker_and_a_scan_follows() {
    let temp = tempfile::tempdir().unwrap();
    let folders = folders(&temp);
    let queue = scanned(&folders);
    let name = TaskName::parse("x").unwrap();
    let (send, taken) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(work) = queue.take() {
                send.send(work).unwrap();
            }
        });
        // Nobody is idle yet, or somebody is: a worker that has nothing to do is told at once.
        until_idle(&queue, 1);
        let told_at = Instant::now();
        assert!(queue.name(&folders.agent, name.clone()));
        let work = taken.recv().unwrap();
        assert!(
            matches!(&work, QueuedWork::Named(item) if item.name == name),
            "{work:?}"
        );
        // Told again while it is looked at: nobody looks twice, and the scan that is due shows.
        until_idle(&queue, 1);
        assert!(queue.name(&folders.agent, name.clone()));
        assert!(taken.try_recv().is_err());
        let far = told_at + Duration::from_secs(60);
        let glance = queue.wait_until(Some(far), |glance| glance.woken);
        assert!(glance.woken, "no scan follows");
        assert!(told_at.elapsed() >= AFTER_NAMED);
        // With a scan due at once, and for an agent that no scan has found, the scan decides.
        assert!(!queue.name(&folders.agent, TaskName::parse("y").unwrap()));
        queue.begin_scan();
        queue.publish(Vec::new(), Vec::new());
        assert!(!queue.name(&folders.agent, name.clone()));
        queue.stop();
    });
}

#[test]
fn a_named_task_waits_for_the_scan_where_nobody_is_idle() {
    let temp = tempfile::tempdir().unwrap();
    let folders = folders(&temp);
    let queue = scanned(&folders);
    assert!(!queue.name(&folders.agent, TaskName::parse("x").unwrap()));
}
