//! Our switch as the one under test: `vicinity serve` with two ports that listen.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Context, Error, Result};
use crate::host;

use super::peer::{Meter, SWITCH_CPU, Sockets, Switch};
use super::process::{Process, first_on};

/// A running `vicinity serve`.
pub(super) struct Vicinity {
    serve: Process,
    program: PathBuf,
    folder: PathBuf,
}

impl Vicinity {
    /// Starts it on [`SWITCH_CPU`] with one network of two ports.
    pub(super) fn start(folder: &Path, program: &Path) -> Result<Self> {
        let file = folder.join("vicinity.toml");
        fs::write(&file, configuration(folder)).context(|| format!("write {}", file.display()))?;
        let mut command = first_on(SWITCH_CPU, folder, program);
        command.arg("serve").arg("--config").arg(&file);
        let mut vicinity = Self {
            serve: Process::start("vicinity", folder, command)?,
            program: program.to_owned(),
            folder: folder.to_owned(),
        };
        let sockets = vicinity.sockets();
        vicinity.serve.until("sockets of the ports", |_| {
            Ok(sockets.paths().iter().all(|socket| socket.exists()))
        })?;
        Ok(vicinity)
    }
}

impl Switch for Vicinity {
    fn sockets(&self) -> Sockets {
        Sockets::SwitchListens(["vm0.sock", "vm1.sock"].map(|name| self.folder.join(name)))
    }

    fn id(&self) -> u32 {
        self.serve.id()
    }

    fn meter(&self) -> Result<Meter> {
        let mut command = host::command(&self.program);
        command.args(["network", "list", "--json"]);
        command.arg("--runtime-dir").arg(&self.folder);
        parse_meter(&host::run(command)?)
    }

    fn rest(&self, _rest: bool) -> Result<()> {
        // It sleeps without being told.
        Ok(())
    }
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    let mut text = format!("runtime-dir = \"{folder}\"\n\n[[network]]\nname = \"default\"\n");
    for vm in ["vm0", "vm1"] {
        text += &format!(
            "\n[[network.port]]\nvm = \"{vm}\"\nsocket = \"{folder}/{vm}.sock\"\nmode = \"server\"\n"
        );
    }
    text
}

/// Reads the worker's figures of the only network.
fn parse_meter(text: &str) -> Result<Meter> {
    let unreadable = || Error::unreadable("the answer of `vicinity network list --json`", text);
    let answer: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
    let worker = answer.pointer("/0/worker").ok_or_else(unreadable)?;
    let field = |name| worker.get(name).and_then(Value::as_u64);
    Ok(Meter {
        busy: field("busy_ticks").ok_or_else(unreadable)?,
        all: field("elapsed_ticks").ok_or_else(unreadable)?,
        frames: field("busy_frames").ok_or_else(unreadable)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_figures_are_read() {
        let text = r#"[{"name": "default", "up": true, "worker": {"wakeups": 3,
            "busy_ticks": 900, "busy_frames": 9, "elapsed_ticks": 1000, "residents": 2}}]"#;
        let meter = parse_meter(text).unwrap();
        assert_eq!(
            meter,
            Meter {
                busy: 900,
                all: 1000,
                frames: 9
            }
        );
    }

    #[test]
    fn an_answer_without_a_network_is_an_error_that_shows_it() {
        let error = parse_meter("[]").unwrap_err().to_string();
        assert!(error.contains("network list"), "{error}");
        assert!(error.contains("[]"), "{error}");
    }

    #[test]
    fn both_ports_listen() {
        let text = configuration(Path::new("/run/x"));
        assert_eq!(text.matches("mode = \"server\"").count(), 2);
        assert!(text.contains("socket = \"/run/x/vm1.sock\""), "{text}");
    }
}
