//! The direct channel between VM 1, VM 2 and the VM that an experiment kills.

use vm_harness::channel::{Channel, Setting};
use vm_harness::direct::Direct;
use vm_harness::error::{Error, Result};
use vm_harness::vm::Vm;

/// Name of the channel.
pub(super) const CHANNEL: &str = "direct";

/// The channel. The first cell that needs the channel opens it.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) direct: Direct,
    network: u8,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed,
    Open,
    /// The reason why the channel cannot be opened. The testbed tries to open it only once.
    Failed(String),
}

impl Joined {
    /// Prepares the channel for the first two of the setting's VMs and the victim, as the network of this number.
    pub(super) fn new(setting: &Setting<'_>, network: u8) -> Result<Self> {
        let first = setting.vms.iter().take(2).copied();
        let members: Vec<&str> = first.chain(["victim"]).collect();
        let setting = Setting {
            vms: &members,
            ..setting.clone()
        };
        Ok(Self {
            direct: Direct::new(&setting)?,
            network,
            state: State::Closed,
        })
    }

    /// Joins the two VMs on the first call, and returns the network's number.
    pub(super) fn open(&mut self, vms: &[Vm], release: &str) -> Result<u8> {
        match &self.state {
            State::Open => return Ok(self.network),
            State::Failed(why) => return Err(Error::Host(why.clone())),
            State::Closed => {}
        }
        let opened = self.direct.join(vms, self.network, release);
        self.state = match &opened {
            Ok(()) => State::Open,
            Err(Error::Interrupted) => State::Closed,
            Err(error) => State::Failed(format!("the direct channel was not opened: {error}")),
        };
        opened.map(|()| self.network)
    }

    /// Joins another VM, of this number, after the first two.
    pub(super) fn add(&self, vm: &Vm, number: usize) -> Result<()> {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        self.direct.load(vm, self.network, number)?;
        self.direct.wait_for_peers(vm, 2)
    }
}
