//! Ctrl-C during a check ends what the check started, and every check still has an entry. The signal's flag stays set
//! in this process, so this test has a process of its own.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use selftest::check::{Check, Requirement, Subject};
use selftest::outcome::{Outcome, Verdict};
use selftest::runner;
use vm_harness::error::Result;
use vm_harness::host::{self, ChildProcess};
use vm_harness::interrupt;

/// Holds a child from one check to the next, as the testbed holds VMs.
#[derive(Default)]
struct Children(Vec<ChildProcess>);

impl Subject for Children {
    fn missing(&mut self, _: Requirement) -> Result<Option<String>> {
        Ok(None)
    }

    fn reset(&mut self) {
        self.0.clear();
    }
}

fn sleeper() -> Result<ChildProcess> {
    let mut sleep = host::command("sleep");
    sleep.arg("600");
    ChildProcess::spawn(sleep)
}

fn starts_one(children: &mut Children) -> Result<Outcome> {
    children.0.push(sleeper()?);
    Ok(Outcome::pass())
}

fn hangs_with_another(_: &mut Children) -> Result<Outcome> {
    let _own = sleeper()?;
    kill_process(getpid(), Signal::INT).unwrap();
    interrupt::sleep(Duration::from_secs(600))?;
    Ok(Outcome::pass())
}

fn check(id: &'static str, run: fn(&mut Children) -> Result<Outcome>) -> Check<Children> {
    Check {
        id,
        title: id,
        shows: id,
        needs: &[],
        usual: Duration::ZERO,
        limit: Duration::from_secs(600),
        run,
    }
}

#[test]
fn ctrl_c_ends_all_children_and_every_check_has_an_entry() {
    interrupt::install().unwrap();
    let checks = [
        check("a", starts_one),
        check("b", hangs_with_another),
        check("c", starts_one),
    ];
    let mut children = Children::default();
    let end = Instant::now() + Duration::from_secs(600);
    let (entries, interrupted) = runner::run(&checks, &mut children, end, |_| ());
    let verdicts: Vec<Verdict> = entries.iter().map(|entry| entry.verdict).collect();
    assert!(interrupted);
    assert_eq!(verdicts, [Verdict::Pass, Verdict::NotRun, Verdict::NotRun]);
    assert!(entries[1].reason.as_ref().unwrap().contains("interrupted"));
    assert_eq!(children.0.len(), 1);
    drop(children);
    assert_eq!(
        host::family(std::process::id()).len(),
        1,
        "a child still runs"
    );
}
