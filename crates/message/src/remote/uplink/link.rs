//! A link between an endpoint of this host and one on another: records of the window on one side,
//! a partner of a node on the other.
//!
//! Nothing is kept here but what is on its way: a record is taken from the window when the node has
//! room for it, a message or piece from the node when the window has. So each side holds back the
//! other.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mxoe::{Address, Message, Node, Offer, Pull, Source};
use window::Ends;

use crate::limits::{CHUNK, EAGER, MEDIUM, MESSAGES};
use crate::peer::Fault;
use crate::remote::limits::BURST;
use crate::wire::{self, Control, Handle};

/// Both ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pair {
    /// The member's NIC id.
    pub(super) nic: u64,
    /// Its endpoint.
    pub(super) endpoint: u8,
    /// The endpoint on the other host.
    pub(super) peer: Address,
}

/// A message of the other host that is on its way into the window.
#[derive(Debug)]
struct Pulling {
    pull: Pull,
    receiver: Handle,
    left: u32,
    piece: Vec<u8>,
    at: usize,
}

/// A chunk that its send has no room for yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) token: u64,
    pub(super) offset: u32,
    pub(super) length: u32,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) pair: Pair,
    pub(super) ends: Ends,
    /// The upper half of the tokens of its sends; the lower counts.
    number: u32,
    count: u32,
    /// Offers that the endpoint knows, by what it knows them as.
    pub(super) offers: HashMap<Handle, Offer>,
    /// What the endpoint wants of them, until a pull can be begun.
    pub(super) wanted: VecDeque<(Offer, Option<Handle>, u32)>,
    pulls: VecDeque<Pulling>,
    /// Sends whose end the endpoint waits for, by token; with their source while they are pulled.
    pub(super) sends: HashMap<u64, (Handle, Option<Source>)>,
    /// Control without room, in order: no more than there are sends.
    waiting: VecDeque<Control>,
    pub(super) chunk: Option<Chunk>,
    /// Something was published since the endpoint was last looked after.
    pub(super) told: bool,
}

/// What a link works with.
#[derive(Debug)]
pub(super) struct Far<'a> {
    pub(super) node: &'a mut Node,
    pub(super) now: Duration,
}

/// Bytes of a medium message, as lanes count them.
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
const LARGEST: u32 = MEDIUM as u32;

impl Link {
    pub(super) fn new(number: u32, pair: Pair, ends: Ends) -> Self {
        Self {
            pair,
            ends,
            number,
            count: 0,
            offers: HashMap::new(),
            wanted: VecDeque::new(),
            pulls: VecDeque::new(),
            sends: HashMap::new(),
            waiting: VecDeque::new(),
            chunk: None,
            told: false,
        }
    }

    /// Move what can be moved, both ways; whether anything was.
    pub(super) fn turn(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let sent = self.send_messages(far)? | self.hear_control(far)?;
        self.begin_pulls(far);
        let taken = self.say()? | self.take_messages(far)? | self.take_pieces(far)?;
        Ok(sent | taken)
    }

    /// Whether a turn would move something. A fault is something.
    pub(super) fn has_work(&mut self, far: &Far<'_>) -> bool {
        let Pair { endpoint, peer, .. } = self.pair;
        let [messages_in, control_in] = &self.ends.consumers;
        let [messages_out, control_out] = &mut self.ends.producers;
        let has_room = |room: Result<Option<_>, _>| room.map_or(true, |room| room.is_some());
        messages_in.has_record() && far.node.has_room(endpoint, peer)
            || control_in.has_record() && self.chunk.is_none()
            || !self.waiting.is_empty() && control_out.has_room().unwrap_or(true)
            || far.node.has_message(endpoint, peer) && has_room(messages_out.room(LARGEST))
    }

    /// Whether the endpoint sleeps and must be woken.
    pub(super) fn must_ring(&mut self) -> bool {
        std::mem::take(&mut self.told) && self.ends.ringer.must_ring()
    }

    /// Tell the endpoint that nobody looks.
    pub(super) fn prepare_to_wait(&mut self) {
        self.ends.sleeper.prepare_to_wait();
    }

    /// Tell the endpoint that somebody looks.
    pub(super) fn finish_wait(&mut self) {
        self.ends.sleeper.finish_wait();
    }

    /// Pass on every message that the endpoint left when it went.
    pub(super) fn drain(&mut self, far: &mut Far<'_>) -> Result<(), Fault> {
        // No more than fit into the lane: its producer is no more, but the VM that it was in may
        // write on.
        for _ in 0..MESSAGES.slots {
            if !self.send_message(far)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn token(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        wire::pair(self.count, self.number)
    }

    /// Begin as many pulls as the node can have.
    fn begin_pulls(&mut self, far: &mut Far<'_>) {
        let endpoint = self.pair.endpoint;
        while far.node.can_pull(endpoint) {
            let Some((offer, receiver, wanted)) = self.wanted.pop_front() else {
                return;
            };
            let token = self.token();
            let begun = far.node.pull(far.now, endpoint, offer, wanted, token);
            // Refused: the peer is lost, and the link's end on its way.
            if let (Ok(pull), Some(receiver)) = (begun, receiver) {
                self.pulls.push_back(Pulling {
                    pull,
                    receiver,
                    left: wanted,
                    piece: Vec::new(),
                    at: 0,
                });
            }
        }
    }

    /// The other host pulls a message from the endpoint.
    pub(super) fn wanted(&mut self, token: u64, source: Source, total: u32) {
        if let Some((sender, place)) = self.sends.get_mut(&token) {
            *place = Some(source);
            self.waiting.push_back(Control::Pull {
                sender: *sender,
                receiver: token,
                wanted: total.into(),
                confirmed: true,
            });
        }
    }

    /// The other host has a message, or so much of it as it wanted.
    pub(super) fn sent(&mut self, token: u64, taken: u32) {
        if let Some((sender, _)) = self.sends.remove(&token) {
            let taken = taken.into();
            self.waiting.push_back(Control::Done { sender, taken });
        }
    }

    /// Say what waits, as far as there is room.
    fn say(&mut self) -> Result<bool, Fault> {
        let [_, control] = &mut self.ends.producers;
        let mut moved = false;
        while let Some(next) = self.waiting.front() {
            if !control.has_room()? {
                break;
            }
            control.push(&next.encode());
            self.waiting.pop_front();
            moved = true;
        }
        self.told |= moved;
        Ok(moved)
    }

    /// Messages of the other host, as far as the window has room.
    fn take_messages(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let Pair { endpoint, peer, .. } = self.pair;
        let [lane, _] = &mut self.ends.producers;
        let mut moved = false;
        for _ in 0..BURST {
            // A message that is taken is acknowledged, so there must be room for any.
            if !far.node.has_message(endpoint, peer) || lane.room(LARGEST)?.is_none() {
                break;
            }
            let Some(message) = far.node.take(far.now, endpoint, peer) else {
                break;
            };
            moved = true;
            match message {
                Message::Whole { value, data } if data.len() <= EAGER => {
                    lane.push(&wire::eager_bytes(value, &data));
                }
                Message::Whole { value, data } => {
                    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    let room = lane.room(length)?.ok_or(Fault::Nonsense)?;
                    let written = lane.write(room.offset.into(), &data);
                    written.ok_or(Fault::Nonsense)?;
                    let record = wire::medium(value, room.offset, length, None);
                    lane.push_with(&record, room);
                }
                Message::Offered {
                    value,
                    length,
                    offer,
                } => {
                    self.count = self.count.wrapping_add(1);
                    let handle = wire::pair(self.count, self.number);
                    self.offers.insert(handle, offer);
                    lane.push(&wire::offer(
                        value,
                        length.into(),
                        handle,
                        wire::Source::Stream,
                    ));
                }
            }
        }
        self.told |= moved;
        Ok(moved)
    }

    /// Pieces of the messages that the endpoint pulls, as far as the window has room.
    fn take_pieces(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let endpoint = self.pair.endpoint;
        let [_, lane] = &mut self.ends.producers;
        let mut moved = false;
        for pulling in &mut self.pulls {
            loop {
                let Some(room) = lane.room(CHUNK)? else {
                    self.told |= moved;
                    return Ok(moved);
                };
                if pulling.at == pulling.piece.len() {
                    let Some(piece) = far.node.piece(far.now, endpoint, pulling.pull) else {
                        break;
                    };
                    (pulling.piece, pulling.at) = (piece, 0);
                }
                let rest = pulling.piece.get(pulling.at..).unwrap_or_default();
                let (now, _) = rest.split_at(rest.len().min(CHUNK as usize));
                let length = u32::try_from(now.len()).unwrap_or_default();
                // No more than there is room for.
                let room = lane.room(length)?.unwrap_or(room);
                let written = lane.write(room.offset.into(), now);
                written.ok_or(Fault::Nonsense)?;
                let chunk = Control::Chunk {
                    receiver: pulling.receiver,
                    offset: room.offset,
                    length,
                };
                lane.push_with(&chunk.encode(), room);
                pulling.at += now.len();
                pulling.left = pulling.left.saturating_sub(length);
                moved = true;
            }
        }
        self.pulls.retain(|pulling| pulling.left > 0);
        self.told |= moved;
        Ok(moved)
    }
}
