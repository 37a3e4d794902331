//! `vicinity top` with a terminal (made by `script` of util-linux) and without one.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use common::vicinity;
use rustix::process::{Pid, Signal, kill_process};

/// The last control sequences that the terminal receives: show the ordinary screen and the cursor.
const ORDINARY_SCREEN: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// `vicinity top` on its own terminal.
struct Terminal {
    script: Child,
    program: Pid,
    shown: String,
}

impl Terminal {
    /// Starts `vicinity top` and waits until it has drawn the screen.
    fn start() -> Self {
        let program = env!("CARGO_BIN_EXE_vicinity");
        let line = format!(
            "stty rows 40 columns 160; echo process $$; \
             exec {program} top --runtime-dir /nonexistent"
        );
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut terminal = Self {
            script: script.spawn().unwrap(),
            program: Pid::INIT,
            shown: String::new(),
        };
        terminal.read_until("quit");
        let mut words = terminal.shown.split_whitespace();
        words.find(|word| *word == "process");
        let pid = words.next().unwrap().parse().unwrap();
        terminal.program = Pid::from_raw(pid).unwrap();
        terminal
    }

    fn read_until(&mut self, text: &str) {
        let output = self.script.stdout.as_mut().unwrap();
        let mut part = [0; 4096];
        while !self.shown.contains(text) {
            let count = output.read(&mut part).unwrap();
            assert!(count > 0, "it ended: {}", self.shown);
            self.shown
                .push_str(&String::from_utf8_lossy(&part[..count]));
        }
    }

    /// Asserts that `vicinity top` ends with success and restores the terminal.
    fn assert_ended_well(mut self) {
        let output = self.script.stdout.as_mut().unwrap();
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        assert_eq!(
            self.script.wait().unwrap().code(),
            Some(0),
            "{}",
            self.shown
        );
        for told in [ORDINARY_SCREEN, CURSOR] {
            assert!(self.shown.contains(told), "{told:?} in {:?}", self.shown);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.script.kill());
        drop(self.script.wait());
    }
}

#[test]
fn sigterm_gives_the_terminal_back() {
    let terminal = Terminal::start();
    kill_process(terminal.program, Signal::TERM).unwrap();
    terminal.assert_ended_well();
}

#[test]
fn q_gives_the_terminal_back() {
    let mut terminal = Terminal::start();
    terminal
        .script
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"q")
        .unwrap();
    terminal.assert_ended_well();
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let output = vicinity().arg("top").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--once"), "{said}");
}

#[test]
fn every_line_of_the_stream_is_json() {
    let mut command = vicinity();
    command.args(["top", "--json", "--runtime-dir", "/nonexistent"]);
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(top.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(report["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(
            report["host"]["energy"].as_str().map(str::is_empty),
            Some(false)
        );
        assert!(report["vicinity"].is_null());
    }
    kill_process(Pid::from_child(&top), Signal::TERM).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0));
}
