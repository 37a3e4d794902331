//! The peers of an endpoint, and the link to each connected peer.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use window::attach::Channel;
use window::chunk_claim::Claims;
use window::doorbell::{Ringer, Sleeper};
use window::heap::Heap;
use window::lane::{Consumer, Producer};
use window::{Ends, ProtocolError, SharedBytes};

use crate::address::Address;
use crate::copy_choice::{CopyChoices, Flow};
use crate::credits::Credits;
use crate::error::Code;
use crate::ids::{Peer, Request};
use crate::limits;
use crate::memory::Memory;
use crate::process_memory::ProcessMemory;
use crate::process_messages::{Fetches, Joins};
use crate::program_address::ProgramAddress;
use crate::published::Published;
use crate::remote_memory::RemoteMemory;
use crate::wire::{Control, Source};

/// Why a peer's link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// A counter of the window is wrong.
    #[error("{0}")]
    ProtocolError(#[from] ProtocolError),
    /// A record is malformed.
    #[error("the peer sent a malformed record")]
    Malformed,
    /// The peer has revoked memory that it had offered: it has closed the link, and this side has
    /// not been notified yet.
    #[error("the peer revoked memory that it had offered")]
    Revoked,
}

impl Fault {
    /// Returns the code that the peer's requests end with.
    pub(crate) fn code(self) -> Code {
        match self {
            Self::Revoked => Code::Closed,
            Self::ProtocolError(_) | Self::Malformed => Code::Unreachable,
        }
    }
}

/// The link to a connected peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) messages_in: Consumer,
    pub(crate) messages_out: Producer,
    pub(crate) control_in: Consumer,
    pub(crate) control_out: Producer,
    /// The claims of messages that both sides copy.
    pub(crate) claims_in: Claims,
    pub(crate) claims_out: Claims,
    pub(crate) sleeper: Sleeper,
    pub(crate) ringer: Ringer,
    pub(crate) channel: Channel,
    /// Whether the peer is behind a gateway: then neither side can read the heap of the other's
    /// process.
    pub(crate) remote: bool,
    /// Whether the peer is on another host, as a gateway says.
    pub(crate) other_host: bool,
    /// Whether this program and that of the peer send each other datagrams.
    pub(crate) by_datagrams: bool,
    /// Where the peer's program takes these, if this side still knows.
    pub(crate) program: Option<ProgramAddress>,
    /// The peer's heap, mapped at first use; before, its file.
    heap: Option<SharedBytes>,
    heap_file: Option<OwnedFd>,
    /// The heaps of both members, if the window is in a region with heaps.
    pub(crate) remote_memory: Option<RemoteMemory>,
    /// The peer's process, if messages are copied from and to its memory.
    pub(crate) process: Option<ProcessMemory>,
    /// Whether the kernel copies them, or they are streamed.
    pub(crate) copy_choices: CopyChoices,
    /// What the peer has granted this side.
    pub(crate) credits: Credits,
    /// Messages that are to be copied from there.
    pub(crate) fetches: Fetches,
    /// Whether the peer has copied a part of the last ones.
    pub(crate) sender_claims: bool,
    /// Messages of this side that the peer wants copied to its memory.
    pub(crate) joins: Joins,
    /// Requests of this side that wait for the peer's reply. Without any, control records are not
    /// polled.
    pub(crate) awaited_replies: u32,
    /// Sends without room, in order.
    pub(crate) sends: VecDeque<Request>,
    /// Control without room, in order.
    pub(crate) control: VecDeque<Control>,
    /// Sends that are streamed, in order.
    pub(crate) streams: VecDeque<Request>,
    /// Bytes of the peer's unexpected messages.
    pub(crate) unexpected: u64,
    /// The program reads messages where they are, see [`crate::in_place`]: their places are not released.
    pub(crate) reading: bool,
    /// What the peer has not been woken for since.
    pub(crate) published: Published,
    /// The program was told that there is no room for a message, and may wait until there is.
    pub(crate) lacked_room: bool,
}

impl Link {
    /// `fences` is whether the peer announced that its sleeps fence this side.
    pub(crate) fn new(
        ends: Ends,
        channel: Channel,
        heap_file: Option<OwnedFd>,
        fences: bool,
    ) -> Self {
        let [messages_out, control_out] = ends.producers;
        let [messages_in, control_in] = ends.consumers;
        let mut ringer = ends.ringer;
        ringer.set_peer_fences(fences);
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
            remote: false,
            other_host: false,
            by_datagrams: false,
            program: None,
            heap: None,
            heap_file,
            remote_memory: None,
            process: None,
            copy_choices: CopyChoices::default(),
            credits: Credits::default(),
            fetches: Fetches::default(),
            sender_claims: false,
            joins: Joins::default(),
            awaited_replies: 0,
            sends: VecDeque::new(),
            control: VecDeque::new(),
            streams: VecDeque::new(),
            unexpected: 0,
            reading: false,
            published: Published::Nothing,
            lacked_room: false,
        }
    }

    /// Returns whether the peer's messages are taken; above a limit they wait until fewer are
    /// queued.
    #[inline(always)]
    pub(crate) fn accepts_messages(&self) -> bool {
        self.unexpected < limits::UNEXPECTED && self.control.len() < limits::CONTROL_WAITING
    }

    /// Returns whether anything waits for room in a lane, the program included.
    #[cold]
    pub(crate) fn needs_room(&mut self) -> bool {
        self.lacked_room &= !self.has_room_again();
        self.lacked_room || self.has_backlog()
    }

    /// Returns whether there is room for any message since the program was told that there is none.
    pub(crate) fn has_room_again(&mut self) -> bool {
        // At most 32 KiB.
        let longest = u32::try_from(limits::MEDIUM).unwrap_or_default();
        let room = |lane: &mut Producer| lane.room(longest).map_or(true, |room| room.is_some());
        self.lacked_room && room(&mut self.messages_out)
    }

    /// Returns whether anything waits for room.
    #[inline(always)]
    pub(crate) fn has_backlog(&self) -> bool {
        !(self.sends.is_empty() && self.control.is_empty() && self.streams.is_empty())
    }

    /// Returns whether a message of this length can be sent in a slot now.
    #[inline(always)]
    pub(crate) fn can_send_inline(&mut self, length: u64) -> bool {
        length <= limits::EAGER as u64
            && self.sends.is_empty()
            && self.messages_out.has_room() == Ok(true)
    }

    /// Returns whether there is a record to take.
    #[inline(always)]
    pub(crate) fn has_record(&self) -> bool {
        self.accepts_messages() && self.messages_in.has_record()
            || self.awaited_replies > 0 && self.control_in.has_record()
    }

    /// Wakes the peer if it sleeps, after a record was published.
    #[inline(always)]
    pub(crate) fn wake(&mut self) {
        self.published = Published::Nothing;
        if self.ringer.needs_wakeup() {
            self.channel.ring();
        }
    }

    /// Wakes the peer if it sleeps until it has room, after space was released.
    #[inline(always)]
    pub(crate) fn wake_for_room(&mut self) {
        if self.ringer.needs_wakeup_for_room() {
            self.channel.ring();
        }
    }

    /// Wakes the peer if it sleeps and waits for what was published.
    #[inline(always)]
    pub(crate) fn wake_for_published(&mut self) {
        if self.published != Published::Nothing && self.published.take_wakeup(&mut self.ringer) {
            self.channel.ring();
        }
    }

    /// Sends a control record, or queues it until there is room.
    pub(crate) fn send_control(&mut self, control: Control) -> Result<(), Fault> {
        if self.control.is_empty() && self.control_out.has_room()? {
            self.control_out.push(&control.encode());
            self.published = Published::Records;
        } else {
            self.control.push_back(control);
        }
        Ok(())
    }

    /// Returns the peer's heap, and maps it at first use.
    pub(crate) fn heap(&mut self) -> Result<&SharedBytes, Fault> {
        if self.heap.is_none() {
            let file = self.heap_file.take().ok_or(Fault::Malformed)?;
            let view = window::heap::view(file.as_fd());
            self.heap = Some(view.map_err(|_| Fault::Malformed)?);
        }
        self.heap.as_ref().ok_or(Fault::Malformed)
    }

    /// Returns where the peer can copy a large message of this flow from.
    pub(crate) fn source(&mut self, heap: &Heap, memory: &Memory, flow: Flow) -> Source {
        let remote_memory = |buffer| {
            self.remote_memory
                .as_ref()
                .is_some_and(|remote_memory| remote_memory.contains(buffer))
        };
        match memory {
            Memory::Window(buffer) if !self.remote && heap.owns(buffer) => {
                Source::Heap(buffer.offset())
            }
            Memory::SharedBuffer(buffer) if remote_memory(buffer) => {
                Source::MemberHeap(buffer.address())
            }
            memory => match self.process_address(memory) {
                Some(address) => Source::Process {
                    address,
                    flow,
                    credited: self.credits.take_used(flow),
                },
                None => Source::Stream,
            },
        }
    }
}

/// What an endpoint keeps of a peer.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    generation: u32,
    pub(crate) address: Address,
    /// The session: it differs each time the endpoint is opened.
    pub(crate) session: u64,
    /// The key that the peer was opened with. `None` if the peer connected from a host that does not send it: then it is not
    /// known whether the key of a later connect is right, and all are taken.
    key: Option<u32>,
    pub(crate) link: Option<Box<Link>>,
}

/// All peers of an endpoint. Entry 0 is the endpoint itself, which has no link.
#[derive(Debug)]
pub(crate) struct Peers {
    known: Vec<PeerEntry>,
    /// Peers with a link.
    active: Vec<Peer>,
    /// Peers without a link, in the order in which they were lost.
    gone: VecDeque<u32>,
}

impl Peers {
    pub(crate) fn new(address: Address, session: u64, key: u32) -> Self {
        let own = PeerEntry {
            generation: 0,
            address,
            session,
            key: Some(key),
            link: None,
        };
        Self {
            known: vec![own],
            active: Vec::new(),
            gone: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, peer: Peer) -> Option<&PeerEntry> {
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

    /// Returns a peer by its position in the list of peers with a link.
    #[inline(always)]
    pub(crate) fn active(&self, position: usize) -> Option<Peer> {
        self.active.get(position).copied()
    }

    /// Returns the number of peers with a link.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.active.len()
    }

    /// Returns all links.
    pub(crate) fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        let links = self.known.iter_mut().map(|known| known.link.as_deref_mut());
        links.flatten()
    }

    /// Returns whether a connect to a peer has the right key.
    pub(crate) fn has_key(&self, peer: Peer, key: u32) -> bool {
        let known = self.get(peer);
        known.is_some_and(|known| known.key.is_none_or(|own| own == key))
    }

    /// Returns the peer with a link to an address.
    pub(crate) fn find_linked(&self, address: Address) -> Option<Peer> {
        let is = |peer: &&Peer| {
            self.get(**peer)
                .is_some_and(|known| known.address == address)
        };
        self.active.iter().find(is).copied()
    }

    /// Returns the peer with a link by the index in its token.
    pub(crate) fn with_index(&self, index: u32) -> Option<Peer> {
        let is = |peer: &&Peer| peer.index == index;
        self.active.iter().find(is).copied()
    }

    /// Adds a peer. If many peers were lost, it takes the entry of the one lost longest ago.
    pub(crate) fn add(
        &mut self,
        address: Address,
        session: u64,
        key: Option<u32>,
        link: Link,
    ) -> Peer {
        let mut known = PeerEntry {
            generation: 0,
            address,
            session,
            key,
            link: Some(Box::new(link)),
        };
        let old = match self.gone.len() >= limits::MAX_LOST_PEERS {
            true => self.gone.pop_front(),
            false => None,
        };
        let entry = old.and_then(|index| Some((index, self.known.get_mut(index as usize)?)));
        let peer = if let Some((index, entry)) = entry {
            known.generation = entry.generation.wrapping_add(1);
            let generation = known.generation;
            *entry = known;
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

    /// Removes the link of a peer.
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
    /// Returns the peer as a number, for programs without Rust types. Different peers that an
    /// endpoint still keeps have different numbers.
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the peer of a number from [`bits`](Self::bits). Any other number gives a peer
    /// unknown to the endpoint, or another peer of it.
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

    /// Returns the index that is in the token of the peer's socket.
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}
