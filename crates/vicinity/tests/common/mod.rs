//! The real program, started and stopped.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod holdings;
pub(crate) mod manager;
pub(crate) mod member;
pub(crate) mod mount;
pub(crate) mod mx;
pub(crate) mod neighbours;
pub(crate) mod page;
pub(crate) mod silent;
pub(crate) mod trace;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program under test.
pub(crate) fn vicinity() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vicinity"));
    command
        .env_remove("VICINITY_RUNTIME_DIR")
        .stdin(Stdio::null());
    command
}

/// A running `vicinity serve`, killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    run: PathBuf,
}

impl Daemon {
    /// Start it with `<folder>/run` as its runtime folder, and wait until it answers.
    pub(crate) fn start(folder: &Path, config: Option<&str>) -> Self {
        Self::start_by(vicinity(), folder, config)
    }

    /// The same, by a command that leads to the program.
    pub(crate) fn start_by(command: Command, folder: &Path, config: Option<&str>) -> Self {
        Self::start_logging(command, folder, config, "error")
    }

    /// The same, with another log.
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

    /// One that was started with `<folder>/run` as its runtime folder, once it answers.
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

    /// Run a command of the program for this daemon.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let mut command = vicinity();
        command.args(arguments).arg("--runtime-dir");
        command.arg(&self.run).output().unwrap()
    }

    /// The configuration file it was started with.
    pub(crate) fn config(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// Change that file.
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

    /// What `vicinity port list --json` says.
    pub(crate) fn ports(&self) -> Vec<Value> {
        let output = self.ask("port");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What it says about a VM; null when there is no such port.
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

    /// The process id of a network's data plane; none while there is none.
    pub(crate) fn data_plane(&self, network: &str) -> Option<u32> {
        self.process(&format!("net-{network}"))
    }

    /// The process that the daemon keeps under this name; none while there is none.
    pub(crate) fn process(&self, name: &str) -> Option<u32> {
        child_of(self.child.id(), name)
    }

    /// The processes that it started.
    pub(crate) fn children(&self) -> Vec<u32> {
        children_of(self.child.id())
    }

    /// Send a network's data plane a signal; returns its process id.
    pub(crate) fn signal_data_plane(&self, network: &str, signal: Signal) -> u32 {
        self.signal_process(&format!("net-{network}"), signal)
    }

    /// Send the process of this name a signal; returns its process id.
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

    /// What `vicinity network list --json` says about a network.
    pub(crate) fn network(&self, name: &str) -> Value {
        let output = self.ask("network");
        assert!(output.status.success(), "{output:?}");
        let networks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let mut networks = networks.into_iter();
        networks
            .find(|network| network["name"] == name)
            .unwrap_or_default()
    }

    /// Wait for its end; returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        until("the end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// Ask it to end; returns its exit code.
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

/// The child of a process that has this name.
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

/// So long nothing takes; what takes longer is stuck.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Wait for something that takes a moment, however long it takes to look.
pub(crate) fn until(what: &str, mut good: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !good() {
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What Cargo made of libmyriexpress: beside this test, the newest.
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

/// The tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
