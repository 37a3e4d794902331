//! The direct channel between VM 1, VM 2 and the VM that dies.

use vm_harness::channel::{Channel, Setting};
use vm_harness::direct::Direct;
use vm_harness::error::{Error, Result};
use vm_harness::vm::Vm;

/// Its name.
pub(super) const CHANNEL: &str = "direct";

/// The channel, which is opened for the first cell that wants it.
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
    /// Why it cannot be opened: that is tried once.
    Failed(String),
}

impl Joined {
    /// For the first two of the setting's VMs and the victim, as the network of this number.
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

    /// Lets the two VMs join, if they have not; the network's number.
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

    /// Lets one more VM join, of this number; the two others are there.
    pub(super) fn add(&self, vm: &Vm, number: usize) -> Result<()> {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        self.direct.load(vm, self.network, number)?;
        self.direct.wait_for_peers(vm, 2)
    }
}
