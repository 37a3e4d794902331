//! Delivers broadcast frames, frames to unknown destinations, and multicast frames.

use std::sync::PoisonError;

use crate::context::WorkerContext;
use crate::control::DropReason;
use crate::deferred::Deferred;
use crate::frame::{ETHERNET, Head, Rest};
use crate::guard::groups::{EgressPorts, Groups, family};
use crate::guard::membership::{self, FIRST, Family, MAX_PACKET, Message};
use crate::guard::{Checked, Limiter, Role, egress_tagging};
use crate::switch::Switch;

/// The origin of a flooded frame.
#[derive(Clone, Copy)]
pub(crate) struct FloodSource<'a> {
    pub(crate) port: u16,
    pub(crate) pair: usize,
    /// The deferred frames of the sending ring.
    pub(crate) deferred: &'a Deferred,
    pub(crate) limits: &'a Limiter,
    pub(crate) checked: Checked,
}

impl Switch {
    /// Delivers a frame to all ports that should receive it. Ports without room lose the frame. Returns
    /// false when the frame is for group members or routers only, and there are none.
    ///
    /// # Errors
    /// The port exceeds a flood limit.
    pub(crate) fn flood(
        &self,
        context: &mut WorkerContext,
        origin: FloodSource<'_>,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> Result<bool, DropReason> {
        let family = self
            .snooping
            .then(|| family(head.destination(), head.ether_type()));
        let Some(family) = family.flatten() else {
            return self.flood_to_all(context, origin, head, rest);
        };
        let mut first = [0; FIRST];
        let mut peek = *rest;
        let count = peek.read(&mut first);
        let first = first.get(..count).unwrap_or_default();
        if membership::concerns_groups(family, first) {
            return self.flood_membership(context, origin, family, head, rest);
        }
        let (vlan, now) = (origin.checked.tci.vlan(), context.seconds);
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let egress_ports = groups.egress_ports(family, vlan, head.destination(), now);
        drop(groups);
        if egress_ports == EgressPorts::All {
            return self.flood_to_all(context, origin, head, rest);
        }
        Ok(self.deliver_to(context, egress_ports, origin, head, rest))
    }

    fn flood_to_all(
        &self,
        context: &mut WorkerContext,
        origin: FloodSource<'_>,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> Result<bool, DropReason> {
        let floods = &origin.limits.floods;
        floods.admit(head, context.now, context.seconds)?;
        self.deliver_to(context, EgressPorts::All, origin, head, rest);
        Ok(true)
    }

    /// Floods a group membership message, and learns from it. Delivers the same private copy that it reads.
    #[cold]
    fn flood_membership(
        &self,
        context: &mut WorkerContext,
        origin: FloodSource<'_>,
        family: Family,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> Result<bool, DropReason> {
        let floods = &origin.limits.floods;
        floods.admit(head, context.now, context.seconds)?;
        let mut packet = [0; MAX_PACKET];
        let length = head.length.saturating_sub(ETHERNET) as usize;
        let Some(packet) = packet.get_mut(..length).filter(|_| head.start.is_plain()) else {
            // The packet is longer than hosts send, or has offloads: nothing is learnt from it.
            self.deliver_to(context, EgressPorts::All, origin, head, rest);
            return Ok(true);
        };
        let mut copy = *rest;
        copy.read(packet);
        let message = match membership::read(family, packet) {
            // Other private ports do not receive this query, so their hosts would not answer it.
            Message::Query(_) if origin.checked.role == Role::Private => Message::Other,
            message => message,
        };
        let place = (origin.checked.tci.vlan(), head.destination());
        let (port, now) = (origin.port, context.seconds);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let egress_ports = groups.handle_message(message, family, place, port, now);
        drop(groups);
        Ok(self.deliver_to(context, egress_ports, origin, head, &Rest::Private(packet)))
    }

    /// Delivers a frame to those egress ports that the rules allow, except its own port and ports for which
    /// older frames are deferred, which have no room. Returns true if the frame is for all ports or if
    /// there is at least one egress port.
    fn deliver_to(
        &self,
        context: &mut WorkerContext,
        egress_ports: EgressPorts,
        origin: FloodSource<'_>,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> bool {
        let checked = origin.checked;
        let mut is_wanted = egress_ports == EgressPorts::All;
        for number in (0..).take(self.ports.len()) {
            if number == origin.port || !egress_ports.contains(number) {
                continue;
            }
            is_wanted = true;
            if !origin.deferred.waits_for(number) {
                // A port that the rules exclude from a flood does not count as a drop.
                let _ = self.deliver_one(context, number, origin.pair, head, rest, checked);
            } else if let Some(port) = self.port(number) {
                if egress_tagging(port.guard.as_deref(), checked).is_ok() {
                    port.count_drops(origin.pair, DropReason::ReceiverFull, 1);
                }
            }
        }
        is_wanted
    }

    /// Returns the group memberships for a change that no frame causes.
    pub(crate) fn groups_mut(&mut self) -> &mut Groups {
        self.groups
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
