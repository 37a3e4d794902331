//! The table of all streams between guests and host programs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use crate::connection::Ends;

use crate::stream::{State, Stream};

/// All streams between guests and host programs.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: HashMap<u64, Stream>,
    by_ends: HashMap<Ends, u64>,
    /// The number of the next stream. Numbers are not reused, so late events find no other stream.
    next: u64,
    /// The host port of the next connection to a guest.
    next_port: u32,
    /// Streams that may have something to do.
    pub(crate) ready: VecDeque<u64>,
    /// How many streams each guest has, and how many of them have not sent their `CONNECT` line.
    counts: HashMap<usize, (usize, usize)>,
    /// Since when the streams are connected that have not sent it; the numbers increase with time.
    handshakes: BTreeMap<u64, Instant>,
}

impl Streams {
    pub(crate) fn get(&self, number: u64) -> Option<&Stream> {
        self.all.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Stream> {
        self.all.get_mut(&number)
    }

    pub(crate) fn find(&self, ends: Ends) -> Option<u64> {
        self.by_ends.get(&ends).copied()
    }

    /// Returns the number of streams of a guest, and of those that have not sent their `CONNECT` line.
    pub(crate) fn counts(&self, guest: usize) -> (usize, usize) {
        self.counts.get(&guest).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, stream: Stream) -> u64 {
        let number = self.next;
        self.next += 1;
        let counts = self.counts.entry(stream.guest).or_default();
        counts.0 += 1;
        if let State::Handshake { since } = stream.state {
            counts.1 += 1;
            self.handshakes.insert(number, since);
        }
        if let Some(ends) = stream.ends() {
            self.by_ends.insert(ends, number);
        }
        self.all.insert(number, stream);
        number
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Stream> {
        let stream = self.all.remove(&number)?;
        let handshakes = usize::from(self.handshakes.remove(&number).is_some());
        let counts = self.counts.entry(stream.guest).or_default();
        counts.0 = counts.0.saturating_sub(1);
        counts.1 = counts.1.saturating_sub(handshakes);
        if let Some(ends) = stream.ends() {
            self.by_ends.remove(&ends);
        }
        Some(stream)
    }

    /// Gives a stream that has sent its `CONNECT` line the ends of its connection.
    pub(crate) fn requested(&mut self, number: u64, ends: Ends, host_port: u32) {
        if let Some(stream) = self.all.get_mut(&number) {
            let handshakes = usize::from(self.handshakes.remove(&number).is_some());
            let counts = self.counts.entry(stream.guest).or_default();
            counts.1 = counts.1.saturating_sub(handshakes);
            stream.state = State::Requested { ends, host_port };
            self.by_ends.insert(ends, number);
        }
    }

    /// Marks a stream as ready, once.
    pub(crate) fn make_ready(&mut self, number: u64) {
        if let Some(stream) = self.all.get_mut(&number) {
            if !std::mem::replace(&mut stream.is_ready, true) {
                self.ready.push_back(number);
            }
        }
    }

    /// Returns a host port for a connection to a guest. The upper half of all ports: programs choose lower ones.
    pub(crate) fn host_port(&mut self) -> u32 {
        self.next_port = self.next_port.wrapping_add(1);
        self.next_port | 1 << 31
    }

    /// Returns the oldest stream that has not sent its `CONNECT` line, and since when it is connected.
    pub(crate) fn oldest_handshake(&self) -> Option<(u64, Instant)> {
        let (number, since) = self.handshakes.first_key_value()?;
        Some((*number, *since))
    }
}
