//! Messages in the memory of a process, which the kernel copies: the receiver.
//!
//! A sender whose peer is another process of its host offers a large message where the program has it. The receiver reads it
//! from there into the program's memory ([`crate::process_memory`]), so it is copied once. The sender writes a part of it
//! meanwhile ([`crate::process_join`]), as in a [cooperative copy](crate::cooperative_copy): each copies a half of a short
//! message, and pieces of a long one.
//!
//! A call of the kernel takes as long as the copy of some KiB. So the receiver collects short messages for as long as there are
//! further records, and both sides copy their halves of all of them by one call each.
//!
//! Either side may find that the kernel does not copy: without the right, or because one of the memories is a device's. Then
//! the sender streams the message. A receiver that has asked the sender to write first waits until the sender writes no more.

use std::time::Instant;

use arrayvec::ArrayVec;
use window::chunk_claim::Claims;

use crate::cooperative_copy::Pieces;
use crate::copy_choice::Method;
use crate::engine::Engine;
use crate::ids::Request;
use crate::limits::{COPIED_TOGETHER, CREDITS};
use crate::memory::Memory;
use crate::peer::{Fault, Link};
use crate::process_memory::{Part, ProcessMemory};
use crate::process_messages::{Fetch, Fetches, is_short, piece};
use crate::request::{Entry, State};
use crate::wire::{Control, Handle, Share, Target};

/// How many times an endpoint serves a peer with further records before it copies the messages that it has collected: a program
/// with a matching of its own takes these records one by one.
const SERVES: u32 = 16;

/// How often a receiver looks whether the sender has claimed its half: for some microseconds, about as long as its copy
/// takes.
const LOOKS_FOR_CLAIM: u32 = 100;

impl Link {
    /// Returns the address of a message in this process, if the peer may copy it from there.
    pub(crate) fn process_address(&self, memory: &Memory) -> Option<u64> {
        let process = self.process.as_ref()?;
        let address = memory.address()?;
        process.peer_knows_this_process().then_some(address)
    }

    /// Ends the time of a message's copy, if it counts.
    pub(crate) fn end_copy(&mut self, entry: &mut Entry, bytes: u64) {
        if std::mem::take(&mut entry.timed) {
            self.copy_choices
                .of(entry.flow, bytes)
                .end(bytes, Instant::now());
        }
    }
}

impl Engine {
    /// Has an offered message copied from the memory of the peer's process, or streamed if the kernel does not copy it.
    pub(crate) fn fetch(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        from: u64,
        wanted: u64,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        let may_read = link.process.as_ref().is_some_and(ProcessMemory::may_read);
        if !may_read {
            return self.ask_for_stream(link, request, sender, wanted, CREDITS);
        }
        entry.timed = true;
        let choice = link.copy_choices.of(entry.flow, wanted);
        if choice.begin(Instant::now()) == Method::Stream {
            let credits = choice.grant();
            return self.ask_for_stream(link, request, sender, wanted, credits);
        }
        let Some(to) = link.process_address(&entry.memory) else {
            return self.fetch_alone(link, request, sender, from, wanted);
        };
        entry.state = State::Fetching;
        if !is_short(wanted) {
            self.fetch_all(link)?;
        }
        let fetch = Fetch {
            request,
            sender,
            from,
            to,
            wanted,
        };
        // There is room: a full list is copied at once.
        let _room = link.fetches.list.try_push(fetch);
        match is_short(wanted) && !link.fetches.list.is_full() {
            true => Ok(()),
            false => self.fetch_all(link),
        }
    }

    /// Copies a message into memory that the sender cannot write, because it is in several segments.
    fn fetch_alone(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        mut from: u64,
        wanted: u64,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        let process = link.process.as_mut().ok_or(Fault::Malformed)?;
        let read = entry.memory.fill(0, wanted, |piece| {
            process.read(&mut [Part::new(from, piece)]).then_some(())?;
            from = from.checked_add(piece.len() as u64)?;
            Some(())
        });
        if link.claims_in.is_withdrawn() {
            return Err(Fault::Revoked);
        }
        if read.is_none() {
            return self.ask_for_stream(link, request, sender, wanted, 0);
        }
        self.copies.once += 1;
        self.received(link, request, sender, wanted)
    }

    /// Copies the collected messages, unless more may arrive.
    #[inline(never)]
    pub(crate) fn serve_fetches(&mut self, link: &mut Link) -> Result<(), Fault> {
        link.fetches.serves += 1;
        match link.messages_in.has_record() && link.fetches.serves < SERVES {
            true => Ok(()),
            false => self.fetch_all(link),
        }
    }

    /// Copies all collected messages, together with the peer if it polls.
    fn fetch_all(&mut self, link: &mut Link) -> Result<(), Fault> {
        let Fetches { list, .. } = std::mem::take(&mut link.fetches);
        let Some(first) = list.first() else {
            return Ok(());
        };
        let epoch = link.claims_in.begin();
        self.ask_to_join(link, &list, epoch)?;
        let (wanted, length) = (first.wanted, piece(first.wanted));
        let mut pieces = Pieces::new(Claims::consumer, &link.claims_in, epoch, wanted, length)
            .ok_or(Fault::Malformed)?;
        let mut is_read = true;
        while let (true, Some((at, _))) = (is_read, pieces.next()?) {
            let process = link.process.as_mut().ok_or(Fault::Malformed)?;
            is_read = self.read(process, &list, at / length);
            if link.sender_claims && pieces.claimed + 1 == pieces.count() {
                await_claim(&link.claims_in);
            }
        }
        let left = pieces.count() - pieces.claimed;
        if link.claims_in.is_withdrawn() {
            return Err(Fault::Revoked);
        }
        link.sender_claims = left > 0;
        let left = match is_read {
            true => left,
            false => link.claims_in.end(),
        };
        list.into_iter()
            .try_for_each(|fetch| self.fetched(link, fetch, left, is_read))
    }

    /// Asks the peer to copy the messages, too.
    fn ask_to_join(&mut self, link: &mut Link, list: &[Fetch], epoch: u32) -> Result<(), Fault> {
        let mut left = list.len();
        for fetch in list {
            left -= 1;
            link.send_control(Control::Share(Share {
                sender: fetch.sender,
                receiver: fetch.request.handle(),
                target: Target::Process(fetch.to),
                wanted: fetch.wanted,
                epoch,
                is_last: left == 0,
            }))?;
        }
        link.wake();
        Ok(())
    }

    /// Reads a piece of each message. False if the kernel does not copy.
    fn read(&mut self, process: &mut ProcessMemory, list: &[Fetch], piece_number: u64) -> bool {
        let mut memories = ArrayVec::<_, COPIED_TOGETHER>::new();
        for fetch in list {
            let entry = self.requests.get(fetch.request);
            memories.push(
                entry
                    .map(|entry| std::mem::take(&mut entry.memory))
                    .unwrap_or_default(),
            );
        }
        let parts = memories.iter_mut().zip(list).filter_map(|(memory, fetch)| {
            let length = piece(fetch.wanted);
            let at = piece_number.checked_mul(length)?;
            let length = fetch.wanted.checked_sub(at)?.min(length);
            let to = memory.part_mut(at, usize::try_from(length).ok()?)?;
            Some(Part::new(fetch.from.checked_add(at)?, to))
        });
        let mut parts: ArrayVec<_, COPIED_TOGETHER> = parts.collect();
        let is_read = parts.len() == list.len() && process.read(&mut parts);
        drop(parts);
        for (memory, fetch) in memories.into_iter().zip(list) {
            if let Some(entry) = self.requests.get(fetch.request) {
                entry.memory = memory;
            }
        }
        is_read
    }

    /// This side has copied its pieces of a message, or could not; the sender has claimed the ones that are left.
    fn fetched(
        &mut self,
        link: &mut Link,
        fetch: Fetch,
        left: u32,
        is_read: bool,
    ) -> Result<(), Fault> {
        let Fetch {
            request,
            sender,
            wanted,
            ..
        } = fetch;
        match (left, is_read) {
            (_, true) => self.own_pieces_copied(link, request, sender, wanted, left),
            (0, false) => self.ask_for_stream(link, request, sender, wanted, 0),
            (_, false) => self.await_report(
                link,
                request,
                State::Shared {
                    left,
                    wanted,
                    sender,
                    complete: false,
                },
            ),
        }
    }

    /// Asks the sender to stream a message, and grants it credits.
    pub(crate) fn ask_for_stream(
        &mut self,
        link: &mut Link,
        request: Request,
        sender: Handle,
        wanted: u64,
        credits: u32,
    ) -> Result<(), Fault> {
        let entry = self.requests.get(request).ok_or(Fault::Malformed)?;
        entry.state = State::Filling { got: 0, wanted };
        link.awaited_replies += 1;
        link.send_control(Control::Pull {
            sender,
            receiver: request.handle(),
            wanted,
            confirmed: false,
            credits,
        })
    }
}

/// Waits for a sender that polls: if this side copied the sender's half, too, it would take twice as long, and the lines of
/// that half would leave the caches of the sender's processor.
fn await_claim(claims: &Claims) {
    for _ in 0..LOOKS_FOR_CLAIM {
        if claims.producer_has_claimed() {
            return;
        }
        std::hint::spin_loop();
    }
}
