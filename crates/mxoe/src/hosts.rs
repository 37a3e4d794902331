//! The table of hosts: who is there, by which index, and how a host is found.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::counters::Counters;
use crate::event::Event;
use crate::limits::{ANNOUNCE, ANNOUNCE_SELDOM, ANNOUNCEMENTS, BLOCKS, HOSTS, QUERY, REPLIES};
use crate::wire::{Frame, Mac, NO_INDEX, Packet};

/// What leaves a node: frames and events.
#[derive(Debug)]
pub(crate) struct Out {
    mac: Mac,
    pub(crate) frames: VecDeque<Vec<u8>>,
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
            spare: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Send a packet. The source is always this node.
    pub(crate) fn send(&mut self, to: Route, packet: Packet<'_>) {
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
    /// From its announcements.
    serial: Option<u32>,
    /// Of the query that is not answered.
    magic: u32,
    query: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    by_mac: BTreeMap<Mac, u16>,
    serial: u32,
    announcements: u32,
    announce: Option<Duration>,
}

impl Hosts {
    pub(crate) fn new(serial: u32) -> Self {
        Self {
            list: Vec::new(),
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
        self.list.push(Host {
            mac,
            index: NO_INDEX,
            name: None,
            serial: None,
            magic: self.serial.wrapping_add(place.into()),
            query: Some(now),
        });
        self.by_mac.insert(mac, place);
        Some(place)
    }

    fn get(&mut self, place: u16) -> Option<&mut Host> {
        self.list.get_mut(usize::from(place))
    }

    /// Whether a frame's index and source name the same host.
    pub(crate) fn knows(&self, index: u16, source: Mac) -> bool {
        let host = self.list.get(usize::from(index));
        host.is_some_and(|host| host.mac == source)
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
    pub(crate) fn named(&mut self, place: u16, index: u16, magic: u32, name: &[u8], out: &mut Out) {
        let Some(host) = self.get(place).filter(|host| host.magic == magic) else {
            return;
        };
        host.index = index;
        host.query = None;
        let name = String::from_utf8_lossy(name).into_owned();
        if host.name.as_ref() != Some(&name) {
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
