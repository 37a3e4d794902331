//! One frame of a burst, from where it is found to where it goes.

use vhost::copy::Cursor;

use crate::backpressure::InRing;
use crate::control::Loss;
use crate::fdb::FdbKey;
use crate::frame::{Head, Rest, Simple};
use crate::guard::{Checked, Guard, Snapshot};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Port(u16),
    Flood,
    /// It is lost.
    Nowhere(Loss),
}

/// One frame of a burst.
#[derive(Debug)]
pub(crate) struct BatchEntry<'a, 'm> {
    pub(crate) chain: u16,
    pub(crate) head: Head,
    pub(crate) rest: Cursor<'a, 'm>,
    pub(crate) target: Target,
    /// Why it goes nowhere, if that is known before its destination is looked up.
    pub(crate) refused: Option<Loss>,
    /// What the sender's guard has seen of it, if the sender has one.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// Segments delivered already, if it is being cut.
    pub(crate) segments: u16,
}

impl<'a, 'm> BatchEntry<'a, 'm> {
    /// The frame as a simple one, if it is.
    #[inline(always)]
    pub(crate) fn simple(&self) -> Option<Simple<'m>> {
        match self.snapshot {
            Some(snapshot) if !snapshot.bytes().is_empty() => None,
            _ => Simple::new(&self.head, &self.rest),
        }
    }

    /// The bytes behind the head.
    #[inline(always)]
    pub(crate) fn rest(&self) -> Rest<'a, 'm> {
        match self.snapshot {
            None => Rest::Guest(self.rest),
            Some(snapshot) => Rest::Guest(self.rest).behind(snapshot.bytes()),
        }
    }

    /// What guards know of it.
    #[inline(always)]
    pub(crate) fn checked(&self) -> Checked {
        self.snapshot
            .map(|snapshot| snapshot.checked)
            .unwrap_or_default()
    }

    /// As it is shown to whoever watches.
    pub(crate) fn observed_frame(&self) -> (&Head, Rest<'_, 'm>, Checked) {
        (&self.head, self.rest(), self.checked())
    }

    /// Whom it is for.
    #[inline(always)]
    pub(crate) fn destination(&self) -> FdbKey {
        FdbKey::new(self.head.destination(), self.checked().tci.vlan())
    }

    /// Have its sender's guard look at it.
    pub(crate) fn admit(
        &mut self,
        guard: &Guard,
        room: Option<&'a mut Snapshot>,
    ) -> Result<(), Loss> {
        let Some(room) = room else {
            // A burst has no more frames than there are rooms.
            return Err(Loss::BadLength);
        };
        let rest = &mut self.rest;
        guard.admit(&mut self.head, room, |to| rest.read(to))?;
        self.snapshot = Some(room);
        Ok(())
    }

    /// Go on cutting where an earlier attempt ended, if the receiver is still the same.
    #[cold]
    pub(crate) fn go_on(&mut self, in_ring: &InRing) {
        match in_ring.cut {
            Some((to, segments)) if self.target == Target::Port(to) => self.segments = segments,
            _ => {}
        }
    }
}
