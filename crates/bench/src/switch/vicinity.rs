//! Runs Vicinity's switch as the device under test: `vicinity serve` with ports that listen.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use vm_harness::error::{Context, Error, Result};
use vm_harness::host;

use super::device_under_test::{CycleCounters, Sockets, Switch};
use crate::cpus::SWITCH_CPU;
use crate::process::{Process, on};

/// The packaged daemon's unit.
const UNIT: &str = include_str!("../../../../packaging/systemd/vicinity.service");

/// A running `vicinity serve`.
pub(crate) struct Vicinity {
    serve: Process,
    program: PathBuf,
    folder: PathBuf,
    ports: u16,
}

impl Vicinity {
    /// Starts the daemon on [`SWITCH_CPU`] with one network of `ports` ports, and with the priority of its
    /// systemd unit.
    pub(crate) fn start(folder: &Path, program: &Path, ports: u16) -> Result<Self> {
        let file = folder.join("vicinity.toml");
        let text = configuration(folder, ports);
        fs::write(&file, text).context(|| format!("write {}", file.display()))?;
        let mut command = on(SWITCH_CPU, nice(UNIT)?, folder, program);
        command.arg("serve").arg("--config").arg(&file);
        let mut vicinity = Self {
            serve: Process::start("vicinity", folder, command)?,
            program: program.to_owned(),
            folder: folder.to_owned(),
            ports,
        };
        let sockets = vicinity.sockets();
        vicinity.serve.until("sockets of the ports", |_| {
            Ok(sockets.paths().iter().all(|socket| socket.exists()))
        })?;
        Ok(vicinity)
    }
}

impl Vicinity {
    /// Returns the status of the daemon's only network.
    fn worker(&self) -> Result<String> {
        let mut command = host::command(&self.program);
        command.args(["network", "list", "--json"]);
        command.arg("--runtime-dir").arg(&self.folder);
        host::run(command)
    }
}

impl Switch for Vicinity {
    fn sockets(&self) -> Sockets {
        let socket = |number| self.folder.join(format!("vm{number}.sock"));
        Sockets::SwitchListens((0..self.ports).map(socket).collect())
    }

    fn id(&self) -> u32 {
        self.serve.id()
    }

    fn counters(&self) -> Result<CycleCounters> {
        parse_counters(&self.worker()?)
    }

    fn fdb_entries(&self) -> Result<Option<u64>> {
        let text = self.worker()?;
        Ok(Some(figure(&text, "fdb_entries")?))
    }

    fn pause(&self, _rest: bool) -> Result<()> {
        // An idle switch of Vicinity sleeps, so it needs no stop.
        Ok(())
    }
}

/// Returns the value of `Nice=` in a unit.
fn nice(unit: &str) -> Result<i32> {
    let value = unit.lines().find_map(|line| line.strip_prefix("Nice="));
    let value = value.and_then(|value| value.parse().ok());
    value.ok_or_else(|| Error::unreadable("Nice= of vicinity.service", unit))
}

fn configuration(folder: &Path, ports: u16) -> String {
    let folder = folder.display();
    let mut text = format!("runtime-dir = \"{folder}\"\n\n[[network]]\nname = \"default\"\n");
    for vm in (0..ports).map(|number| format!("vm{number}")) {
        text += &format!(
            "\n[[network.port]]\nvm = \"{vm}\"\nsocket = \"{folder}/{vm}.sock\"\nmode = \"server\"\n"
        );
    }
    text
}

/// Reads the worker's figures of the only network.
pub(crate) fn parse_counters(text: &str) -> Result<CycleCounters> {
    Ok(CycleCounters {
        busy: figure(text, "busy_ticks")?,
        all: figure(text, "elapsed_ticks")?,
        frames: figure(text, "busy_frames")?,
    })
}

fn figure(text: &str, name: &str) -> Result<u64> {
    let answer = serde_json::from_str::<Value>(text).ok();
    let found = answer.and_then(|answer| answer.pointer("/0/worker")?.get(name)?.as_u64());
    found.ok_or_else(|| Error::unreadable("the answer of `vicinity network list --json`", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_figures_are_read() {
        let text = r#"[{"name": "default", "up": true, "worker": {"wakeups": 3,
            "busy_ticks": 900, "busy_frames": 9, "elapsed_ticks": 1000, "residents": 2, "fdb_entries": 2}}]"#;
        let meter = parse_counters(text).unwrap();
        assert_eq!(
            meter,
            CycleCounters {
                busy: 900,
                all: 1000,
                frames: 9
            }
        );
    }

    #[test]
    fn an_answer_without_a_network_is_an_error_that_shows_it() {
        let error = parse_counters("[]").unwrap_err().to_string();
        assert!(error.contains("network list"), "{error}");
        assert!(error.contains("[]"), "{error}");
    }

    #[test]
    fn the_units_priority_is_found() {
        assert!((-20..0).contains(&nice(UNIT).unwrap()));
        assert!(nice("[Service]\n").is_err());
    }

    #[test]
    fn all_ports_listen() {
        let text = configuration(Path::new("/run/x"), 2);
        assert_eq!(text.matches("mode = \"server\"").count(), 2);
        assert!(text.contains("socket = \"/run/x/vm1.sock\""), "{text}");
    }
}
