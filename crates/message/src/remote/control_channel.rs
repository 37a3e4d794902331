//! One side of a control channel: the window between a member and the host that carries control
//! messages.

use std::collections::{HashMap, HashSet, VecDeque};

use window::Ends;
use window::lane::{Consumer, Producer};

use super::control_message::{ControlMessage, LinkId, Text};
use super::limits::LINKS_PER_MEMBER;
use crate::peer::Fault;

/// The number of queued messages above which this side takes no further messages from the other:
/// each message taken queues a few more.
const PAUSE_LIMIT: usize = 2 * LINKS_PER_MEMBER;

/// The most queued messages. More than above, because messages of others are queued too, and a
/// gateway that joins receives all names.
const QUEUE_LIMIT: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct ControlChannel {
    producer: Producer,
    consumer: Consumer,
    /// Messages without room, in order: no more than [`QUEUE_LIMIT`].
    queue: VecDeque<ControlMessage>,
    /// The links of the queued rings: one ring for each link is enough.
    rings: HashSet<LinkId>,
    /// The texts of the queued names, by NIC id and part: only the newest text is sent.
    names: HashMap<(u64, u32), Text>,
    /// Messages were published since the other side was woken.
    pub(super) published: bool,
}

impl ControlChannel {
    pub(super) fn new(ends: Ends) -> Self {
        let [producer, _] = ends.producers;
        let [consumer, _] = ends.consumers;
        Self {
            producer,
            consumer,
            queue: VecDeque::new(),
            rings: HashSet::new(),
            names: HashMap::new(),
            published: false,
        }
    }

    /// Sends a message, or queues it until there is room. Returns a fault if the queue is full: the
    /// other side does not read.
    pub(super) fn send(&mut self, message: ControlMessage) -> Result<(), Fault> {
        // This does not search the queue, which a peer can make long.
        let waits = match message {
            ControlMessage::Ring { link } => !self.rings.insert(link),
            ControlMessage::Name { nic, part, text } => {
                self.names.insert((nic, part), text).is_some()
            }
            _ => false,
        };
        if !waits {
            if self.queue.len() >= QUEUE_LIMIT {
                return Err(Fault::Malformed);
            }
            self.queue.push_back(message);
        }
        self.flush()
    }

    /// Returns whether so many messages are queued that no message is to be taken from the other
    /// side before it reads some: each is answered.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= PAUSE_LIMIT
    }

    /// Sends queued messages, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        while !self.queue.is_empty() && self.producer.has_room()? {
            let Some(mut message) = self.queue.pop_front() else {
                break;
            };
            match &mut message {
                ControlMessage::Ring { link } => drop(self.rings.remove(link)),
                ControlMessage::Name { nic, part, text } => {
                    if let Some(newest) = self.names.remove(&(*nic, *part)) {
                        *text = newest;
                    }
                }
                _ => {}
            }
            self.producer.push(&message.encode());
            self.published = true;
        }
        Ok(())
    }

    /// Receives the next message.
    pub(super) fn receive(&mut self) -> Result<Option<ControlMessage>, Fault> {
        let Some(record) = self.consumer.pop() else {
            self.consumer.release();
            return Ok(None);
        };
        self.consumer.release();
        ControlMessage::decode(&record)
            .map(Some)
            .ok_or(Fault::Malformed)
    }

    /// Returns whether there is a message to receive.
    pub(super) fn has_message(&self) -> bool {
        self.consumer.has_record()
    }
}

#[cfg(test)]
mod tests {
    use window::layout::Layout;
    use window::{Side, Window};

    use super::*;
    use crate::remote::layout::CONTROL_LANES;

    /// The two sides of a control channel.
    fn channels() -> [ControlChannel; 2] {
        let window = Window::create(Layout::new(CONTROL_LANES).unwrap()).unwrap();
        [Side::Creator, Side::Attacher].map(|side| ControlChannel::new(window.ends(side).unwrap()))
    }

    #[test]
    fn the_queue_is_bounded_and_holds_a_ring_or_a_name_once() {
        let [mut here, mut there] = channels();
        let close = |link| ControlMessage::Close { link };
        let mut sent = 0;
        while here.send(close(sent)).is_ok() {
            sent += 1;
            assert_eq!(here.is_full(), here.queue.len() >= PAUSE_LIMIT);
        }
        assert_eq!(here.queue.len(), QUEUE_LIMIT, "and then it is a fault");
        // A message that repeats a queued one takes no further place.
        let [mut here, _there] = channels();
        while here.queue.is_empty() {
            here.send(close(0)).unwrap();
        }
        for turn in 0..100_000u32 {
            here.send(ControlMessage::Ring { link: turn % 7 }).unwrap();
            let text = [(turn % 251) as u8; 40];
            let part = turn % 2;
            here.send(ControlMessage::Name { nic: 5, part, text })
                .unwrap();
        }
        assert_eq!(here.queue.len(), 1 + 7 + 2);
        assert!(there.receive().unwrap().is_some());
    }

    #[test]
    fn the_newest_name_is_sent_and_a_ring_is_sent_again_after_it_was() {
        let [mut here, mut there] = channels();
        while here.queue.is_empty() {
            here.send(ControlMessage::Close { link: 0 }).unwrap();
        }
        let name = |byte| ControlMessage::Name {
            nic: 5,
            part: 0,
            text: [byte; 40],
        };
        let ring = ControlMessage::Ring { link: 3 };
        for message in [name(1), ring, name(2), ring] {
            here.send(message).unwrap();
        }
        let mut received = Vec::new();
        loop {
            here.flush().unwrap();
            match there.receive().unwrap() {
                Some(ControlMessage::Close { .. }) => {}
                Some(message) => received.push(message),
                None => break,
            }
        }
        assert_eq!(received, [name(2), ring]);
        here.send(ring).unwrap();
        assert_eq!(there.receive().unwrap(), Some(ring));
    }
}
