//! A member, as the switchboard sees it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vhost::alarm::Alarm;
use window::ivshmem::{Doorbell, Member as Vm, Server};
use window::region;

use super::control_message::{FROM_MEMBER, LinkId};
use super::report::Counters;
use super::resources::Member;
use super::trunk::Trunk;
use crate::address::Board;

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) member: Member,
    pub(super) nic: u64,
    /// The NIC id that its name gives it: it answers to that too.
    pub(super) alias: u64,
    /// Which region, and which seat of it.
    pub(super) link_pool: usize,
    pub(super) place: u32,
    pub(super) words: region::Seat,
    /// Where it connects; none when somebody else accepts, see [`Switchboard::admit`](super::Switchboard::admit).
    pub(super) server: Option<Server>,
    /// The VM, while it runs.
    pub(super) vm: Option<Vm>,
    /// The eventfds of its connection: what interrupts it, and what it wakes the host with.
    pub(super) bells: Option<[Doorbell; 2]>,
    /// It has to be woken.
    due: bool,
    /// The gateway, while there is one.
    pub(super) trunk: Option<Trunk>,
    /// What it began with last.
    pub(super) opened: u32,
    /// Its beat, and when that changed.
    beat: u32,
    beaten: Instant,
    /// Its links, with the side it is on.
    pub(super) legs: HashMap<LinkId, (u64, usize)>,
    next: LinkId,
    /// Windows that somebody in it may still use.
    pub(super) parked: Vec<u32>,
    pub(super) counters: Counters,
}

impl Seat {
    pub(super) fn new(
        member: Member,
        nic: u64,
        (link_pool, place): (usize, u32),
        words: region::Seat,
        server: Option<Server>,
    ) -> Self {
        Self {
            alias: Board::nic_of(&member.name),
            member,
            nic,
            link_pool,
            place,
            words,
            server,
            vm: None,
            bells: None,
            due: false,
            trunk: None,
            opened: 0,
            beat: 0,
            beaten: Instant::now(),
            legs: HashMap::new(),
            next: 0,
            parked: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Whether it answers to this NIC id.
    pub(super) fn is(&self, nic: u64) -> bool {
        self.nic == nic || self.alias == nic
    }

    /// Its id in its region's protocol.
    pub(super) fn id(&self) -> u16 {
        // Regions have fewer seats.
        u16::try_from(self.place + 1).unwrap_or(u16::MAX)
    }

    /// Its VM runs, and was another process's until now. A gateway of that time has to begin anew; one
    /// that did so meanwhile has done enough.
    pub(super) fn resume(&mut self, vm: Vm, bells: [Doorbell; 2]) {
        self.opened = self.words.heard();
        self.words.hear(0);
        self.vm = Some(vm);
        self.bells = Some(bells);
        self.due = true;
    }

    /// Its VM is no more, nor what it said.
    pub(super) fn forget(&mut self) {
        self.words.open(0);
        self.words.listen(false);
        self.opened = 0;
    }

    /// Wake it if it has to be. False when its eventfd does not take that without a wait: it has
    /// filled it.
    pub(super) fn ring(&mut self, alarm: &mut Alarm) -> bool {
        if !std::mem::take(&mut self.due) {
            return true;
        }
        let (Some(vm), Some([bell, _])) = (&self.vm, &self.bells) else {
            return true;
        };
        vm.wake();
        if !self.words.listens() {
            return true;
        }
        alarm.set();
        bell.ring()
    }

    /// Its gateway has begun, with this number.
    pub(super) fn begin(&mut self, trunk: Trunk, number: u32) {
        self.trunk = Some(trunk);
        self.counters.joins += 1;
        self.beaten = Instant::now();
        self.words.hear(number);
        self.due = true;
    }

    /// Its gateway is no more.
    pub(super) fn end(&mut self) {
        self.trunk = None;
        self.words.hear(0);
    }

    /// Whether its gateway has not moved for so long.
    pub(super) fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        let beat = self.words.beaten();
        if beat != self.beat {
            self.beat = beat;
            self.beaten = now;
        }
        self.trunk.is_some() && now.saturating_duration_since(self.beaten) >= limit
    }

    /// A number that none of its links has.
    pub(super) fn number(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1) & !FROM_MEMBER;
            if !self.legs.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Say what had no room; the gateway is to be [woken](Self::ring) if there is something for it.
    pub(super) fn flush(&mut self) {
        let Some(trunk) = &mut self.trunk else {
            return;
        };
        // A fault shows when it is heard next.
        let _fault = trunk.flush();
        self.due |= std::mem::take(&mut trunk.told);
    }
}
