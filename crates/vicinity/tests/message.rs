//! Two processes send each other messages.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod common;

use std::process::{Child, Stdio};

use common::vicinity;
use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed when this value is dropped, so also when the test fails.
struct Answerer(Child);

impl Drop for Answerer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the KiB of a process's heap that are in memory.
fn heap(process: u32) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let (_, heap) = text.split_once("[heap]").unwrap();
    let rss = heap.lines().find_map(|line| line.strip_prefix("Rss:"));
    rss.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn an_answerer_is_pinged_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let board = folder.path().join("message");
    let run = |arguments: &[&str]| {
        let mut command = vicinity();
        command.arg("--runtime-dir").arg(folder.path());
        command.arg("message").args(arguments);
        command
    };
    for (peer, what_helps) in [
        (
            "7",
            "start `vicinity message answer --endpoint` with this number there",
        ),
        ("web:7", "in a VM, run `vicinity message join`"),
    ] {
        let nobody = run(&["ping", peer]).output().unwrap();
        assert_eq!(nobody.status.code(), Some(1));
        let text = String::from_utf8_lossy(&nobody.stderr);
        let whom = format!("error: cannot reach endpoint {peer}: ");
        assert!(text.contains(&whom) && text.contains(what_helps), "{text}");
    }

    let mut command = run(&["answer", "--endpoint", "7"]);
    let mut answerer = Answerer(command.stderr(Stdio::null()).spawn().unwrap());
    while !board.join("endpoints/7.sock").exists() {
        assert!(answerer.0.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let heap = heap(answerer.0.id());
    assert!(heap < 256, "{heap} KiB of heap for an endpoint that waits");
    for length in ["0", "8", "100000"] {
        let ping = run(&["ping", "7", "--length", length, "--count", "100"]);
        let output = { ping }.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("100 round trips of {length} B")),
            "{output:?}"
        );
    }
    let ping = run(&["ping", "7", "--count", "100", "--json"]).output();
    let trips: serde_json::Value = serde_json::from_slice(&ping.unwrap().stdout).unwrap();
    assert_eq!(
        (&trips["count"], &trips["length"]),
        (&100.into(), &8.into())
    );
    assert!(trips["least_us"].as_f64() <= trips["p99_us"].as_f64());
    let pid = Pid::from_raw(i32::try_from(answerer.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(answerer.0.wait().unwrap().success());
    let left: Vec<_> = std::fs::read_dir(board.join("endpoints"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
