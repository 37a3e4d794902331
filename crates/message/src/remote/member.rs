//! The broker's state of a member.

use std::collections::HashMap;
use std::time::Instant;

use vhost::alarm::Alarm;
use window::ivshmem::{Doorbell, Member as Vm, Server};
use window::region;

use super::control_channel::ControlChannel;
use super::control_message::{FROM_MEMBER, LinkId};
use super::heartbeat::Heartbeat;
use super::report::{Counters, MAX_PEERS};
use super::resources::Member;
use crate::address::Board;

#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) config: Member,
    pub(super) nic: u64,
    /// The NIC id of its name, which routes to it, too.
    pub(super) alias: u64,
    /// The region, and the member's number in it.
    pub(super) link_pool: usize,
    pub(super) index: u32,
    pub(super) page: region::MemberPage,
    /// The socket where it connects; `None` if another process accepts, see
    /// [`Broker::admit`](super::Broker::admit).
    pub(super) server: Option<Server>,
    /// The VM's connection, while it runs.
    pub(super) vm: Option<Vm>,
    /// The eventfds of its connection: the one that interrupts it, and the one by which it wakes
    /// the host.
    pub(super) doorbells: Option<[Doorbell; 2]>,
    /// The member has to be woken.
    wake_pending: bool,
    /// The control channel of its gateway, while there is one.
    pub(super) control: Option<ControlChannel>,
    /// The number of its last request to join.
    pub(super) join_number: u32,
    pub(super) heartbeat: Heartbeat,
    /// Its links, with the side that it is on.
    pub(super) links: HashMap<LinkId, (u64, usize)>,
    next: LinkId,
    /// Windows that programs of this member may still use.
    pub(super) parked: Vec<u32>,
    pub(super) counters: Counters,
    /// Messages and bytes that were taken from it, by the number of the member that they were for. Empty before the
    /// first message.
    sent_to: Vec<[u64; 2]>,
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
            heartbeat: Heartbeat::new(Instant::now()),
            links: HashMap::new(),
            next: 0,
            parked: Vec::new(),
            counters: Counters::default(),
            sent_to: Vec::new(),
        }
    }

    /// Counts messages that were taken from this member for another one.
    #[inline]
    pub(super) fn count(&mut self, to: usize, messages: u64, bytes: u64) {
        self.counters.messages += messages;
        self.counters.bytes += bytes;
        match self.sent_to.get_mut(to) {
            Some([sum, sum_bytes]) => {
                *sum += messages;
                *sum_bytes += bytes;
            }
            None if messages > 0 => self.count_first(to, messages, bytes),
            None => {}
        }
    }

    #[cold]
    fn count_first(&mut self, to: usize, messages: u64, bytes: u64) {
        self.sent_to.resize(to + 1, [0; 2]);
        if let Some(sums) = self.sent_to.get_mut(to) {
            *sums = [messages, bytes];
        }
    }

    /// Returns what was taken from this member for each other one, by its number; the most bytes first.
    pub(super) fn sent_to(&self) -> Vec<(usize, [u64; 2])> {
        let sums = self.sent_to.iter().copied().enumerate();
        let mut sums: Vec<_> = sums.filter(|(_, [messages, _])| *messages > 0).collect();
        sums.sort_by_key(|(_, [_, bytes])| std::cmp::Reverse(*bytes));
        sums.truncate(MAX_PEERS);
        sums
    }

    /// Returns whether a NIC id routes to this member.
    pub(super) fn has_nic(&self, nic: u64) -> bool {
        self.nic == nic || self.alias == nic
    }

    /// Returns whether its gateway runs in a VM: only such a gateway is woken by interrupts, or polls.
    pub(super) fn is_vm(&self) -> bool {
        self.page.is_interruptible() || self.page.is_polling()
    }

    /// Returns its id in the ivshmem protocol.
    pub(super) fn id(&self) -> u16 {
        // Regions have fewer members.
        u16::try_from(self.index + 1).unwrap_or(u16::MAX)
    }

    /// Takes over a VM that another process served. A gateway that joined that process has to join
    /// again; one that has sent a new request meanwhile need not.
    pub(super) fn adopt_vm(&mut self, vm: Vm, doorbells: [Doorbell; 2]) {
        self.join_number = self.page.joined_number();
        self.page.confirm_join(0);
        self.vm = Some(vm);
        self.doorbells = Some(doorbells);
        self.wake_pending = true;
    }

    /// Clears the words that the VM wrote, which has ended.
    pub(super) fn reset_page(&mut self) {
        self.page.request_join(0);
        self.page.set_interruptible(false);
        self.page.set_polling(false);
        self.join_number = 0;
    }

    /// Wakes the member if it has to be woken. Returns false if its eventfd does not take the ring
    /// without blocking: the member has filled it.
    pub(super) fn ring(&mut self, alarm: Option<&mut Alarm>) -> bool {
        if !std::mem::take(&mut self.wake_pending) {
            return true;
        }
        let (Some(vm), Some([interrupt, _])) = (&self.vm, &self.doorbells) else {
            return true;
        };
        vm.wake();
        if !self.page.is_interruptible() {
            return true;
        }
        if let Some(alarm) = alarm {
            alarm.set();
        }
        interrupt.ring()
    }

    /// Records that its gateway has joined, with this number.
    pub(super) fn gateway_joined(&mut self, control: ControlChannel, join_number: u32) {
        self.control = Some(control);
        self.counters.joins += 1;
        self.heartbeat.joined(Instant::now());
        self.page.confirm_join(join_number);
        self.wake_pending = true;
    }

    /// Records that its gateway has ended.
    pub(super) fn gateway_ended(&mut self) {
        self.control = None;
        self.page.confirm_join(0);
    }

    /// Returns whether it has a gateway that sends no heartbeat.
    pub(super) fn is_silent(&self) -> bool {
        self.control.is_some() && self.heartbeat.is_silent()
    }

    /// Returns an unused link number.
    pub(super) fn new_link_id(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1) & !FROM_MEMBER;
            if !self.links.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Sends queued messages; the gateway is to be [woken](Self::ring) if any were published.
    pub(super) fn flush(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        // The next receive detects a fault.
        let _fault = control.flush();
        self.wake_pending |= std::mem::take(&mut control.published);
    }
}
