//! Connecting: how two partners exchange sessions and sequence numbers.

use std::net::SocketAddr;

use crate::connecting::{Connecting, Probe};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::event::{Address, Code, Event, PartnerId};
use crate::limits::{LARGE_PIPELINE, MAX_FRAME, RESEND_TIMEOUT};
use crate::output::Route;
use crate::partner::Partner;
use crate::seq::Seq;
use crate::wire::{BAD_KEY, Connect, Ends, INTRODUCED, Packet};

impl Endpoint {
    /// Starts to connect, or to introduce the program at an address. Returns false if there are too many partners.
    pub(crate) fn connect(
        &mut self,
        id: PartnerId,
        address: Address,
        (key, token, program): (u32, u64, Option<SocketAddr>),
        context: &mut Context<'_>,
    ) -> bool {
        if self.partner(context.now, id, address).is_none() {
            return false;
        }
        self.connects = self.connects.wrapping_add(1);
        self.connecting.push(Connecting {
            id,
            key,
            token,
            program,
            number: self.connects,
            retry_at: context.now,
            started: context.now,
        });
        self.tick_connects(context);
        true
    }

    /// Repeats unanswered connects, and ends those that are too old.
    pub(crate) fn tick_connects(&mut self, context: &mut Context<'_>) {
        let mut lost = Vec::new();
        for connecting in &mut self.connecting {
            if connecting.retry_at > context.now {
                continue;
            }
            if context.now.saturating_sub(connecting.started) >= context.peer_timeout {
                lost.push(connecting.number);
                continue;
            }
            connecting.retry_at = context.now + RESEND_TIMEOUT;
            let (Some(partner), Some(route)) = (
                self.partners.get(&connecting.id),
                context.route(self.number, connecting.id),
            ) else {
                continue;
            };
            let request = Connect {
                ends: partner.ends(),
                index: connecting.id.0,
                session: self.session,
                key_or_session: connecting.key,
                expected_seq: partner.next_receive.0,
                number: connecting.number,
                status: None,
                own_key: self.key,
                pipeline: Some(LARGE_PIPELINE),
                udp: context.udp.filter(|_| connecting.program.is_none()),
                program: connecting.program,
            };
            context.out.send(route, Packet::Connect(request));
        }
        for number in lost {
            self.end_connects(
                |connecting| connecting.number == number,
                Code::Unreachable,
                context,
            );
        }
    }

    /// Sends a connect to a silent partner. Any answer proves that the partner is there, even the
    /// answer that the key is wrong; so this side need not know the key.
    pub(crate) fn probe(&mut self, id: PartnerId, context: &mut Context<'_>) {
        let Some((route, number, request)) = self.connect_again(id, context) else {
            return;
        };
        if let Some(partner) = self.partners.get_mut(&id) {
            partner.probe_number = Some(number);
        }
        context.out.send(route, request);
    }

    /// Sends a connect as long as the longest frame. Any answer proves that the path to the partner carries such a frame, or a datagram with it.
    pub(crate) fn probe_path(&mut self, id: PartnerId, probe: Probe, context: &mut Context<'_>) {
        let Some((route, number, request)) = self.connect_again(id, context) else {
            return;
        };
        let Some(partner) = self.partners.get_mut(&id) else {
            return;
        };
        let paths = &mut partner.paths;
        let datagrams = match probe {
            Probe::LargeFrame => {
                paths.large.probed(context.now, number);
                None
            }
            Probe::Datagram => {
                paths.udp.probed(context.now, number);
                paths.udp_address()
            }
        };
        let route = Route { datagrams, ..route };
        context.out.send_padded(route, request, MAX_FRAME);
    }

    /// Makes a connect to a connected partner, with its number.
    fn connect_again(
        &mut self,
        id: PartnerId,
        context: &Context<'_>,
    ) -> Option<(Route, u8, Packet<'static>)> {
        let route = context.route(self.number, id)?;
        let partner = self.partners.get(&id)?;
        self.connects = self.connects.wrapping_add(1);
        // See `confirmation`.
        let with_key = !(context.only_datagrams() || self.is_former(partner));
        let request = Connect {
            ends: partner.ends(),
            index: id.0,
            session: partner.own_session,
            key_or_session: partner.key,
            expected_seq: partner.next_receive.0,
            number: self.connects,
            status: None,
            own_key: self.key.filter(|_| with_key),
            pipeline: with_key.then_some(LARGE_PIPELINE),
            udp: context.udp.filter(|_| with_key),
            program: None,
        };
        Some((route, self.connects, Packet::Connect(request)))
    }

    /// Handles the answer to a probe. The partner is there, but it may have lost the connection: another process may have
    /// its endpoint. That process takes the probe for a connect, so there is a new connection.
    fn receive_probe_reply(
        &mut self,
        id: PartnerId,
        reply: &Connect,
        status: u8,
        context: &mut Context<'_>,
    ) {
        let known = self.partners.get(&id);
        let is_former = known.is_some_and(|partner| self.is_former(partner));
        let Some(partner) = self.partners.get_mut(&id) else {
            return;
        };
        if partner.paths.answered(reply.number) {
            partner.mark_alive();
            return;
        }
        if partner
            .probe_number
            .take_if(|number| *number == reply.number)
            .is_none()
        {
            return;
        }
        partner.mark_alive();
        let start = Seq(reply.expected_seq);
        if partner.session.is_none() || partner.has_connection(reply.key_or_session, start) {
            self.confirm(id, context);
            return;
        }
        if status != 0 || is_former || context.only_datagrams() {
            self.fail(id, Code::BadSession, context);
            return;
        }
        // The partner starts its numbers where the probe said.
        self.restart_sends(id, context);
        if let Some(partner) = self.partners.get_mut(&id) {
            partner.connected(reply.key_or_session, self.session, start);
            partner.paths.learn(context.now, reply, context.udp);
            let (endpoint, from) = (self.number, partner.address);
            let event = Event::PeerConnected {
                endpoint,
                from,
                // The process that has the partner's endpoint now has not sent its key.
                peer_key: None,
            };
            context.out.events.push_back(event);
        }
    }

    /// Ends the connects for which `matches` returns true.
    fn end_connects(
        &mut self,
        matches: impl Fn(&Connecting) -> bool,
        code: Code,
        context: &mut Context<'_>,
    ) {
        let event = |token| Event::Connected { token, code };
        self.end_connects_with(matches, event, context);
    }

    /// Ends the connects for which `matches` returns true, each with the event that has its token.
    fn end_connects_with(
        &mut self,
        matches: impl Fn(&Connecting) -> bool,
        event: impl Fn(u64) -> Event,
        context: &mut Context<'_>,
    ) {
        self.connecting.retain(|connecting| {
            let over = matches(connecting);
            if over {
                context.out.events.push_back(event(connecting.token));
            }
            !over
        });
    }

    /// Handles the refusal of a connect. If the partner was connected, the connection ends.
    pub(crate) fn connect_refused(&mut self, id: PartnerId, code: Code, context: &mut Context<'_>) {
        let known = self.partners.get(&id);
        let is_unconfirmed = known.is_some_and(|partner| partner.unconfirmed.is_some());
        let is_connected = known.is_some_and(|partner| partner.session.is_some());
        // A partner that has given its own connect up refuses the probe, and not the connects of this endpoint.
        if !is_unconfirmed || code != Code::BadSession {
            self.end_connects(|connecting| connecting.id == id, code, context);
        }
        if is_connected {
            self.fail(id, code, context);
        }
    }

    /// Whether a request repeats or probes the connection of an earlier program. The key of this endpoint is another one then.
    pub(crate) fn is_known_to_former(&self, id: PartnerId, request: &Connect) -> bool {
        let expected = Seq(request.expected_seq);
        self.partners.get(&id).is_some_and(|partner| {
            self.is_former(partner) && partner.has_connection(request.session, expected)
        })
    }

    /// Handles a connect request to this endpoint.
    pub(crate) fn receive_connect_request(
        &mut self,
        id: PartnerId,
        address: Address,
        request: &Connect,
        context: &mut Context<'_>,
    ) {
        // The endpoint has this connection, otherwise the node has refused the probe.
        let is_probe = context.only_datagrams() && request.own_key.is_none();
        let key_matches = is_probe || Some(request.key_or_session) == self.key;
        let is_accepted = key_matches || self.is_known_to_former(id, request);
        if is_accepted {
            if self.partner(context.now, id, address).is_none() {
                return;
            }
            let start = Seq(request.expected_seq);
            let is_new = self.establish(id, request.session, start, context);
            if !is_probe {
                self.peer_connected(id, request, is_new, context);
            }
            self.learn_paths(id, request, context);
        }
        let Some(route) = context.route(self.number, id) else {
            return;
        };
        let partner = self.partners.get(&id).filter(|_| is_accepted);
        let session = partner.map_or(self.session, |partner| partner.own_session);
        let expected = self.partners.get(&id).map(|partner| partner.next_receive);
        let reply = Connect {
            ends: Ends {
                to: address.endpoint,
                from: self.number,
            },
            index: id.0,
            session: request.session,
            key_or_session: session,
            expected_seq: expected.unwrap_or(Seq::FIRST).0,
            number: request.number,
            status: Some(if is_accepted { 0 } else { BAD_KEY }),
            own_key: None,
            // Hosts that do not send it get an answer of MX.
            pipeline: request.pipeline.map(|_| LARGE_PIPELINE),
            udp: request.pipeline.and(context.udp),
            program: None,
        };
        context.out.send(route, Packet::Connect(reply));
        self.flush(id, context);
    }

    /// Handles the reply to a connect of this endpoint.
    pub(crate) fn receive_connect_reply(
        &mut self,
        id: PartnerId,
        reply: &Connect,
        status: u8,
        context: &mut Context<'_>,
    ) {
        let is_own = reply.session == self.session;
        let matches = |connecting: &Connecting| {
            is_own && connecting.id == id && connecting.number == reply.number
        };
        let accepts = |partner: &Partner| partner.accepts(reply.session);
        if !is_own && !self.partners.get(&id).is_some_and(accepts) {
            return;
        }
        if status == INTRODUCED {
            // Without an address, or to another connect than an introduction, the reply is malformed.
            if let Some(program) = reply.program {
                let is_introduction = |one: &Connecting| matches(one) && one.program.is_some();
                let event = |token| Event::Introduced { token, program };
                self.end_connects_with(is_introduction, event, context);
            }
            return;
        }
        if !self.connecting.iter().any(matches) {
            self.receive_probe_reply(id, reply, status, context);
            return;
        }
        let code = match status {
            0 => Code::Success,
            _ => Code::BadKey,
        };
        if code == Code::Success {
            self.establish(id, reply.key_or_session, Seq(reply.expected_seq), context);
            let keys = self.connecting.iter().filter(|one| matches(one));
            if let (Some(key), Some(partner)) =
                (keys.map(|one| one.key).next(), self.partners.get_mut(&id))
            {
                partner.key = key;
            }
            self.learn_paths(id, reply, context);
            self.confirm(id, context);
        }
        self.end_connects(matches, code, context);
        self.flush(id, context);
    }

    /// Notes what a partner takes beside ordinary frames. Where all frames travel in datagrams, there is nothing beside them.
    fn learn_paths(&mut self, id: PartnerId, connect: &Connect, context: &Context<'_>) {
        let partner = self.partners.get_mut(&id);
        if let Some(partner) = partner.filter(|_| !context.only_datagrams()) {
            partner.paths.learn(context.now, connect, context.udp);
        }
    }

    /// Stores a partner's session and the sequence number that it expects next. If a known partner
    /// reports another session or numbers of another connection, it has lost the previous
    /// connection. Returns whether the connection is new.
    fn establish(
        &mut self,
        id: PartnerId,
        session: u32,
        start: Seq,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(partner) = self.partners.get_mut(&id) else {
            return false;
        };
        partner.mark_alive();
        if partner.has_connection(session, start) {
            return false;
        }
        let known = partner.session == Some(session);
        if partner.session.is_some() && !known {
            self.fail(id, Code::BadSession, context);
        } else if known && partner.next_send.is_some() {
            self.restart_sends(id, context);
        }
        if let Some(partner) = self.partners.get_mut(&id) {
            partner.connected(session, self.session, start);
        }
        true
    }

    /// The partner gave this endpoint up and connects again, or is another process: messages that it did not acknowledge
    /// are lost, but the messages that it sent before keep their order.
    fn restart_sends(&mut self, id: PartnerId, context: &mut Context<'_>) {
        let receive = self.partners.get(&id).map(|partner| partner.next_receive);
        self.fail(id, Code::BadSession, context);
        if let (Some(partner), Some(receive)) = (self.partners.get_mut(&id), receive) {
            partner.next_receive = receive;
        }
    }
}
