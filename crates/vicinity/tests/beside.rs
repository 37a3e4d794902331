//! `scripts/beside`, by which the tests of CI run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs a command beside a background, which may last for so many seconds longer.
fn beside(background: &str, command: &str, seconds: u32) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/beside");
    Command::new(script)
        .args([background, "sh", "-c", command])
        .env("VICINITY_BESIDE_SECONDS", seconds.to_string())
        .output()
        .unwrap()
}

#[test]
fn after_the_command_the_background_has_the_normal_priority() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies");
    let file = file.display();
    // A child of a child, as compilers are.
    let background = format!(
        "sh -c 'chrt --pid $$ >{file}; until chrt --pid $$ | grep SCHED_OTHER >>{file}; do sleep 0.1; done'; true"
    );
    let command = format!("until grep priority {file}; do sleep 0.1; done");
    let output = beside(&background, &command, 60);
    assert!(output.status.success(), "{output:?}");
    let policies = fs::read_to_string(folder.path().join("policies")).unwrap();
    let words = policies.split_whitespace();
    let policies: Vec<_> = words.filter(|word| word.starts_with("SCHED_")).collect();
    assert_eq!(policies, ["SCHED_IDLE", "SCHED_OTHER"]);
}

#[test]
fn a_background_that_hangs_is_listed_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("process");
    let background = format!(
        "sh -c 'echo $$ >{}; exec sleep 86399'; true",
        file.display()
    );
    let command = format!("until [ -s {} ]; do sleep 0.1; done", file.display());
    let output = beside(&background, &command, 1);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let process = fs::read_to_string(&file).unwrap();
    let listed = said.lines().find(|line| line.ends_with(" sleep 86399"));
    let listed = listed.unwrap_or_else(|| panic!("{said}"));
    assert_eq!(listed.split_whitespace().next(), Some(process.trim()));
    // Whoever adopts the process may leave it a zombie.
    let stat = Path::new("/proc").join(process.trim()).join("stat");
    let started = Instant::now();
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(started.elapsed() < Duration::from_secs(20), "it is there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_fails_if_one_of_both_fails() {
    for (background, command, code) in [
        ("true", "true", 0),
        ("exit 3", "true", 3),
        ("true", "exit 4", 4),
    ] {
        assert_eq!(beside(background, command, 60).status.code(), Some(code));
    }
}
