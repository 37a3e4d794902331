//! Messages in the memory of a process, which the kernel copies: the sender, which copies pieces of them meanwhile, and the
//! end of a link on either side.
//!
//! A program gets the memory of a message back early if it closes the link. A sender *withdraws* before, so that the receiver
//! knows that its copy may be wrong. A receiver ends the epoch, so that the sender claims no more pieces, and waits for the
//! report of those that it has claimed: for as long as the copy of a piece takes, and at most for [`REPORT`].

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use window::chunk_claim::Claims;

use crate::cooperative_copy::Pieces;
use crate::engine::Engine;
use crate::ids::Peer;
use crate::limits::COPIED_TOGETHER;
use crate::peer::{Fault, Link};
use crate::process_memory::{Part, ProcessMemory};
use crate::process_messages::{Joined, is_short, piece};
use crate::request::State;
use crate::wire::{Control, Share};

/// How long a receiver that closes a link waits for the sender's report. A piece takes some microseconds, but the sender may
/// lose its processor.
const REPORT: Duration = Duration::from_secs(1);

impl Engine {
    /// Handles a *share* of a receiver whose memory is in its process. With the last one of an epoch, copies the pieces that
    /// the receiver has not claimed yet.
    pub(crate) fn join_process_copy(
        &mut self,
        link: &mut Link,
        peer: Peer,
        share: &Share,
        to: u64,
    ) -> Result<(), Fault> {
        let found = self.requests.of_peer(share.sender, peer);
        let (request, entry) = found.ok_or(Fault::Malformed)?;
        let sane = (1..=entry.status.length).contains(&share.wanted);
        let is_alone = link.joins.list.is_empty() && share.is_last;
        let fits = is_alone || is_short(share.wanted);
        if !sane || !fits || entry.state != State::Offered || link.process.is_none() {
            return Err(Fault::Malformed);
        }
        entry.state = State::Sharing;
        let joined = Joined {
            request,
            receiver: share.receiver,
            to,
            wanted: share.wanted,
        };
        link.joins
            .list
            .try_push(joined)
            .map_err(|_| Fault::Malformed)?;
        match share.is_last {
            true => self.join_all(link, share.epoch),
            false => Ok(()),
        }
    }

    /// Copies pieces of all messages of an epoch, and reports them.
    fn join_all(&mut self, link: &mut Link, epoch: u32) -> Result<(), Fault> {
        let list = std::mem::take(&mut link.joins.list);
        let process = link.process.as_mut().filter(|process| process.may_write());
        let (Some(process), Some(first)) = (process, list.first()) else {
            // The receiver copies all pieces.
            return Ok(());
        };
        let (wanted, length) = (first.wanted, piece(first.wanted));
        let pieces = Pieces::new(Claims::producer, &link.claims_out, epoch, wanted, length);
        let mut pieces = pieces.ok_or(Fault::Malformed)?;
        let mut is_written = true;
        while let (true, Some((at, _))) = (is_written, pieces.next()?) {
            is_written = self.write(process, &list, at / length);
        }
        if pieces.claimed == 0 {
            return Ok(());
        }
        let pieces = is_written.then_some(pieces.claimed);
        for joined in &list {
            let receiver = joined.receiver;
            link.send_control(Control::Copied { receiver, pieces })?;
        }
        link.wake();
        Ok(())
    }

    /// Writes a piece of each message. False if the kernel does not copy.
    fn write(&self, process: &mut ProcessMemory, list: &[Joined], piece_number: u64) -> bool {
        let parts = list.iter().filter_map(|joined| {
            let length = piece(joined.wanted);
            let at = piece_number.checked_mul(length)?;
            let length = joined.wanted.checked_sub(at)?.min(length);
            let memory = &self.requests.peek(joined.request)?.memory;
            let from = memory.part(at, usize::try_from(length).ok()?)?;
            Some(Part::new(joined.to.checked_add(at)?, from))
        });
        let parts: ArrayVec<_, COPIED_TOGETHER> = parts.collect();
        parts.len() == list.len() && process.write(&parts)
    }

    /// Before the program gets the memory of this link's requests back: the peer must not write it any more, and must
    /// know that what it reads from now on is wrong. `is_sound` is whether the peer has kept to the protocol: this side does
    /// not wait for one that has not.
    #[cold]
    pub(crate) fn withdraw(&mut self, link: &mut Link, peer: Peer, is_sound: bool) {
        if link.process.is_none() || self.process != std::process::id() {
            return;
        }
        link.claims_out.withdraw();
        link.claims_in.end();
        let end = Instant::now() + REPORT;
        while is_sound
            && self.awaits_report(peer)
            && !link.channel.is_closed()
            && Instant::now() < end
        {
            let Some(record) = link.control_in.pop() else {
                std::thread::yield_now();
                continue;
            };
            link.control_in.release();
            if self.control(link, peer, &record).is_err() {
                return;
            }
        }
    }

    /// Returns whether the peer may be writing memory of this side.
    fn awaits_report(&mut self, peer: Peer) -> bool {
        let mut bound = self.requests.bound_to(peer).into_iter();
        bound.any(|request| {
            let entry = self.requests.peek(request);
            entry.is_some_and(|entry| matches!(entry.state, State::Shared { .. }))
        })
    }
}
