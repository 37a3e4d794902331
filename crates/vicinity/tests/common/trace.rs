//! The system calls and the descriptors of a process, seen from outside.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Calls that a trace of a healthy process with one thread need not contain: those of `sandbox.rs`, those of
/// a thread's end, of signal handlers and of the log, and the one for the alarm, which a thread makes before
/// a tracer can attach.
pub(crate) const RARE_CALLS: [&str; 16] = [
    "timer_create",
    "futex",
    "brk",
    "mremap",
    "rt_sigprocmask",
    "gettid",
    "getpid",
    "tgkill",
    "clock_gettime",
    "exit",
    "madvise",
    "rt_sigreturn",
    "rt_sigaction",
    "sigaltstack",
    "fcntl",
    "write",
];

/// strace, attached to a running process.
pub(crate) struct Trace(Child);

impl Trace {
    pub(crate) fn attach(process: u32, log: &Path) -> Self {
        let mut child = Command::new("strace")
            .args(["--follow-forks", "--output"])
            .arg(log)
            .args(["--attach", &process.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        // Read the later output of strace, too, so that its pipe does not fill.
        std::thread::spawn(move || said.lines().count());
        Self(child)
    }

    /// Waits for the end of strace, which ends with the process.
    pub(crate) fn ended(mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the names of the calls in strace's log.
pub(crate) fn calls(log: &Path) -> BTreeSet<String> {
    let log = std::fs::read_to_string(log).unwrap();
    let name = |line: &str| {
        let call = line.split_once(' ')?.1.trim_start();
        let call = call.strip_prefix("<... ").unwrap_or(call);
        let end = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        (end > 0).then(|| call[..end].to_owned())
    };
    log.lines().filter_map(name).collect()
}

/// Returns the target of each descriptor of a process.
pub(crate) fn descriptors(process: u32) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .map(|path| {
            let path = path.to_string_lossy().into_owned();
            path.split(':').next().unwrap_or_default().to_owned()
        })
        .collect();
    all.sort();
    all
}
