//! The table of hosts: who is there, by which index, and how a host is found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::counters::Counters;
use crate::event::Event;
use crate::limits::{
    ANNOUNCE, ANNOUNCE_SELDOM, ANNOUNCEMENTS, BLOCKS, HOSTS, QUERY, QUEUED, QUEUED_IN_ALL, RENAME,
    REPLIES,
};
use crate::wire::{Frame, Mac, NO_INDEX, Packet};

/// What leaves a node: frames and events.
#[derive(Debug)]
pub(crate) struct Out {
    mac: Mac,
    frames: VecDeque<Vec<u8>>,
    /// How many of them are for each host.
    queued: BTreeMap<Mac, usize>,
    /// Memory for more frames.
    spare: Vec<Vec<u8>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

/// Frames whose memory is kept for the next: those of the blocks of a pull.
const SPARE: usize = REPLIES as usize * BLOCKS;

/// Where a host's frames go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) mac: Mac,
    /// This node's index in the host's table.
    pub(crate) index: u16,
}

impl Out {
    pub(crate) fn new(mac: Mac) -> Self {
        Self {
            mac,
            frames: VecDeque::new(),
            queued: BTreeMap::new(),
            spare: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Send a packet. The source is always this node. It is dropped, as a network may drop it, when
    /// too many wait: what asks for many is small, so a host could have any number of them wait.
    pub(crate) fn send(&mut self, to: Route, packet: Packet<'_>) {
        let queued = self.queued.entry(to.mac).or_default();
        if *queued >= QUEUED || self.frames.len() >= QUEUED_IN_ALL {
            return;
        }
        *queued += 1;
        let frame = Frame {
            destination: to.mac,
            source: self.mac,
            index: to.index,
            packet,
        };
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        frame.encode_into(&mut bytes);
        self.frames.push_back(bytes);
        self.counters.sent += 1;
    }

    /// The next frame to be sent.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        let to = frame.first_chunk().copied().map(Mac);
        if let Some(queued) = to.and_then(|to| self.queued.get_mut(&to)) {
            *queued = queued.saturating_sub(1);
        }
        if self.frames.is_empty() {
            self.queued.clear();
        }
        Some(frame)
    }

    pub(crate) fn reuse(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }
}

#[derive(Debug)]
struct Host {
    mac: Mac,
    index: u16,
    name: Option<String>,
    /// When that changed last.
    named: Duration,
    /// When something came from it last.
    heard: Duration,
    /// From its announcements.
    serial: Option<u32>,
    /// Of the query that is not answered.
    magic: u32,
    query: Option<Duration>,
}

impl Host {
    fn new(now: Duration, mac: Mac, magic: u32) -> Self {
        Self {
            mac,
            index: NO_INDEX,
            name: None,
            named: Duration::ZERO,
            heard: now,
            serial: None,
            magic,
            query: Some(now),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    /// How often a place was given to another host, counted on from the number of places.
    renewed: u32,
    by_mac: BTreeMap<Mac, u16>,
    serial: u32,
    announcements: u32,
    announce: Option<Duration>,
}

/// What an endpoint works with: the time, the hosts, and the way out.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) now: Duration,
    pub(crate) hosts: &'a Hosts,
    pub(crate) out: &'a mut Out,
    /// How long a partner may be silent.
    pub(crate) patience: Duration,
}

impl Hosts {
    pub(crate) fn new(serial: u32) -> Self {
        Self {
            list: Vec::new(),
            // Each query has a number of its own.
            renewed: u32::try_from(HOSTS).unwrap_or(u32::MAX),
            by_mac: BTreeMap::new(),
            serial,
            announcements: 0,
            announce: None,
        }
    }

    /// Begin to announce this node.
    pub(crate) fn announce(&mut self, now: Duration) {
        self.announcements = ANNOUNCEMENTS;
        self.announce = Some(now);
    }

    /// Announce this node no more.
    pub(crate) fn silence(&mut self) {
        self.announce = None;
    }

    pub(crate) fn find(&self, mac: Mac) -> Option<u16> {
        self.by_mac.get(&mac).copied()
    }

    /// The host of an address; a new one is asked for its name. `None` when the table is full, or
    /// it is no host's.
    pub(crate) fn add(&mut self, now: Duration, mac: Mac) -> Option<u16> {
        if let Some(known) = self.find(mac) {
            return Some(known);
        }
        if self.list.len() >= HOSTS || !mac.is_host() {
            return None;
        }
        let place = u16::try_from(self.list.len()).ok()?;
        let magic = self.serial.wrapping_add(place.into());
        self.list.push(Host::new(now, mac, magic));
        self.by_mac.insert(mac, place);
        Some(place)
    }

    fn get(&mut self, place: u16) -> Option<&mut Host> {
        self.list.get_mut(usize::from(place))
    }

    /// Whether a frame's index and source name the same host.
    pub(crate) fn knows(&mut self, now: Duration, index: u16, source: Mac) -> bool {
        let host = self.list.get_mut(usize::from(index));
        host.filter(|host| host.mac == source)
            .map(|host| host.heard = now)
            .is_some()
    }

    /// Whether another host has a place in the table only if one loses its own.
    pub(crate) fn is_full(&self, mac: Mac) -> bool {
        self.list.len() >= HOSTS && mac.is_host() && self.find(mac).is_none()
    }

    /// Give the place of the host that has been silent longest to another one. One that never said
    /// its name, as one that does not exist, goes first; one that somebody has to do with stays. Returns the place.
    pub(crate) fn replace(&mut self, now: Duration, mac: Mac, used: &BTreeSet<u16>) -> Option<u16> {
        let free = (0u16..).zip(&self.list);
        let free = free.filter(|(place, _)| !used.contains(place));
        let oldest = free.min_by_key(|(_, host)| (host.name.is_some(), host.heard));
        let place = oldest.map(|(place, _)| place)?;
        self.renewed = self.renewed.wrapping_add(1);
        let magic = self.serial.wrapping_add(self.renewed);
        let host = self.get(place)?;
        let fresh = Host::new(now, mac, magic);
        let gone = std::mem::replace(host, fresh).mac;
        self.by_mac.remove(&gone);
        self.by_mac.insert(mac, place);
        Some(place)
    }

    pub(crate) fn route(&self, place: u16) -> Option<Route> {
        let host = self.list.get(usize::from(place))?;
        Some(Route {
            mac: host.mac,
            index: host.index,
        })
    }

    /// The host said what this node's index is in its table.
    pub(crate) fn learn(&mut self, place: u16, index: u16) {
        if let Some(host) = self.get(place) {
            host.index = index;
        }
    }

    /// A host announced itself.
    pub(crate) fn announced(&mut self, now: Duration, source: Mac, nic: u64, serial: u32) {
        if Mac::from_nic(nic) != Some(source) {
            return;
        }
        let Some(place) = self.add(now, source) else {
            return;
        };
        let Some(host) = self.get(place).filter(|host| host.serial != Some(serial)) else {
            return;
        };
        // New, or started again: its table is another one.
        if host.serial.replace(serial).is_some() {
            host.index = NO_INDEX;
        }
        host.query = Some(now);
        self.announce(now);
    }

    /// A host asks for this node's name, and says its index for it.
    pub(crate) fn asked(&mut self, place: u16, index: u16, magic: u32, name: &str, out: &mut Out) {
        self.learn(place, index);
        let reply = Packet::HostReply {
            index: place,
            magic,
            name: name.as_bytes(),
        };
        if let Some(route) = self.route(place) {
            out.send(route, reply);
        }
    }

    /// A host says its name.
    pub(crate) fn named(
        &mut self,
        now: Duration,
        place: u16,
        (index, magic, name): (u16, u32, &[u8]),
        out: &mut Out,
    ) {
        let Some(host) = self.get(place).filter(|host| host.magic == magic) else {
            return;
        };
        host.index = index;
        host.query = None;
        let name = String::from_utf8_lossy(name).into_owned();
        let soon = host.named.saturating_add(RENAME);
        if host.name.is_some() && host.name.as_ref() != Some(&name) && now < soon {
            // Asked again, when it may have another name.
            host.query = Some(soon);
        } else if host.name.as_ref() != Some(&name) {
            host.named = now;
            host.name = Some(name.clone());
            let event = Event::Host {
                host: host.mac,
                name,
            };
            out.events.push_back(event);
        }
    }

    pub(crate) fn tick(&mut self, now: Duration, nic: u64, out: &mut Out) {
        if self.announce.is_some_and(|at| at <= now) {
            self.announcements = self.announcements.saturating_sub(1);
            let pause = if self.announcements > 0 {
                ANNOUNCE
            } else {
                ANNOUNCE_SELDOM
            };
            self.announce = Some(now + pause);
            let everybody = Route {
                mac: Mac::BROADCAST,
                index: NO_INDEX,
            };
            let serial = self.serial;
            out.send(everybody, Packet::Announce { nic, serial });
        }
        for (place, host) in (0u16..).zip(&mut self.list) {
            if host.query.is_some_and(|at| at <= now) {
                host.query = Some(now + QUERY);
                let route = Route {
                    mac: host.mac,
                    index: host.index,
                };
                let magic = host.magic;
                let index = place;
                out.send(route, Packet::HostQuery { index, magic });
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let queries = self.list.iter().filter_map(|host| host.query);
        queries.chain(self.announce).min()
    }
}
