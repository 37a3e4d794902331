//! Connects of endpoints, and the answers to them: creates links between members.

use window::Side;

use super::broker::Broker;
use super::control_message::{ControlMessage, FROM_MEMBER, LinkId, OtherEnd};
use super::limits::LINKS_PER_MEMBER;
use super::link::{End, Link};
use super::member::MemberState;
use super::relay::Relay;
use crate::address::Address;
use crate::handshake::{ACCEPTED, CLOSED, FULL, Hello, UNKNOWN};
use crate::limits::MESSAGES;
use crate::program_address::ProgramAddress;

/// The most links between two members, so that one peer leaves a member some links to all others.
const LINKS_PER_PAIR: usize = LINKS_PER_MEMBER - LINKS_PER_MEMBER / 4;

impl Broker {
    /// Handles a connect of an endpoint; `None` if its gateway violated the protocol.
    pub(super) fn connect(&mut self, number: usize, id: LinkId, hello: Hello) -> Option<()> {
        let member = self.members.get(number)?;
        if id & FROM_MEMBER == 0 || member.links.contains_key(&id) {
            return None;
        }
        let mut full = member.links.len() >= LINKS_PER_MEMBER;
        let target = self.route(hello.to.nic).filter(|target| *target != number);
        // An endpoint of another host cannot use the NIC id of a member here.
        let forged = member.config.uplink && self.route(hello.from.nic) != Some(number);
        full |= target.is_some_and(|target| self.links_between(number, target) >= LINKS_PER_PAIR);
        let made = match target {
            // The member has not joined, or no member has this NIC id.
            None if self
                .members
                .iter()
                .any(|member| member.has_nic(hello.to.nic)) =>
            {
                Err(CLOSED)
            }
            None => Err(UNKNOWN),
            // It cannot answer before its VM runs again.
            Some(target) if self.is_silent(target) => Err(CLOSED),
            Some(_) if forged => Err(FULL),
            Some(_) if full => Err(FULL),
            Some(target) => self.join(number, id, target, hello).ok_or(FULL),
        };
        if let Err(verdict) = made {
            self.send(number, ControlMessage::refusal(id, verdict));
        }
        Some(())
    }

    /// Returns the number of links between two members.
    fn links_between(&self, one: usize, other: usize) -> usize {
        let links = self.members.get(one).into_iter();
        let links = links.flat_map(|member| member.links.values());
        let ends = links.filter_map(|(key, side)| self.links.get(key)?.ends.get(1 - side));
        ends.filter(|end| end.member == other).count()
    }

    /// Returns the member that a NIC id is routed to: a member that has joined, or else the uplink.
    fn route(&self, nic: u64) -> Option<usize> {
        let here = |member: &MemberState| member.control.is_some();
        let is = |member: &MemberState| here(member) && member.has_nic(nic);
        let uplink = |member: &MemberState| here(member) && member.config.uplink;
        let found = self.members.iter().position(is);
        found.or_else(|| self.members.iter().position(uplink))
    }

    fn is_silent(&self, number: usize) -> bool {
        self.members.get(number).is_some_and(MemberState::is_silent)
    }

    /// Creates a link between two members; `None` if there is no room.
    fn join(&mut self, from: usize, id: LinkId, to: usize, mut hello: Hello) -> Option<()> {
        let pools = [
            self.members.get(from)?.link_pool,
            self.members.get(to)?.link_pool,
        ];
        let [origin_pool, target_pool] = pools;
        let first = self.link_pools.get_mut(origin_pool)?.take()?;
        let second = match origin_pool == target_pool {
            true => Some(first),
            false => self.link_pools.get_mut(target_pool)?.take(),
        };
        let Some(second) = second else {
            self.link_pools.get_mut(origin_pool)?.release(first);
            return None;
        };
        let ready =
            [(origin_pool, first), (target_pool, second)]
                .iter()
                .all(|(link_pool, window)| {
                    let link_pool = self.link_pools.get(*link_pool);
                    let window = link_pool.and_then(|link_pool| link_pool.region.link(*window));
                    window.is_some_and(|window| window.reset().is_ok())
                });
        self.next += 1;
        let number = self.next;
        let is_between_hosts = [from, to].iter().any(|number| {
            self.members
                .get(*number)
                .is_some_and(|member| member.config.uplink)
        });
        let origin = self.members.get_mut(from)?;
        origin.links.insert(id, (number, 0));
        origin.counters.links += 1;
        // The broker sets a guest's source address. Only an uplink sends for other NICs, see
        // `connect`.
        if !origin.config.uplink {
            hello.from.nic = origin.nic;
        }
        let target = self.members.get_mut(to)?;
        // Two members of this host have the link's window.
        if !is_between_hosts {
            hello.program = None;
        }
        // The connect may name the target by its other NIC id.
        if !target.config.uplink {
            hello.to.nic = target.nic;
        }
        let other = target.new_link_id();
        target.links.insert(other, (number, 1));
        target.counters.links += 1;
        let end = |member, id, window| End {
            member,
            id,
            window,
            closed: false,
            stale: false,
        };
        let between = [hello.from, hello.to];
        self.end_older_offers(between);
        let link = Link {
            ends: [end(from, id, first), end(to, other, second)],
            between,
            relay: None,
            up: false,
            draining: false,
            lost: false,
        };
        self.links.insert(number, link);
        if !ready {
            self.remove_link(number);
            return None;
        }
        let message = ControlMessage::Connect {
            link: other,
            window: second,
            hello,
            other_end: self.other_end(to, from),
        };
        self.send(to, message);
        Some(())
    }

    /// Returns where `other` is for the endpoints of `of`. An uplink has no heap that they may read.
    fn other_end(&self, of: usize, other: usize) -> OtherEnd {
        match (self.members.get(of), self.members.get(other)) {
            (_, Some(other)) if other.config.uplink => OtherEnd::OtherHost,
            (Some(of), Some(other)) if of.link_pool == other.link_pool && !of.config.uplink => {
                OtherEnd::InRegion(other.index)
            }
            _ => OtherEnd::Mediated,
        }
    }

    /// Ends draining links between two endpoints that connect again. An endpoint that connects
    /// again has closed its last link, whichever of the two had connected that one. The other end
    /// has to learn of the close before it learns of the new link. What is left in the old link is
    /// forwarded first, as far as the other end has room; the other end may never take the rest.
    fn end_older_offers(&mut self, between: [Address; 2]) {
        let mut older = self.older_offers(between);
        let mut rounds = 0..MESSAGES.slots;
        while !older.is_empty() && rounds.next().is_some() && self.relay() {
            older = self.older_offers(between);
        }
        for key in older {
            self.end_link(key);
        }
    }

    /// Returns the draining links between two endpoints.
    fn older_offers(&self, [from, to]: [Address; 2]) -> Vec<u64> {
        let joins = |link: &Link| [[from, to], [to, from]].contains(&link.between);
        let old = self.links.iter();
        let old = old.filter(|(_, link)| link.draining && joins(link));
        old.map(|(key, _)| *key).collect()
    }

    /// Handles an endpoint's answer to a connect; `None` if its gateway violated the protocol.
    pub(super) fn answer(
        &mut self,
        number: usize,
        id: LinkId,
        verdict: u32,
        (session, program): (u64, Option<ProgramAddress>),
    ) -> Option<()> {
        let Some(&(key, side)) = self.members.get(number)?.links.get(&id) else {
            // The other end has closed since.
            return Some(());
        };
        let link = self.links.get_mut(&key)?;
        if side != 1 || link.up {
            return None;
        }
        let [origin, target] = link.ends;
        if origin.closed {
            // The gateway was notified already, and no request waits for the answer.
            if verdict != ACCEPTED {
                self.remove_link(key);
            }
            return Some(());
        }
        let began = verdict == ACCEPTED && self.begin(key, [origin, target]).is_some();
        let message = ControlMessage::Answer {
            link: origin.id,
            window: origin.window,
            verdict: if verdict == ACCEPTED && !began {
                FULL
            } else {
                verdict
            },
            session,
            other_end: self.other_end(origin.member, number),
            program,
        };
        self.send(origin.member, message);
        match verdict {
            ACCEPTED if began => {}
            // The other end believes that the link exists.
            ACCEPTED => self.close(key, 0, false),
            _ => self.remove_link(key),
        }
        Some(())
    }

    /// Creates the relay of a mediated link, and marks the link as up. `None` if memory is short.
    fn begin(&mut self, key: u64, [origin, target]: [End; 2]) -> Option<()> {
        let link_pool = |end: End| Some(self.members.get(end.member)?.link_pool);
        let [origin_pool, target_pool] = [link_pool(origin)?, link_pool(target)?];
        let relay = match origin_pool == target_pool {
            true => None,
            false => {
                let window =
                    |link_pool: usize, window| self.link_pools.get(link_pool)?.region.link(window);
                let with_origin = window(origin_pool, origin.window)?
                    .ends(Side::Attacher)
                    .ok()?;
                let with_target = window(target_pool, target.window)?
                    .ends(Side::Creator)
                    .ok()?;
                Some(Relay::new([with_origin, with_target]))
            }
        };
        let link = self.links.get_mut(&key)?;
        link.relay = relay;
        link.up = true;
        Some(())
    }
}
