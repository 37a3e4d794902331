//! `vicinity lab`: a VM is killed in the middle of a run, or the run itself is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::vicinity;
use crate::rig::{self, step};

/// Returns the command `vicinity lab …`, in a folder that keeps its guest images.
fn study(words: &[&str], output: &Path) -> Command {
    let home = rig::home().join("study");
    fs::create_dir_all(&home).unwrap();
    let mut command = vicinity();
    command.current_dir(home).arg("lab").args(words).arg(output);
    command.stdout(Stdio::null());
    command
}

/// Returns the process id of a VM's QEMU among the descendants of a process.
fn qemu(of: u32, vm: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).ok()?.flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|ids| {
            ids.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect();
    children.into_iter().find_map(|child| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_it =
            words.contains("qemu-system") && words.contains(&format!("\0{vm},debug-threads"));
        is_it.then_some(child).or_else(|| qemu(child, vm))
    })
}

fn samples(output: &Path) -> Vec<Value> {
    let text = fs::read_to_string(output.join("samples.ndjson")).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Folders in which control groups with the cpu controller may be.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"];

fn leftovers(owner: u32) -> Vec<String> {
    [&["/run", "/run/netns"], &GROUPS[..]]
        .into_iter()
        .flat_map(|folders| of_owner(owner, folders))
        .collect()
}

/// Returns what a run's process has created in these folders.
fn of_owner(owner: u32, folders: &[&str]) -> Vec<String> {
    let ours = format!("vicinity-lab-{owner}-");
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let names = entries.flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&ours))
        .collect()
}

fn kill(pid: u32) {
    kill_process(
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
}

/// Waits for a line of a run's log.
fn until_said(run: &mut Child, text: &str) {
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let mut said = lines.by_ref().map(Result::unwrap);
    assert!(said.any(|line| {
        println!("{line}");
        line.contains(text)
    }));
    // The run continues, and a full pipe must not block it.
    std::thread::spawn(move || lines.for_each(drop));
}

#[test]
#[ignore = "some minutes: `make soak` runs it"]
fn a_run_that_is_killed_leaves_settings_that_resume_undoes_before_it_completes() {
    let _machine = rig::take_machine();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    step("a run of one cell, with weights, in each block");
    let words = [
        "run",
        "W23",
        "--only",
        "weight=2:1:1",
        "--only",
        "set=10+10",
        "--scale",
        "ci",
        "--output",
    ];
    let mut run = study(&words, &output)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_said(&mut run, "weights block 2 cell");
    while of_owner(run.id(), &GROUPS).is_empty() {
        assert!(run.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    step("the run is killed after it changed a setting");
    kill(run.id());
    run.wait().unwrap();
    assert_ne!(of_owner(run.id(), &GROUPS), Vec::<String>::new());
    let of_weights = || {
        let samples = samples(&output);
        samples
            .iter()
            .filter(|one| one["sweep"] == "weights")
            .count()
    };
    assert_eq!(of_weights(), 1);

    step("resume restores the setting, and measures the rest");
    assert!(study(&["resume"], &output).status().unwrap().success());
    assert_eq!(leftovers(run.id()), Vec::<String>::new());
    assert_eq!(of_weights(), 3);
}

#[test]
#[ignore = "some minutes: `make soak` runs it"]
fn a_vm_that_dies_in_the_middle_costs_its_cell_and_resume_completes_the_run() {
    let _machine = rig::take_machine();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    step("a run of one cell in each block");
    let mut command = study(
        &[
            "run",
            "X4",
            "--only",
            "size=64",
            "--only",
            "channel=switch",
            "--only",
            "placement=shared",
            "--scale",
            "ci",
            "--output",
        ],
        &output,
    );
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut killed = false;
    for line in BufReader::new(run.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        if line.contains("udp block 2 cell") && !killed {
            step("VM 1 dies");
            kill(qemu(run.id(), "vm1").unwrap());
            killed = true;
        }
    }
    assert!(run.wait().unwrap().success() && killed);
    let of_sweep = |all: &[Value], failed: bool| {
        let those = all.iter().filter(|one| one["sweep"] == "udp");
        those
            .filter(|one| one["failed"].is_string() == failed)
            .count()
    };
    let all = samples(&output);
    assert_eq!(
        (of_sweep(&all, false), of_sweep(&all, true)),
        (2, 1),
        "{all:?}"
    );
    let failed = all.iter().find(|one| one["failed"].is_string()).unwrap();
    let reason = failed["failed"].as_str().unwrap();
    assert!(reason.contains("vm1"), "{reason}");
    assert_eq!(leftovers(run.id()), Vec::<String>::new());

    step("resume measures the rest");
    let mut command = study(&["resume"], &output);
    assert!(command.status().unwrap().success());
    let all = samples(&output);
    assert_eq!(
        (of_sweep(&all, false), of_sweep(&all, true)),
        (3, 1),
        "{all:?}"
    );
    let report = fs::read_to_string(output.join("report.md")).unwrap();
    assert!(
        report.contains("Cells that failed") && report.contains("vm1"),
        "{report}"
    );
}
