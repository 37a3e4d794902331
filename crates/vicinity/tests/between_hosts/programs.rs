//! Programs that exchange messages between hosts: `vicinity message`, and C programs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::common::mx::{Installed, succeed};
use crate::common::vicinity;
use crate::hosts::Hosts;

#[test]
fn hosts_are_pinged_and_measured_by_name() {
    let mut hosts = Hosts::new(false);
    hosts.serve_plainly(0);
    hosts.serve(1);
    drop((hosts.open(0, " beta"), hosts.open(1, " alpha")));
    let run = |place: usize, words: &[&str]| {
        let mut command = vicinity();
        command.arg("--runtime-dir").arg(hosts.runtime(place));
        command.arg("message").args(words);
        command
    };
    let answer = run(1, &["answer", "--endpoint", "7"])
        .stderr(Stdio::piped())
        .spawn();
    let mut answer = Killed(answer.unwrap());
    let mut line = String::new();
    let said = answer.0.stderr.as_mut().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    assert!(line.contains("answering"), "{line}");
    for length in ["0", "8", "5000", "524288"] {
        let words = ["ping", "beta:7", "--length", length, "--count", "10"];
        let output = run(0, &words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("10 round trips of {length} B")),
            "{output:?}"
        );
    }
    let lengths = ["perf", "beta:7", "--lengths", "8,524288", "--json"];
    let output = run(0, &lengths).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (row, length) in [8, 524_288].into_iter().enumerate() {
        assert_eq!(rows[row]["length"], length);
        for way in ["plain", "heap"] {
            let rate = rows[row][way]["messages_per_s"].as_f64();
            assert!(rate > Some(0.0), "{rows}");
        }
    }
    let output = run(0, &["ping", "gamma:7"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("no known member or host has this address"),
        "{text}"
    );
}

#[test]
fn c_programs_of_two_hosts_talk() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    hosts.serve(1);
    let installed = Installed::new(hosts.folder.path().join("mx"));
    let program = hosts.folder.path().join("program");
    installed.compile("tests/c/members.c", &program);
    drop((hosts.open(0, " beta"), hosts.open(1, " alpha")));
    let run = |place: usize, words: [&str; 5]| {
        let mut command = hosts.within(place, &program);
        command.args(words);
        command.env("LD_LIBRARY_PATH", installed.libraries());
        command.env("VICINITY_RUNTIME_DIR", hosts.runtime(place));
        succeed(&mut command);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0, ["alpha", "beta", "1", "2", "other-host"]));
        run(1, ["beta", "alpha", "2", "1", "other-host"]);
    });
}

/// A process that is killed when this value is dropped, so also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
