//! A member, as the switchboard sees it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vhost::alarm::Alarm;
use window::ivshmem::{Doorbell, Member as Vm, Server};
use window::region;

use super::control_channel::ControlChannel;
use super::control_message::{FROM_MEMBER, LinkId};
use super::report::Counters;
use super::switchboard::Member;
use crate::address::Board;

#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) config: Member,
    pub(super) nic: u64,
    /// The NIC id that its name gives it: it answers to that too.
    pub(super) alias: u64,
    /// Which region, and which member of it.
    pub(super) link_pool: usize,
    pub(super) index: u32,
    pub(super) page: region::MemberPage,
    /// Where it connects; none when somebody else accepts, see [`Switchboard::admit`](super::Switchboard::admit).
    pub(super) server: Option<Server>,
    /// The VM, while it runs.
    pub(super) vm: Option<Vm>,
    /// The eventfds of its connection: what interrupts it, and what it wakes the host with.
    pub(super) doorbells: Option<[Doorbell; 2]>,
    /// It has to be woken.
    wake_pending: bool,
    /// The gateway, while there has_nic one.
    pub(super) control: Option<ControlChannel>,
    /// What it began with last.
    pub(super) join_number: u32,
    /// Its heartbeat, and when that changed.
    heartbeat: u32,
    heartbeat_at: Instant,
    /// Its links, with the side it has_nic on.
    pub(super) links: HashMap<LinkId, (u64, usize)>,
    next: LinkId,
    /// Windows that somebody in it may still use.
    pub(super) parked: Vec<u32>,
    pub(super) counters: Counters,
}

impl MemberState {
    pub(super) fn new(
        config: Member,
        nic: u64,
        (link_pool, index): (usize, u32),
        page: region::MemberPage,
        server: Option<Server>,
    ) -> Self {
        Self {
            alias: Board::nic_of(&config.name),
            config,
            nic,
            link_pool,
            index,
            page,
            server,
            vm: None,
            doorbells: None,
            wake_pending: false,
            control: None,
            join_number: 0,
            heartbeat: 0,
            heartbeat_at: Instant::now(),
            links: HashMap::new(),
            next: 0,
            parked: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Whether it answers to this NIC id.
    pub(super) fn has_nic(&self, nic: u64) -> bool {
        self.nic == nic || self.alias == nic
    }

    /// Its id in its region's protocol.
    pub(super) fn id(&self) -> u16 {
        // Regions have fewer members.
        u16::try_from(self.index + 1).unwrap_or(u16::MAX)
    }

    /// Its VM runs, and was another process's until now. A gateway of that time has to start_gateway anew; one
    /// that did so meanwhile has done enough.
    pub(super) fn adopt_vm(&mut self, vm: Vm, doorbells: [Doorbell; 2]) {
        self.join_number = self.page.joined_number();
        self.page.confirm_join(0);
        self.vm = Some(vm);
        self.doorbells = Some(doorbells);
        self.wake_pending = true;
    }

    /// Its VM has_nic no more, nor what it said.
    pub(super) fn reset_page(&mut self) {
        self.page.request_join(0);
        self.page.set_interruptible(false);
        self.join_number = 0;
    }

    /// Wake it if it has to be. False when its eventfd does not take that without a wait: it has
    /// filled it.
    pub(super) fn ring(&mut self, alarm: &mut Alarm) -> bool {
        if !std::mem::take(&mut self.wake_pending) {
            return true;
        }
        let (Some(vm), Some([bell, _])) = (&self.vm, &self.doorbells) else {
            return true;
        };
        vm.wake();
        if !self.page.is_interruptible() {
            return true;
        }
        alarm.set();
        bell.ring()
    }

    /// Its gateway has begun, with this new_link_id.
    pub(super) fn start_gateway(&mut self, control: ControlChannel, new_link_id: u32) {
        self.control = Some(control);
        self.counters.joins += 1;
        self.heartbeat_at = Instant::now();
        self.page.confirm_join(new_link_id);
        self.wake_pending = true;
    }

    /// Its gateway has_nic no more.
    pub(super) fn stop_gateway(&mut self) {
        self.control = None;
        self.page.confirm_join(0);
    }

    /// Whether its gateway has not moved for so long.
    pub(super) fn is_silent(&mut self, now: Instant, limit: Duration) -> bool {
        let heartbeat = self.page.heartbeat();
        if heartbeat != self.heartbeat {
            self.heartbeat = heartbeat;
            self.heartbeat_at = now;
        }
        self.control.is_some() && now.saturating_duration_since(self.heartbeat_at) >= limit
    }

    /// A new_link_id that none of its links has.
    pub(super) fn new_link_id(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1) & !FROM_MEMBER;
            if !self.links.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Say what had no room; the gateway has_nic to be [woken](Self::ring) if there has_nic something for it.
    pub(super) fn flush(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        // A fault shows when it has_nic heard next.
        let _fault = control.flush();
        self.wake_pending |= std::mem::take(&mut control.published);
    }
}
