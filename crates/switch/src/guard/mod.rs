//! Enforces the rules of a port: VLANs, source addresses, roles and rates.
//!
//! # Theory of operation
//!
//! ```text
//!  sender's ring -> Guard::admit ------> FDB look-up -> egress_tagging -----> receiver's ring
//!                   VLAN tag removed,    (VLAN, MAC)    role, VLAN;
//!                   source checked                      tag added on a trunk
//! ```
//!
//! A port without [`Rules`] has no guard, and its frames cost one predictable branch. With rules, guards check
//! a frame twice:
//!
//! 1. **When a worker takes it from its sender** ([`Guard::admit`]). The guard removes the tag ([`vlan`]):
//!    from here on the frame is untagged, and [`Checked`] has its VLAN. The guard checks the source addresses
//!    ([`source`]) in a [`Snapshot`] of the frame's first bytes. A frame that is refused here is dropped,
//!    counted by reason at the sender, and not learnt by the FDB.
//! 2. **Before delivery** ([`egress_tagging`]). The roles of sender and receiver must allow it ([`Role`]), and the
//!    receiver must be in the frame's VLAN. A trunk gets the tag again.
//!
//! Rates are separate ([`Limiter`]) and apply to every port that has limits, with or without a guard: send and
//! receive rates once a burst ([`Rates`]), flood limits once a flooded frame ([`Floods`]).
//!
//! The FDB is per VLAN ([`FdbKey`](crate::fdb::FdbKey)), so a station may have the same address in two VLANs,
//! and a look-up never crosses from one VLAN to another.
//!
//! Every check uses private memory, and the same bytes are delivered. A guest that changes the frame in its
//! memory afterwards does not change the bytes that were checked.

mod floods;
pub mod groups;
pub mod headers;
mod limiter;
pub mod membership;
mod meter;
mod rates;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod vlan;

use crate::control::DropReason;
use crate::frame::{ETHERNET, Head, Rest};
use crate::mac::Mac;

pub use floods::Floods;
pub use limiter::Limiter;
pub use rates::{Cost, Rates};
pub use rules::{
    FloodRules, LimitRules, MAX_VLAN, Prefix, RateRules, Role, Rules, SourceRules, VlanRules,
};
use source::Sources;
pub use vlan::{Tagging, Tci};
use vlan::{Vlans, push};

/// The results of a guard for one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The frame's VLAN and priority.
    pub tci: Tci,
    /// The role of the sending port.
    pub role: Role,
}

/// Most bytes behind the Ethernet header that a guard reads: an IPv6 header with a few extension headers and a
/// neighbour discovery message.
const SNAPSHOT: usize = 114;

/// The first bytes of a frame, as a guard has checked them. These bytes are delivered.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// The results of the guard.
    pub checked: Checked,
    length: usize,
    bytes: [u8; SNAPSHOT],
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            checked: Checked::default(),
            length: 0,
            bytes: [0; SNAPSHOT],
        }
    }
}

impl Snapshot {
    /// Returns the bytes. The rest of the frame is in the sender's memory.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A frame in the form in which it leaves a port.
#[derive(Debug)]
pub struct Outgoing<'a, 'm> {
    /// The frame's head.
    pub head: Head,
    tag: Option<[u8; 4]>,
    rest: Rest<'a, 'm>,
}

impl<'a, 'm> Outgoing<'a, 'm> {
    /// Creates a frame with or without a tag; returns `None` when the tag makes it too long.
    #[inline]
    #[must_use]
    pub fn new(
        tagging: Tagging,
        checked: Checked,
        head: &Head,
        rest: &Rest<'a, 'm>,
    ) -> Option<Self> {
        let (head, tag) = match tagging {
            Tagging::Untagged => (*head, None),
            Tagging::Tagged => push(head, checked.tci).map(|(head, tag)| (head, Some(tag)))?,
        };
        let rest = *rest;
        Some(Self { head, tag, rest })
    }

    /// Returns the bytes behind the head.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> Rest<'_, 'm> {
        match &self.tag {
            None => self.rest,
            Some(tag) => self.rest.behind(tag),
        }
    }
}

/// Enforces the rules of a port, except rates.
#[derive(Debug)]
pub struct Guard {
    vlans: Option<Vlans>,
    sources: Option<Sources>,
    role: Role,
}

impl Guard {
    /// Creates the guard of a port with these rules; returns `None` when they have nothing for a guard to
    /// check.
    #[must_use]
    pub fn new(rules: &Rules) -> Option<Box<Self>> {
        let vlans = rules.vlan.as_ref().map(Vlans::new);
        let (sources, role) = (Sources::new(&rules.source), rules.role);
        let asked = vlans.is_some() || sources.is_some() || role != Role::default();
        asked.then(|| {
            Box::new(Self {
                vlans,
                sources,
                role,
            })
        })
    }

    /// Removes the tag of a frame that the port sends. `read` reads the bytes behind the head, in order.
    ///
    /// # Errors
    /// The rules do not let the port send the frame.
    pub fn enter(
        &self,
        head: &mut Head,
        read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<Checked, DropReason> {
        let role = self.role;
        let tci = match &self.vlans {
            Some(vlans) => vlans.enter(head, read)?,
            None => Tci::NONE,
        };
        Ok(Checked { tci, role })
    }

    /// Removes the tag of a frame that the port sends, and checks its source addresses.
    ///
    /// # Errors
    /// The rules do not let the port send the frame.
    pub fn admit(
        &self,
        head: &mut Head,
        snapshot: &mut Snapshot,
        mut read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<(), DropReason> {
        snapshot.length = 0;
        snapshot.checked = self.enter(head, &mut read)?;
        let Some(sources) = &self.sources else {
            return Ok(());
        };
        sources.check_mac(head.source())?;
        if !sources.needs_payload() {
            return Ok(());
        }
        let all = head.length.saturating_sub(ETHERNET) as usize;
        let room = snapshot.bytes.get_mut(..all.min(SNAPSHOT));
        snapshot.length = read(room.unwrap_or_default());
        let (kind, header) = (head.ether_type(), head.header());
        sources.check(head.source(), kind, snapshot.bytes(), header)
    }

    /// Checks an announcement that the switch sends on behalf of the port (`SEND_RARP`).
    ///
    /// # Errors
    /// The rules do not let the port use the station's address.
    pub fn announcement(&self, station: Mac) -> Result<Checked, DropReason> {
        if let Some(sources) = &self.sources {
            sources.check_mac(station)?;
        }
        let tci = self.vlans.as_ref().map_or(Tci::NONE, Vlans::untagged);
        let role = self.role;
        Ok(Checked { tci, role })
    }
}

/// Checks whether a port with this guard may receive a frame; returns whether the frame gets a tag.
///
/// # Errors
/// The rules do not let the port receive the frame.
#[inline]
pub fn egress_tagging(guard: Option<&Guard>, checked: Checked) -> Result<Tagging, DropReason> {
    let role = guard.map_or_else(Role::default, |guard| guard.role);
    if !role.meets(checked.role) {
        return Err(DropReason::Private);
    }
    match guard.and_then(|guard| guard.vlans.as_ref()) {
        Some(vlans) => vlans.leave(checked.tci).ok_or(DropReason::Vlan),
        None if checked.tci == Tci::NONE => Ok(Tagging::Untagged),
        None => Err(DropReason::Vlan),
    }
}
