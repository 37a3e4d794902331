//! The close of links: notifies the other end, and returns the windows to their pools.

use super::broker::Broker;
use super::control_message::ControlMessage;
use super::relay::Relay;

impl Broker {
    /// Stops a link, and notifies its ends.
    pub(super) fn end_link(&mut self, key: u64) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        link.relay = None;
        link.draining = false;
        let (ends, lost) = (link.ends, link.lost);
        for end in ends.iter().filter(|end| !end.closed) {
            if lost {
                self.send(end.member, ControlMessage::Lost { link: end.id });
            }
            self.send(end.member, ControlMessage::Close { link: end.id });
        }
    }

    /// Handles the close of one end of a link. The other end is notified at once if nothing is left to forward: the host may sleep next.
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
        if let Some(member) = self.members.get_mut(end.member) {
            member.links.remove(&id);
        }
        let is_drained = |relay: &Relay| relay.is_drained(side);
        if link.ends.iter().all(|end| end.closed) {
            self.remove_link(key);
        } else if link.relay.as_ref().is_none_or(is_drained) {
            self.end_link(key);
        } else {
            link.draining = true;
        }
    }

    /// Removes a link, and returns its windows to their pools.
    pub(super) fn remove_link(&mut self, key: u64) {
        let Some(link) = self.links.remove(&key) else {
            return;
        };
        let mut given = None;
        for end in link.ends {
            let Some(member) = self.members.get_mut(end.member) else {
                continue;
            };
            // The gateway may have ended, and its successor may have a link with this number.
            if member
                .links
                .get(&end.id)
                .is_some_and(|(link, _)| *link == key)
            {
                member.links.remove(&end.id);
            }
            let stale = link.ends.iter().find(|end| end.stale);
            // A window that both ends use is returned once.
            let window = (member.link_pool, end.window);
            if given == Some(window) {
                continue;
            }
            given = Some(window);
            let (link_pool, keeper) = (member.link_pool, stale.map(|end| end.member));
            let keeper = keeper.and_then(|keeper| self.members.get_mut(keeper));
            match keeper.filter(|keeper| keeper.link_pool == link_pool) {
                Some(keeper) => keeper.parked.push(end.window),
                None => {
                    if let Some(link_pool) = self.link_pools.get_mut(link_pool) {
                        link_pool.release(end.window);
                    }
                }
            }
        }
    }
}
