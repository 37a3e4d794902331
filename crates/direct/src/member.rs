//! A member of a group: its VM while it runs, and the progress of joining or leaving.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::DirectError;
use crate::control::Control;
use crate::resources::MemberResources;
use crate::vm::{FoundDevices, Vm};

/// The time that guests' agents have to route around a VM that leaves, before its packets are lost.
const LEAVE_GRACE: Duration = Duration::from_secs(1);

/// The longest time for which devices stay plugged in because a NIC is not connected. QEMU tries to connect it each
/// second or more often.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A member of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) id: u16,
    monitor: PathBuf,
    pub(crate) vm: Option<Vm>,
    pub(crate) state: MemberState,
    /// The VM must stay out of the group until it is allowed to join again, or ends.
    pub(crate) has_left: bool,
    /// The reason why the VM is not in the state it should be in. It is logged once.
    reason: Option<String>,
}

/// The progress of a member in joining or leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// The VM has no device of the group, or there is no VM.
    Detached,
    /// The VM was found at this time with devices of a group that has ended.
    Leftovers(Instant),
    /// The VM exchanges packets.
    Joined,
    /// The VM still exchanges packets, but since this time its peers must not begin new sessions.
    Leaving(Instant),
    /// The VM's devices are being unplugged.
    Unplugging,
}

impl Member {
    pub(crate) fn new(folder: &Path, name: &str, id: u16) -> Self {
        Self {
            name: name.to_owned(),
            id,
            monitor: crate::paths::monitor(folder, name),
            vm: None,
            state: MemberState::Detached,
            has_left: false,
            reason: None,
        }
    }

    /// Whether the VM has the window, and the others see its RAM.
    pub(crate) fn is_in(&self) -> bool {
        self.vm.is_some() && matches!(self.state, MemberState::Joined | MemberState::Leaving(_))
    }

    /// Returns the reason why the VM is not in the state it should be in, or does not see a peer that it should.
    pub(crate) fn reason(&self) -> Option<String> {
        let of_vm = || self.vm.as_ref().and_then(Vm::reason);
        self.reason.clone().or_else(of_vm)
    }

    /// Takes the next step of joining or leaving. Returns whether the other members must read the window
    /// again. Keeps and logs errors.
    pub(crate) fn advance(
        &mut self,
        member_resources: &[MemberResources],
        control: &Control,
    ) -> bool {
        let before = self.state;
        match self.try_advance(member_resources, control) {
            Ok(()) => {
                if self.state != before {
                    self.reason = None;
                    tracing::debug!("VM {}: {:?}", self.name, self.state);
                }
            }
            Err(error) => self.record_error(&error),
        }
        self.state != before
    }

    pub(crate) fn record_error(&mut self, error: &DirectError) {
        let text = error.to_string();
        if self.reason.as_ref() != Some(&text) {
            tracing::warn!("VM {}: {text}", self.name);
            self.reason = Some(text);
        }
    }

    fn try_advance(
        &mut self,
        member_resources: &[MemberResources],
        control: &Control,
    ) -> Result<(), DirectError> {
        let Some(vm) = &mut self.vm else {
            return self.find_vm(control);
        };
        self.state = match (self.state, self.has_left) {
            (MemberState::Detached, false) => {
                control.add_member(self.id.into(), mac(&self.name), &vm.ranges()?)?;
                vm.give_window(self.id, member_resources, control)?;
                tracing::info!("VM {} joined", self.name);
                MemberState::Joined
            }
            (MemberState::Detached, true) => MemberState::Detached,
            (MemberState::Leftovers(since), _) if may_unplug(vm, since)? => MemberState::Unplugging,
            (MemberState::Joined | MemberState::Leaving(_), _) if vm.has_lost_window()? => {
                tracing::warn!("VM {}: the guest released its control window", self.name);
                control.remove_member(self.id.into())?;
                MemberState::Unplugging
            }
            (MemberState::Joined, true) => MemberState::Leaving(Instant::now()),
            (MemberState::Leaving(_), false) => MemberState::Joined,
            (MemberState::Leaving(since), true)
                if since.elapsed() >= LEAVE_GRACE && may_unplug(vm, since)? =>
            {
                control.remove_member(self.id.into())?;
                MemberState::Unplugging
            }
            (MemberState::Unplugging, _) if vm.unplug_all()? => {
                tracing::info!("VM {} left", self.name);
                MemberState::Detached
            }
            (state, _) => state,
        };
        Ok(())
    }

    fn find_vm(&mut self, control: &Control) -> Result<(), DirectError> {
        let Some((vm, found)) = Vm::connect(&self.monitor, control)? else {
            return Ok(());
        };
        self.vm = Some(vm);
        self.state = match found {
            FoundDevices::Nothing => MemberState::Detached,
            FoundDevices::Window => MemberState::Joined,
            FoundDevices::Leftovers => MemberState::Leftovers(Instant::now()),
        };
        Ok(())
    }

    /// Removes the VM, whose QEMU has ended.
    pub(crate) fn remove_vm(&mut self, control: &Control) -> Result<(), DirectError> {
        self.vm = None;
        self.state = MemberState::Detached;
        self.has_left = false;
        self.reason = None;
        control.remove_member(self.id.into())
    }
}

/// Whether the devices of a VM may be unplugged that has waited for this since a time. If the daemon has ended, so that
/// the group ends, or has ended, as well, the NICs must be connected to the next daemon first: QEMU opens descriptors for
/// a NIC that it connects, see [`crate::qemu_fd_workaround`].
fn may_unplug(vm: &mut Vm, since: Instant) -> Result<bool, DirectError> {
    Ok(since.elapsed() >= RECONNECT_LIMIT || !vm.is_reconnecting()?)
}

/// Returns a locally administered MAC address that depends on the name alone: FNV-1a, folded.
fn mac(name: &str) -> [u8; 6] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [.., a, b, c, d] = (hash ^ (hash >> 32)).to_be_bytes();
    [0x52, 0x56, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_hosts_own_and_stays() {
        assert_eq!(mac("a"), mac("a"));
        assert_ne!(mac("a"), mac("b"));
        assert_eq!(mac("a")[0] & 3, 2);
    }
}
