//! The next run removes what a killed run left; a run that ends by Ctrl-C leaves nothing.
//!
//! The runs are processes of this test program, which an environment variable makes run a VM on a
//! bridge until the process is ended.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail it")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use vm_harness::bridge::Bridge;
use vm_harness::error::HarnessError;
use vm_harness::image::Recipe;
use vm_harness::vm::{Spec, Vm};
use vm_harness::{accel, channel, interrupt, scope};

const HOLD: &str = "LAB_TEST_HOLD";

/// This is no test by itself. The tests start it as a process, and end it.
#[test]
fn hold() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    interrupt::install().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab");
    let image = Recipe::default().build(&target).unwrap();
    let bridge = Bridge::new(accel::detect(&image.kernel).unwrap()).unwrap();
    let nic = channel::nic(&bridge, 1, "held", 1).unwrap().unwrap();
    let vm = Vm::boot(&image, Spec::new("held", &target.join("held")).nic(nic)).unwrap();
    println!("\nheld {}", vm.id());
    let end = vm
        .wait_ready(Duration::from_secs(120))
        .and_then(|()| interrupt::sleep(Duration::from_secs(120)));
    assert!(matches!(end, Err(HarnessError::Interrupted)), "{end:?}");
}

/// A run that has a VM. Its output must stay open, because the run still prints at its end.
struct RunWithVm {
    child: Child,
    qemu: u32,
    _output: BufReader<ChildStdout>,
}

fn run_with_vm() -> RunWithVm {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold", "--nocapture", "--test-threads=1"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.by_ref().lines().map(Result::unwrap);
    let qemu = lines.find_map(|line| line.strip_prefix("held ")?.parse().ok());
    RunWithVm {
        child,
        qemu: qemu.unwrap(),
        _output: output,
    }
}

/// Serialises the tests, because each run removes the leftovers of the others when it starts.
fn alone() -> MutexGuard<'static, ()> {
    static RUNS: Mutex<()> = Mutex::new(());
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names_of(owner: u32) -> Vec<String> {
    let mark = format!("vicinity-lab-{owner}-");
    let entries = ["/run", "/run/netns"].map(|folder| fs::read_dir(folder).unwrap());
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&mark)).collect()
}

fn runs(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_killed_run_takes_its_vms_along_and_the_next_removes_the_rest() {
    let _alone = alone();
    let RunWithVm {
        mut child,
        qemu,
        _output,
    } = run_with_vm();
    assert!(runs(qemu) && names_of(child.id()).len() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = interrupt::poll("QEMU's end", Duration::from_secs(20), || {
        Ok((!runs(qemu)).then_some(()))
    });
    gone.unwrap();
    assert!(names_of(child.id()).len() >= 2, "nothing to remove");
    scope::sweep().unwrap();
    assert_eq!(names_of(child.id()), Vec::<String>::new());
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let _alone = alone();
    for which in [Signal::INT, Signal::TERM] {
        let RunWithVm {
            mut child,
            qemu,
            _output,
        } = run_with_vm();
        signal(&child, which);
        assert!(child.wait().unwrap().success(), "{which:?}");
        assert!(!runs(qemu), "QEMU survived {which:?}");
        assert_eq!(names_of(child.id()), Vec::<String>::new());
    }
}
