//! The table of connections: which packets belong to one, and who may begin one.
//!
//! The device forwards a packet only if its connection is in the table, and a connection comes into the
//! table only by a request that the policy allows. So a guest that may not connect to another one cannot
//! send it anything, whatever operation its packets have.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::connection_list::{ConnectionList, Listed};
use crate::header::{HOST_CID, Operation, SocketType};
use crate::limits::{MAX_INITIATED, REQUEST_TIMEOUT};
use crate::packet::{Address, Packet};

/// Time between two searches for requests without a response: a search visits all connections of a guest.
const SEARCH_PERIOD: Duration = Duration::from_secs(1);

/// The two ends of a connection, the lower address first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    low: Address,
    high: Address,
}

impl Ends {
    /// Returns the connection between two addresses.
    #[must_use]
    pub fn of(one: Address, other: Address) -> Self {
        Self {
            low: one.min(other),
            high: one.max(other),
        }
    }

    /// Returns both ends.
    #[must_use]
    pub fn both(self) -> [Address; 2] {
        [self.low, self.high]
    }

    /// Returns the end that is not at this CID.
    #[must_use]
    pub fn other_than(self, cid: u32) -> Address {
        match self.low.cid == cid {
            true => self.high,
            false => self.low,
        }
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who sent the request.
    pub initiator: Address,
    /// The socket type.
    pub kind: SocketType,
    /// The response was sent.
    pub is_established: bool,
    /// Its place in the list that outlives the process.
    place: Option<u32>,
    /// When the request was sent.
    since: Instant,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to its destination.
    Forward,
    /// It goes to its destination, and begins a connection there.
    Begin,
    /// It goes to its destination, and ends the connection.
    End,
    /// Its sender gets a reset, for this reason.
    Refuse(Refusal),
    /// Nothing: it is a reset of a connection that does not exist.
    Ignore,
}

/// Why a packet is answered with a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No such connection exists, or the packet does not fit its state.
    NoConnection,
    /// The policy does not allow the connection.
    NotAllowed,
    /// The guest has initiated as many connections as it may.
    TooMany,
}

/// All connections of the guests.
#[derive(Debug, Default)]
pub struct Connections {
    all: HashMap<Ends, Connection>,
    /// The connections of each CID, so that the end of a guest does not visit those of others.
    of: HashMap<u32, BTreeSet<Ends>>,
    /// How many connections each CID initiated.
    initiated: HashMap<u32, usize>,
    /// When requests without a response of a CID were last searched for.
    searched: HashMap<u32, Instant>,
    /// The list that outlives the process; none in tests.
    list: Option<ConnectionList>,
}

impl Connections {
    /// Returns a table without connections, which keeps this list up to date.
    #[must_use]
    pub fn listed_in(list: ConnectionList) -> Self {
        Self {
            list: Some(list),
            ..Self::default()
        }
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of connections of a CID.
    #[must_use]
    pub fn count_of(&self, cid: u32) -> usize {
        self.of.get(&cid).map_or(0, BTreeSet::len)
    }

    /// Returns a connection.
    #[must_use]
    pub fn get(&self, ends: Ends) -> Option<&Connection> {
        self.all.get(&ends)
    }

    /// Decides about a packet, and notes what it changes. `allows` is the policy for requests between
    /// guests; the caller removes the connection after [`Verdict::End`].
    pub fn judge(
        &mut self,
        packet: &Packet,
        now: Instant,
        allows: impl Fn(Address, Address) -> bool,
    ) -> Verdict {
        let ends = Ends::of(packet.source, packet.destination);
        if packet.operation == Operation::Request {
            return self.judge_request(packet, ends, now, allows);
        }
        let Some(connection) = self.all.get_mut(&ends) else {
            return match packet.operation {
                Operation::Reset => Verdict::Ignore,
                _ => Verdict::Refuse(Refusal::NoConnection),
            };
        };
        let is_initiator = connection.initiator == packet.source;
        let refused = Verdict::Refuse(Refusal::NoConnection);
        match packet.operation {
            Operation::Reset => Verdict::End,
            _ if connection.kind != packet.kind => refused,
            Operation::Response if !is_initiator && !connection.is_established => {
                connection.is_established = true;
                Verdict::Forward
            }
            Operation::Response => refused,
            // The initiator may give up before the response.
            Operation::Shutdown if is_initiator => Verdict::Forward,
            _ if !connection.is_established => refused,
            _ => Verdict::Forward,
        }
    }

    fn judge_request(
        &mut self,
        packet: &Packet,
        ends: Ends,
        now: Instant,
        allows: impl Fn(Address, Address) -> bool,
    ) -> Verdict {
        let from = packet.source;
        if let Some(connection) = self.all.get(&ends) {
            // A retried request changes nothing; any other one reuses addresses that are in use.
            let again = connection.initiator == from
                && connection.kind == packet.kind
                && !connection.is_established;
            return match again {
                true => Verdict::Forward,
                false => Verdict::Refuse(Refusal::NoConnection),
            };
        }
        let with_host = [from.cid, packet.destination.cid].contains(&HOST_CID);
        if !with_host && !allows(from, packet.destination) {
            return Verdict::Refuse(Refusal::NotAllowed);
        }
        if self.initiated_by(from.cid) >= MAX_INITIATED && !self.make_room(from.cid, now) {
            return Verdict::Refuse(Refusal::TooMany);
        }
        let listed = Listed {
            kind: packet.kind,
            ends: ends.both(),
        };
        let connection = Connection {
            initiator: from,
            kind: packet.kind,
            is_established: false,
            place: self.list.as_mut().and_then(|list| list.add(&listed)),
            since: now,
        };
        self.all.insert(ends, connection);
        for end in ends.both() {
            self.of.entry(end.cid).or_default().insert(ends);
        }
        *self.initiated.entry(from.cid).or_default() += 1;
        Verdict::Begin
    }

    /// Notes that the host has accepted a connection.
    pub fn establish(&mut self, ends: Ends) {
        if let Some(connection) = self.all.get_mut(&ends) {
            connection.is_established = true;
        }
    }

    fn initiated_by(&self, cid: u32) -> usize {
        self.initiated.get(&cid).copied().unwrap_or(0)
    }

    /// Removes old requests of a guest that got no response; returns whether there were any. The
    /// destination answers a late packet of such a connection with a reset, as of any unknown one.
    fn make_room(&mut self, cid: u32, now: Instant) -> bool {
        let last = self.searched.get(&cid);
        if last.is_some_and(|last| now.saturating_duration_since(*last) < SEARCH_PERIOD) {
            return false;
        }
        self.searched.insert(cid, now);
        let old = |ends: &Ends| {
            self.all.get(ends).is_some_and(|connection| {
                connection.initiator.cid == cid
                    && !connection.is_established
                    && now.saturating_duration_since(connection.since) >= REQUEST_TIMEOUT
            })
        };
        let old: Vec<Ends> = self.of_cid(cid).filter(old).collect();
        for ends in &old {
            self.remove(*ends);
        }
        !old.is_empty()
    }

    /// Returns the connections of a CID.
    pub fn of_cid(&self, cid: u32) -> impl Iterator<Item = Ends> + '_ {
        self.of.get(&cid).into_iter().flatten().copied()
    }

    /// Removes a connection.
    pub fn remove(&mut self, ends: Ends) -> Option<Connection> {
        let connection = self.all.remove(&ends)?;
        for end in ends.both() {
            if let Some(of) = self.of.get_mut(&end.cid) {
                of.remove(&ends);
            }
        }
        if let Some(count) = self.initiated.get_mut(&connection.initiator.cid) {
            *count = count.saturating_sub(1);
        }
        if let (Some(list), Some(place)) = (&mut self.list, connection.place) {
            list.remove(place);
        }
        Some(connection)
    }
}
