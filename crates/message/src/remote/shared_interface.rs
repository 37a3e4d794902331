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

use std::sync::Arc;

use mxoe::Endpoints;
use mxoe::wire::{Destination, Mac, destination};
use rustix::io::Errno;
use window::byte_locks::ByteLocks;

/// The number of the lock of the process that answers for the host. Lower numbers are those of endpoints.
const HOST: u32 = 256;

/// The first number of the locks that tell processes apart.
const PROCESSES: u32 = HOST + 1;

/// The most processes of an interface: an endpoint each.
const MOST_PROCESSES: u32 = 255;

/// Takes the first free number of a process; `None` if there are too many processes.
pub(super) fn take_process_number(locks: &ByteLocks) -> Result<Option<u32>, Errno> {
    for number in 0..MOST_PROCESSES {
        if locks.take(PROCESSES + number)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The part of an interface that this process has.
#[derive(Debug)]
pub(super) struct SharedInterface {
    locks: Arc<ByteLocks>,
    serial: u32,
    /// Hosts that other processes of the interface have found.
    known: Vec<Mac>,
    /// This process answers for the host.
    answers: bool,
    /// The endpoints whose numbers this process has.
    own: Endpoints,
    /// Those of them that the program has closed, while their connections end.
    closed: Endpoints,
    /// Endpoints of other processes. Only the process that answers for the host knows any.
    others: Endpoints,
    /// The filter of the socket is that of earlier sets.
    filter_is_old: bool,
}

impl SharedInterface {
    /// Shares an interface by these locks. All processes have one serial number.
    pub(super) fn new(locks: Arc<ByteLocks>, serial: u32, known: Vec<Mac>) -> Result<Self, Errno> {
        let answers = locks.take(HOST)?;
        Ok(Self {
            locks,
            serial,
            known,
            answers,
            own: Endpoints::default(),
            closed: Endpoints::default(),
            others: Endpoints::default(),
            filter_is_old: answers,
        })
    }

    pub(super) fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns the hosts that other processes of the interface have found.
    pub(super) fn known(&self) -> impl Iterator<Item = Mac> {
        self.known.iter().copied()
    }

    /// Returns whether this process answers for the host.
    pub(super) fn answers(&self) -> bool {
        self.answers
    }

    /// Returns whether this process has an endpoint's number.
    pub(super) fn owns(&self, endpoint: u8) -> bool {
        self.own.contains(endpoint)
    }

    /// Returns whether a frame is for this process. The filter does not decide that alone: a frame may have arrived before the
    /// filter was replaced.
    #[inline]
    pub(super) fn accepts(&mut self, frame: &[u8]) -> bool {
        match destination(frame) {
            Some(Destination::Host) => true,
            Some(Destination::Endpoint(to)) => self.own.contains(to) || self.is_refused_here(to),
            None => false,
        }
    }

    /// Returns whether no process has an endpoint, and this one answers for the host.
    #[cold]
    fn is_refused_here(&mut self, endpoint: u8) -> bool {
        if !self.answers || self.others.contains(endpoint) {
            return false;
        }
        let taken = self.locks.is_taken_elsewhere(endpoint.into());
        if taken != Ok(false) {
            self.others.insert(endpoint);
            self.filter_is_old = true;
        }
        taken == Ok(false)
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

    /// The program has closed an endpoint of this process.
    pub(super) fn close(&mut self, endpoint: u8) {
        self.closed.insert(endpoint);
    }

    /// Returns the endpoints that the program has closed, and whose connections may still end.
    pub(super) fn closed(&self) -> Endpoints {
        self.closed
    }

    /// Gives the number of a closed endpoint back.
    pub(super) fn release(&mut self, endpoint: u8) {
        self.own.remove(endpoint);
        self.closed.remove(endpoint);
        self.filter_is_old = true;
        self.locks.release(endpoint.into());
    }

    /// Takes over the answers if no other process has them. Returns whether that was so.
    pub(super) fn take_over(&mut self) -> bool {
        if self.answers || self.locks.take(HOST) != Ok(true) {
            return false;
        }
        self.answers = true;
        self.filter_is_old = true;
        true
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

    /// Returns the endpoints that the filter has to let pass, if they have changed since the last call.
    pub(super) fn changed_filter(&mut self) -> Option<Endpoints> {
        std::mem::take(&mut self.filter_is_old).then(|| match self.answers {
            true => self.others.complement(),
            false => self.own,
        })
    }
}

#[cfg(test)]
mod tests;
