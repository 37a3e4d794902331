//! Links between members: how they begin, what goes over them, how they end.

use window::Side;

use super::control_message::{ControlMessage, FROM_MEMBER, LinkId};
use super::limits::LEGS;
use super::link::{End, Link};
use super::relay::{Guilty, Relay};
use super::seat::Seat;
use super::switchboard::Switchboard;
use crate::address::Address;
use crate::handshake::{ACCEPTED, CLOSED, FULL, Hello, UNKNOWN};

#[cfg(test)]
mod tests;

/// Links between two members, at most: one member leaves some of another's to all others.
const PAIR: usize = LEGS - LEGS / 4;

impl Switchboard {
    pub(super) fn hear(&mut self, number: usize, note: ControlMessage) {
        let done = match note {
            ControlMessage::Connect { link, hello, .. } => self.connect(number, link, hello),
            ControlMessage::Answer {
                link,
                verdict,
                session,
                ..
            } => self.answer(number, link, verdict, session),
            ControlMessage::Ring { link } => {
                if let Some((other, id)) = self.direct(number, link) {
                    self.say(other, ControlMessage::Ring { link: id });
                }
                Some(())
            }
            ControlMessage::Lost { link } => {
                let leg = self.seats.get(number).and_then(|seat| seat.legs.get(&link));
                let link = leg.and_then(|(link, _)| self.links.get_mut(link));
                if let Some(link) = link {
                    link.lost = true;
                }
                Some(())
            }
            ControlMessage::Name { .. } => {
                let seat = self.seats.get(number);
                let uplink = seat.is_some_and(|seat| seat.member.uplink);
                uplink.then(|| self.name(note))
            }
            // Only the host says who is here.
            ControlMessage::Member { .. } => None,
            ControlMessage::Close { link } => {
                let leg = self.seats.get(number).and_then(|seat| seat.legs.get(&link));
                // Both ends may close at the same time.
                if let Some(&(link, side)) = leg {
                    self.close(link, side, false);
                }
                Some(())
            }
        };
        if done.is_none() {
            self.faulty.push(number);
        }
    }

    /// The other end of a direct link.
    fn direct(&self, number: usize, link: LinkId) -> Option<(usize, LinkId)> {
        let &(link, side) = self.seats.get(number)?.legs.get(&link)?;
        let link = self.links.get(&link).filter(|link| link.relay.is_none())?;
        let end = link.ends.get(1 - side)?;
        Some((end.seat, end.id))
    }

    /// An endpoint wants to connect; `None` when its gateway makes no sense.
    fn connect(&mut self, number: usize, id: LinkId, hello: Hello) -> Option<()> {
        let seat = self.seats.get(number)?;
        if id & FROM_MEMBER == 0 || seat.legs.contains_key(&id) {
            return None;
        }
        let mut full = seat.legs.len() >= LEGS;
        let target = self.whose(hello.to.nic).filter(|target| *target != number);
        // Whoever is from elsewhere cannot be called as somebody here.
        let forged = seat.member.uplink && self.whose(hello.from.nic) != Some(number);
        full |= target.is_some_and(|target| self.pair(number, target) >= PAIR);
        let made = match target {
            // A member that is away, or none.
            None if self.seats.iter().any(|seat| seat.is(hello.to.nic)) => Err(CLOSED),
            None => Err(UNKNOWN),
            Some(_) if forged => Err(FULL),
            Some(_) if full => Err(FULL),
            Some(target) => self.join(number, id, target, hello).ok_or(FULL),
        };
        if let Err(verdict) = made {
            let note = ControlMessage::Answer {
                link: id,
                window: 0,
                verdict,
                session: 0,
                seat: None,
            };
            self.say(number, note);
        }
        Some(())
    }

    /// How many links two members have with each other.
    fn pair(&self, one: usize, other: usize) -> usize {
        let legs = self.seats.get(one).into_iter();
        let legs = legs.flat_map(|seat| seat.legs.values());
        let ends = legs.filter_map(|(key, side)| self.links.get(key)?.ends.get(1 - side));
        ends.filter(|end| end.seat == other).count()
    }

    /// The seat of a NIC: a member's that is here, or else the uplink.
    fn whose(&self, nic: u64) -> Option<usize> {
        let here = |seat: &Seat| seat.trunk.is_some();
        let is = |seat: &Seat| here(seat) && seat.is(nic);
        let uplink = |seat: &Seat| here(seat) && seat.member.uplink;
        let found = self.seats.iter().position(is);
        found.or_else(|| self.seats.iter().position(uplink))
    }

    /// Give two members a link; `None` when there is no room.
    fn join(&mut self, from: usize, id: LinkId, to: usize, mut hello: Hello) -> Option<()> {
        let halls = [
            self.seats.get(from)?.link_pool,
            self.seats.get(to)?.link_pool,
        ];
        let [near, far] = halls;
        let first = self.halls.get_mut(near)?.take()?;
        let second = match near == far {
            true => Some(first),
            false => self.halls.get_mut(far)?.take(),
        };
        let Some(second) = second else {
            self.halls.get_mut(near)?.give(first);
            return None;
        };
        let ready = [(near, first), (far, second)]
            .iter()
            .all(|(link_pool, window)| {
                let link_pool = self.halls.get(*link_pool);
                let window = link_pool.and_then(|link_pool| link_pool.region.link(*window));
                window.is_some_and(|window| window.renew().is_ok())
            });
        self.next += 1;
        let number = self.next;
        let origin = self.seats.get_mut(from)?;
        origin.legs.insert(id, (number, 0));
        origin.counters.links += 1;
        // A guest never chooses what it is called. Only an uplink speaks for others, see `connect`.
        if !origin.member.uplink {
            hello.from.nic = origin.nic;
        }
        let target = self.seats.get_mut(to)?;
        // It may have been called by its other name.
        if !target.member.uplink {
            hello.to.nic = target.nic;
        }
        let other = target.number();
        target.legs.insert(other, (number, 1));
        target.counters.links += 1;
        let end = |seat, id, window| End {
            seat,
            id,
            window,
            closed: false,
            stale: false,
        };
        let between = [hello.from, hello.to];
        self.supersede(between);
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
            self.discard(number);
            return None;
        }
        let note = ControlMessage::Connect {
            link: other,
            window: second,
            hello,
            seat: self.neighbour(to, from),
        };
        self.say(to, note);
        Some(())
    }

    /// Where another member sits, for one whose endpoints may read its heap. An uplink has none.
    fn neighbour(&self, of: usize, other: usize) -> Option<u32> {
        let (of, other) = (self.seats.get(of)?, self.seats.get(other)?);
        let shares = of.link_pool == other.link_pool && !of.member.uplink && !other.member.uplink;
        shares.then_some(other.place)
    }

    /// Who connects again has let go of its last link, whoever of the two connected then. What the other end
    /// has not taken of that, and perhaps never will, must not keep it from hearing so before it hears of the
    /// new one.
    fn supersede(&mut self, [from, to]: [Address; 2]) {
        let links = self.links.iter();
        let joins = |link: &Link| [[from, to], [to, from]].contains(&link.between);
        let old = links.filter(|(_, link)| link.draining && joins(link));
        let old: Vec<u64> = old.map(|(key, _)| *key).collect();
        for key in old {
            self.finish(key);
        }
    }

    /// An endpoint agreed to a link, or not; `None` when its gateway makes no sense.
    fn answer(&mut self, number: usize, id: LinkId, verdict: u32, session: u64) -> Option<()> {
        let Some(&(key, side)) = self.seats.get(number)?.legs.get(&id) else {
            // The other end is gone since.
            return Some(());
        };
        let link = self.links.get_mut(&key)?;
        if side != 1 || link.up {
            return None;
        }
        let [origin, target] = link.ends;
        if origin.closed {
            // It is told so already; nobody waits for the answer.
            if verdict != ACCEPTED {
                self.discard(key);
            }
            return Some(());
        }
        let began = verdict == ACCEPTED && self.begin(key, [origin, target]).is_some();
        let note = ControlMessage::Answer {
            link: origin.id,
            window: origin.window,
            verdict: if verdict == ACCEPTED && !began {
                FULL
            } else {
                verdict
            },
            session,
            seat: self.neighbour(origin.seat, number),
        };
        self.say(origin.seat, note);
        match verdict {
            ACCEPTED if began => {}
            // The other end believes that it has a link.
            ACCEPTED => self.close(key, 0, false),
            _ => self.discard(key),
        }
        Some(())
    }

    /// Both ends want a link: from now on it is there. `None` when this host has no memory for it.
    fn begin(&mut self, key: u64, [origin, target]: [End; 2]) -> Option<()> {
        let link_pool = |end: End| Some(self.seats.get(end.seat)?.link_pool);
        let [near, far] = [link_pool(origin)?, link_pool(target)?];
        let relay = match near == far {
            true => None,
            false => {
                let window =
                    |link_pool: usize, window| self.halls.get(link_pool)?.region.link(window);
                let near = window(near, origin.window)?.ends(Side::Guest).ok()?;
                let far = window(far, target.window)?.ends(Side::Creator).ok()?;
                Some(Relay::new([near, far]))
            }
        };
        let link = self.links.get_mut(&key)?;
        link.relay = relay;
        link.up = true;
        Some(())
    }

    /// Move what is in mediated links; whether there was something.
    pub(super) fn relay(&mut self) -> bool {
        let (mut moved, mut hinders) = (false, false);
        let mut rings = Vec::new();
        let mut broken = Vec::new();
        let mut drained = Vec::new();
        for (&key, link) in &mut self.links {
            let Some(relay) = &mut link.relay else {
                continue;
            };
            // Mostly: a relay is looked at many times for each record.
            if relay.is_idle() && !link.draining {
                continue;
            }
            match relay.turn(&self.courtesy) {
                Ok(turn) => {
                    hinders |= turn.hinders;
                    for (end, taken) in link.ends.iter().zip(turn.taken) {
                        moved |= taken.records > 0;
                        if let Some(seat) = self.seats.get_mut(end.seat) {
                            seat.counters.messages += taken.messages;
                            seat.counters.bytes += taken.bytes;
                        }
                    }
                    let due = link.ends.iter().zip(turn.rings).filter(|(_, ring)| *ring);
                    rings.extend(due.map(|(end, _)| (end.seat, end.id)));
                    let closed = link.ends.iter().position(|end| end.closed);
                    if closed.is_some_and(|side| link.draining && relay.is_drained(side)) {
                        drained.push(key);
                    }
                }
                Err(Guilty(side)) => {
                    let seat = link.ends.get(side).map(|end| end.seat);
                    if let Some(seat) = seat.and_then(|seat| self.seats.get_mut(seat)) {
                        seat.counters.faults += 1;
                    }
                    broken.push(key);
                }
            }
        }
        for (seat, link) in rings {
            self.say(seat, ControlMessage::Ring { link });
        }
        // Only the link ends: it was one endpoint, not all of its member's.
        for key in broken.into_iter().chain(drained) {
            self.finish(key);
        }
        self.courtesy.looked();
        if moved {
            self.hinders = hinders;
        }
        moved
    }

    /// Nothing more goes over a link: tell both ends.
    fn finish(&mut self, key: u64) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        link.relay = None;
        link.draining = false;
        let (ends, lost) = (link.ends, link.lost);
        for end in ends.iter().filter(|end| !end.closed) {
            if lost {
                self.say(end.seat, ControlMessage::Lost { link: end.id });
            }
            self.say(end.seat, ControlMessage::Close { link: end.id });
        }
    }

    /// An end of a link is closed.
    pub(super) fn close(&mut self, key: u64, side: usize, stale: bool) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        let Some(end) = link.ends.get_mut(side) else {
            return;
        };
        end.closed = true;
        end.stale = stale;
        let id = end.id;
        if let Some(seat) = self.seats.get_mut(end.seat) {
            seat.legs.remove(&id);
        }
        if link.ends.iter().all(|end| end.closed) {
            self.discard(key);
        } else if link.relay.is_some() {
            link.draining = true;
        } else {
            self.finish(key);
        }
    }

    /// A link is no more.
    fn discard(&mut self, key: u64) {
        let Some(link) = self.links.remove(&key) else {
            return;
        };
        let mut given = None;
        for end in link.ends {
            let Some(seat) = self.seats.get_mut(end.seat) else {
                continue;
            };
            // Its gateway may have ended, and another one have a link of this number since.
            if seat.legs.get(&end.id).is_some_and(|(link, _)| *link == key) {
                seat.legs.remove(&end.id);
            }
            let stale = link.ends.iter().find(|end| end.stale);
            // A window that both have goes back once.
            let window = (seat.link_pool, end.window);
            if given == Some(window) {
                continue;
            }
            given = Some(window);
            let (link_pool, keeper) = (seat.link_pool, stale.map(|end| end.seat));
            let keeper = keeper.and_then(|keeper| self.seats.get_mut(keeper));
            match keeper.filter(|keeper| keeper.link_pool == link_pool) {
                Some(keeper) => keeper.parked.push(end.window),
                None => {
                    if let Some(link_pool) = self.halls.get_mut(link_pool) {
                        link_pool.give(end.window);
                    }
                }
            }
        }
    }
}
