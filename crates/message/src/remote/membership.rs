//! Membership: VMs that start and end, and the gateways in them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use window::Side;
use window::ivshmem::{Doorbell, Member as Vm, Server};

use super::broker::{Broker, DOORBELL, VM};
use super::control_channel::ControlChannel;
use super::control_message::ControlMessage;
use super::member::MemberState;

impl Broker {
    /// Accepts a connection at a member's socket.
    pub(super) fn accept(&mut self, number: usize) {
        let server = self
            .members
            .get(number)
            .and_then(|member| member.server.as_ref());
        if let Some(Ok(Some(socket))) = server.map(Server::accept) {
            self.admit(number, socket);
        }
    }

    /// Admits a VM, or a process of the host, as the member of this number. The socket must not
    /// block. Returns false, and rejects the connection, if the member is connected already or the
    /// kernel refuses.
    pub fn admit(&mut self, number: usize, socket: OwnedFd) -> bool {
        // The end of its predecessor may not have been detected yet.
        if self
            .members
            .get(number)
            .is_some_and(|member| member.vm.is_some())
        {
            self.check_vm_socket(number);
        }
        let vm = Vm::adopt(socket);
        let doorbells = self.try_admit(number, &vm);
        let (Some(doorbells), Some(member)) = (doorbells, self.members.get_mut(number)) else {
            vm.reject();
            return false;
        };
        member.vm = Some(vm);
        member.doorbells = Some(doorbells);
        self.accepted.push(number);
        true
    }

    /// Sends the region and the doorbells, and adds the socket to the waiter. Returns the doorbell
    /// that interrupts the member, and the one by which it wakes the host.
    fn try_admit(&mut self, number: usize, vm: &Vm) -> Option<[Doorbell; 2]> {
        // One at a time: a second QEMU of this name is rejected.
        let free = |member: &&mut MemberState| member.vm.is_none();
        let member = self.members.get_mut(number).filter(free)?;
        let link_pool = self.link_pools.get(member.link_pool)?;
        // The predecessor may have overwritten the header.
        link_pool.region.write_header().ok()?;
        member.page.set_nic(member.nic);
        // syscalls: eventfd2
        let (interrupt, doorbell) = (Doorbell::new().ok()?, Doorbell::new().ok()?);
        vm.admit(member.id(), link_pool.region.as_fd(), &doorbell)
            .ok()?;
        self.waiter.add_shared(vm, VM | number as u64).ok()?;
        // If the VM has ended, its socket shows that later.
        let _gone = vm.send_doorbell(member.id(), &interrupt);
        if self.waiter.add_shared(&doorbell, DOORBELL).is_err() {
            self.waiter.remove(vm);
            return None;
        }
        Some([interrupt, doorbell])
    }

    pub(super) fn check_vm_socket(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else {
            return;
        };
        let Some(vm) = &mut member.vm else {
            return;
        };
        if !vm.check_socket() {
            self.remove_vm(number);
        }
    }

    /// Removes a VM that has ended, or has to be disconnected.
    pub(super) fn remove_vm(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else {
            return;
        };
        let Some(vm) = &member.vm else {
            return;
        };
        self.waiter.remove(vm);
        if let Some([_, doorbell]) = member.doorbells.take() {
            self.waiter.remove(&doorbell);
        }
        // When a VM ends, all programs end that could use its windows. Programs of the host outlive
        // their gateway.
        let may_have_users = vm.is_process();
        member.vm = None;
        self.remove_gateway(number, may_have_users);
        if let Some(member) = self.members.get_mut(number) {
            let parked = std::mem::take(&mut member.parked);
            let number = member.link_pool;
            member.reset_page();
            let empty = !self
                .members
                .iter()
                .any(|member| member.link_pool == number && member.vm.is_some());
            if let Some(link_pool) = self.link_pools.get_mut(number) {
                parked
                    .into_iter()
                    .for_each(|link| link_pool.release_last(link));
                if empty {
                    link_pool.release_parked();
                }
            }
        }
    }

    /// Reads the heartbeats of all gateways.
    pub(super) fn read_heartbeats(&mut self, now: Instant) {
        for member in &mut self.members {
            member.heartbeat.update(member.page.heartbeat(), now);
        }
    }

    /// Handles a gateway's request to join, to join again, or to leave (0).
    pub(super) fn check_join_request(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else {
            return;
        };
        let join_number = member.page.join_number();
        if join_number == member.join_number || member.vm.is_none() {
            return;
        }
        member.join_number = join_number;
        self.remove_gateway(number, true);
        let Some(member) = self.members.get_mut(number) else {
            return;
        };
        let Some(link_pool) = self
            .link_pools
            .get(member.link_pool)
            .filter(|_| join_number != 0)
        else {
            return;
        };
        let window = link_pool.region.control_window(member.index);
        let ends = window.and_then(|window| {
            window.reset().ok()?;
            window.ends(Side::Creator).ok()
        });
        if let Some(ends) = ends {
            let uplink = member.config.uplink;
            member.gateway_joined(ControlChannel::new(ends), join_number);
            self.announce_member(number, true);
            let names: Vec<_> = self.names.messages().filter(|_| !uplink).collect();
            for message in names {
                self.send(number, message);
            }
        }
    }

    /// Notifies uplinks that a member has joined or left; and an uplink that has joined of all
    /// members.
    fn announce_member(&mut self, number: usize, here: bool) {
        let named_nic =
            |member: &MemberState| (member.config.uplink, member.nic, member.control.is_some());
        let all: Vec<_> = self.members.iter().map(named_nic).collect();
        let Some(&(uplink, nic, _)) = all.get(number) else {
            return;
        };
        for (other, &(other_uplink, other_nic, other_here)) in all.iter().enumerate() {
            if uplink && here && other_here && !other_uplink {
                let nic = other_nic;
                self.send(number, ControlMessage::Member { nic, here });
            } else if other_uplink && !uplink {
                self.send(other, ControlMessage::Member { nic, here });
            }
        }
    }

    /// Removes a gateway that has ended or joins again. `stale` is whether its endpoints may still
    /// use their windows.
    pub(super) fn remove_gateway(&mut self, number: usize, stale: bool) {
        let Some(member) = self.members.get_mut(number) else {
            return;
        };
        let was_joined = member.control.is_some();
        member.gateway_ended();
        let links: Vec<_> = member.links.values().copied().collect();
        for (link, side) in links {
            self.close(link, side, stale);
        }
        if was_joined {
            self.announce_member(number, false);
        }
    }
}
