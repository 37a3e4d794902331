//! Starts and stops the real program.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod holdings;
pub(crate) mod libfabric;
pub(crate) mod manager;
pub(crate) mod member;
pub(crate) mod mount;
pub(crate) mod mx;
pub(crate) mod neighbours;
pub(crate) mod open_mpi;
pub(crate) mod page;
pub(crate) mod silent;
pub(crate) mod trace;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Returns the command of the program under test.
pub(crate) fn vicinity() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vicinity"));
    command
        .env_remove("VICINITY_RUNTIME_DIR")
        .stdin(Stdio::null());
    command
}

/// A running `vicinity serve`, which is killed when this value is dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    run: PathBuf,
}

impl Daemon {
    /// Starts the daemon with `<folder>/run` as its runtime folder, and waits until it answers.
    pub(crate) fn start(folder: &Path, config: Option<&str>) -> Self {
        Self::start_by(vicinity(), folder, config)
    }

    /// Starts the daemon by a command that runs the program.
    pub(crate) fn start_by(command: Command, folder: &Path, config: Option<&str>) -> Self {
        Self::start_logging(command, folder, config, "error")
    }

    /// Starts the daemon with another log level.
    pub(crate) fn start_logging(
        mut command: Command,
        folder: &Path,
        config: Option<&str>,
        log: &str,
    ) -> Self {
        let run = folder.join("run");
        command
            .args(["serve", "--log", log, "--runtime-dir"])
            .arg(&run);
        if let Some(text) = config {
            let file = folder.join("vicinity.toml");
            std::fs::write(&file, text).unwrap();
            command.arg("--config").arg(file);
        }
        let child = command.spawn().unwrap();
        Self::of(child, folder)
    }

    /// Returns a daemon that was started with `<folder>/run` as its runtime folder, once it
    /// answers.
    pub(crate) fn of(child: Child, folder: &Path) -> Self {
        let run = folder.join("run");
        let mut daemon = Self { child, run };
        until("the daemon", || {
            let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(
                daemon.child.try_wait().unwrap().is_none(),
                "it ended: {}",
                log()
            );
            daemon.ask("network").status.success()
        });
        daemon
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.run.join(below)
    }

    /// Runs a command of the program for this daemon.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let mut command = vicinity();
        command.args(arguments).arg("--runtime-dir");
        command.arg(&self.run).output().unwrap()
    }

    /// Returns the text of the configuration file that the daemon was started with.
    pub(crate) fn config(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// Writes a new text to the configuration file.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.run.with_file_name("vicinity.toml")
    }

    fn ask(&self, what: &str) -> Output {
        let mut command = vicinity();
        command.args([what, "list", "--json", "--runtime-dir"]);
        command.arg(&self.run).output().unwrap()
    }

    /// Returns the ports from `vicinity port list --json`.
    pub(crate) fn ports(&self) -> Vec<Value> {
        let output = self.ask("port");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the port of a VM from `vicinity port list --json`; null if there is no such port.
    pub(crate) fn port(&self, vm: &str) -> Value {
        self.ports()
            .into_iter()
            .find(|port| port["vm"] == vm)
            .unwrap_or_default()
    }

    pub(crate) fn until_state(&self, vm: &str, state: &str) {
        until(state, || self.port(vm)["state"] == state);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Returns the process id of a network's data plane, if it runs.
    pub(crate) fn data_plane(&self, network: &str) -> Option<u32> {
        self.process(&format!("net-{network}"))
    }

    /// Returns the process id of the daemon's child process of this name, if it runs.
    pub(crate) fn process(&self, name: &str) -> Option<u32> {
        child_of(self.child.id(), name)
    }

    /// Returns the process ids of the daemon's child processes.
    pub(crate) fn children(&self) -> Vec<u32> {
        children_of(self.child.id())
    }

    /// Sends a signal to a network's data plane, and returns its process id.
    pub(crate) fn signal_data_plane(&self, network: &str, signal: Signal) -> u32 {
        self.signal_process(&format!("net-{network}"), signal)
    }

    /// Sends a signal to the process of this name, and returns its process id.
    pub(crate) fn signal_process(&self, name: &str, signal: Signal) -> u32 {
        let mut id = None;
        until(name, || {
            id = self.process(name);
            id.is_some()
        });
        let id = id.unwrap();
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
        id
    }

    /// Returns a network from `vicinity network list --json`.
    pub(crate) fn network(&self, name: &str) -> Value {
        let output = self.ask("network");
        assert!(output.status.success(), "{output:?}");
        let networks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let mut networks = networks.into_iter();
        networks
            .find(|network| network["name"] == name)
            .unwrap_or_default()
    }

    /// Waits for the end of the daemon, and returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        until("the end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// Sends SIGTERM to the daemon, and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the child process with this name.
pub(crate) fn child_of(id: u32, name: &str) -> Option<u32> {
    let named = |id: &u32| {
        std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|it| it.trim() == name)
    };
    children_of(id).into_iter().find(named)
}

fn children_of(id: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let list = list.unwrap_or_default();
    let ids = list.split_whitespace().map(|id| id.parse().unwrap());
    ids.collect()
}

/// Limit of every wait. A wait that reaches it is a hang.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Waits until `good` returns true, however long each call takes. Many a question starts a program, whose CPU time what
/// is waited for would lack, so the pauses grow.
pub(crate) fn until(what: &str, good: impl FnMut() -> bool) {
    until_or(good, || format!("{what} did not come about"));
}

/// Waits as [`until`] does, and fails with the text of `failure`.
pub(crate) fn until_or(mut good: impl FnMut() -> bool, failure: impl FnOnce() -> String) {
    let end = Instant::now() + HANG;
    let mut pauses = Pauses::new();
    while !good() {
        if Instant::now() >= end {
            panic!("{}", failure());
        }
        pauses.wait();
    }
}

/// The pauses between questions whether something has come about: a tenth of the time waited so far, from 10 to 50 ms.
pub(crate) struct Pauses(Instant);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn wait(&mut self) {
        let tenth = self.0.elapsed() / 10;
        std::thread::sleep(tenth.clamp(Duration::from_millis(10), Duration::from_millis(50)));
    }
}

/// Returns the newest archive of libmyriexpress that Cargo has built beside this test.
pub(crate) fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = std::fs::read_dir(test.parent().unwrap()).unwrap().flatten();
    let archives = beside.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libmyriexpress") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.unwrap().path()
}

/// Builds the guests' agent, and returns its path. The tests of VMs also keep one.
pub(crate) fn agent() -> PathBuf {
    let mut build = Command::new(root().join("scripts/agent"));
    build.args(["--profile", "dev"]);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vms/agent");
    let path = mx::succeed(build.env("CARGO_TARGET_DIR", target));
    PathBuf::from(path.trim())
}

/// Returns the root folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
