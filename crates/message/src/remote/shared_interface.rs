//! An interface that several processes of a host serve at the same time, each with a socket of its own.
//!
//! # Theory of operation
//!
//! The processes have one address, so they are one host on the wire. Each has endpoints of its own: it takes their numbers by
//! locks ([`ByteLocks`]), and its socket's filter lets the frames for them pass, and those of discovery. So each process finds the
//! other hosts by itself, and no process is needed to pass frames on.
//!
//! One of them answers for the host: it sends announcements and replies to queries, and refuses what is for an endpoint that no
//! process has. It holds a lock, too. When it ends, the next process that looks takes the lock. All use one serial number, so other
//! hosts do not take that for a restart.
//!
//! The filter of the process that answers lets the frames for all endpoints pass but those of which it has found that other
//! processes have them. It finds that by a look at the locks when such a frame arrives, and looks again while it lasts, because
//! the other process may end without a word.
//!
//! A daemon's uplink can have the same interface. It answers whenever it runs, which a lock tells the others. All frames for endpoints
//! without a lock are the daemon's. It takes the numbers of those endpoints that have connections by it, so that no program gets the
//! number before the other hosts have acknowledged everything.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use mxoe::wire::{Destination, Mac, destination};
use mxoe::{Endpoints, Filter};
use rustix::io::Errno;
use window::byte_locks::ByteLocks;

/// The interval at which a process looks whether others have ended.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// The number of the lock of the program that answers for the host. Lower numbers are those of endpoints.
const HOST: u32 = 256;

/// The number of the lock of a daemon, which answers instead.
const DAEMON: u32 = HOST + 1;

/// The first number of the locks that tell programs apart.
const PROGRAMS: u32 = DAEMON + 1;

/// The most programs of an interface: an endpoint each.
const MOST_PROGRAMS: u32 = 255;

/// Takes the first free number of a program; `None` if there are too many programs.
pub(super) fn take_program_number(locks: &ByteLocks) -> Result<Option<u32>, Errno> {
    for number in 0..MOST_PROGRAMS {
        if locks.take(PROGRAMS + number)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Takes the answers for the host away from programs, for a daemon. Returns false if another daemon has the interface.
pub(super) fn take_daemon(locks: &ByteLocks) -> Result<bool, Errno> {
    locks.take(DAEMON)
}

/// The kinds of processes that share an interface.
#[derive(Debug)]
enum Kind {
    /// A program has the endpoints that it has opened.
    Program {
        /// The serial number of all programs.
        serial: u32,
        /// Hosts that other processes of the interface have found.
        known: Vec<Mac>,
    },
    /// A daemon has all endpoints that no program has.
    Daemon {
        /// The lock of a process that is there.
        _lock: File,
    },
}

/// A change of the process that answers for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// This process answers from now on.
    Begin,
    /// This process does not answer any more.
    End,
}

/// The part of an interface that this process has.
#[derive(Debug)]
pub(super) struct SharedInterface {
    locks: Arc<ByteLocks>,
    /// The address of the interface.
    mac: Mac,
    kind: Kind,
    /// This process answers for the host.
    answers: bool,
    /// The endpoints whose numbers this process has.
    own: Endpoints,
    /// Those of them that the program has closed, while their connections end.
    closed: Endpoints,
    /// Endpoints of other processes. Only the process that answers for the host knows any.
    others: Endpoints,
    /// Endpoints that no other process has, if no number was taken since.
    free: Endpoints,
    /// How often numbers were taken before.
    changes: u64,
    /// The filter of the socket is that of earlier sets.
    filter_is_old: bool,
}

impl SharedInterface {
    /// Shares an interface as a program, by these locks. All programs have one serial number. The hosts are those that other processes
    /// have found.
    pub(super) fn of_program(
        locks: Arc<ByteLocks>,
        mac: Mac,
        serial: u32,
        known: Vec<Mac>,
    ) -> Self {
        let mut shared = Self::new(locks, mac, Kind::Program { serial, known });
        shared.update_answers();
        shared
    }

    /// Shares an interface as a daemon, which has [taken](take_daemon) the answers before. Other processes know by the second lock
    /// that it is there.
    pub(super) fn of_daemon(locks: Arc<ByteLocks>, lock: File, mac: Mac) -> Self {
        let mut shared = Self::new(locks, mac, Kind::Daemon { _lock: lock });
        shared.answers = true;
        shared
    }

    fn new(locks: Arc<ByteLocks>, mac: Mac, kind: Kind) -> Self {
        Self {
            locks,
            mac,
            kind,
            answers: false,
            own: Endpoints::default(),
            closed: Endpoints::default(),
            others: Endpoints::default(),
            free: Endpoints::default(),
            changes: 0,
            filter_is_old: false,
        }
    }

    fn is_daemon(&self) -> bool {
        matches!(self.kind, Kind::Daemon { .. })
    }

    /// Returns the interface's own address.
    pub(super) fn nic(&self) -> u64 {
        self.mac.nic()
    }

    /// Returns the serial number that all programs announce. Each node of a daemon has one of its own.
    pub(super) fn serial(&self) -> Option<u32> {
        match self.kind {
            Kind::Program { serial, .. } => Some(serial),
            Kind::Daemon { .. } => None,
        }
    }

    /// Returns the hosts that other processes of the interface have found.
    pub(super) fn known(&self) -> impl Iterator<Item = Mac> {
        let known: &[Mac] = match &self.kind {
            Kind::Program { known, .. } => known,
            Kind::Daemon { .. } => &[],
        };
        known.iter().copied()
    }

    /// Returns whether this process answers for the host.
    pub(super) fn answers(&self) -> bool {
        self.answers
    }

    /// Returns whether an endpoint is not one of this program. A daemon has those that its programs open.
    pub(super) fn is_foreign(&self, endpoint: u8) -> bool {
        !self.is_daemon() && !self.own.contains(endpoint)
    }

    /// Returns whether a frame is for this process. The filter does not decide that alone: a frame may have arrived before the
    /// filter was replaced.
    #[inline]
    pub(super) fn accepts(&mut self, frame: &[u8]) -> bool {
        let to = frame.first_chunk().copied().map(Mac);
        if to.is_none_or(|mac| mac != self.mac && mac != Mac::BROADCAST) {
            return self.is_daemon();
        }
        match destination(frame) {
            Some(Destination::Host) => true,
            Some(Destination::Endpoint(to)) => self.own.contains(to) || self.is_left_to_this(to),
            None => self.is_daemon(),
        }
    }

    /// Returns whether no other process has an endpoint, and this one answers for the host.
    fn is_left_to_this(&mut self, endpoint: u8) -> bool {
        if !self.answers || self.others.contains(endpoint) {
            return false;
        }
        let changes = self.locks.changes();
        if changes != self.changes {
            self.changes = changes;
            self.free = Endpoints::default();
        }
        self.free.contains(endpoint) || self.is_free(endpoint)
    }

    /// Looks whether no other process has an endpoint.
    #[cold]
    fn is_free(&mut self, endpoint: u8) -> bool {
        let is_free = self.locks.is_taken_elsewhere(endpoint.into()) == Ok(false);
        match is_free {
            true => self.free.insert(endpoint),
            false => {
                self.others.insert(endpoint);
                self.filter_is_old = true;
            }
        }
        is_free
    }

    /// Takes an endpoint's number. Returns false if it is in use.
    pub(super) fn claim(&mut self, endpoint: u8) -> Result<bool, Errno> {
        let reopened = self.closed.contains(endpoint);
        if self.own.contains(endpoint) && !reopened || !self.locks.take(endpoint.into())? {
            return Ok(false);
        }
        self.own.insert(endpoint);
        self.closed.remove(endpoint);
        self.others.remove(endpoint);
        self.filter_is_old |= !reopened;
        Ok(true)
    }

    /// Takes the number of an endpoint that has a connection by this daemon. Returns false if a program has the number.
    pub(super) fn hold(&mut self, endpoint: u8) -> bool {
        if !self.is_daemon() || self.own.contains(endpoint) {
            return true;
        }
        let held = self.locks.take(endpoint.into()) == Ok(true);
        self.filter_is_old |= self.others.contains(endpoint) == held;
        match held {
            true => {
                self.own.insert(endpoint);
                self.others.remove(endpoint);
            }
            false => self.others.insert(endpoint),
        }
        held
    }

    /// Returns the endpoints whose numbers this daemon has.
    pub(super) fn held(&self) -> Endpoints {
        match self.is_daemon() {
            true => self.own,
            false => Endpoints::default(),
        }
    }

    /// The program has closed an endpoint of this process.
    pub(super) fn close(&mut self, endpoint: u8) {
        self.closed.insert(endpoint);
    }

    /// Returns the endpoints that the program has closed, and whose connections may still end.
    pub(super) fn closed(&self) -> Endpoints {
        self.closed
    }

    /// Gives the number of an endpoint without connections back.
    pub(super) fn release(&mut self, endpoint: u8) {
        self.own.remove(endpoint);
        self.closed.remove(endpoint);
        self.filter_is_old |= !self.is_daemon();
        self.locks.release(endpoint.into());
    }

    /// Takes over the answers if neither a daemon nor another program has them, and leaves them to a daemon that has begun.
    pub(super) fn update_answers(&mut self) -> Option<Answers> {
        if self.is_daemon() {
            return None;
        }
        let has_daemon = self.locks.is_taken_elsewhere(DAEMON) != Ok(false);
        let change = match (self.answers, has_daemon) {
            (true, true) => {
                self.locks.release(HOST);
                self.others = Endpoints::default();
                Answers::End
            }
            (false, false) if self.locks.take(HOST) == Ok(true) => Answers::Begin,
            _ => return None,
        };
        self.answers = change == Answers::Begin;
        self.filter_is_old = true;
        Some(change)
    }

    /// Looks which of the other processes' endpoints have no process any more.
    pub(super) fn look_at_others(&mut self) {
        for endpoint in self.others.iter() {
            if self.locks.is_taken_elsewhere(endpoint.into()) == Ok(false) {
                self.others.remove(endpoint);
                self.filter_is_old = true;
            }
        }
    }

    /// Returns whether this process knows endpoints of others, which may end without a word.
    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the filter of the socket, if it has changed since the last call.
    pub(super) fn changed_filter(&mut self) -> Option<Filter> {
        std::mem::take(&mut self.filter_is_old).then(|| Filter {
            mac: self.mac,
            endpoints: match self.answers {
                true => self.others.complement(),
                false => self.own,
            },
            passes_other_addresses: self.is_daemon(),
        })
    }
}

#[cfg(test)]
mod tests;
