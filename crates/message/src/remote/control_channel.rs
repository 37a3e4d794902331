//! One side of a control.

use std::collections::{HashMap, HashSet, VecDeque};

use window::Ends;
use window::lane::{Consumer, Producer};

use super::LINKS_PER_MEMBER;
use super::control_message::{ControlMessage, LinkId, Text};
use crate::peer::Fault;

/// Notes that wait for a side that is heard, at most; it makes few more by one message.
const PAUSE_LIMIT: usize = 2 * LINKS_PER_MEMBER;

/// Notes that wait, at most: others' notes come too, and a gateway that begins is published all names.
const QUEUE_LIMIT: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct ControlChannel {
    producer: Producer,
    consumer: Consumer,
    /// Notes without room, in order: no more than [`QUEUE_LIMIT`].
    queue: VecDeque<ControlMessage>,
    /// The links of the rings among them: ringing twice is ringing once.
    rings: HashSet<LinkId>,
    /// The texts of the names among them, by NIC id and part: the newest is said.
    names: HashMap<(u64, u32), Text>,
    /// Something was published since the other side was woken.
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

    /// Say something, now or when there is room. A fault when far too much waits: the other side does
    /// not read.
    pub(super) fn send(&mut self, message: ControlMessage) -> Result<(), Fault> {
        // Without looking through what waits, which a stranger can make long.
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

    /// Whether so much waits that the other side is not to be heard before it reads: what it says is
    /// answered.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= PAUSE_LIMIT
    }

    /// Say what waits, as far as there is room.
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

    /// What the other side says next.
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

    /// Whether there is something to receive.
    pub(super) fn has_message(&self) -> bool {
        self.consumer.has_record()
    }
}

#[cfg(test)]
mod tests {
    use window::layout::Layout;
    use window::{Side, Window};

    use super::*;
    use crate::remote::CONTROL_LANES;

    /// The two sides of a control.
    fn channels() -> [ControlChannel; 2] {
        let window = Window::create(Layout::new(CONTROL_LANES).unwrap()).unwrap();
        [Side::Creator, Side::Attacher].map(|side| ControlChannel::new(window.ends(side).unwrap()))
    }

    #[test]
    fn what_waits_is_bounded_and_a_ring_or_a_name_waits_once() {
        let [mut here, mut there] = channels();
        let close = |link| ControlMessage::Close { link };
        let mut said = 0;
        while here.send(close(said)).is_ok() {
            said += 1;
            assert_eq!(here.is_full(), here.queue.len() >= PAUSE_LIMIT);
        }
        assert_eq!(here.queue.len(), QUEUE_LIMIT, "and then it is a fault");
        // What repeats what waits is no longer than it.
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
    fn the_newest_name_is_said_and_rings_are_said_again_after_they_were() {
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
        let mut heard = Vec::new();
        loop {
            here.flush().unwrap();
            match there.receive().unwrap() {
                Some(ControlMessage::Close { .. }) => {}
                Some(message) => heard.push(message),
                None => break,
            }
        }
        assert_eq!(heard, [name(2), ring]);
        here.send(ring).unwrap();
        assert_eq!(there.receive().unwrap(), Some(ring));
    }
}
