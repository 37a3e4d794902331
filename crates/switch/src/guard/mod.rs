//! What a port may send and receive: the rules an operator gives it.
//!
//! # Theory of operation
//!
//! A port without [`Rules`] has no guard, and its frames cost one predictable branch. With rules,
//! a frame meets guards twice:
//!
//! 1. **When it is taken from its sender** ([`Guard::admit`]). The tag is taken off ([`vlan`]): from
//!    here on a frame is untagged, and its VLAN stands beside it in [`Checked`]. Whom it speaks as
//!    is looked at ([`source`]) in a [`Snapshot`] of its first bytes. What is refused here is lost,
//!    counted by reason at the sender, and teaches the residency table nothing.
//! 2. **Before it is delivered** ([`passage`]). The receiver must be one that the sender may talk
//!    to ([`Role`]), and a member of the frame's VLAN; a trunk gets the tag put on again.
//!
//! How much it sends is measured beside that ([`Limiter`]), by every port that has limits, guard or
//! no guard: its rates once a burst ([`Rates`]), its floods once a flooded frame ([`Floods`]).
//!
//! Fdb is per VLAN ([`FdbKey`](crate::fdb::FdbKey)), so a station may have the
//! same address in two VLANs, and a lookup never crosses from one to the other.
//!
//! Every check is made on private memory, and those bytes are what is delivered: a guest that
//! changes a frame meanwhile changes nothing that was looked at.

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

use crate::control::Loss;
use crate::frame::{ETHERNET, Head, Rest};
use crate::mac::Mac;

pub use floods::Floods;
pub use limiter::Limiter;
pub use rates::{Cost, Rates};
pub use rules::{
    FloodRules, LimitRules, MAX_VLAN, Prefix, RateRules, Role, Rules, SourceRules, VlanRules,
};
use source::Sources;
pub use vlan::Tci;
use vlan::{Vlans, push};

/// What guards know of one frame, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Its VLAN and priority.
    pub tci: Tci,
    /// The role of its sender.
    pub role: Role,
}

/// Bytes behind the Ethernet header that a guard looks at, at most: an IPv6 header with a few
/// extension headers and a neighbour discovery message.
const SNAPSHOT: usize = 114;

/// A frame's first bytes as a guard has seen them: these are delivered.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// What became known of the frame.
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
    /// The bytes taken, which the sender's frame is to be continued behind.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// How a frame goes out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// As it is.
    Untagged,
    /// With its VLAN tag.
    Tagged,
}

/// A frame as it leaves a port.
#[derive(Debug)]
pub struct Outgoing<'a, 'm> {
    /// Its head.
    pub head: Head,
    tag: Option<[u8; 4]>,
    rest: Rest<'a, 'm>,
}

impl<'a, 'm> Outgoing<'a, 'm> {
    /// A frame that leaves this way; `None` when its tag makes it too long.
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

    /// The bytes behind its head.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> Rest<'_, 'm> {
        match &self.tag {
            None => self.rest,
            Some(tag) => self.rest.behind(tag),
        }
    }
}

/// A port's rules at work.
#[derive(Debug)]
pub struct Guard {
    vlans: Option<Vlans>,
    sources: Option<Sources>,
    role: Role,
}

impl Guard {
    /// For a port with these rules; `None` when they ask for nothing that a guard looks at.
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

    /// Take the tag off a frame its port sends. `read` gives the bytes behind the head, each once.
    ///
    /// # Errors
    /// The port may not send it.
    pub fn enter(
        &self,
        head: &mut Head,
        read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<Checked, Loss> {
        let role = self.role;
        let tci = match &self.vlans {
            Some(vlans) => vlans.enter(head, read)?,
            None => Tci::NONE,
        };
        Ok(Checked { tci, role })
    }

    /// The same, and look at whom it speaks as.
    ///
    /// # Errors
    /// The port may not send it.
    pub fn admit(
        &self,
        head: &mut Head,
        snapshot: &mut Snapshot,
        mut read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<(), Loss> {
        snapshot.length = 0;
        snapshot.checked = self.enter(head, &mut read)?;
        let Some(sources) = &self.sources else {
            return Ok(());
        };
        sources.check_mac(head.source())?;
        if !sources.look_deeper() {
            return Ok(());
        }
        let all = head.length.saturating_sub(ETHERNET) as usize;
        let room = snapshot.bytes.get_mut(..all.min(SNAPSHOT));
        snapshot.length = read(room.unwrap_or_default());
        let (kind, header) = (head.ether_type(), head.header());
        sources.check(head.source(), kind, snapshot.bytes(), header)
    }

    /// Of the frame by which the switch announces a station on behalf of this port.
    ///
    /// # Errors
    /// The port may not speak as that station.
    pub fn announcement(&self, station: Mac) -> Result<Checked, Loss> {
        if let Some(sources) = &self.sources {
            sources.check_mac(station)?;
        }
        let tci = self.vlans.as_ref().map_or(Tci::NONE, Vlans::untagged);
        let role = self.role;
        Ok(Checked { tci, role })
    }
}

/// How a frame goes out of the port with this guard.
///
/// # Errors
/// The port may not have it.
#[inline]
pub fn passage(guard: Option<&Guard>, checked: Checked) -> Result<Tagging, Loss> {
    let role = guard.map_or_else(Role::default, |guard| guard.role);
    if !role.meets(checked.role) {
        return Err(Loss::Private);
    }
    match guard.and_then(|guard| guard.vlans.as_ref()) {
        Some(vlans) => vlans.leave(checked.tci).ok_or(Loss::Vlan),
        None if checked.tci == Tci::NONE => Ok(Tagging::Untagged),
        None => Err(Loss::Vlan),
    }
}
