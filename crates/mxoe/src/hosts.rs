//! The table of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::event::Event;
use crate::limits::{
    ANNOUNCE_INTERVAL, ANNOUNCE_INTERVAL_IDLE, ANNOUNCEMENTS, HOSTS, QUERY_INTERVAL,
    RENAME_INTERVAL,
};
use crate::output::{Output, Route};
use crate::wire::{Mac, NO_INDEX, Packet};

#[derive(Debug)]
struct Host {
    mac: Mac,
    index: u16,
    name: Option<String>,
    /// When the name last changed.
    renamed_at: Duration,
    /// When the last frame of this host arrived.
    last_received: Duration,
    /// The serial number in its announcements.
    serial: Option<u32>,
    /// Identifies the unanswered query.
    magic: u32,
    query_at: Option<Duration>,
}

impl Host {
    fn new(now: Duration, mac: Mac, magic: u32) -> Self {
        Self {
            mac,
            index: NO_INDEX,
            name: None,
            renamed_at: Duration::ZERO,
            last_received: now,
            serial: None,
            magic,
            query_at: Some(now),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    /// Number of replacements in the table, counted from the size of the table.
    replacements: u32,
    by_mac: BTreeMap<Mac, u16>,
    serial: u32,
    announcements: u32,
    announce: Option<Duration>,
    /// Other nodes have the same address. Each has a table of its own, so a host may put any node's index into its frames.
    shared: bool,
    /// This node announces the host and answers queries: of the nodes with one address, one does that.
    answers: bool,
}

impl Hosts {
    pub(crate) fn new(serial: u32, shared: bool) -> Self {
        Self {
            list: Vec::new(),
            // Starts behind the indices, so that each query has a magic of its own.
            replacements: u32::try_from(HOSTS).unwrap_or(u32::MAX),
            by_mac: BTreeMap::new(),
            serial,
            announcements: 0,
            announce: None,
            shared,
            answers: !shared,
        }
    }

    /// Starts to announce this node, and to answer for the host.
    pub(crate) fn announce(&mut self, now: Duration) {
        self.answers = true;
        self.announcements = ANNOUNCEMENTS;
        self.announce = Some(now);
    }

    /// Stops announcing this node.
    pub(crate) fn stop_announcing(&mut self) {
        self.announce = None;
    }

    /// Leaves the announcements and answers to another node.
    pub(crate) fn stop_answering(&mut self) {
        self.stop_announcing();
        self.answers = false;
    }

    pub(crate) fn find(&self, mac: Mac) -> Option<u16> {
        self.by_mac.get(&mac).copied()
    }

    /// Returns the index of a host. A host that is new is added and queried for its name. Returns
    /// `None` if the table is full or the address is not a host's.
    pub(crate) fn add(&mut self, now: Duration, mac: Mac) -> Option<u16> {
        if let Some(known) = self.find(mac) {
            return Some(known);
        }
        if self.list.len() >= HOSTS || !mac.is_host() {
            return None;
        }
        let slot = u16::try_from(self.list.len()).ok()?;
        let magic = self.serial.wrapping_add(slot.into());
        self.list.push(Host::new(now, mac, magic));
        self.by_mac.insert(mac, slot);
        Some(slot)
    }

    fn get(&mut self, slot: u16) -> Option<&mut Host> {
        self.list.get_mut(usize::from(slot))
    }

    /// Returns the index of the host that sent a frame, if it is the host whose index the frame carries. If other nodes have the
    /// same address, the index in the frame may be that in their tables.
    pub(crate) fn sender(&mut self, now: Duration, index: u16, source: Mac) -> Option<u16> {
        let is_at = |host: &Host| host.mac == source;
        let slot = match self.list.get(usize::from(index)).is_some_and(is_at) {
            true => Some(index),
            false if self.shared => self.find(source),
            false => None,
        }?;
        self.get(slot)?.last_received = now;
        Some(slot)
    }

    /// Whether this host is new and the table is full.
    pub(crate) fn is_full(&self, mac: Mac) -> bool {
        self.list.len() >= HOSTS && mac.is_host() && self.find(mac).is_none()
    }

    /// Replaces the host that has been silent longest, and returns its index. A host without a name
    /// goes first, because it may not exist. A host in use stays.
    pub(crate) fn replace(&mut self, now: Duration, mac: Mac, used: &BTreeSet<u16>) -> Option<u16> {
        let free = (0u16..).zip(&self.list);
        let free = free.filter(|(slot, _)| !used.contains(slot));
        let oldest = free.min_by_key(|(_, host)| (host.name.is_some(), host.last_received));
        let slot = oldest.map(|(slot, _)| slot)?;
        self.replacements = self.replacements.wrapping_add(1);
        let magic = self.serial.wrapping_add(self.replacements);
        let host = self.get(slot)?;
        let fresh = Host::new(now, mac, magic);
        let gone = std::mem::replace(host, fresh).mac;
        self.by_mac.remove(&gone);
        self.by_mac.insert(mac, slot);
        Some(slot)
    }

    pub(crate) fn route(&self, slot: u16) -> Option<Route> {
        let host = self.list.get(usize::from(slot))?;
        Some(Route {
            mac: host.mac,
            index: host.index,
            datagrams: None,
        })
    }

    /// Stores this node's index in the host's table.
    pub(crate) fn set_index(&mut self, slot: u16, index: u16) {
        if let Some(host) = self.get(slot) {
            host.index = index;
        }
    }

    /// Handles an announcement.
    pub(crate) fn receive_announcement(
        &mut self,
        now: Duration,
        source: Mac,
        nic: u64,
        serial: u32,
    ) {
        if Mac::from_nic(nic) != Some(source) {
            return;
        }
        let Some(slot) = self.add(now, source) else {
            return;
        };
        let Some(host) = self.get(slot).filter(|host| host.serial != Some(serial)) else {
            return;
        };
        // The host is new or was restarted, so its table is a new one.
        if host.serial.replace(serial).is_some() {
            host.index = NO_INDEX;
        }
        host.query_at = Some(now);
        if self.answers {
            self.announce(now);
        }
    }

    /// Handles a query for this node's name, which also contains this node's index in the sender's
    /// table.
    pub(crate) fn receive_query(
        &mut self,
        slot: u16,
        index: u16,
        magic: u32,
        name: &str,
        out: &mut Output,
    ) {
        self.set_index(slot, index);
        if !self.answers {
            return;
        }
        let reply = Packet::HostReply {
            index: slot,
            magic,
            name: name.as_bytes(),
        };
        if let Some(route) = self.route(slot) {
            out.send(route, reply);
        }
    }

    /// Handles a reply with a host's name.
    pub(crate) fn receive_name(
        &mut self,
        now: Duration,
        slot: u16,
        (index, magic, name): (u16, u32, &[u8]),
        out: &mut Output,
    ) {
        let Some(host) = self.get(slot).filter(|host| host.magic == magic) else {
            return;
        };
        host.index = index;
        host.query_at = None;
        let name = String::from_utf8_lossy(name).into_owned();
        let soon = host.renamed_at.saturating_add(RENAME_INTERVAL);
        if host.name.is_some() && host.name.as_ref() != Some(&name) && now < soon {
            // The name changed too soon. Query it again later.
            host.query_at = Some(soon);
        } else if host.name.as_ref() != Some(&name) {
            host.renamed_at = now;
            host.name = Some(name.clone());
            let event = Event::Host {
                host: host.mac,
                name,
            };
            out.events.push_back(event);
        }
    }

    pub(crate) fn tick(&mut self, now: Duration, nic: u64, out: &mut Output) {
        if self.announce.is_some_and(|at| at <= now) {
            self.announcements = self.announcements.saturating_sub(1);
            let pause = if self.announcements > 0 {
                ANNOUNCE_INTERVAL
            } else {
                ANNOUNCE_INTERVAL_IDLE
            };
            self.announce = Some(now + pause);
            let broadcast = Route {
                mac: Mac::BROADCAST,
                index: NO_INDEX,
                datagrams: None,
            };
            let serial = self.serial;
            out.send(broadcast, Packet::Announce { nic, serial });
        }
        for (slot, host) in (0u16..).zip(&mut self.list) {
            if host.query_at.is_some_and(|at| at <= now) {
                host.query_at = Some(now + QUERY_INTERVAL);
                let route = Route {
                    mac: host.mac,
                    index: host.index,
                    datagrams: None,
                };
                let magic = host.magic;
                let index = slot;
                out.send(route, Packet::HostQuery { index, magic });
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let queries = self.list.iter().filter_map(|host| host.query_at);
        queries.chain(self.announce).min()
    }
}
