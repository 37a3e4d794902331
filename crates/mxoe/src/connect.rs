//! How partners learn of each other.

use crate::connecting::Connecting;
use crate::endpoint::Endpoint;
use crate::event::{Address, Code, Event, Partner as Who};
use crate::hosts::World;
use crate::limits::RESEND;
use crate::seq::Seq;
use crate::wire::{BAD_KEY, Connect, Ends, Packet};

impl Endpoint {
    /// Begin to connect. False when there are too many partners.
    pub(crate) fn connect(
        &mut self,
        who: Who,
        at: Address,
        key: u32,
        token: u64,
        world: &mut World<'_>,
    ) -> bool {
        if self.partner(world.now, who, at).is_none() {
            return false;
        }
        self.connects = self.connects.wrapping_add(1);
        self.connecting.push(Connecting {
            who,
            key,
            token,
            number: self.connects,
            again: world.now,
            since: world.now,
        });
        self.tick_connects(world);
        true
    }

    /// Ask those again that did not answer.
    pub(crate) fn tick_connects(&mut self, world: &mut World<'_>) {
        let mut lost = Vec::new();
        for connecting in &mut self.connecting {
            if connecting.again > world.now {
                continue;
            }
            let (Some(partner), Some(route)) = (
                self.partners.get(&connecting.who),
                world.hosts.route(connecting.who.0),
            ) else {
                continue;
            };
            if world.now.saturating_sub(connecting.since) >= world.patience {
                lost.push(connecting.number);
                continue;
            }
            connecting.again = world.now + RESEND;
            let request = Connect {
                ends: partner.ends(),
                index: connecting.who.0,
                session: self.session,
                word: connecting.key,
                start: partner.next_receive.0,
                number: connecting.number,
                status: None,
            };
            world.out.send(route, Packet::Connect(request));
        }
        for number in lost {
            self.connected(
                |connecting| connecting.number == number,
                Code::Unreachable,
                world,
            );
        }
    }

    /// Ask a silent partner whether it is there. Any answer says so, also that the key is wrong,
    /// which this side need not know.
    pub(crate) fn probe(&mut self, who: Who, world: &mut World<'_>) {
        let (Some(partner), Some(route)) = (self.partners.get_mut(&who), world.hosts.route(who.0))
        else {
            return;
        };
        self.connects = self.connects.wrapping_add(1);
        partner.probe_number = Some(self.connects);
        let request = Connect {
            ends: partner.ends(),
            index: who.0,
            session: self.session,
            word: partner.key,
            start: partner.next_receive.0,
            number: self.connects,
            status: None,
        };
        world.out.send(route, Packet::Connect(request));
    }

    /// A partner that was asked is there. But it may have forgotten the connection.
    fn hear_probed(&mut self, who: Who, reply: &Connect, world: &mut World<'_>) {
        let Some(partner) = self.partners.get_mut(&who) else {
            return;
        };
        if partner
            .probe_number
            .take_if(|number| *number == reply.number)
            .is_none()
        {
            return;
        }
        partner.heard();
        let next = partner.next_send;
        let same = next.is_some_and(|next| next.same_connection(Seq(reply.start)));
        if partner
            .session
            .is_some_and(|session| session != reply.word || !same)
        {
            self.fail(who, Code::BadSession, world);
        }
    }

    /// End the connects that `is` tells.
    fn connected(&mut self, is: impl Fn(&Connecting) -> bool, code: Code, world: &mut World<'_>) {
        self.connecting.retain(|connecting| {
            let over = is(connecting);
            if over {
                let token = connecting.token;
                world.out.events.push_back(Event::Connected { token, code });
            }
            !over
        });
    }

    /// A partner refused a connect; one that was connected is no more.
    pub(crate) fn refused(&mut self, who: Who, code: Code, world: &mut World<'_>) {
        self.connected(|connecting| connecting.who == who, code, world);
        let known = self.partners.get(&who);
        if known.is_some_and(|partner| partner.session.is_some()) {
            self.fail(who, code, world);
        }
    }

    /// Somebody connects to this endpoint.
    pub(crate) fn hear_request(
        &mut self,
        who: Who,
        at: Address,
        request: &Connect,
        world: &mut World<'_>,
    ) {
        let right = request.word == self.key;
        if right {
            if self.partner(world.now, who, at).is_none() {
                return;
            }
            if self.meet(who, request.session, Seq(request.start), world) {
                let (endpoint, from) = (self.number, at);
                world.out.events.push_back(Event::Met { endpoint, from });
            }
        }
        let Some(route) = world.hosts.route(who.0) else {
            return;
        };
        let expected = self.partners.get(&who).map(|partner| partner.next_receive);
        let reply = Connect {
            ends: Ends {
                to: at.endpoint,
                from: self.number,
            },
            index: who.0,
            session: request.session,
            word: self.session,
            start: expected.unwrap_or(Seq::FIRST).0,
            number: request.number,
            status: Some(if right { 0 } else { BAD_KEY }),
        };
        world.out.send(route, Packet::Connect(reply));
        self.flush(who, world);
    }

    /// A connect of this endpoint is answered.
    pub(crate) fn hear_reply(
        &mut self,
        who: Who,
        reply: &Connect,
        status: u8,
        world: &mut World<'_>,
    ) {
        let is =
            |connecting: &Connecting| connecting.who == who && connecting.number == reply.number;
        if reply.session != self.session {
            return;
        }
        if !self.connecting.iter().any(is) {
            self.hear_probed(who, reply, world);
            return;
        }
        let code = match status {
            0 => Code::Success,
            _ => Code::BadKey,
        };
        if code == Code::Success {
            self.meet(who, reply.word, Seq(reply.start), world);
            let keys = self.connecting.iter().filter(|one| is(one));
            if let (Some(key), Some(partner)) =
                (keys.map(|one| one.key).next(), self.partners.get_mut(&who))
            {
                partner.key = key;
            }
        }
        self.connected(is, code, world);
        self.flush(who, world);
    }

    /// A partner's session and where this endpoint's numbers start there. A known partner with
    /// another session, or another connection's numbers, has forgotten what was before. True when
    /// it was not connected, or not like this.
    fn meet(&mut self, who: Who, session: u32, start: Seq, world: &mut World<'_>) -> bool {
        let Some(partner) = self.partners.get_mut(&who) else {
            return false;
        };
        partner.heard();
        let known = partner.session == Some(session);
        let goes_on = partner
            .next_send
            .is_some_and(|next| next.same_connection(start));
        if known && goes_on {
            return false;
        }
        if partner.session.is_some() && !known {
            self.fail(who, Code::BadSession, world);
        } else if known && partner.next_send.is_some() {
            self.restart_sends(who, world);
        }
        if let Some(partner) = self.partners.get_mut(&who) {
            partner.session = Some(session);
            partner.next_send = Some(start);
        }
        true
    }

    /// The partner gave this endpoint up, and connects anew: what it did not acknowledge is lost,
    /// what it sent before stays in its order.
    fn restart_sends(&mut self, who: Who, world: &mut World<'_>) {
        let receive = self.partners.get(&who).map(|partner| partner.next_receive);
        self.fail(who, Code::BadSession, world);
        if let (Some(partner), Some(receive)) = (self.partners.get_mut(&who), receive) {
            partner.next_receive = receive;
        }
    }
}
