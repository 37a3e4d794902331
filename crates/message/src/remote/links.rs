//! Links between members: handles their control messages, and moves records through mediated links.

use super::broker::Broker;
use super::control_message::{ControlMessage, LinkId};
use super::relay::FaultyEnd;

#[cfg(test)]
mod tests;

impl Broker {
    pub(super) fn handle_message(&mut self, number: usize, message: ControlMessage) {
        let done = match message {
            ControlMessage::Connect { link, hello, .. } => self.connect(number, link, hello),
            ControlMessage::Answer {
                link,
                verdict,
                session,
                program,
                ..
            } => self.answer(number, link, verdict, (session, program)),
            ControlMessage::Ring { link } => {
                if let Some((other, id)) = self.direct(number, link) {
                    self.send(other, ControlMessage::Ring { link: id });
                }
                Some(())
            }
            ControlMessage::Lost { link } => {
                let entry = self
                    .members
                    .get(number)
                    .and_then(|member| member.links.get(&link));
                let link = entry.and_then(|(link, _)| self.links.get_mut(link));
                if let Some(link) = link {
                    link.lost = true;
                }
                Some(())
            }
            ControlMessage::Name { .. } => {
                let member = self.members.get(number);
                let uplink = member.is_some_and(|member| member.config.uplink);
                uplink.then(|| self.name(message))
            }
            // Only the host reports members.
            ControlMessage::Member { .. } => None,
            ControlMessage::Close { link } => {
                let entry = self
                    .members
                    .get(number)
                    .and_then(|member| member.links.get(&link));
                // Both ends may close at the same time.
                if let Some(&(link, side)) = entry {
                    self.close(link, side, false);
                }
                Some(())
            }
        };
        if done.is_none() {
            self.faulty.push(number);
        }
    }

    /// Returns the other end of a direct link.
    fn direct(&self, number: usize, link: LinkId) -> Option<(usize, LinkId)> {
        let &(link, side) = self.members.get(number)?.links.get(&link)?;
        let link = self.links.get(&link).filter(|link| link.relay.is_none())?;
        let end = link.ends.get(1 - side)?;
        Some((end.member, end.id))
    }

    /// Moves records through mediated links; returns whether there were any.
    pub(super) fn relay(&mut self) -> bool {
        let (mut moved, mut peer_needs_cpu) = (false, false);
        let mut rings = Vec::new();
        let mut broken = Vec::new();
        let mut drained = Vec::new();
        for (&key, link) in &mut self.links {
            let Some(relay) = &mut link.relay else {
                continue;
            };
            // The usual case: a relay is polled many times for each record.
            if relay.is_idle() && !link.draining {
                continue;
            }
            match relay.forward_records(&self.yielder) {
                Ok(turn) => {
                    peer_needs_cpu |= turn.needs_cpu;
                    let others = link.ends.iter().rev();
                    for ((end, other), taken) in link.ends.iter().zip(others).zip(turn.taken) {
                        moved |= taken.records > 0;
                        if let Some(member) = self.members.get_mut(end.member) {
                            member.count(other.member, taken.messages, taken.bytes);
                        }
                    }
                    let to_wake = link.ends.iter().zip(turn.rings).filter(|(_, ring)| *ring);
                    rings.extend(to_wake.map(|(end, _)| (end.member, end.id)));
                    let closed = link.ends.iter().position(|end| end.closed);
                    if closed.is_some_and(|side| link.draining && relay.is_drained(side)) {
                        drained.push(key);
                    }
                }
                Err(FaultyEnd(side)) => {
                    let member = link.ends.get(side).map(|end| end.member);
                    if let Some(member) = member.and_then(|member| self.members.get_mut(member)) {
                        member.counters.faults += 1;
                    }
                    broken.push(key);
                }
            }
        }
        for (member, link) in rings {
            self.send(member, ControlMessage::Ring { link });
        }
        // Only the link ends: the fault was of one endpoint, not of all its member's.
        for key in broken.into_iter().chain(drained) {
            self.end_link(key);
        }
        self.yielder.polled();
        if moved {
            self.peer_needs_cpu = peer_needs_cpu;
        }
        moved
    }
}
