//! What the endpoint of a link sends, and what it says of messages that are pulled.

use window::lane::Record;

use super::link::{Chunk, Far, Link, Pair};
use crate::peer::Fault;
use crate::remote::limits::BURST;
use crate::wire::{Control, Envelope, Handle};

impl Link {
    /// Messages of the endpoint, as far as the node has room.
    pub(super) fn send_messages(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let Pair { endpoint, peer, .. } = self.pair;
        let mut moved = false;
        for _ in 0..BURST {
            if !far.node.has_room(endpoint, peer) || !self.send_message(far)? {
                break;
            }
            moved = true;
        }
        let [messages, _] = &mut self.ends.consumers;
        self.told |= messages.release();
        Ok(moved)
    }

    /// The next message of the endpoint, if there is one.
    pub(super) fn send_message(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let Pair { endpoint, peer, .. } = self.pair;
        let [messages, _] = &mut self.ends.consumers;
        let Some(record) = messages.pop() else {
            return Ok(false);
        };
        let (value, data, sender) = match Envelope::decode(&record).ok_or(Fault::Nonsense)? {
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
                let mut data = vec![0; length as usize];
                let read = messages.read(offset.into(), &mut data);
                read.ok_or(Fault::Nonsense)?;
                (value, data, sender)
            }
            Envelope::Offer {
                value,
                length,
                sender,
                ..
            } => {
                // No message of MX is longer.
                let length = u32::try_from(length).map_err(|_| Fault::Nonsense)?;
                let token = self.token();
                self.sends.insert(token, (sender, None));
                let message = (value, length);
                let offered = far.node.offer(far.now, endpoint, peer, message, token);
                // The peer is lost, and the link's end on its way.
                return Ok(offered.is_ok());
            }
        };
        let token = self.token();
        if let Some(sender) = sender {
            self.sends.insert(token, (sender, None));
        }
        let (now, message) = (far.now, (value, data));
        let node = &mut far.node;
        let sent = node.send(now, endpoint, peer, message, sender.is_some(), token);
        Ok(sent.is_ok())
    }

    /// What the endpoint says of messages that are pulled.
    pub(super) fn hear_control(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..BURST {
            if !self.feed(far)? {
                break;
            }
            let [_, control] = &mut self.ends.consumers;
            let Some(record) = control.pop() else {
                break;
            };
            moved = true;
            self.heed(&record)?;
        }
        // A chunk that waits is still in there.
        if self.chunk.is_none() {
            let [_, control] = &mut self.ends.consumers;
            self.told |= control.release();
        }
        Ok(moved)
    }

    fn heed(&mut self, record: &Record) -> Result<(), Fault> {
        match Control::decode(record).ok_or(Fault::Nonsense)? {
            // Nothing of it is wanted.
            Control::Done { sender, .. } => self.want(sender, None, 0),
            Control::Pull {
                sender,
                receiver,
                wanted,
                ..
            } => {
                let wanted = u32::try_from(wanted).map_err(|_| Fault::Nonsense)?;
                self.want(sender, Some(receiver), wanted)
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
            // It shares no memory.
            Control::Share(_) | Control::Copied { .. } => Err(Fault::Nonsense),
        }
    }

    /// The endpoint wants what was offered.
    fn want(&mut self, sender: Handle, receiver: Option<Handle>, wanted: u32) -> Result<(), Fault> {
        let offer = self.offers.remove(&sender).ok_or(Fault::Nonsense)?;
        self.wanted.push_back((offer, receiver, wanted));
        Ok(())
    }

    /// Move the chunk at hand; false when it has to wait.
    fn feed(&mut self, far: &mut Far<'_>) -> Result<bool, Fault> {
        let endpoint = self.pair.endpoint;
        let [_, control] = &mut self.ends.consumers;
        while let Some(chunk) = &mut self.chunk {
            let Some((_, Some(source))) = self.sends.get(&chunk.token) else {
                // The send is over: nobody wants it.
                control.skip();
                self.chunk = None;
                break;
            };
            let space = far.node.space(endpoint, *source);
            let count = space.len().min(chunk.length as usize);
            let Some(space) = space.get_mut(..count).filter(|space| !space.is_empty()) else {
                return Ok(false);
            };
            let read = control.read(chunk.offset.into(), space);
            read.ok_or(Fault::Nonsense)?;
            far.node.fed(far.now, endpoint, *source, count);
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
