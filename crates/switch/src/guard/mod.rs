//! What a port may send and receive: the rules an operator gives it.
//!
//! # Theory of operation
//!
//! A port without [`Rules`] has no guard, and its frames cost one predictable branch. With rules,
//! a frame meets guards twice:
//!
//! 1. **When it is taken from its sender** ([`Guard::admit`]). The tag is taken off ([`vlan`]): from
//!    here on a frame is untagged, and its VLAN stands beside it in [`Checked`]. What is refused
//!    here is lost, counted by reason at the sender, and teaches the residency table nothing.
//! 2. **Before it is delivered** ([`passage`]). The receiver must be a member of the frame's VLAN;
//!    a trunk gets the tag put on again.
//!
//! Residency is per VLAN ([`Resident`](crate::residency::Resident)), so a station may have the
//! same address in two VLANs, and a lookup never crosses from one to the other.
//!
//! Every check is made on private memory, and those bytes are what is delivered: a guest that
//! changes a frame meanwhile changes nothing that was looked at.

mod rules;
#[cfg(test)]
mod tests;
mod vlan;

use crate::control::Loss;
use crate::frame::{Head, Rest};

pub use rules::{MAX_VLAN, Rules, VlanRules};
pub use vlan::Tci;
use vlan::{Vlans, push};

/// What guards know of one frame, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Its VLAN and priority.
    pub tci: Tci,
}

/// How a frame goes out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
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
    pub fn new(way: Way, checked: Checked, head: &Head, rest: &Rest<'a, 'm>) -> Option<Self> {
        let (head, tag) = match way {
            Way::Untagged => (*head, None),
            Way::Tagged => push(head, checked.tci).map(|(head, tag)| (head, Some(tag)))?,
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
            Some(tag) => self.rest.tagged(tag),
        }
    }
}

/// A port's rules at work.
#[derive(Debug)]
pub struct Guard {
    vlans: Option<Vlans>,
}

impl Guard {
    /// For a port with these rules; `None` when they ask for nothing.
    #[must_use]
    pub fn new(rules: &Rules) -> Option<Box<Self>> {
        let vlans = rules.vlan.as_ref().map(Vlans::new);
        vlans.is_some().then(|| Box::new(Self { vlans }))
    }

    /// Look at a frame its port sends, and take its tag off. `read` gives the bytes behind the
    /// head, each once.
    ///
    /// # Errors
    /// The port may not send it.
    pub fn admit(
        &mut self,
        head: &mut Head,
        mut read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<Checked, Loss> {
        let tci = match &self.vlans {
            Some(vlans) => vlans.enter(head, &mut read)?,
            None => Tci::NONE,
        };
        Ok(Checked { tci })
    }

    /// Of a frame that the switch sends on behalf of this port.
    #[must_use]
    pub fn own(&self) -> Checked {
        let tci = self.vlans.as_ref().map_or(Tci::NONE, Vlans::untagged);
        Checked { tci }
    }
}

/// How a frame goes out of the port with this guard.
///
/// # Errors
/// The port may not have it.
#[inline]
pub fn passage(guard: Option<&Guard>, checked: Checked) -> Result<Way, Loss> {
    match guard.and_then(|guard| guard.vlans.as_ref()) {
        Some(vlans) => vlans.leave(checked.tci).ok_or(Loss::Vlan),
        None if checked.tci == Tci::NONE => Ok(Way::Untagged),
        None => Err(Loss::Vlan),
    }
}
