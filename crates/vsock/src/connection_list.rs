//! The list of connections in memory that outlives the process.
//!
//! A guest notices the end of a connection by a packet only. When this process is killed, its connections
//! end with it, and the next process sends each guest a reset for each connection in the list. So a
//! program in a guest that waits for data sees the end as well, not only one that sends.
//!
//! An entry is 20 bytes: type (0 is a free entry), and the CIDs and ports of both ends. A process that
//! executes a guest's code could write anything here; the next one sends resets for it and nothing else.

use std::os::fd::BorrowedFd;

use rustix::fs::fstat;
use rustix::io::Errno;
use vhost::raw::{MapError, Mapping};

use crate::header::{HOST_CID, SocketType};
use crate::limits::MAX_INITIATED;
use crate::packet::Address;

/// Bytes of an entry.
const ENTRY: u32 = 20;

/// Why the list cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The memory cannot be mapped.
    #[error("cannot map the list of connections: {0}")]
    Map(#[from] MapError),
    /// Its size is unknown.
    #[error("cannot read the size of the list of connections: {0}")]
    Size(#[from] Errno),
}

/// A connection in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The socket type.
    pub kind: SocketType,
    /// Both ends.
    pub ends: [Address; 2],
}

/// The list, mapped.
#[derive(Debug)]
pub struct ConnectionList {
    memory: Mapping,
    entries: u32,
    free: Vec<u32>,
    /// Entries from here on were never used.
    fresh: u32,
}

impl ConnectionList {
    /// Returns the bytes of memory that the list of `guests` guests needs.
    #[must_use]
    pub fn bytes(guests: usize) -> u64 {
        // The host initiates connections, too.
        let entries = (guests as u64 + 1).saturating_mul(MAX_INITIATED as u64);
        entries.saturating_mul(u64::from(ENTRY))
    }

    /// Maps the list, clears it, and returns it with the connections that were in it.
    ///
    /// # Errors
    /// The descriptor is not memory, or cannot be mapped.
    pub fn take(memory: BorrowedFd<'_>) -> Result<(Self, Vec<Listed>), ListError> {
        let size = u64::try_from(fstat(memory)?.st_size).unwrap_or(0);
        let memory = Mapping::new(memory, 0, size)?;
        let entries = u32::try_from(size / u64::from(ENTRY)).unwrap_or(u32::MAX);
        let list = Self {
            memory,
            entries,
            free: Vec::new(),
            fresh: 0,
        };
        let mut listed = Vec::new();
        for place in 0..entries {
            // Entries are used from the beginning. A free one between used ones has a mark of its own.
            match list.read(place) {
                Entry::NeverUsed => break,
                Entry::Free => {}
                Entry::Used(connection) => listed.push(connection),
            }
            list.write(place, &[0; ENTRY as usize]);
        }
        Ok((list, listed))
    }

    /// Adds a connection, and returns its place; `None` if the list is full.
    pub fn add(&mut self, connection: &Listed) -> Option<u32> {
        let place = self.free.pop().or_else(|| {
            let fresh = (self.fresh < self.entries).then_some(self.fresh);
            self.fresh += u32::from(fresh.is_some());
            fresh
        })?;
        let [one, other] = connection.ends;
        let mut entry = [0; ENTRY as usize];
        let words = [
            connection.kind as u32,
            one.cid,
            one.port,
            other.cid,
            other.port,
        ];
        for (to, word) in entry.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        self.write(place, &entry);
        Some(place)
    }

    /// Removes the connection at a place that [`add`](Self::add) returned.
    pub fn remove(&mut self, place: u32) {
        self.write(place, &FREE.to_le_bytes());
        self.free.push(place);
    }

    fn write(&self, place: u32, bytes: &[u8]) {
        let offset = u64::from(place) * u64::from(ENTRY);
        if let Some(span) = self.memory.span(offset, ENTRY) {
            span.write(bytes);
        }
    }

    fn read(&self, place: u32) -> Entry {
        let mut bytes = [0; ENTRY as usize];
        let offset = u64::from(place) * u64::from(ENTRY);
        if let Some(span) = self.memory.span(offset, ENTRY) {
            span.read(&mut bytes);
        }
        let mut words = [0; ENTRY as usize / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes.try_into().map_or(0, u32::from_le_bytes);
        }
        let [kind, cid, port, other_cid, other_port] = words;
        if kind == 0 {
            return Entry::NeverUsed;
        }
        let kind = u16::try_from(kind).ok().and_then(SocketType::from_number);
        match kind.filter(|_| cid >= HOST_CID && other_cid >= HOST_CID) {
            Some(kind) => Entry::Used(Listed {
                kind,
                ends: [
                    Address { cid, port },
                    Address {
                        cid: other_cid,
                        port: other_port,
                    },
                ],
            }),
            None => Entry::Free,
        }
    }
}

/// The mark of an entry that is free again.
const FREE: u32 = u32::MAX;

enum Entry {
    NeverUsed,
    Free,
    Used(Listed),
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn memory(bytes: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("connections", flags).unwrap();
        ftruncate(&memory, bytes).unwrap();
        memory
    }

    fn connection(port: u32) -> Listed {
        let end = |cid| Address { cid, port };
        Listed {
            kind: SocketType::SeqPacket,
            ends: [end(HOST_CID), end(7)],
        }
    }

    #[test]
    fn the_next_process_finds_the_connections_that_did_not_end() {
        let memory = memory(ConnectionList::bytes(1));
        let (mut list, before) = ConnectionList::take(memory.as_fd()).unwrap();
        assert!(before.is_empty());
        let places: Vec<u32> = (1..=4)
            .map(|port| list.add(&connection(port)).unwrap())
            .collect();
        list.remove(places[0]);
        list.remove(places[2]);
        list.add(&connection(5)).unwrap();
        drop(list);
        let (list, mut found) = ConnectionList::take(memory.as_fd()).unwrap();
        found.sort_by_key(|listed| listed.ends[0].port);
        assert_eq!(found, [2, 4, 5].map(connection));
        drop(list);
        let (_, found) = ConnectionList::take(memory.as_fd()).unwrap();
        assert!(found.is_empty(), "they were told once");
    }

    #[test]
    fn a_full_or_damaged_list_does_no_harm() {
        let memory = memory(2 * u64::from(ENTRY));
        let (mut list, _) = ConnectionList::take(memory.as_fd()).unwrap();
        assert!(list.add(&connection(1)).is_some() && list.add(&connection(2)).is_some());
        assert_eq!(list.add(&connection(3)), None);
        list.write(0, &[0xff; ENTRY as usize]);
        list.write(1, &[1, 0, 0, 0, 1]);
        drop(list);
        let (_, found) = ConnectionList::take(memory.as_fd()).unwrap();
        assert!(found.is_empty());
    }
}
