//! The host: who is there, and which link is whose.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vhost::alarm::Alarm;
use window::doorbell;
use window::ivshmem::{Doorbell, Member as Vm};
use window::waiter::{Token, Waiter, Woken};
use window::yielding::Courtesy;

use super::control_message::ControlMessage;
use super::limits::BURST;
use super::link::Link;
use super::link_pool::LinkPool;
use super::names::Names;
use super::report::MemberReport;
use super::resources::{Guest, Member, Place, Resources, hall_of_each};
use super::seat::Seat;
use crate::error::Error;

/// Joins the gateways of a host.
#[derive(Debug)]
pub struct Switchboard {
    pub(super) halls: Vec<LinkPool>,
    pub(super) seats: Vec<Seat>,
    pub(super) links: HashMap<u64, Link>,
    pub(super) next: u64,
    /// What the uplink says.
    pub(super) names: Names,
    pub(super) waiter: Waiter,
    /// Seats whose gateway broke the protocol.
    pub(super) faulty: Vec<usize>,
    /// When a relay last moved something.
    pub(super) moved: Option<Instant>,
    pub(super) courtesy: Courtesy,
    /// Whoever is to take what was moved last waits for this processor.
    pub(super) hinders: bool,
    /// What somebody else watches has something.
    called: bool,
    /// Seats whose VM was accepted, and told to nobody yet.
    pub(super) accepted: Vec<usize>,
}

pub(super) const DOORBELL: Token = 0;
const OTHER: Token = 1;
const SERVER: Token = 1 << 32;
pub(super) const VM: Token = 2 << 32;

/// How long the switchboard looks on after it moved something.
const SPIN: Duration = Duration::from_micros(50);

/// Longest wait for a member's eventfd that does not take a ring: then its connection ends.
const RING: Duration = Duration::from_millis(1);

/// Between two looks at the clock.
const ROUNDS: u32 = 32;

/// So many of these, and sockets have their turn, however busy the relays are.
const LOOKS: u32 = 64;

/// How often beats are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Switchboard {
    /// Open one for these members. Each has a socket `NAME.sock` in `folder`, which is made.
    ///
    /// # Errors
    /// As for [`with`](Self::with) and [`Resources::make_in`].
    pub fn new(folder: &Path, members: &[Member]) -> Result<Self, Error> {
        Self::with(Resources::make_in(folder, members)?)
    }

    /// Open one with these parts, new or [adopted](Resources::adopt). VMs that run have to join anew: of
    /// their links nothing is known.
    ///
    /// # Errors
    /// Two names give one NIC id, or the kernel refuses.
    pub fn with(parts: Resources) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let members: Vec<_> = parts.places.iter().map(|place| &place.member).collect();
        let numbers = hall_of_each(&members);
        let mut board = Self {
            halls: parts.regions.into_iter().map(LinkPool::new).collect(),
            seats: Vec::new(),
            links: HashMap::new(),
            next: 0,
            names: Names::default(),
            waiter,
            faulty: Vec::new(),
            moved: None,
            courtesy: Courtesy::default(),
            hinders: false,
            called: false,
            accepted: Vec::new(),
        };
        let mut places = parts.places.into_iter().zip(numbers);
        places.try_for_each(|(place, link_pool)| board.add(place, link_pool))?;
        Ok(board)
    }

    fn add(&mut self, place: Place, link_pool: usize) -> Result<(), Error> {
        let (member, number) = (place.member, self.seats.len());
        let nic = member.nic();
        if self.seats.iter().any(|seat| seat.nic == nic) {
            let text = format!("`{}` has the same NIC id as another member", member.name);
            return Err(Error::Join(text));
        }
        let seat = self
            .seats
            .iter()
            .filter(|seat| seat.link_pool == link_pool)
            .count();
        let seat = u32::try_from(seat).unwrap_or(u32::MAX);
        let words = self
            .halls
            .get(link_pool)
            .and_then(|link_pool| link_pool.region.seat(seat));
        let words = words.ok_or_else(|| Error::Join("a group is too large".to_owned()))?;
        if let Some(server) = &place.server {
            self.waiter.add(server, SERVER | number as u64)?;
        }
        let mut seat = Seat::new(member, nic, (link_pool, seat), words, place.server);
        seat.words.set_nic(nic);
        if let Some(guest) = place.guest {
            let vm = Vm::adopt(guest.socket);
            let bells = [guest.bell, guest.doorbell].map(Doorbell::adopt);
            self.waiter.add_shared(&vm, VM | number as u64)?;
            self.waiter.add_shared(&bells[1], DOORBELL)?;
            seat.resume(vm, bells);
        }
        self.seats.push(seat);
        Ok(())
    }

    /// Have `go_on` of [`serve`](Self::serve) asked also when there is something to read here, see
    /// [`is_called`](Self::is_called).
    ///
    /// # Errors
    /// No memory, or no descriptor one can wait for.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// Whether there is something to read at what is [watched](Self::watch).
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.called
    }

    /// Work until `go_on`, asked at least once a second, says no.
    ///
    /// # Errors
    /// The kernel refuses to wait, or has no timer.
    pub fn serve(&mut self, mut go_on: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        // syscalls: timer_create
        let mut alarm = Alarm::new(RING).map_err(|_| Errno::AGAIN)?;
        let mut looked = Instant::now();
        while go_on(self) {
            match self.spin(&mut alarm) {
                true => self.glance()?,
                false => self.sleep()?,
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.bury(looked);
                for link_pool in &mut self.halls {
                    link_pool.empty(looked);
                }
            }
        }
        Ok(())
    }

    /// Work, and look on for a while if there are relays that were busy just now. They are looked
    /// at more often than trunks. True when they still are, and it is the sockets' turn.
    fn spin(&mut self, alarm: &mut Alarm) -> bool {
        for _ in 0..LOOKS {
            let (moved, idle) = self.rounds();
            self.turn(alarm);
            let now = Instant::now();
            if moved {
                self.moved = Some(now);
            }
            let busy = self.moved.is_some_and(|moved| now - moved < SPIN);
            if !busy {
                return false;
            }
            if idle {
                // Whoever has something for it may wait for this processor.
                self.courtesy.give_way();
            }
        }
        true
    }

    /// Look at the relays some times; whether something was moved, and whether others should have the
    /// processor: nothing was moved in the end.
    fn rounds(&mut self) -> (bool, bool) {
        let (mut moved, mut idle) = (false, 0);
        for _ in 0..ROUNDS {
            if self.relay() {
                (moved, idle) = (true, 0);
                continue;
            }
            idle += 1;
            if !self.courtesy.is_crowded() {
                // To look at a line too often takes it from whoever writes there.
                std::hint::spin_loop();
            } else if self.hinders {
                return (moved, true);
            }
        }
        (moved, idle == ROUNDS)
    }

    /// Tell the relays' ends, look once more, then sleep.
    fn sleep(&mut self) -> Result<(), Error> {
        let mut relays: Vec<_> = self
            .links
            .values_mut()
            .filter_map(|l| l.relay.as_mut())
            .collect();
        relays.iter_mut().for_each(|relay| relay.prepare_to_wait());
        // Members are on other kernels, or take part as if they were: they have a fence each.
        let _told = doorbell::settle();
        let work = relays.iter_mut().any(|relay| relay.has_work());
        let limit = if work { Duration::ZERO } else { LOOK };
        let woken = self.waiter.wait(Some(limit))?;
        relays.iter_mut().for_each(|relay| relay.finish_wait());
        self.attend(&woken);
        Ok(())
    }

    /// Look at the sockets without sleeping. Whoever sleeps has to tell the relays' ends, and all
    /// processors (`settle`): in the middle of a conversation that took ten microseconds, and more when
    /// an end then woke this side.
    fn glance(&mut self) -> Result<(), Error> {
        let woken = self.waiter.wait(Some(Duration::ZERO))?;
        self.attend(&woken);
        Ok(())
    }

    /// Do what the sockets ask for.
    fn attend(&mut self, woken: &Woken) {
        self.called = false;
        for &token in &woken.tokens {
            let seat = usize::try_from(token & 0xffff_ffff).unwrap_or(usize::MAX);
            match token {
                DOORBELL => {}
                OTHER => self.called = true,
                token if token >= VM => self.hear_vm(seat),
                _ => self.accept(seat),
            }
        }
    }

    /// Tell of each VM, or process of the host, that was accepted since the last time: the place of
    /// its member, and its descriptors, by which another switchboard [takes over](Resources::adopt). What
    /// `tell` returns false for is told again.
    pub fn tell_accepted(&mut self, mut tell: impl FnMut(usize, &Guest<BorrowedFd<'_>>) -> bool) {
        let seats = &self.seats;
        self.accepted.retain(|&number| {
            let seat = seats.get(number);
            let known = seat.and_then(|seat| Some((seat.vm.as_ref()?, seat.bells.as_ref()?)));
            known.is_some_and(|(vm, [bell, doorbell])| {
                let guest = Guest {
                    socket: vm.as_fd(),
                    bell: bell.as_fd(),
                    doorbell: doorbell.as_fd(),
                };
                !tell(number, &guest)
            })
        });
    }

    /// One round over everybody.
    fn turn(&mut self, alarm: &mut Alarm) {
        for number in 0..self.seats.len() {
            self.greet(number);
            for _ in 0..BURST {
                let Some(trunk) = self
                    .seats
                    .get_mut(number)
                    .and_then(|seat| seat.trunk.as_mut())
                else {
                    break;
                };
                if trunk.is_full() {
                    break;
                }
                match trunk.hear() {
                    Ok(Some(note)) => self.hear(number, note),
                    Ok(None) => break,
                    Err(_) => {
                        self.faulty.push(number);
                        break;
                    }
                }
            }
        }
        while let Some(number) = self.faulty.pop() {
            self.leave(number, true);
            if let Some(seat) = self.seats.get_mut(number) {
                seat.counters.faults += 1;
            }
        }
        let mut stuck = Vec::new();
        for (number, seat) in self.seats.iter_mut().enumerate() {
            seat.flush();
            if !seat.ring(alarm) {
                seat.counters.faults += 1;
                stuck.push(number);
            }
        }
        alarm.unset();
        stuck.into_iter().for_each(|number| self.part(number));
    }

    /// All members, in the order they were given.
    #[must_use]
    pub fn report(&self) -> Vec<MemberReport> {
        let report = self.seats.iter().map(|seat| MemberReport {
            name: seat.member.name.clone(),
            group: seat.member.group.clone(),
            nic: seat.nic,
            connected: seat.vm.is_some(),
            joined: seat.trunk.is_some(),
            links: u32::try_from(seat.legs.len()).unwrap_or(u32::MAX),
            counters: seat.counters,
        });
        report.collect()
    }

    /// An uplink says part of a name: tell all others that are here.
    pub(super) fn name(&mut self, note: ControlMessage) {
        let ControlMessage::Name { nic, part, text } = note else {
            return;
        };
        if self.names.hear(nic, part, text) {
            for number in 0..self.seats.len() {
                let seat = self.seats.get(number);
                if seat.is_some_and(|seat| !seat.member.uplink) {
                    self.say(number, note);
                }
            }
        }
    }

    pub(super) fn say(&mut self, number: usize, note: ControlMessage) {
        let trunk = self
            .seats
            .get_mut(number)
            .and_then(|seat| seat.trunk.as_mut());
        if trunk.is_some_and(|trunk| trunk.say(note).is_err()) {
            self.faulty.push(number);
        }
    }
}
