//! The switches under test, behind one face.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Result;

use super::ovs::Ovs;
use super::vicinity::Vicinity;

/// The CPU that the generator has to itself.
pub(super) const GENERATOR_CPU: u32 = 0;

/// The CPU that the switch under test has to itself.
pub(super) const SWITCH_CPU: u32 = 1;

/// A kind of switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Ours.
    Vicinity,
    /// Open vSwitch with its DPDK data path, as Debian ships it, action NORMAL.
    OvsDpdk,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vicinity => "vicinity",
            Self::OvsDpdk => "ovs-dpdk",
        })
    }
}

/// Running totals of a switch's forwarding thread. Both switches define them alike: a round is
/// busy when it moved a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// Time-stamp counter ticks spent in busy rounds.
    pub(super) busy: u64,
    /// Ticks of all rounds, sleep included.
    pub(super) all: u64,
    /// Frames taken from the guests.
    pub(super) frames: u64,
}

/// The vhost-user sockets of a switch's two ports.
pub(super) enum Sockets {
    /// The switch listens.
    SwitchListens([PathBuf; 2]),
    /// The generator listens, and the switch connects when it can.
    GeneratorListens([PathBuf; 2]),
}

impl Sockets {
    /// Where they are.
    pub(super) fn paths(&self) -> &[PathBuf; 2] {
        match self {
            Self::SwitchListens(paths) | Self::GeneratorListens(paths) => paths,
        }
    }
}

/// A switch that is running, with two vhost-user ports.
pub(super) trait Switch {
    /// The sockets of the ports.
    fn sockets(&self) -> Sockets;

    /// Its process id.
    fn id(&self) -> u32;

    /// The forwarding thread's totals now.
    fn meter(&self) -> Result<Meter>;

    /// Leaves [`SWITCH_CPU`] to the other switch, until `false` is given.
    fn rest(&self, rest: bool) -> Result<()>;
}

/// Starts a switch on [`SWITCH_CPU`] with everything it needs inside `folder`; dropping it
/// stops it. `program` is the `vicinity` binary.
pub(super) fn start(peer: Peer, folder: &Path, program: &Path) -> Result<Box<dyn Switch>> {
    Ok(match peer {
        Peer::Vicinity => Box::new(Vicinity::start(folder, program)?),
        Peer::OvsDpdk => Box::new(Ovs::start(folder)?),
    })
}
