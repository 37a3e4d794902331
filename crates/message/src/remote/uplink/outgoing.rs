//! The records that a link's endpoint sends: messages, and control records of pulled messages.

use window::lane::Record;

use super::link::{Chunk, EndpointPair, Link, NodeContext};
use crate::limits::MEDIUM;
use crate::peer::Fault;
use crate::remote::limits::BURST;
use crate::wire::{Control, Envelope, Handle};

impl Link {
    /// Forwards messages of the endpoint, as far as the node has room.
    pub(super) fn send_messages(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let EndpointPair { endpoint, peer, .. } = self.pair;
        let mut moved = false;
        for _ in 0..BURST {
            let [messages, _] = &self.ends.consumers;
            let may_send = messages.has_record() && context.node.has_room(endpoint, peer);
            if !may_send || !self.send_message(context)? {
                break;
            }
            moved = true;
        }
        let [messages, _] = &mut self.ends.consumers;
        self.published.add_room(messages.release());
        Ok(moved)
    }

    /// Forwards the next message of the endpoint; false if there is none.
    pub(super) fn send_message(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let EndpointPair { endpoint, peer, .. } = self.pair;
        let [messages, _] = &mut self.ends.consumers;
        let Some(record) = messages.pop() else {
            return Ok(false);
        };
        let envelope = Envelope::decode(&record, MEDIUM).ok_or(Fault::Malformed)?;
        let (value, data, sender) = match envelope {
            Envelope::Eager {
                value,
                length,
                words,
            } => {
                let words = words.map(u64::to_ne_bytes);
                let data = words.as_flattened().get(..length);
                (value, data.unwrap_or_default().to_vec(), None)
            }
            Envelope::Medium {
                value,
                offset,
                length,
                sender,
            } => {
                let mut data = context.node.message_buffer(length as usize);
                let read = messages.read(offset.into(), &mut data);
                read.ok_or(Fault::Malformed)?;
                (value, data, sender)
            }
            Envelope::Offer {
                value,
                length,
                sender,
                ..
            } => {
                // No message of MX is longer.
                let length = u32::try_from(length).map_err(|_| Fault::Malformed)?;
                let token = self.token();
                self.sends.insert(token, (sender, None));
                let message = (value, length);
                let offered = context
                    .node
                    .offer(context.now, endpoint, peer, message, token);
                // If the node refuses, the peer is lost, and the end of the link follows.
                return Ok(offered.is_ok());
            }
        };
        let token = sender.map(|sender| {
            let token = self.token();
            self.sends.insert(token, (sender, None));
            token
        });
        let (now, message) = (context.now, (value, data));
        let node = &mut context.node;
        let sent = node.send(now, endpoint, peer, message, sender.is_some(), token);
        Ok(sent.is_ok())
    }

    /// Takes the endpoint's control records of pulled messages.
    pub(super) fn handle_control_lane(
        &mut self,
        context: &mut NodeContext<'_>,
    ) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..BURST {
            if !self.move_chunk(context)? {
                break;
            }
            let [_, control] = &mut self.ends.consumers;
            let Some(record) = control.pop() else {
                break;
            };
            moved = true;
            self.handle_control(&record)?;
        }
        // A chunk that waits is still in the lane's data area.
        if self.chunk.is_none() {
            let [_, control] = &mut self.ends.consumers;
            self.published.add_room(control.release());
        }
        Ok(moved)
    }

    fn handle_control(&mut self, record: &Record) -> Result<(), Fault> {
        match Control::decode(record).ok_or(Fault::Malformed)? {
            // The endpoint wants no byte of it.
            Control::Done { sender, .. } => self.request_offer(sender, None, 0),
            Control::Pull {
                sender,
                receiver,
                wanted,
                ..
            } => {
                let wanted = u32::try_from(wanted).map_err(|_| Fault::Malformed)?;
                self.request_offer(sender, Some(receiver), wanted)
            }
            Control::Chunk {
                receiver,
                offset,
                length,
            } => {
                self.chunk = Some(Chunk {
                    token: receiver,
                    offset,
                    length,
                });
                Ok(())
            }
            // The uplink shares no memory.
            Control::Share(_) | Control::Copied { .. } => Err(Fault::Malformed),
        }
    }

    /// Handles the endpoint's request for an offered message.
    fn request_offer(
        &mut self,
        sender: Handle,
        receiver: Option<Handle>,
        wanted: u32,
    ) -> Result<(), Fault> {
        let offer = self.offers.remove(&sender).ok_or(Fault::Malformed)?;
        self.wanted.push_back((offer, receiver, wanted));
        Ok(())
    }

    /// Moves the current chunk into the node; false if it has to wait.
    fn move_chunk(&mut self, context: &mut NodeContext<'_>) -> Result<bool, Fault> {
        let endpoint = self.pair.endpoint;
        let [_, control] = &mut self.ends.consumers;
        while let Some(chunk) = &mut self.chunk {
            let Some((_, Some(source))) = self.sends.get(&chunk.token) else {
                // The send has ended: the chunk is dropped.
                control.skip();
                self.chunk = None;
                break;
            };
            let space = context.node.send_buffer(endpoint, *source);
            let count = space.len().min(chunk.length as usize);
            let Some(space) = space.get_mut(..count).filter(|space| !space.is_empty()) else {
                return Ok(false);
            };
            let read = control.read(chunk.offset.into(), space);
            read.ok_or(Fault::Malformed)?;
            context.node.commit(context.now, endpoint, *source, count);
            let count = u32::try_from(count).unwrap_or_default();
            chunk.offset += count;
            chunk.length -= count;
            if chunk.length == 0 {
                self.chunk = None;
            }
        }
        Ok(true)
    }
}
