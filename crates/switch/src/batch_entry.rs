//! One frame of a burst, from its chain to its target.

use vhost::copy::Cursor;

use crate::backpressure::InRing;
use crate::control::DropReason;
use crate::fdb::FdbKey;
use crate::frame::{Head, Rest, Simple};
use crate::guard::{Checked, Guard, Snapshot};

/// The target of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Port(u16),
    Flood,
    /// The frame is dropped for this reason.
    Nowhere(DropReason),
}

/// One frame of a burst.
#[derive(Debug)]
pub(crate) struct BatchEntry<'a, 'm> {
    pub(crate) chain: u16,
    pub(crate) head: Head,
    pub(crate) rest: Cursor<'a, 'm>,
    pub(crate) target: Target,
    /// Why the frame is dropped, if that is known before the FDB look-up.
    pub(crate) refused: Option<DropReason>,
    /// The first bytes as the sender's guard has checked them, if the sender has a guard.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// Segments that were delivered already, if the frame is segmented.
    pub(crate) segments: u16,
}

impl<'a, 'm> BatchEntry<'a, 'm> {
    /// Returns the frame as a [`Simple`] frame, if it is one.
    #[inline(always)]
    pub(crate) fn simple(&self) -> Option<Simple<'m>> {
        match self.snapshot {
            Some(snapshot) if !snapshot.bytes().is_empty() => None,
            _ => Simple::new(&self.head, &self.rest),
        }
    }

    /// Returns the bytes behind the head.
    #[inline(always)]
    pub(crate) fn rest(&self) -> Rest<'a, 'm> {
        match self.snapshot {
            None => Rest::Guest(self.rest),
            Some(snapshot) => Rest::Guest(self.rest).behind(snapshot.bytes()),
        }
    }

    /// Returns what the sender's guard has determined: VLAN, priority and role.
    #[inline(always)]
    pub(crate) fn checked(&self) -> Checked {
        self.snapshot
            .map(|snapshot| snapshot.checked)
            .unwrap_or_default()
    }

    /// Returns the frame as captures and mirrors see it.
    pub(crate) fn observed_frame(&self) -> (&Head, Rest<'_, 'm>, Checked) {
        (&self.head, self.rest(), self.checked())
    }

    /// Returns the destination as a key of the FDB.
    #[inline(always)]
    pub(crate) fn destination(&self) -> FdbKey {
        FdbKey::new(self.head.destination(), self.checked().tci.vlan())
    }

    /// Applies the guard of the sender to the frame.
    pub(crate) fn admit(
        &mut self,
        guard: &Guard,
        room: Option<&'a mut Snapshot>,
    ) -> Result<(), DropReason> {
        let Some(room) = room else {
            // Never taken: there is one snapshot for each frame of a burst.
            return Err(DropReason::BadLength);
        };
        let rest = &mut self.rest;
        guard.admit(&mut self.head, room, |to| rest.read(to))?;
        self.snapshot = Some(room);
        Ok(())
    }

    /// Resumes segmentation where an earlier attempt ended, if the receiver is still the same.
    #[cold]
    pub(crate) fn resume_segmentation(&mut self, in_ring: &InRing) {
        match in_ring.cut {
            Some((to, segments)) if self.target == Target::Port(to) => self.segments = segments,
            _ => {}
        }
    }
}
