//! `scripts/beside` and `scripts/quietly`, by which the tests of CI run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

fn script(name: &str) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    Command::new(scripts.join(name))
}

/// Runs a command beside a background, which may last for so many seconds longer.
fn beside(background: &str, command: &str, seconds: u32) -> Output {
    script("beside")
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
    // The process that adopts the sleeping one may leave it a zombie.
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

#[test]
fn a_suite_is_shown_when_it_ends() {
    let suite = "echo '     Running tests/one.rs (target/one)'; \
                 echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s'; \
                 sleep 60";
    let mut quietly = script("quietly");
    quietly.args(["test-of-quietly", "sh", "-c", suite]);
    let mut quietly = quietly
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let started = Instant::now();
    let output = BufReader::new(quietly.stdout.take().unwrap());
    let shown = output.lines().map_while(Result::ok).nth(1);
    let took = started.elapsed();
    kill_process_group(Pid::from_child(&quietly), Signal::TERM).unwrap();
    quietly.wait().unwrap();
    assert_eq!(shown.as_deref(), Some("  tests/one.rs: 1 passed in 0.01s"));
    assert!(took < Duration::from_secs(50), "{took:?}");
}
