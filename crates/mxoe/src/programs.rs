//! The table of the partners' programs, of a node whose frames all travel in datagrams.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::event::Address;
use crate::limits::{PROGRAM_TIMEOUT, PROGRAMS};

/// Where a partner's program takes datagrams, and where its own come from.
#[derive(Debug)]
struct Program {
    udp: SocketAddr,
    /// When the daemons last told the address.
    told_at: Duration,
}

impl Program {
    fn is_new(&self, now: Duration) -> bool {
        now.saturating_sub(self.told_at) < PROGRAM_TIMEOUT
    }
}

/// The programs of remote endpoints, by the endpoint of this node that may talk with them: of several programs on one host, each has endpoints
/// and an address of its own.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    by_partner: BTreeMap<(u8, Address), Program>,
}

impl Programs {
    pub(crate) fn find(&self, endpoint: u8, partner: Address) -> Option<SocketAddr> {
        let program = self.by_partner.get(&(endpoint, partner))?;
        Some(program.udp)
    }

    /// Returns the partners of a program, with the endpoints of this node.
    pub(crate) fn at(&self, udp: SocketAddr) -> impl Iterator<Item = (u8, Address)> {
        let all = self.by_partner.iter();
        all.filter(move |(_, program)| program.udp == udp)
            .map(|(pair, _)| *pair)
    }

    /// Whether a new partner needs the place of another one.
    pub(crate) fn is_full(&self, endpoint: u8, partner: Address) -> bool {
        self.by_partner.len() >= PROGRAMS && !self.by_partner.contains_key(&(endpoint, partner))
    }

    /// Adds a partner, or replaces its address. The table is not full.
    pub(crate) fn insert(
        &mut self,
        now: Duration,
        (endpoint, partner): (u8, Address),
        udp: SocketAddr,
    ) {
        let program = Program { udp, told_at: now };
        self.by_partner.insert((endpoint, partner), program);
    }

    /// Removes the partners that were told long ago and are not in use.
    pub(crate) fn remove_unused(&mut self, now: Duration, is_in_use: impl Fn(u8, Address) -> bool) {
        self.by_partner.retain(|(endpoint, partner), program| {
            program.is_new(now) || is_in_use(*endpoint, *partner)
        });
    }

    /// Returns the addresses of the other ones, each once.
    pub(crate) fn in_use(
        &self,
        now: Duration,
        is_in_use: impl Fn(u8, Address) -> bool,
    ) -> Vec<SocketAddr> {
        let all = self.by_partner.iter();
        let used = all.filter(|((endpoint, partner), program)| {
            program.is_new(now) || is_in_use(*endpoint, *partner)
        });
        let addresses: BTreeSet<_> = used.map(|(_, program)| program.udp).collect();
        addresses.into_iter().collect()
    }
}
