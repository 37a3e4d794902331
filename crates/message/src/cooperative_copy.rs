//! Cooperative copy: both sides copy a large message.
//!
//! Two processors copy faster than one. If a message is on a heap that both sides can read, and its
//! receive is a buffer that both can write, the receiver sends a *share* record, and copies the
//! message a piece at a time, as it [claims](window::chunk_claim) them. A sender that polls
//! meanwhile does the same from its side, and reports how many pieces it copied (*copied*). The
//! receiver does not wait for a sender that does not poll: it claims all pieces itself.
//!
//! The message is received when the sender has reported exactly the pieces that the receiver did
//! not copy. A sender that reports a wrong number spoils its own message only. A sender that is
//! late, because it was disconnected, writes only to units that it has marked as being written, or
//! to none: see [`window::region`].
//!
//! Claims, and marking units, are atomic read-modify-write operations on words that two machines
//! share. Where these have no effect on the other machine ([`window::locks`]), a side neither sends
//! shares nor copies for them: the receiver copies all pieces.

use window::chunk_claim::{ChunkClaimer, Claims};
use window::locks;
use window::region::{AccessError, Heap, HeapAddress};

use crate::engine::Engine;
use crate::ids::{Peer, Request};
use crate::limits::{PIECE, SHARED};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::remote_memory::RemoteMemory;
use crate::request::State;
use crate::wire::{Control, Handle, Share, Target};

/// Claims pieces of a message, and returns the offset and length of each.
pub(crate) struct Pieces<'a> {
    epoch: ChunkClaimer<'a>,
    wanted: u64,
    /// Bytes of each piece but the last.
    length: u64,
    count: u32,
    /// The number of pieces that this side has claimed so far.
    pub(crate) claimed: u32,
}

impl<'a> Pieces<'a> {
    /// `claimer` is [`Claims::consumer`] for the receiver, and [`Claims::producer`] for the sender. `None` if the message is too
    /// long.
    pub(crate) fn new(
        claimer: fn(&'a Claims, u32, u16) -> ChunkClaimer<'a>,
        claims: &'a Claims,
        epoch: u32,
        wanted: u64,
        length: u64,
    ) -> Option<Self> {
        let count = count(wanted, length)?;
        Some(Self {
            epoch: claimer(claims, epoch, count),
            wanted,
            length,
            count: count.into(),
            claimed: 0,
        })
    }

    /// Returns the number of pieces of the message.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn next(&mut self) -> Result<Option<(u64, usize)>, Fault> {
        let Some(piece) = self.epoch.claim()? else {
            return Ok(None);
        };
        self.claimed += 1;
        let from = u64::from(piece) * self.length;
        let length = (self.wanted - from).min(self.length);
        Ok(Some((from, usize::try_from(length).unwrap_or_default())))
    }
}

/// Returns the number of pieces of a message; `None` if there are too many to be claimed.
fn count(wanted: u64, length: u64) -> Option<u16> {
    u16::try_from(wanted.div_ceil(length)).ok()
}

impl Link {
    /// Returns the heap of the peer's member, if this side can map it.
    pub(crate) fn peer_heap(&mut self) -> Option<&Heap> {
        self.remote_memory.as_mut().and_then(RemoteMemory::peer)
    }

    /// Returns whether the peer can copy its message into this memory, and the message is long
    /// enough.
    pub(crate) fn can_share(&self, memory: &Memory, wanted: u64) -> bool {
        let covers = |remote_memory: &RemoteMemory| matches!(memory, Memory::SharedBuffer(own) if remote_memory.contains(own));
        wanted >= SHARED
            && count(wanted, PIECE).is_some()
            && locks::are_effective()
            && self.remote_memory.as_ref().is_some_and(covers)
    }
}

impl Engine {
    /// Copies an offered message from the heap of the peer's member, together with the peer if it
    /// polls. The receive ends when the whole message is here.
    pub(crate) fn share(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        address: HeapAddress,
        wanted: u64,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        let Memory::SharedBuffer(own) = &mut entry.memory else {
            return Err(Fault::Malformed);
        };
        let epoch = link.claims_in.begin();
        link.send_control(Control::Share(Share {
            sender,
            receiver: request.handle(),
            target: Target::MemberHeap(own.address()),
            wanted,
            epoch,
            is_last: true,
        }))?;
        // The peer is woken now, not at the end: it copies while this side does.
        link.wake();
        let heap = link.remote_memory.as_mut().and_then(RemoteMemory::peer);
        let heap = heap.ok_or(Fault::Malformed)?;
        let claims = &link.claims_in;
        let mut pieces =
            Pieces::new(Claims::consumer, claims, epoch, wanted, PIECE).ok_or(Fault::Malformed)?;
        while let Some((from, length)) = pieces.next()? {
            let copied = heap.copy_to(address, from, own, length);
            copied.ok_or(Fault::Malformed)?;
        }
        if !heap.is_valid(address, wanted) {
            return Err(Fault::Revoked);
        }
        let left = pieces.count() - pieces.claimed;
        self.own_pieces_copied(link, request, sender, wanted, left)
    }

    /// Completes a receive of which this side has copied its pieces, or has it wait for the sender's report of those that are
    /// left.
    pub(crate) fn own_pieces_copied(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        wanted: u64,
        left: u32,
    ) -> Result<(), Fault> {
        if left == 0 {
            self.copies.once += 1;
            return self.received(link, request, sender, wanted);
        }
        self.await_report(
            link,
            request,
            State::Shared {
                left,
                wanted,
                sender,
                complete: true,
            },
        )
    }

    /// Has a receive wait for the sender's report.
    pub(crate) fn await_report(
        &mut self,
        link: &mut Link,
        request: Request,
        shared: State,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        entry.state = shared;
        link.awaited_replies += 1;
        Ok(())
    }

    /// Handles a *share* of a receiver: copies the pieces that the receiver has not claimed yet.
    pub(crate) fn join_copy(
        &mut self,
        link: &mut Link,
        peer: Peer,
        share: &Share,
        target: HeapAddress,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(share.sender, peer);
        let (_, entry) = found.ok_or(Fault::Malformed)?;
        let sane = (1..=entry.status.length).contains(&share.wanted);
        let (true, State::Offered, Memory::SharedBuffer(own)) = (sane, entry.state, &entry.memory)
        else {
            return Err(Fault::Malformed);
        };
        entry.state = State::Sharing;
        let heap = link.remote_memory.as_mut().and_then(RemoteMemory::peer);
        let Some(heap) = heap.filter(|_| locks::are_effective()) else {
            // The receiver copies all pieces.
            return Ok(());
        };
        if !heap.contains(target, share.wanted) {
            return Err(Fault::Malformed);
        }
        let (claims, wanted) = (&link.claims_out, share.wanted);
        let pieces = Pieces::new(Claims::producer, claims, share.epoch, wanted, PIECE);
        let mut pieces = pieces.ok_or(Fault::Malformed)?;
        while let Some((from, length)) = pieces.next()? {
            let copied = heap.put(target, from, own, length);
            copied.map_err(|refused| match refused {
                AccessError::OutOfBounds => Fault::Malformed,
                AccessError::Revoked | AccessError::Busy => Fault::Revoked,
            })?;
        }
        let (receiver, claimed) = (share.receiver, pieces.claimed);
        if claimed > 0 {
            let pieces = Some(claimed);
            link.send_control(Control::Copied { receiver, pieces })?;
            link.wake();
        }
        Ok(())
    }

    /// Handles the sender's report of the pieces that it copied.
    pub(crate) fn copied(
        &mut self,
        link: &mut Link,
        peer: Peer,
        receiver: Handle,
        pieces: Option<u32>,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(receiver, peer);
        let (request, entry) = found.ok_or(Fault::Malformed)?;
        let State::Shared {
            left,
            wanted,
            sender,
            complete,
        } = entry.state
        else {
            return Err(Fault::Malformed);
        };
        if pieces.is_some_and(|pieces| pieces != left) {
            return Err(Fault::Malformed);
        }
        link.awaited_replies = link.awaited_replies.saturating_sub(1);
        if pieces.is_none() || !complete {
            return self.ask_for_stream(link, request, sender, wanted, 0);
        }
        self.copies.once += 1;
        self.copies.shared += 1;
        self.received(link, request, sender, wanted)
    }

    /// Completes the receive of an offered message of which `taken` bytes were wanted.
    pub(crate) fn received(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        taken: u64,
    ) -> Result<(), Fault> {
        if let Some(entry) = self.requests.get(request) {
            link.end_copy(entry, taken);
        }
        self.requests.end_with(request, taken);
        link.send_control(Control::Done { sender, taken })
    }
}
