//! The interface of the switches under test.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use vm_harness::error::{Context, Error, Result};
use vm_harness::host;
use vm_harness::interrupt;

use crate::process::LIMIT;

/// Pause before a generator listens.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// A kind of switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchKind {
    /// Vicinity.
    Vicinity,
    /// Open vSwitch with its DPDK data path, as Debian ships it, action NORMAL.
    OvsDpdk,
    /// DPDK's testpmd, which forwards frames from one port of a pair to the other. It reads no
    /// frame and no address: it is no switch, but it measures the cost of the copies alone.
    Testpmd,
}

impl fmt::Display for SwitchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vicinity => "vicinity",
            Self::OvsDpdk => "ovs-dpdk",
            Self::Testpmd => "testpmd",
        })
    }
}

/// Running totals of a switch's forwarding thread. All switches use the same definition: a round is
/// busy if it moved a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CycleCounters {
    /// Time-stamp counter ticks spent in busy rounds.
    pub(crate) busy: u64,
    /// Ticks of all rounds, sleep included.
    pub(crate) all: u64,
    /// Frames taken from the guests.
    pub(crate) frames: u64,
}

impl CycleCounters {
    /// Cycles a frame and the busy share of the time since an earlier reading; `None` if
    /// no frame moved.
    pub(crate) fn since(self, before: Self) -> Option<(f64, f64)> {
        let gained = |value: fn(Self) -> u64| {
            let gained = value(self).checked_sub(value(before))?;
            (gained > 0).then_some(gained as f64)
        };
        let busy = gained(|meter| meter.busy)?;
        Some((
            busy / gained(|meter| meter.frames)?,
            busy / gained(|meter| meter.all)?,
        ))
    }
}

/// The vhost-user sockets of a switch's ports.
pub(crate) enum Sockets {
    /// The switch listens on the socket.
    SwitchListens(Vec<PathBuf>),
    /// The generator listens on the socket, and the switch connects repeatedly until it succeeds.
    GeneratorListens(Vec<PathBuf>),
}

impl Sockets {
    /// Returns the paths of the sockets.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        match self {
            Self::SwitchListens(paths) | Self::GeneratorListens(paths) => paths,
        }
    }

    /// Connects a front-end to each socket.
    pub(crate) fn connect(&self) -> Result<Vec<OwnedFd>> {
        match self {
            Self::SwitchListens(paths) => {
                let connect = |path: &PathBuf| {
                    let socket = UnixStream::connect(path);
                    let socket = socket.context(|| format!("connect to {}", path.display()))?;
                    Ok(socket.into())
                };
                paths.iter().map(connect).collect()
            }
            Self::GeneratorListens(paths) => {
                // A switch whose ports were configured a moment ago may connect twice.
                interrupt::sleep(SETTLING_TIME)?;
                let listeners: Vec<_> = paths.iter().map(listen).collect::<Result<_>>()?;
                listeners.iter().map(accept).collect()
            }
        }
    }
}

fn listen(path: &PathBuf) -> Result<UnixListener> {
    let listening = || format!("listen on {}", path.display());
    let listener = UnixListener::bind(path).context(listening)?;
    listener.set_nonblocking(true).context(listening)?;
    Ok(listener)
}

fn accept(listener: &UnixListener) -> Result<OwnedFd> {
    interrupt::poll("connection of the switch", LIMIT, || {
        match listener.accept() {
            Ok((socket, _)) => Ok(Some(socket.into())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context(|| "accept the switch's connection".to_owned()),
        }
    })
}

/// Configuration of a switch under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchOptions {
    /// Number of vhost-user ports.
    pub(crate) ports: u16,
    /// Whether to enable frames of 64 KB, for a switch that needs a setting for them.
    pub(crate) gso: bool,
}

/// A running switch with vhost-user ports.
pub(crate) trait Switch {
    /// Returns the sockets of the ports.
    fn sockets(&self) -> Sockets;

    /// Returns the process id.
    fn id(&self) -> u32;

    /// Returns the forwarding thread's current totals.
    fn counters(&self) -> Result<CycleCounters>;

    /// Returns the number of addresses in the FDB, if the switch reports it.
    fn fdb_entries(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Stops the switch, so that its CPU is free for another one, or continues it.
    fn pause(&self, rest: bool) -> Result<()>;
}

/// Continues a switch before it is dropped: its generator disconnects from it, and a stopped process cannot end.
pub(crate) fn wake(switch: &dyn Switch) {
    if let Err(error) = switch.pause(false) {
        tracing::warn!(%error, "cannot wake a switch to end it");
    }
}

/// Adds the last lines of the switch's log to an error: the switch often causes a failure of the generator.
pub(crate) fn explain(error: Error, switch: SwitchKind, folder: &Path) -> Error {
    if matches!(error, Error::Interrupted) {
        return error;
    }
    let log = fs::read_to_string(folder.join(format!("{switch}.out")));
    let last = host::tail(&log.unwrap_or_default(), 15);
    Error::Host(format!("{error}\nlast lines of {switch}:\n{last}"))
}
