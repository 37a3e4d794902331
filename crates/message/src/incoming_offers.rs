//! Connects of other endpoints: their offers, and the answers.

use std::os::fd::{AsFd, OwnedFd};

use window::Side;
use window::attach::{Channel, Message, WindowLocation};
use window::doorbell;

use crate::connect::{OtherEnd, attach};
use crate::endpoint::Endpoint;
use crate::error::Code;
use crate::handshake::{
    ACCEPTED, BAD_KEY, CLOSED, FULL, Hello, HelloReply, INTRODUCED, SIMULTANEOUS,
};
use crate::limits::INCOMING;
use crate::process_memory::ProcessMemory;
use crate::program_address::ProgramAddress;
use crate::token::Token;

impl Endpoint {
    /// Accepts connections.
    pub(crate) fn accept(&mut self) {
        for _ in 0..INCOMING {
            // Without free descriptors, connections stay in the backlog and are accepted later.
            let Ok(Some(channel)) = self.listener.accept() else {
                return;
            };
            if self.handshakes.incoming.len() >= INCOMING {
                self.evict_oldest_incoming();
            }
            let id = self.handshakes.id();
            let token = Token::Incoming(id).encode();
            if self.waiter.add(&channel, token).is_ok() {
                self.handshakes.incoming.insert(id, channel);
            }
        }
    }

    /// Closes the oldest connection without an offer, to make room.
    fn evict_oldest_incoming(&mut self) {
        if let Some((&first, _)) = self.handshakes.incoming.first_key_value() {
            self.handle_incoming(first);
            self.handshakes.incoming.remove(&first);
        }
    }

    /// Handles a message or the end of an accepted connection.
    pub(crate) fn handle_incoming(&mut self, id: u32) {
        let Some(channel) = self.handshakes.incoming.get(&id) else {
            return;
        };
        let message = match channel.receive() {
            Ok(None) => return,
            Ok(Some(message)) => Some(message),
            Err(_) => None,
        };
        let Some(channel) = self.handshakes.incoming.remove(&id) else {
            return;
        };
        self.waiter.remove(&channel);
        let Some(Message::Offer {
            window: Some(window),
            heap,
            handshake_data,
        }) = message
        else {
            return;
        };
        let Some(hello) = Hello::decode(&handshake_data) else {
            return;
        };
        let verdict = match self.is_misdirected(&channel, &hello) {
            true => CLOSED,
            false => self.check_hello(&hello),
        };
        let program = hello.program.filter(|_| verdict == ACCEPTED);
        let own_program = program.and_then(|program| self.expect(hello.from, program));
        match (verdict, own_program) {
            (ACCEPTED, None) => self.accept_offer(window, channel, heap, &hello),
            (ACCEPTED, own) => drop(self.answer(&channel, INTRODUCED, false, own)),
            _ => drop(self.answer(&channel, verdict, false, None)),
        }
    }

    /// Makes the link of an offer. An invalid window gets no answer: its creator uses another protocol.
    fn accept_offer(
        &mut self,
        window: WindowLocation,
        channel: Channel,
        heap: Option<OwnedFd>,
        hello: &Hello,
    ) {
        let other = OtherEnd {
            address: hello.from,
            fences: hello.fences,
            process_memory: hello.process_memory,
            other_host: hello.other_host,
            members: hello.members,
        };
        let window = attach(window);
        let link =
            window.and_then(|window| self.link(&window, Side::Attacher, channel, heap, other));
        if let Ok(link) = link {
            let remote = hello.from.nic != self.address.nic;
            if self.answer(&link.channel, ACCEPTED, !remote, None) {
                self.add_link(hello.from, hello.session, hello.own_key, link);
            }
        }
    }

    /// Returns whether a daemon offers a connection with another host whose frames are this program's. The daemon has received the
    /// other host's connect before the program had the endpoint.
    fn is_misdirected(&self, channel: &Channel, hello: &Hello) -> bool {
        self.board.is_reached_in_process(hello.from.nic) && !ProcessMemory::is_this_process(channel)
    }

    fn check_hello(&mut self, hello: &Hello) -> u32 {
        let from = hello.from;
        if from == self.address {
            return FULL;
        }
        if hello.key != self.key {
            return BAD_KEY;
        }
        let simultaneous = self.handshakes.outgoing_to(from);
        let offered = simultaneous.and_then(|id| self.handshakes.outgoing.get(&id)?.offer.as_ref());
        if offered.is_some() && self.address < from {
            return SIMULTANEOUS;
        }
        if self.is_introduced_again(hello) {
            return ACCEPTED;
        }
        if let Some(old) = self.find_present(from) {
            if self.peers.get(old).map(|known| known.session) == Some(hello.session) {
                return FULL;
            }
            // The peer's socket is bound again, so the endpoint that had the address before has
            // ended.
            self.fail_peer(old, Code::Closed);
        }
        ACCEPTED
    }

    /// Answers an offer. Returns false if the peer has gone.
    fn answer(
        &self,
        channel: &Channel,
        verdict: u32,
        with_heap: bool,
        program: Option<ProgramAddress>,
    ) -> bool {
        let reply = HelloReply {
            verdict,
            session: self.session,
            fences: doorbell::register_membarrier(),
            process_memory: self.is_in_its_process(),
            other_host: false,
            program,
            members: None,
        };
        let accepted = verdict == ACCEPTED;
        let heap = with_heap.then(|| self.engine.heap.as_fd());
        let reply = reply.encode();
        channel.answer(accepted, None, heap, &reply).is_ok()
    }
}
