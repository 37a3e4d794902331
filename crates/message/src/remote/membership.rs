//! Members come and go: the VM, and the gateway in it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use window::Side;
use window::ivshmem::{Doorbell, Member as Vm, Server};

use super::control_message::ControlMessage;
use super::limits::SILENCE;
use super::seat::Seat;
use super::switchboard::{DOORBELL, Switchboard, VM};
use super::trunk::Trunk;

impl Switchboard {
    /// Somebody connects to a member's socket.
    pub(super) fn accept(&mut self, number: usize) {
        let server = self.seats.get(number).and_then(|seat| seat.server.as_ref());
        if let Some(Ok(Some(socket))) = server.map(Server::accept) {
            self.admit(number, socket);
        }
    }

    /// A VM starts that is the member of this number, or a process of the host: this is its socket, which must
    /// not block. False when it is turned away: the member is there already, or the kernel refuses.
    pub fn admit(&mut self, number: usize, socket: OwnedFd) -> bool {
        // The last one's end may not have been heard yet.
        if self.seats.get(number).is_some_and(|seat| seat.vm.is_some()) {
            self.hear_vm(number);
        }
        let vm = Vm::adopt(socket);
        let bells = self.try_admit(number, &vm);
        let (Some(bells), Some(seat)) = (bells, self.seats.get_mut(number)) else {
            vm.turn_away();
            return false;
        };
        seat.vm = Some(vm);
        seat.bells = Some(bells);
        self.accepted.push(number);
        true
    }

    /// Greet it, and wait for what it says. Returns what interrupts it, and what it wakes the host with.
    fn try_admit(&mut self, number: usize, vm: &Vm) -> Option<[Doorbell; 2]> {
        // One at a time: a second QEMU of this name is turned away.
        let free = |seat: &&mut Seat| seat.vm.is_none();
        let seat = self.seats.get_mut(number).filter(free)?;
        let link_pool = self.halls.get(seat.link_pool)?;
        // The last one may have left anything there.
        link_pool.region.renew().ok()?;
        seat.words.set_nic(seat.nic);
        // syscalls: eventfd2
        let (bell, doorbell) = (Doorbell::new().ok()?, Doorbell::new().ok()?);
        vm.admit(seat.id(), link_pool.region.as_fd(), &doorbell)
            .ok()?;
        self.waiter.add_shared(vm, VM | number as u64).ok()?;
        // Gone: that will be heard.
        let _gone = vm.introduce(seat.id(), &bell);
        if self.waiter.add_shared(&doorbell, DOORBELL).is_err() {
            self.waiter.remove(vm);
            return None;
        }
        Some([bell, doorbell])
    }

    pub(super) fn hear_vm(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(vm) = &mut seat.vm else {
            return;
        };
        if !vm.hear() {
            self.part(number);
        }
    }

    /// A VM is gone, or has to go.
    pub(super) fn part(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(vm) = &seat.vm else {
            return;
        };
        self.waiter.remove(vm);
        if let Some([_, doorbell]) = seat.bells.take() {
            self.waiter.remove(&doorbell);
        }
        // With a VM, everything is gone that could use its windows. Programs outlive a process of the host.
        let outlived = vm.is_process();
        seat.vm = None;
        self.leave(number, outlived);
        if let Some(seat) = self.seats.get_mut(number) {
            let parked = std::mem::take(&mut seat.parked);
            let number = seat.link_pool;
            seat.forget();
            let empty = !self
                .seats
                .iter()
                .any(|seat| seat.link_pool == number && seat.vm.is_some());
            if let Some(link_pool) = self.halls.get_mut(number) {
                parked
                    .into_iter()
                    .for_each(|link| link_pool.give_last(link));
                if empty {
                    link_pool.abandon();
                }
            }
        }
    }

    /// End gateways that are silent.
    pub(super) fn bury(&mut self, now: Instant) {
        for number in 0..self.seats.len() {
            let silent = self
                .seats
                .get_mut(number)
                .is_some_and(|seat| seat.is_silent(now, SILENCE));
            if silent {
                self.leave(number, true);
            }
        }
    }

    /// A gateway begins, or begins again.
    pub(super) fn greet(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let opened = seat.words.opened();
        if opened == seat.opened || seat.vm.is_none() {
            return;
        }
        seat.opened = opened;
        self.leave(number, true);
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(link_pool) = self.halls.get(seat.link_pool).filter(|_| opened != 0) else {
            return;
        };
        let window = link_pool.region.trunk(seat.place);
        let ends = window.and_then(|window| {
            window.renew().ok()?;
            window.ends(Side::Creator).ok()
        });
        if let Some(ends) = ends {
            let uplink = seat.member.uplink;
            seat.begin(Trunk::new(ends), opened);
            self.introduce(number, true);
            let names: Vec<_> = self.names.notes().filter(|_| !uplink).collect();
            for note in names {
                self.say(number, note);
            }
        }
    }

    /// Tell uplinks that a member has come, or is gone; and an uplink that has come of all.
    fn introduce(&mut self, number: usize, here: bool) {
        let face = |seat: &Seat| (seat.member.uplink, seat.nic, seat.trunk.is_some());
        let all: Vec<_> = self.seats.iter().map(face).collect();
        let Some(&(uplink, nic, _)) = all.get(number) else {
            return;
        };
        for (other, &(other_uplink, other_nic, other_here)) in all.iter().enumerate() {
            if uplink && here && other_here && !other_uplink {
                let nic = other_nic;
                self.say(number, ControlMessage::Member { nic, here });
            } else if other_uplink && !uplink {
                self.say(other, ControlMessage::Member { nic, here });
            }
        }
    }

    /// A gateway is no more, or begins anew.
    pub(super) fn leave(&mut self, number: usize, stale: bool) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let known = seat.trunk.is_some();
        seat.end();
        let legs: Vec<_> = seat.legs.values().copied().collect();
        for (link, side) in legs {
            self.close(link, side, stale);
        }
        if known {
            self.introduce(number, false);
        }
    }
}
