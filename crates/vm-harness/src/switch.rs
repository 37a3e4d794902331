//! The channel `switch`: Vicinity's switch between VMs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;

use crate::channel::{Channel, Setting};
use crate::error::{Context, Error, Result};
use crate::host::{self, ChildProcess};
use crate::scope::RunFolder;
use crate::vm::Link;
use crate::{cpu, interrupt};

/// Vicinity's switch, which runs as a separate process: `vicinity serve`.
#[derive(Debug)]
pub struct Switch {
    // Fields are dropped in this order: the process first, then its folder.
    process: Option<ChildProcess>,
    run: RunFolder,
    vms: Vec<String>,
}

/// The part of `vicinity serve`'s configuration that the harness uses.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    runtime_dir: PathBuf,
    network: Vec<Network>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Network {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    moderation_us: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<Tap>,
    port: Vec<Port>,
}

#[derive(Serialize)]
struct Tap {
    tap: String,
}

#[derive(Serialize)]
struct Port {
    vm: String,
    socket: PathBuf,
}

/// The uplink of a switch.
#[derive(Clone, Copy, Debug)]
pub struct Uplink<'a> {
    /// Network namespace in which the switch runs and makes the tap.
    pub namespace: &'a str,
    /// The tap's name.
    pub tap: &'a str,
}

/// Longest time that the switch may take to start.
const START: Duration = Duration::from_secs(20);

impl Switch {
    /// Starts the switch with one port for each VM and waits until every port accepts connections.
    ///
    /// # Errors
    /// The switch does not start; the error shows the end of its log.
    pub fn start(setting: &Setting<'_>) -> Result<Self> {
        Self::launch(setting, None, None)
    }

    /// Like [`Switch::start`], with interrupt moderation: the switch may delay frames by up to `micros` microseconds
    /// (`moderation-us`).
    ///
    /// # Errors
    /// As for [`Switch::start`].
    pub fn start_gathering(setting: &Setting<'_>, micros: u32) -> Result<Self> {
        Self::launch(setting, None, Some(micros))
    }

    /// Like [`Switch::start`], with an uplink.
    ///
    /// # Errors
    /// As for [`Switch::start`].
    pub fn start_with(setting: &Setting<'_>, uplink: Option<&Uplink<'_>>) -> Result<Self> {
        Self::launch(setting, uplink, None)
    }

    fn launch(
        setting: &Setting<'_>,
        uplink: Option<&Uplink<'_>>,
        moderation_us: Option<u32>,
    ) -> Result<Self> {
        let run = RunFolder::new()?;
        let log = setting.logs.join("switch.log");
        fs::create_dir_all(setting.logs).context(|| format!("make {}", setting.logs.display()))?;
        let file = File::create(&log).context(|| format!("make {}", log.display()))?;
        let vms: Vec<String> = setting.vms.iter().map(|vm| (*vm).to_owned()).collect();
        let config = run.path().join("config.toml");
        fs::write(
            &config,
            configuration(run.path(), &vms, uplink.map(|up| up.tap), moderation_us)?,
        )
        .context(|| format!("write {}", config.display()))?;
        let mut command = match uplink {
            Some(uplink) => {
                let mut ip = host::command("ip");
                ip.args(["netns", "exec", uplink.namespace]);
                ip.arg(setting.vicinity);
                ip
            }
            None => host::command(setting.vicinity),
        };
        command.arg("serve").arg("--config").arg(&config);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let mut process = ChildProcess::spawn(command)?;
        let sockets: Vec<PathBuf> = vms.iter().map(|vm| socket(run.path(), vm)).collect();
        interrupt::poll("the start of `vicinity serve`", START, || {
            process.must_run(&log)?;
            let id = process.id();
            Ok(sockets.iter().all(|s| listens(s, id)).then_some(()))
        })?;
        Ok(Self {
            process: Some(process),
            run,
            vms,
        })
    }

    /// Returns the daemon's runtime folder, which contains its control socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.run.path()
    }

    /// Process id of `vicinity serve`.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(ChildProcess::id)
    }
}

impl Channel for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn description(&self) -> String {
        "Vicinity's switch over vhost-user".to_owned()
    }

    fn link(&self, vm: &str) -> Result<Option<Link>> {
        if !self.vms.iter().any(|known| known == vm) {
            return Err(Error::Host(format!("the switch has no port for VM {vm}")));
        }
        Ok(Some(Link::VhostUser {
            socket: socket(self.run.path(), vm),
            qemu_listens: false,
        }))
    }

    fn cpu_time(&self) -> Result<Duration> {
        self.id().map_or(Ok(Duration::ZERO), cpu::of_process)
    }

    fn runtime_dir(&self) -> Option<&Path> {
        Some(self.folder())
    }

    fn process(&self) -> Option<u32> {
        self.id()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}

fn configuration(
    run: &Path,
    vms: &[String],
    tap: Option<&str>,
    moderation_us: Option<u32>,
) -> Result<String> {
    let port = |vm: &String| Port {
        vm: vm.clone(),
        socket: socket(run, vm),
    };
    let config = Config {
        runtime_dir: run.to_owned(),
        network: vec![Network {
            name: "lab",
            moderation_us,
            uplink: tap.map(|tap| Tap {
                tap: tap.to_owned(),
            }),
            port: vms.iter().map(port).collect(),
        }],
    };
    toml::to_string(&config)
        .map_err(|error| Error::Host(format!("write the configuration: {error}")))
}

fn socket(run: &Path, vm: &str) -> PathBuf {
    run.join(format!("{vm}.sock"))
}

/// Whether a process listens on this socket. The harness reads `/proc/PID/net/unix` (the flag `__SO_ACCEPTCON`, in the
/// table of the process's network namespace) instead of connecting, because a connection would already attach a
/// front-end.
fn listens(socket: &Path, process: u32) -> bool {
    let table = fs::read_to_string(format!("/proc/{process}/net/unix")).unwrap_or_default();
    table.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(3) == Some("00010000") && fields.nth(3).map(Path::new) == Some(socket)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_what_serve_reads() {
        let text =
            configuration(Path::new("/run/x"), &["a".into(), "b".into()], None, None).unwrap();
        let want = "runtime-dir = \"/run/x\"\n\n[[network]]\nname = \"lab\"\n\n\
                    [[network.port]]\nvm = \"a\"\nsocket = \"/run/x/a.sock\"\n\n\
                    [[network.port]]\nvm = \"b\"\nsocket = \"/run/x/b.sock\"\n";
        assert_eq!(text, want);
        let text = configuration(Path::new("/run/x"), &[], None, Some(50)).unwrap();
        assert!(
            text.contains("name = \"lab\"\nmoderation-us = 50\n"),
            "{text}"
        );
    }

    #[test]
    fn only_a_listening_socket_listens() {
        let folder = RunFolder::new().unwrap();
        let path = folder.path().join("s");
        assert!(!listens(&path, std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(listens(&path, std::process::id()));
        drop(listener);
        assert!(path.exists() && !listens(&path, std::process::id()));
    }
}
