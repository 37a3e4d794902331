//! A link between an endpoint of this host and one on another: records of the window on one side, a
//! partner of a node on the other.
//!
//! The link stores only what is in transit: it takes a record from the window when the node has
//! room for it, and a message or piece from the node when the window has room. So each side holds
//! the other back.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mxoe::{Address, Message, Node, Offer, Pull, StreamedSend};
use window::Ends;
use window::lane::Consumer;

use crate::limits::{CHUNK, EAGER, MEDIUM, MESSAGES};
use crate::peer::Fault;
use crate::published::Published;
use crate::remote::limits::{BURST, PULLED_AT_ONCE};
use crate::wire::{self, Control, Handle};

/// Both ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EndpointPair {
    /// The member's NIC id.
    pub(super) nic: u64,
    /// Its endpoint id.
    pub(super) endpoint: u8,
    /// The endpoint on the other host.
    pub(super) peer: Address,
}

/// A message of the other host that is being pulled into the window.
#[derive(Debug)]
struct Pulling {
    pull: Pull,
    receiver: Handle,
    left: u32,
    piece: Vec<u8>,
    at: usize,
}

/// A chunk for which the node's send buffer has no room yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) token: u64,
    pub(super) offset: u32,
    pub(super) length: u32,
}

#[derive(Debug)]
pub(super) struct Link {
    /// The session of the endpoint here.
    pub(super) session: u64,
    pub(super) pair: EndpointPair,
    pub(super) ends: Ends,
    /// The upper half of the tokens of its sends; the lower half is a counter.
    number: u32,
    count: u32,
    /// Offers of the other host, by the handle that the endpoint received.
    pub(super) offers: HashMap<Handle, Offer>,
    /// Offers that the endpoint has requested, until a pull can begin.
    pub(super) wanted: VecDeque<(Offer, Option<Handle>, u32)>,
    pulls: VecDeque<Pulling>,
    /// Sends that the endpoint waits for, by token; with their source while they are pulled.
    pub(super) sends: HashMap<u64, (Handle, Option<StreamedSend>)>,
    /// Control records without room, in order: no more than there are sends.
    waiting: VecDeque<Control>,
    pub(super) chunk: Option<Chunk>,
    /// What the endpoint has not been woken for since.
    pub(super) published: Published,
}

/// The node of a link's member, and the time.
#[derive(Debug)]
pub(super) struct NodeContext<'a> {
    pub(super) node: &'a mut Node,
    pub(super) now: Duration,
}

/// Bytes of a medium message, in the lanes' type.
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
const LARGEST: u32 = MEDIUM as u32;

impl Link {
    pub(super) fn new(number: u32, session: u64, pair: EndpointPair, ends: Ends) -> Self {
        Self {
            session,
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
            published: Published::Nothing,
        }
    }

    /// The endpoint's program calls this uplink itself.
    pub(super) fn stay_in_process(&mut self) {
        self.ends.keep_in_cache();
    }

    /// Moves records in both directions; returns whether any was moved.
    pub(super) fn move_records(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let sent = self.send_messages(context)? | self.handle_control_lane(context)?;
        self.begin_pulls(context);
        let taken =
            self.flush_control()? | self.take_messages(context)? | self.take_pieces(context)?;
        Ok(sent | taken)
    }

    /// Returns whether the endpoint has given any record.
    pub(super) fn has_records(&self) -> bool {
        self.ends.consumers.iter().any(Consumer::has_record)
    }

    /// Returns whether [`move_records`](Self::move_records) would move a record, or report a fault.
    pub(super) fn has_work(&mut self, context: &NodeContext<'_>) -> bool {
        let EndpointPair { endpoint, peer, .. } = self.pair;
        let may_pull = self.may_pull(context);
        let [messages_in, control_in] = &self.ends.consumers;
        let [messages_out, control_out] = &mut self.ends.producers;
        let has_room = |room: Result<Option<_>, _>| room.map_or(true, |room| room.is_some());
        messages_in.has_record() && context.node.has_room(endpoint, peer)
            || control_in.has_record() && self.chunk.is_none()
            || !self.waiting.is_empty() && control_out.has_room().unwrap_or(true)
            || context.node.has_message(endpoint, peer) && has_room(messages_out.room(LARGEST))
            || may_pull
            || self.pulls.iter().any(|pulling| {
                pulling.at < pulling.piece.len() || context.node.has_piece(endpoint, pulling.pull)
            }) && has_room(control_out.room(CHUNK))
    }

    /// Returns whether anything waits for room, or for what the other host sends.
    pub(super) fn holds_back(&self, context: &NodeContext<'_>) -> bool {
        let EndpointPair { endpoint, peer, .. } = self.pair;
        !self.waiting.is_empty()
            || !self.wanted.is_empty()
            || !self.pulls.is_empty()
            || self.chunk.is_some()
            || context.node.has_message(endpoint, peer)
    }

    /// Returns whether the endpoint sleeps and must be woken.
    pub(super) fn needs_wakeup(&mut self) -> bool {
        self.published.take_wakeup(&mut self.ends.ringer)
    }

    /// Announces to the endpoint that the uplink sleeps.
    pub(super) fn prepare_to_wait(&mut self, context: &NodeContext<'_>) {
        let needs_room = self.holds_back(context);
        self.ends.sleeper.prepare_to_wait(needs_room);
    }

    /// Announces to the endpoint that the uplink is awake.
    pub(super) fn finish_wait(&mut self) {
        self.ends.sleeper.finish_wait();
    }

    /// Forwards all messages that the endpoint left when it closed.
    pub(super) fn drain(&mut self, context: &mut NodeContext<'_>) -> Result<(), Fault> {
        // At most as many as fit into the lane: the endpoint has ended, but a program of its VM may
        // still write the lane.
        for _ in 0..MESSAGES.slots {
            if !self.send_message(context)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn token(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        wire::pair(self.count, self.number)
    }

    /// Whether one more pull is to begin. With many at once, each message would wait for the last bytes of all, and their blocks and
    /// buffers would fit into no cache, nor into the other host's interface.
    fn may_pull(&self, context: &NodeContext<'_>) -> bool {
        if self.wanted.is_empty() {
            return false;
        }
        let left: u64 = self.pulls.iter().map(|one| u64::from(one.left)).sum();
        left < PULLED_AT_ONCE && context.node.can_pull(self.pair.endpoint)
    }

    /// Begins as many pulls as may run at once.
    fn begin_pulls(&mut self, context: &mut NodeContext<'_>) {
        let endpoint = self.pair.endpoint;
        while self.may_pull(context) {
            let Some((offer, receiver, wanted)) = self.wanted.pop_front() else {
                return;
            };
            let token = self.token();
            let begun = context
                .node
                .pull(context.now, endpoint, offer, wanted, token);
            // If the node refuses, the peer is lost, and the end of the link follows.
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

    /// Handles the other host's pull of a message from the endpoint.
    pub(super) fn handle_pull_request(&mut self, token: u64, source: StreamedSend, total: u32) {
        if let Some((sender, place)) = self.sends.get_mut(&token) {
            *place = Some(source);
            self.waiting.push_back(Control::Pull {
                sender: *sender,
                receiver: token,
                wanted: total.into(),
                confirmed: true,
                credits: 0,
            });
        }
    }

    /// Handles the end of a send, of which the other host took `taken` bytes.
    pub(super) fn sent(&mut self, token: u64, taken: u32) {
        if let Some((sender, _)) = self.sends.remove(&token) {
            let taken = taken.into();
            self.waiting.push_back(Control::Done { sender, taken });
        }
    }

    /// Sends queued control records, as far as there is room.
    fn flush_control(&mut self) -> Result<bool, Fault> {
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
        self.published.add_records(moved);
        Ok(moved)
    }

    /// Forwards messages of the other host, as far as the window has room.
    fn take_messages(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let EndpointPair { endpoint, peer, .. } = self.pair;
        let [lane, _] = &mut self.ends.producers;
        let mut moved = false;
        for _ in 0..BURST {
            // A message that is taken is acknowledged, so there must be room for any message.
            if !context.node.has_message(endpoint, peer) || lane.room(LARGEST)?.is_none() {
                break;
            }
            let Some(message) = context.node.next_message(context.now, endpoint, peer) else {
                break;
            };
            moved = true;
            match message {
                Message::Whole { value, data } if data.len() <= EAGER => {
                    lane.push(&wire::eager_bytes(value, &data));
                }
                Message::Whole { value, data } => {
                    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    let room = lane.room(length)?.ok_or(Fault::Malformed)?;
                    let written = lane.write(room.offset.into(), &data);
                    written.ok_or(Fault::Malformed)?;
                    let record = wire::medium(value, room.offset, length, None);
                    lane.push_with_data(&record, room);
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
        self.published.add_records(moved);
        Ok(moved)
    }

    /// Forwards pieces of messages that the endpoint pulls, as far as the window has room.
    fn take_pieces(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let endpoint = self.pair.endpoint;
        let [_, lane] = &mut self.ends.producers;
        let mut moved = false;
        for pulling in &mut self.pulls {
            loop {
                let Some(room) = lane.room(CHUNK)? else {
                    self.published.add_records(moved);
                    return Ok(moved);
                };
                if pulling.at == pulling.piece.len() {
                    let Some(piece) = context.node.next_piece(context.now, endpoint, pulling.pull)
                    else {
                        break;
                    };
                    (pulling.piece, pulling.at) = (piece, 0);
                }
                let rest = pulling.piece.get(pulling.at..).unwrap_or_default();
                let (now, _) = rest.split_at(rest.len().min(CHUNK as usize));
                let length = u32::try_from(now.len()).unwrap_or_default();
                // It is not longer than the space that was found.
                let room = lane.room(length)?.unwrap_or(room);
                let written = lane.write(room.offset.into(), now);
                written.ok_or(Fault::Malformed)?;
                let chunk = Control::Chunk {
                    receiver: pulling.receiver,
                    offset: room.offset,
                    length,
                };
                lane.push_with_data(&chunk.encode(), room);
                pulling.at += now.len();
                if pulling.at == pulling.piece.len() {
                    context.node.recycle(std::mem::take(&mut pulling.piece));
                    pulling.at = 0;
                }
                pulling.left = pulling.left.saturating_sub(length);
                moved = true;
            }
        }
        self.pulls.retain(|pulling| pulling.left > 0);
        self.published.add_records(moved);
        Ok(moved)
    }
}
