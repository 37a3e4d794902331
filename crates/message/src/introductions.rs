//! Links by datagrams between the programs of two hosts.
//!
//! The daemons of two hosts carry messages by processes of their own, which need a processor beside those of programs that poll. Two ordinary
//! programs can send each other datagrams of UDP instead, if they know each other's address, and know it from processes that they trust:
//!
//! 1. The endpoint that connects tells its address in the offer to the daemon's gateway, from where it reaches the other endpoint in the usual way.
//! 2. The other endpoint takes datagrams from that address for a connect of that endpoint from then on. It refuses the offer, with an
//!    address of its own ([`INTRODUCED`](crate::handshake::INTRODUCED)).
//! 3. The first endpoint repeats its offer at the gateway of its own plane, which connects by datagrams.
//! 4. If that has no answer, because datagrams do not arrive, the endpoint repeats the offer at the daemon's gateway, without an address. Then the
//!    daemons carry the link.
//!
//! Between two members of one host, the broker removes the address: they share memory.

use std::path::PathBuf;

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::handshake::Hello;
use crate::pending_connects::Stage;
use crate::program_address::ProgramAddress;
use crate::token::Token;

impl Endpoint {
    /// Returns whether an endpoint may be one of another host that this program can reach by datagrams.
    pub(crate) fn may_introduce(&self, address: Address) -> bool {
        address.nic != self.address.nic && self.board.program_plane.is_some()
    }

    /// Returns the path of the gateway of this program's plane.
    pub(crate) fn program_gateway(&self) -> Result<PathBuf, Error> {
        let plane = self.board.program_plane.as_ref();
        let begun = plane.and_then(|plane| plane.begin());
        begun.map(|(_, gateway)| gateway).ok_or(Error::Busy)
    }

    /// Makes the plane of this program expect datagrams of another one. Returns this program's own address; `None` if the
    /// programs cannot reach each other.
    pub(crate) fn expect(
        &mut self,
        peer: Address,
        program: ProgramAddress,
    ) -> Option<ProgramAddress> {
        let own = self.board.program_address()?;
        if !own.reaches(program) {
            return None;
        }
        if self.plane.is_none() {
            let (plane, _) = self.board.program_plane.as_ref()?.begin()?;
            plane.watch(&self.waiter, Token::Plane.encode()).ok()?;
            self.plane = Some(plane);
        }
        let (plane, at) = (self.plane.as_ref()?, (peer.nic, peer.endpoint));
        if !plane.introduce(self.address.endpoint, at, program.socket_address()) {
            return None;
        }
        self.handshakes.expect(peer, program);
        Some(own)
    }

    /// Returns whether an offer asks for the address of this program, and is from a program that has a link by datagrams already. The two endpoints may
    /// have connected to each other at the same time, and the daemons passed one of the offers on later. Or the peer has closed its
    /// end, and connects again: then its next datagram ends the link here.
    pub(crate) fn is_introduced_again(&mut self, hello: &Hello) -> bool {
        let linked = self.peers.find_linked(hello.from);
        let link = linked.and_then(|peer| self.peers.link(peer));
        hello.program.is_some() && link.is_some_and(|link| link.program == hello.program)
    }

    /// The peer's program has told its address, and expects datagrams of this one.
    pub(crate) fn introduced(&mut self, id: u32, program: Option<ProgramAddress>) {
        let asked = self.handshakes.outgoing.get(&id);
        let asked = asked.filter(|outgoing| outgoing.stage == Stage::Introduction);
        let (Some(address), Some(program)) = (asked.map(|asked| asked.address), program) else {
            self.fail_connect(id, Code::Unreachable);
            return;
        };
        let stage = match self.expect(address, program) {
            Some(_) => Stage::Datagrams,
            None => Stage::Link,
        };
        self.offer_again(id, stage);
    }

    /// A connect has failed. After one by datagrams, the daemon's gateway tells what to do.
    pub(crate) fn connect_failed(&mut self, id: u32, code: Code) {
        let outgoing = self.handshakes.outgoing.get(&id);
        match outgoing.map(|outgoing| outgoing.stage) {
            Some(Stage::Datagrams) => self.offer_again(id, Stage::Link),
            _ => self.fail_connect(id, code),
        }
    }

    fn offer_again(&mut self, id: u32, stage: Stage) {
        if let Some(outgoing) = self.handshakes.outgoing.get_mut(&id) {
            outgoing.stage = stage;
        }
        self.retry_connect(id);
    }
}
