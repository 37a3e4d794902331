//! `vicinity lab`: a VM dies in the middle of a run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::vicinity;
use crate::rig::{self, step};

/// `vicinity lab …` in a folder where its guest images are kept.
fn study(words: &[&str], output: &Path) -> Command {
    let home = rig::home().join("study");
    fs::create_dir_all(&home).unwrap();
    let mut command = vicinity();
    command.current_dir(home).arg("lab").args(words).arg(output);
    command.stdout(Stdio::null());
    command
}

/// The process id of a VM's QEMU among the descendants of a process.
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

fn leftovers(owner: u32) -> Vec<String> {
    let ours = format!("vicinity-lab-{owner}-");
    let names = ["/run", "/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"];
    let entries = names.iter().filter_map(|folder| fs::read_dir(folder).ok());
    let names = entries.flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&ours))
        .collect()
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
            let pid = qemu(run.id(), "vm1").unwrap();
            kill_process(
                Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
                Signal::KILL,
            )
            .unwrap();
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

    step("the rest");
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
