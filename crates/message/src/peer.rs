//! Peers: who they are, and the link to each that lives.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use window::attach::Channel;
use window::chunk_claim::Claims;
use window::doorbell::{Ringer, Sleeper};
use window::heap::Heap;
use window::lane::{Consumer, Producer};
use window::{Broken, Ends, Foreign};

use crate::address::Address;
use crate::error::Code;
use crate::ids::{Peer, Request};
use crate::limits;
use crate::memory::Memory;
use crate::remote_memory::RemoteMemory;
use crate::wire::{Control, Source};

/// What a peer did that ends its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Its counters.
    #[error("{0}")]
    Broken(#[from] Broken),
    /// Its records.
    #[error("the peer sent a record that makes no sense")]
    Nonsense,
    /// It has let go of the link, which this side was not told yet.
    #[error("the peer took back what it had offered")]
    Withdrawn,
}

impl Fault {
    /// What ends with it.
    pub(crate) fn code(self) -> Code {
        match self {
            Self::Withdrawn => Code::Closed,
            Self::Broken(_) | Self::Nonsense => Code::Unreachable,
        }
    }
}

/// The way to a peer that lives.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) messages_in: Consumer,
    pub(crate) messages_out: Producer,
    pub(crate) control_in: Consumer,
    pub(crate) control_out: Producer,
    /// Who copies which piece of a message that both sides copy.
    pub(crate) claims_in: Claims,
    pub(crate) claims_out: Claims,
    pub(crate) sleeper: Sleeper,
    pub(crate) ringer: Ringer,
    pub(crate) channel: Channel,
    /// Whether it is behind a gateway: then neither side can read the heap of the other's process.
    pub(crate) far: bool,
    /// Its heap, once it was needed; before, the file.
    heap: Option<Foreign>,
    heap_file: Option<OwnedFd>,
    /// The way to heaps of the members, if both are of one region.
    pub(crate) reach: Option<RemoteMemory>,
    /// Requests of this side that need an answer. Without any, control is not looked at.
    pub(crate) expects: u32,
    /// Sends without room, in order.
    pub(crate) sends: VecDeque<Request>,
    /// Control without room, in order.
    pub(crate) control: VecDeque<Control>,
    /// Streamed sends, one after the other.
    pub(crate) streams: VecDeque<Request>,
    /// Bytes of its messages that nobody waits for.
    pub(crate) unexpected: u64,
    /// Something was published since the peer was last looked after.
    pub(crate) told: bool,
}

impl Link {
    /// `fences` is what the peer says of its sleeps.
    pub(crate) fn new(
        ends: Ends,
        channel: Channel,
        heap_file: Option<OwnedFd>,
        fences: bool,
    ) -> Self {
        let [messages_out, control_out] = ends.producers;
        let [messages_in, control_in] = ends.consumers;
        let mut ringer = ends.ringer;
        ringer.is_fenced(fences);
        Self {
            messages_in,
            messages_out,
            control_in,
            control_out,
            claims_in: ends.claims_in,
            claims_out: ends.claims_out,
            sleeper: ends.sleeper,
            ringer,
            channel,
            far: false,
            heap: None,
            heap_file,
            reach: None,
            expects: 0,
            sends: VecDeque::new(),
            control: VecDeque::new(),
            streams: VecDeque::new(),
            unexpected: 0,
            told: false,
        }
    }

    /// Whether its messages are taken, or wait until it has fewer of them here.
    #[inline(always)]
    pub(crate) fn listens(&self) -> bool {
        self.unexpected < limits::UNEXPECTED && self.control.len() < limits::CONTROL_WAITING
    }

    /// Whether something waits for room.
    #[inline(always)]
    pub(crate) fn has_backlog(&self) -> bool {
        !(self.sends.is_empty() && self.control.is_empty() && self.streams.is_empty())
    }

    /// Whether a send of so many bytes is over at once, in a slot.
    #[inline(always)]
    pub(crate) fn takes_now(&mut self, length: u64) -> bool {
        length <= limits::EAGER as u64
            && self.sends.is_empty()
            && self.messages_out.has_room() == Ok(true)
    }

    /// Whether there is a record to look at.
    #[inline(always)]
    pub(crate) fn has_record(&self) -> bool {
        self.listens() && self.messages_in.has_record()
            || self.expects > 0 && self.control_in.has_record()
    }

    /// Wake the peer if it sleeps.
    #[inline(always)]
    pub(crate) fn wake(&mut self) {
        self.told = false;
        if self.ringer.must_ring() {
            self.channel.ring();
        }
    }

    /// Send control, or keep it until there is room.
    pub(crate) fn say(&mut self, control: Control) -> Result<(), Fault> {
        if self.control.is_empty() && self.control_out.has_room()? {
            self.control_out.push(&control.encode());
            self.told = true;
        } else {
            self.control.push_back(control);
        }
        Ok(())
    }

    /// The peer's heap.
    pub(crate) fn heap(&mut self) -> Result<&Foreign, Fault> {
        if self.heap.is_none() {
            let file = self.heap_file.take().ok_or(Fault::Nonsense)?;
            let view = window::heap::view(file.as_fd());
            self.heap = Some(view.map_err(|_| Fault::Nonsense)?);
        }
        self.heap.as_ref().ok_or(Fault::Nonsense)
    }

    /// Where the peer can have a large message that lies there.
    pub(crate) fn source(&self, heap: &Heap, memory: &Memory) -> Source {
        let reach = |stretch| {
            self.reach
                .as_ref()
                .is_some_and(|reach| reach.covers(stretch))
        };
        match memory {
            Memory::Window(buffer) if !self.far && heap.owns(buffer) => {
                Source::Heap(buffer.offset())
            }
            Memory::Stretch(stretch) if reach(stretch) => Source::Lent(stretch.place()),
            _ => Source::Stream,
        }
    }
}

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct Known {
    generation: u32,
    pub(crate) address: Address,
    /// Which opening of the endpoint it is.
    pub(crate) session: u64,
    /// The key it was opened with.
    pub(crate) key: u32,
    pub(crate) link: Option<Box<Link>>,
}

/// All peers of an endpoint. The first is the endpoint itself, which has no link.
#[derive(Debug)]
pub(crate) struct Peers {
    known: Vec<Known>,
    /// Those with a link.
    active: Vec<Peer>,
    /// Those that had one, the first lost first.
    gone: VecDeque<u32>,
}

impl Peers {
    pub(crate) fn new(address: Address, session: u64, key: u32) -> Self {
        let own = Known {
            generation: 0,
            address,
            session,
            key,
            link: None,
        };
        Self {
            known: vec![own],
            active: Vec::new(),
            gone: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, peer: Peer) -> Option<&Known> {
        let known = self.known.get(peer.index as usize)?;
        (known.generation == peer.generation).then_some(known)
    }

    #[inline(always)]
    pub(crate) fn link(&mut self, peer: Peer) -> Option<&mut Link> {
        let known = self.known.get_mut(peer.index as usize)?;
        match known.generation == peer.generation {
            true => known.link.as_deref_mut(),
            false => None,
        }
    }

    /// The peer at a place of the list of those with a link.
    #[inline(always)]
    pub(crate) fn active(&self, place: usize) -> Option<Peer> {
        self.active.get(place).copied()
    }

    /// All links.
    pub(crate) fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        let links = self.known.iter_mut().map(|known| known.link.as_deref_mut());
        links.flatten()
    }

    /// A peer with a link, by its address.
    pub(crate) fn linked(&self, address: Address) -> Option<Peer> {
        let is = |peer: &&Peer| {
            self.get(**peer)
                .is_some_and(|known| known.address == address)
        };
        self.active.iter().find(is).copied()
    }

    /// A peer with a link, by its token.
    pub(crate) fn with_index(&self, index: u32) -> Option<Peer> {
        let is = |peer: &&Peer| peer.index == index;
        self.active.iter().find(is).copied()
    }

    /// A new peer. Takes the place of the one that is gone longest, if many are.
    pub(crate) fn add(&mut self, address: Address, session: u64, key: u32, link: Link) -> Peer {
        let mut known = Known {
            generation: 0,
            address,
            session,
            key,
            link: Some(Box::new(link)),
        };
        let old = match self.gone.len() >= limits::REMEMBERED {
            true => self.gone.pop_front(),
            false => None,
        };
        let place = old.and_then(|index| Some((index, self.known.get_mut(index as usize)?)));
        let peer = if let Some((index, place)) = place {
            known.generation = place.generation.wrapping_add(1);
            let generation = known.generation;
            *place = known;
            Peer { index, generation }
        } else {
            // Four billion peers do not fit into memory.
            let index = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
            self.known.push(known);
            Peer {
                index,
                generation: 0,
            }
        };
        self.active.push(peer);
        peer
    }

    /// Take the link from a peer.
    pub(crate) fn unlink(&mut self, peer: Peer) -> Option<Box<Link>> {
        let known = self.known.get_mut(peer.index as usize)?;
        if known.generation != peer.generation {
            return None;
        }
        let link = known.link.take()?;
        self.active.retain(|active| *active != peer);
        self.gone.push_back(peer.index);
        Some(link)
    }
}

impl Peer {
    /// As a number, for a program that keeps no Rust types. No two peers that an endpoint can
    /// still be asked about have the same.
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// What [`bits`](Self::bits) made a number of. Of any other number it makes somebody whom no
    /// endpoint knows, or another peer of the endpoint.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking the halves of a word"
    )]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }

    /// What its socket is watched as.
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}
