//! Large messages that both sides copy.
//!
//! One processor copies slower than two. Where a message lies on a heap that both can read, and goes to a stretch of
//! another that both can write, its receiver says so (*share*), and copies a piece at a time, as it
//! [claims](window::chunk_claim) them. A sender that looks meanwhile does the same from its side, and says how many pieces
//! that were (*copied*). One that does not look is not waited for: there is nothing left to claim for it then.
//!
//! The message is received when all pieces that the receiver did not copy are said to be copied: exactly these. A
//! sender that lies about that spoils its own message, and nothing else. One that is late, because it was cut off,
//! writes to units that it has entered, or to none: see [`window::region`].
//!
//! Claims, and entering units, are locked changes of words that two machines share. Where these mean nothing to others
//! ([`window::locks`]), a side neither shares nor looks: the receiver copies all.

use window::chunk_claim::{Claims, Turn};
use window::locks;
use window::region::{Heap, Place, Refused};

use crate::engine::Engine;
use crate::ids::{Peer, Request};
use crate::limits::{PIECE, SHARED};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::remote_memory::RemoteMemory;
use crate::request::State;
use crate::wire::{Control, Handle, Share};

/// Claims pieces of a message: where each begins that is claimed, and how long it is.
struct Pieces<'a> {
    turn: Turn<'a>,
    wanted: u64,
    /// How many were claimed.
    count: u32,
}

impl<'a> Pieces<'a> {
    fn new(claims: &'a Claims, turn: u32, wanted: u64) -> Option<Self> {
        let turn = claims.of(turn, count(wanted)?);
        Some(Self {
            turn,
            wanted,
            count: 0,
        })
    }

    fn next(&mut self) -> Result<Option<(u64, usize)>, Fault> {
        let Some(piece) = self.turn.claim()? else {
            return Ok(None);
        };
        self.count += 1;
        let from = u64::from(piece) * PIECE;
        let length = (self.wanted - from).min(PIECE);
        Ok(Some((from, usize::try_from(length).unwrap_or_default())))
    }
}

/// How many pieces a message has; `None` for one that is longer than any heap.
fn count(wanted: u64) -> Option<u32> {
    u32::try_from(wanted.div_ceil(PIECE)).ok()
}

impl Link {
    /// The heap of the peer's member, if this side can reach it.
    pub(crate) fn peer_heap(&mut self) -> Option<&Heap> {
        self.reach.as_mut().and_then(RemoteMemory::peer)
    }

    /// Whether the peer can copy its message to this memory, and it is worth telling.
    pub(crate) fn can_share(&self, memory: &Memory, wanted: u64) -> bool {
        let covers =
            |reach: &RemoteMemory| matches!(memory, Memory::Stretch(own) if reach.covers(own));
        wanted >= SHARED && locks::hold() && self.reach.as_ref().is_some_and(covers)
    }
}

impl Engine {
    /// Copy an offered message from the heap of the peer's member, with the peer, if that looks. The receive ends when
    /// all of it is here.
    pub(crate) fn share(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        place: Place,
        wanted: u64,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Nonsense)?;
        let Memory::Stretch(own) = &mut entry.memory else {
            return Err(Fault::Nonsense);
        };
        let turn = link.claims_in.begin();
        link.say(Control::Share(Share {
            sender,
            receiver: request.handle(),
            place: own.place(),
            wanted,
            turn,
        }))?;
        // Now, not at the end: it copies while this side does.
        link.wake();
        let heap = link.reach.as_mut().and_then(RemoteMemory::peer);
        let heap = heap.ok_or(Fault::Nonsense)?;
        let mut pieces = Pieces::new(&link.claims_in, turn, wanted).ok_or(Fault::Nonsense)?;
        while let Some((from, length)) = pieces.next()? {
            let copied = heap.carry(place, from, own, length);
            copied.ok_or(Fault::Nonsense)?;
        }
        if !heap.is_still(place, wanted) {
            return Err(Fault::Withdrawn);
        }
        self.copies.once += 1;
        let left = count(wanted).unwrap_or_default() - pieces.count;
        if left == 0 {
            return self.received(link, request, sender, wanted);
        }
        entry.state = State::Shared {
            left,
            wanted,
            sender,
        };
        link.expects += 1;
        Ok(())
    }

    /// The receiver of a message copies it, and says where it goes: copy what it has not claimed yet.
    pub(crate) fn join_copy(
        &mut self,
        link: &mut Link,
        peer: Peer,
        share: Share,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(share.sender, peer);
        let (_, entry) = found.ok_or(Fault::Nonsense)?;
        let sane = (1..=entry.status.length).contains(&share.wanted);
        let (true, State::Offered, Memory::Stretch(own)) = (sane, entry.state, &entry.memory)
        else {
            return Err(Fault::Nonsense);
        };
        entry.state = State::Sharing;
        let heap = link.reach.as_mut().and_then(RemoteMemory::peer);
        let Some(heap) = heap.filter(|_| locks::hold()) else {
            // The receiver copies all.
            return Ok(());
        };
        if !heap.holds(share.place, share.wanted) {
            return Err(Fault::Nonsense);
        }
        let pieces = Pieces::new(&link.claims_out, share.turn, share.wanted);
        let mut pieces = pieces.ok_or(Fault::Nonsense)?;
        while let Some((from, length)) = pieces.next()? {
            let copied = heap.deliver(share.place, from, own, length);
            copied.map_err(|refused| match refused {
                Refused::Outside => Fault::Nonsense,
                Refused::Withdrawn => Fault::Withdrawn,
            })?;
        }
        let (receiver, pieces) = (share.receiver, pieces.count);
        if pieces > 0 {
            link.say(Control::Copied { receiver, pieces })?;
            link.wake();
        }
        Ok(())
    }

    /// The sender has copied so many pieces of a message.
    pub(crate) fn copied(
        &mut self,
        link: &mut Link,
        peer: Peer,
        receiver: Handle,
        pieces: u32,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(receiver, peer);
        let (request, entry) = found.ok_or(Fault::Nonsense)?;
        let State::Shared {
            left,
            wanted,
            sender,
        } = entry.state
        else {
            return Err(Fault::Nonsense);
        };
        if pieces != left {
            return Err(Fault::Nonsense);
        }
        link.expects = link.expects.saturating_sub(1);
        self.copies.shared += 1;
        self.received(link, request, sender, wanted)
    }

    /// An offered message is here, as far as it was wanted.
    pub(crate) fn received(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        taken: u64,
    ) -> Result<(), Fault> {
        self.requests.end_with(request, taken);
        link.say(Control::Done { sender, taken })
    }
}
