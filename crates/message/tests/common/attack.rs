//! A hostile member: its input determines what it does to the host. It writes anything anywhere
//! into its region, sends any control message and any record, and joins and leaves. For tests and
//! fuzzing.
//!
//! An input is a list of steps of [`STEP`] bytes: an action and its numbers.

use std::path::{Path, PathBuf};

use message::Board;
use rustix::fd::AsFd;
use window::ivshmem::Client;
use window::lane::Record;
use window::region::Region;
use window::{Ends, Side};

/// Bytes of a step.
pub const STEP: usize = 12;

/// Kinds of control messages.
const CONNECT: u32 = 1;
const ANSWER: u32 = 2;

/// Set in the numbers of links that a member begins.
const FROM_MEMBER: u32 = 1 << 31;

/// The endpoint that it connects to.
pub const ENDPOINT: u32 = 7;

#[derive(Debug)]
pub struct Attack {
    socket: PathBuf,
    /// The NIC id that it connects to.
    target: u64,
    /// The NIC id that it claims.
    pub from: u64,
    /// How often its connects were refused.
    pub refused: u32,
    joined: Option<Joined>,
    /// How often it joined.
    times: u32,
    /// It uses the same session for each connect.
    pub same_session: bool,
}

#[derive(Debug)]
struct Joined {
    client: Client,
    region: Region,
    control: Option<Ends>,
    /// The number of its request to join, and the window of its link, if the host gave it one.
    number: u32,
    window: Option<u32>,
    /// How many connects it sent.
    asked: u32,
    /// Its mapping of that window.
    link: Option<Ends>,
}

impl Joined {
    fn join(socket: &Path, number: u32) -> Option<Self> {
        let (client, memory) = Client::connect(socket).ok()?;
        // The region is sealed, so a member cannot shrink it while the host uses it.
        assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
        let region = Region::attach(memory).ok()?;
        let mut joined = Self {
            client,
            region,
            control: None,
            number: 0,
            window: None,
            asked: 100,
            link: None,
        };
        joined.begin(number);
        Some(joined)
    }

    fn begin(&mut self, number: u32) {
        if let Some(page) = self.region.page(0) {
            page.request_join(number);
        }
        self.client.ring();
        self.control = None;
        self.number = number;
        self.window = None;
        self.link = None;
    }

    /// Returns whether the host confirmed the join.
    fn is_joined(&self) -> bool {
        let page = self.region.page(0);
        page.is_some_and(|page| page.joined_number() == self.number)
    }
}

/// Returns an offset in the member's page, in its control window, or in the control page and rings
/// of its link.
fn place(region: &Region, link: u32, step: &[u8; STEP]) -> u64 {
    let [_, area, low, high, ..] = *step;
    let offset = u64::from(low) | u64::from(high) << 8;
    let layout = region.layout();
    match area % 8 {
        0 => offset % 0x2000,
        1 => 0x1000 + offset % 512,
        2 | 3 => layout.control_at(0) + offset % layout.control.length(),
        _ => layout.link_at(link) + offset,
    }
}

impl Attack {
    /// Creates an attacker that will join through `socket` and connect to the member with this
    /// name.
    pub fn new(socket: &Path, target: &str) -> Self {
        Self {
            socket: socket.to_owned(),
            target: Board::nic_of(target),
            from: 0,
            refused: 0,
            joined: None,
            times: 0,
            same_session: false,
        }
    }

    /// Joins, if it has not. The host must be running meanwhile.
    pub fn join(&mut self) {
        // The host rejects a connection before it has noticed the end of the last one.
        if !self
            .joined
            .as_ref()
            .is_some_and(|joined| joined.client.take_wakeups())
        {
            self.times += 1;
            self.joined = Joined::join(&self.socket, self.times << 8);
        }
    }

    /// Leaves, as a VM that is killed does.
    pub fn leave(&mut self) {
        self.joined = None;
    }

    /// Rings the host's doorbell.
    pub fn ring(&self) {
        if let Some(joined) = &self.joined {
            joined.client.ring();
        }
    }

    /// Connects, once the host has confirmed the join; returns true if it has a link. To be called
    /// until then, with the other members making progress.
    pub fn connect(&mut self) -> bool {
        self.join();
        let (from, target, same_session) = (self.from, self.target, self.same_session);
        let Some(joined) = self.joined.as_mut().filter(|joined| joined.is_joined()) else {
            return false;
        };
        let is_refused = joined.take_reply();
        self.refused += u32::from(is_refused);
        if joined.control.is_none() || is_refused {
            // A refused connect means that the host still keeps the last link.
            joined.asked += 1;
            let link = u64::from(FROM_MEMBER | joined.asked);
            let endpoints = u64::from(ENDPOINT) << 32;
            let session = match same_session {
                true => 1,
                false => u64::from(joined.number | joined.asked),
            };
            let body = [link, from, target, endpoints, session, 0, 0];
            joined.send_control(&Record { tag: CONNECT, body });
            joined.client.ring();
        }
        joined.window.is_some()
    }

    /// Sends connects to a NIC id that no member has, and reads no answer. Returns how many were
    /// sent before there was no room.
    #[allow(
        dead_code,
        reason = "the fuzz target shares this file and does not flood"
    )]
    pub fn flood(&mut self, count: u32) -> u32 {
        let Some(joined) = &mut self.joined else {
            return 0;
        };
        for number in 0..count {
            let link = u64::from(FROM_MEMBER | (joined.asked + number + 1));
            // No member has this id.
            let body = [link, self.from, 0x0bad, 0, u64::from(number), 0, 0];
            if !joined.send_control(&Record { tag: CONNECT, body }) {
                joined.asked += number;
                return number;
            }
        }
        joined.asked += count;
        count
    }

    /// Runs one step.
    pub fn step(&mut self, step: &[u8; STEP]) {
        let target = self.target;
        let Some(joined) = &mut self.joined else {
            return;
        };
        let [what, a, b, c, words @ ..] = *step;
        let number = u32::from_le_bytes([a, b, c, 0]);
        let word = u64::from_le_bytes(words);
        match what % 8 {
            0 | 1 => {
                let at = place(&joined.region, joined.window.unwrap_or(0), step);
                let written = rustix::io::pwrite(joined.region.as_fd(), &words, at);
                assert!(written.is_ok());
            }
            2 | 3 => {
                // A link of its own, or one that the host may have begun.
                let link = match a % 2 {
                    0 => FROM_MEMBER | u32::from(b % 8),
                    _ => u32::from(b % 8),
                };
                let first = u64::from(u32::from(c)) << 32 | u64::from(link);
                let endpoints = u64::from(ENDPOINT) << 32;
                let (tag, body) = match what % 8 {
                    2 => (CONNECT, [first, word, target, endpoints, 1, 0, 0]),
                    _ => (
                        ANSWER + u32::from(c % 4),
                        [first, word % 6, word, 0, 0, 0, 0],
                    ),
                };
                joined.send_control(&Record { tag, body });
            }
            4 => {
                let tag = number % 9;
                joined.send_control(&Record {
                    tag,
                    body: [word; 7],
                });
            }
            5 | 6 => {
                let lane = usize::from(a % 2);
                // A length in the high half and an offset in the low one, or a handle.
                let tag = u32::from(b % 8) | u32::from(c) << 8;
                let body = [word, word.rotate_left(16), word >> 32, u64::MAX, 0, 0, 0];
                joined.send(lane, &Record { tag, body });
            }
            _ => joined.begin(number),
        }
    }
}

impl Joined {
    /// Sends a control message; returns false if there is no room.
    fn send_control(&mut self, record: &Record) -> bool {
        if self.control.is_none() {
            let control = self.region.control_window(0);
            self.control = control.and_then(|control| control.ends(Side::Attacher).ok());
        }
        let Some(control) = &mut self.control else {
            return false;
        };
        let [lane, _] = &mut control.producers;
        let has_room = lane.has_room().unwrap_or(false);
        if has_room {
            lane.push(record);
        }
        has_room
    }

    /// Takes the answer to its connect; returns true if it is refused.
    fn take_reply(&mut self) -> bool {
        let Some(control) = &mut self.control else {
            return false;
        };
        let mut is_refused = false;
        let [lane, _] = &mut control.consumers;
        while let Some(Record { tag, body }) = lane.pop() {
            match (tag, body[1]) {
                (ANSWER, 0) => self.window = u32::try_from(body[0] >> 32).ok(),
                (ANSWER, _) => is_refused = true,
                _ => {}
            }
        }
        lane.release();
        is_refused
    }

    fn send(&mut self, lane: usize, record: &Record) {
        if self.link.is_none() {
            // The endpoint that connects is the creator of the window.
            let window = self.window.and_then(|window| self.region.link(window));
            self.link = window.and_then(|window| window.ends(Side::Creator).ok());
        }
        let link = self.link.as_mut();
        if let Some(lane) = link.and_then(|ends| ends.producers.get_mut(lane)) {
            if lane.has_room().unwrap_or(false) {
                lane.push(record);
            }
        }
    }
}
