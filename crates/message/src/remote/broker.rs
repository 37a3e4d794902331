//! The broker: the host's process that joins the gateways of all members.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vhost::alarm::Alarm;
use window::doorbell;
use window::ivshmem::{Doorbell, Member as Vm};
use window::waiter::{Token, WaitResult, Waiter};
use window::yielding::Yielder;

use super::adaptive_polling::{AdaptivePolling, SUPPRESSED_SLEEP};
use super::control_message::ControlMessage;
use super::limits::BURST;
use super::link::{End, Link};
use super::link_pool::LinkPool;
use super::member::MemberState;
use super::names::Names;
use super::relay::Relay;
use super::report::{MemberReport, MessagesSent};
use super::resources::{Connection, Member, MemberResources, Resources, region_of_each};
use crate::error::Error;

/// Joins the gateways of a host.
#[derive(Debug)]
pub struct Broker {
    pub(super) link_pools: Vec<LinkPool>,
    pub(super) members: Vec<MemberState>,
    pub(super) links: HashMap<u64, Link>,
    pub(super) next: u64,
    /// The names that the uplink reported.
    pub(super) names: Names,
    pub(super) waiter: Waiter,
    /// Members whose gateway violated the protocol.
    pub(super) faulty: Vec<usize>,
    /// Whether relays are polled after one forwarded a record.
    pub(super) polling: AdaptivePolling,
    pub(super) yielder: Yielder,
    /// The receiver of the records that were forwarded last needs this processor.
    pub(super) peer_needs_cpu: bool,
    /// A [watched](Self::watch) descriptor is readable.
    watched_is_ready: bool,
    /// Members whose VM was accepted and not reported yet.
    pub(super) accepted: Vec<usize>,
}

pub(super) const DOORBELL: Token = 0;
const OTHER: Token = 1;
const SERVER: Token = 1 << 32;
pub(super) const VM: Token = 2 << 32;

/// The longest time that a ring of a member's eventfd may block: then its connection ends.
const RING_TIMEOUT: Duration = Duration::from_millis(1);

/// Polls of the relays between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;

/// Rounds of polls between two checks of the sockets, however busy the relays are.
const ROUNDS_PER_SOCKET_CHECK: u32 = 64;

/// The interval at which heartbeats and idle links are checked.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

impl Broker {
    /// Opens a broker for these members. Each has a socket `NAME.sock` in `folder`, which is
    /// created.
    ///
    /// # Errors
    /// As for [`from_resources`](Self::from_resources) and [`Resources::create_in`].
    pub fn new(folder: &Path, members: &[Member]) -> Result<Self, Error> {
        Self::from_resources(Resources::create_in(folder, members)?)
    }

    /// Opens a broker with these resources, new or [adopted](Resources::adopt). VMs that run
    /// have to join again: their links are unknown.
    ///
    /// # Errors
    /// Two names give one NIC id, or the kernel refuses.
    pub fn from_resources(parts: Resources) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let members: Vec<_> = parts
            .member_resources
            .iter()
            .map(|resources| &resources.member)
            .collect();
        let numbers = region_of_each(&members);
        let mut broker = Self {
            link_pools: parts.regions.into_iter().map(LinkPool::new).collect(),
            members: Vec::new(),
            links: HashMap::new(),
            next: 0,
            names: Names::default(),
            waiter,
            faulty: Vec::new(),
            polling: AdaptivePolling::default(),
            yielder: Yielder::default(),
            peer_needs_cpu: false,
            watched_is_ready: false,
            accepted: Vec::new(),
        };
        let mut member_resources = parts.member_resources.into_iter().zip(numbers);
        member_resources.try_for_each(|(resources, link_pool)| broker.add(resources, link_pool))?;
        Ok(broker)
    }

    fn add(&mut self, resources: MemberResources, link_pool: usize) -> Result<(), Error> {
        let (config, number) = (resources.member, self.members.len());
        let nic = config.nic();
        if self.members.iter().any(|member| member.nic == nic) {
            let text = format!("`{}` has the same NIC id as another member", config.name);
            return Err(Error::Join(text));
        }
        let index = self
            .members
            .iter()
            .filter(|member| member.link_pool == link_pool)
            .count();
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let page = self
            .link_pools
            .get(link_pool)
            .and_then(|link_pool| link_pool.region.page(index));
        let page = page.ok_or_else(|| Error::Join("a group is too large".to_owned()))?;
        if let Some(server) = &resources.server {
            self.waiter.add(server, SERVER | number as u64)?;
        }
        let mut member = MemberState::new(config, nic, (link_pool, index), page, resources.server);
        member.page.set_nic(nic);
        if let Some(connection) = resources.connection {
            let vm = Vm::adopt(connection.socket);
            let doorbells = [connection.interrupt, connection.doorbell].map(Doorbell::adopt);
            self.waiter.add_shared(&vm, VM | number as u64)?;
            self.waiter.add_shared(&doorbells[1], DOORBELL)?;
            member.adopt_vm(vm, doorbells);
        }
        self.members.push(member);
        Ok(())
    }

    /// Makes [`serve`](Self::serve) call `go_on` also when this descriptor is readable, see
    /// [`is_watched_ready`](Self::is_watched_ready).
    ///
    /// # Errors
    /// There is no memory left, or epoll does not support the descriptor.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// Returns whether a [watched](Self::watch) descriptor is readable.
    #[must_use]
    pub fn is_watched_ready(&self) -> bool {
        self.watched_is_ready
    }

    /// Runs until `go_on`, called at least once a second, returns false.
    ///
    /// # Errors
    /// The kernel refuses to wait, or has no timer.
    pub fn serve(&mut self, mut go_on: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        // syscalls: timer_create
        let mut alarm = Alarm::new(RING_TIMEOUT).map_err(|_| Errno::AGAIN)?;
        let mut last_check = Instant::now();
        while go_on(self) {
            match self.spin(&mut alarm) {
                true => self.poll_sockets()?,
                false => self.sleep()?,
            }
            if last_check.elapsed() >= HOUSEKEEPING_INTERVAL {
                last_check = Instant::now();
                self.read_heartbeats(last_check);
                for link_pool in &mut self.link_pools {
                    link_pool.release_idle_memory(last_check);
                }
            }
        }
        Ok(())
    }

    /// Serves the members once, without waiting. For members that are this process, which cannot make a ring block.
    pub(super) fn turn(&mut self) -> Result<(), Error> {
        self.poll_sockets()?;
        self.serve_members(None);
        Ok(())
    }

    /// Serves members and relays, and polls for a while if relays were busy just now. Relays are
    /// polled more often than control channels. Returns true if relays are still busy, and the
    /// sockets are to be checked.
    fn spin(&mut self, alarm: &mut Alarm) -> bool {
        for _ in 0..ROUNDS_PER_SOCKET_CHECK {
            let (progress, idle) = self.poll_relays();
            self.serve_members(Some(alarm));
            let now = Instant::now();
            if progress {
                self.polling.moved(now);
            } else if !self.polling.polls_on(now) {
                return false;
            }
            if idle {
                // The sender that it waits for may need this processor.
                self.polling.yielded(now, self.yielder.yield_now());
            }
        }
        true
    }

    /// Polls the relays repeatedly. Returns whether a record was forwarded, and whether other
    /// programs should run because the last polls found none.
    fn poll_relays(&mut self) -> (bool, bool) {
        let (mut progress, mut idle) = (false, 0);
        for _ in 0..POLLS_PER_CLOCK_READ {
            if self.relay() {
                (progress, idle) = (true, 0);
                continue;
            }
            idle += 1;
            if self.peer_needs_cpu && self.yielder.is_contended() {
                return (progress, true);
            }
            // Polling a line too often takes it from the producer that writes there.
            std::hint::spin_loop();
        }
        (progress, idle == POLLS_PER_CLOCK_READ)
    }

    /// Announces the sleep to the relays' ends, checks for work once more, then sleeps. While the doorbells of VMs are
    /// suppressed, it is not announced to their ends, and short.
    fn sleep(&mut self) -> Result<(), Error> {
        let suppresses = self.polling.suppresses_doorbells(Instant::now());
        let (mut limit, mut has_vms) = (HOUSEKEEPING_INTERVAL, false);
        for (relay, ends) in relays(&mut self.links) {
            let are_vms = ends.map(|end| is_vm(&self.members, end));
            has_vms |= are_vms.contains(&true);
            relay.prepare_to_wait(are_vms.map(|is_vm| is_vm && suppresses));
        }
        self.polling.set_has_vms(has_vms);
        if has_vms && suppresses {
            limit = SUPPRESSED_SLEEP;
        }
        // Members run on other kernels, or are treated so: they use a fence each.
        let _result = doorbell::wait_fence();
        if relays(&mut self.links).any(|(relay, _)| relay.has_work()) {
            limit = Duration::ZERO;
        }
        let woken = self.waiter.wait(Some(limit))?;
        for (relay, _) in relays(&mut self.links) {
            relay.finish_wait();
        }
        self.handle_events(&woken);
        Ok(())
    }

    /// Checks the sockets without sleeping. A sleep has to be announced to the relays' ends, and
    /// needs a fence on all processors (`wait_fence`). In the middle of a conversation that took
    /// ten microseconds, and more when an end then woke this side.
    fn poll_sockets(&mut self) -> Result<(), Error> {
        let woken = self.waiter.wait(Some(Duration::ZERO))?;
        self.handle_events(&woken);
        Ok(())
    }

    /// Handles the events of the sockets.
    fn handle_events(&mut self, woken: &WaitResult) {
        self.watched_is_ready = false;
        for &token in &woken.tokens {
            let member = usize::try_from(token & 0xffff_ffff).unwrap_or(usize::MAX);
            match token {
                DOORBELL => {}
                OTHER => self.watched_is_ready = true,
                token if token >= VM => self.check_vm_socket(member),
                _ => self.accept(member),
            }
        }
    }

    /// Reports each VM, or process of the host, that was accepted since the last call: the number
    /// of its member, and its descriptors, with which another broker [takes
    /// over](Resources::adopt). If `report` returns false, the VM is reported again.
    pub fn report_accepted(
        &mut self,
        mut report: impl FnMut(usize, &Connection<BorrowedFd<'_>>) -> bool,
    ) {
        let members = &self.members;
        self.accepted.retain(|&number| {
            let member = members.get(number);
            let known =
                member.and_then(|member| Some((member.vm.as_ref()?, member.doorbells.as_ref()?)));
            known.is_some_and(|(vm, [interrupt, doorbell])| {
                let connection = Connection {
                    socket: vm.as_fd(),
                    interrupt: interrupt.as_fd(),
                    doorbell: doorbell.as_fd(),
                };
                !report(number, &connection)
            })
        });
    }

    /// Serves all members once. The alarm interrupts rings of eventfds that a member has made to block.
    fn serve_members(&mut self, mut alarm: Option<&mut Alarm>) {
        for number in 0..self.members.len() {
            self.check_join_request(number);
            for _ in 0..BURST {
                let Some(control) = self
                    .members
                    .get_mut(number)
                    .and_then(|member| member.control.as_mut())
                else {
                    break;
                };
                if control.is_full() {
                    break;
                }
                match control.receive() {
                    Ok(Some(message)) => self.handle_message(number, message),
                    Ok(None) => break,
                    Err(_) => {
                        self.faulty.push(number);
                        break;
                    }
                }
            }
        }
        while let Some(number) = self.faulty.pop() {
            self.remove_gateway(number, true);
            if let Some(member) = self.members.get_mut(number) {
                member.counters.faults += 1;
            }
        }
        let mut stuck = Vec::new();
        for (number, member) in self.members.iter_mut().enumerate() {
            member.flush();
            if !member.ring(alarm.as_deref_mut()) {
                member.counters.faults += 1;
                stuck.push(number);
            }
        }
        if let Some(alarm) = alarm {
            alarm.unset();
        }
        stuck.into_iter().for_each(|number| self.remove_vm(number));
    }

    /// Returns the reports of all members, in the order of their configuration.
    #[must_use]
    pub fn report(&self) -> Vec<MemberReport> {
        let report = self.members.iter().map(|member| MemberReport {
            name: member.config.name.clone(),
            group: member.config.group.clone(),
            nic: member.nic,
            connected: member.vm.is_some(),
            joined: member.control.is_some(),
            polling: member.control.is_some() && member.page.is_polling(),
            silent: member.is_silent(),
            links: u32::try_from(member.links.len()).unwrap_or(u32::MAX),
            counters: member.counters,
            sent_to: self.named(member.sent_to()),
        });
        report.collect()
    }

    /// Returns sums with the names of the members that they are for.
    fn named(&self, sums: Vec<(usize, [u64; 2])>) -> Vec<MessagesSent> {
        let named = sums.into_iter().filter_map(|(to, [messages, bytes])| {
            Some(MessagesSent {
                name: self.members.get(to)?.config.name.clone(),
                messages,
                bytes,
            })
        });
        named.collect()
    }

    /// Forwards a part of a name, which an uplink reported, to all other members.
    pub(super) fn name(&mut self, message: ControlMessage) {
        let ControlMessage::Name { nic, part, text } = message else {
            return;
        };
        if self.names.update(nic, part, text) {
            for number in 0..self.members.len() {
                let member = self.members.get(number);
                if member.is_some_and(|member| !member.config.uplink) {
                    self.send(number, message);
                }
            }
        }
    }

    pub(super) fn send(&mut self, number: usize, message: ControlMessage) {
        let control = self
            .members
            .get_mut(number)
            .and_then(|member| member.control.as_mut());
        if control.is_some_and(|control| control.send(message).is_err()) {
            self.faulty.push(number);
        }
    }
}

/// Returns the relays, each with the ends of its link.
fn relays(links: &mut HashMap<u64, Link>) -> impl Iterator<Item = (&mut Relay, [End; 2])> {
    links
        .values_mut()
        .filter_map(|link| Some((link.relay.as_mut()?, link.ends)))
}

/// Returns whether the gateway of an end runs in a VM.
fn is_vm(members: &[MemberState], end: End) -> bool {
    let member = members.get(end.member);
    member.is_some_and(MemberState::is_vm)
}
