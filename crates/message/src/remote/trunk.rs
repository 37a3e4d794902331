//! One side of a trunk.

use std::collections::{HashMap, HashSet, VecDeque};

use window::Ends;
use window::lane::{Consumer, Producer};

use super::control_message::{ControlMessage, LinkId, Text};
use super::limits::LEGS;
use crate::peer::Fault;

/// Notes that wait for a side that is heard, at most; it makes few more by one note.
const FULL: usize = 2 * LEGS;

/// Notes that wait, at most: others' notes come too, and a gateway that begins is told all names.
const MOST: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Trunk {
    out: Producer,
    into: Consumer,
    /// Notes without room, in order: no more than [`MOST`].
    waiting: VecDeque<ControlMessage>,
    /// The links of the rings among them: ringing twice is ringing once.
    rings: HashSet<LinkId>,
    /// The texts of the names among them, by NIC id and part: the newest is said.
    names: HashMap<(u64, u32), Text>,
    /// Something was published since the other side was woken.
    pub(super) told: bool,
}

impl Trunk {
    pub(super) fn new(ends: Ends) -> Self {
        let [out, _] = ends.producers;
        let [into, _] = ends.consumers;
        Self {
            out,
            into,
            waiting: VecDeque::new(),
            rings: HashSet::new(),
            names: HashMap::new(),
            told: false,
        }
    }

    /// Say something, now or when there is room. A fault when far too much waits: the other side does
    /// not read.
    pub(super) fn say(&mut self, note: ControlMessage) -> Result<(), Fault> {
        // Without looking through what waits, which a stranger can make long.
        let waits = match note {
            ControlMessage::Ring { link } => !self.rings.insert(link),
            ControlMessage::Name { nic, part, text } => {
                self.names.insert((nic, part), text).is_some()
            }
            _ => false,
        };
        if !waits {
            if self.waiting.len() >= MOST {
                return Err(Fault::Nonsense);
            }
            self.waiting.push_back(note);
        }
        self.flush()
    }

    /// Whether so much waits that the other side is not to be heard before it reads: what it says is
    /// answered.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= FULL
    }

    /// Say what waits, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        while !self.waiting.is_empty() && self.out.has_room()? {
            let Some(mut note) = self.waiting.pop_front() else {
                break;
            };
            match &mut note {
                ControlMessage::Ring { link } => drop(self.rings.remove(link)),
                ControlMessage::Name { nic, part, text } => {
                    if let Some(newest) = self.names.remove(&(*nic, *part)) {
                        *text = newest;
                    }
                }
                _ => {}
            }
            self.out.push(&note.encode());
            self.told = true;
        }
        Ok(())
    }

    /// What the other side says next.
    pub(super) fn hear(&mut self) -> Result<Option<ControlMessage>, Fault> {
        let Some(record) = self.into.pop() else {
            self.into.release();
            return Ok(None);
        };
        self.into.release();
        ControlMessage::decode(&record)
            .map(Some)
            .ok_or(Fault::Nonsense)
    }

    /// Whether there is something to hear.
    pub(super) fn has_note(&self) -> bool {
        self.into.has_record()
    }
}

#[cfg(test)]
mod tests {
    use window::layout::Layout;
    use window::{Side, Window};

    use super::*;
    use crate::remote::layout::TRUNK;

    /// The two sides of a trunk.
    fn trunks() -> [Trunk; 2] {
        let window = Window::create(Layout::new(TRUNK).unwrap()).unwrap();
        [Side::Creator, Side::Guest].map(|side| Trunk::new(window.ends(side).unwrap()))
    }

    #[test]
    fn what_waits_is_bounded_and_a_ring_or_a_name_waits_once() {
        let [mut here, mut there] = trunks();
        let close = |link| ControlMessage::Close { link };
        let mut said = 0;
        while here.say(close(said)).is_ok() {
            said += 1;
            assert_eq!(here.is_full(), here.waiting.len() >= FULL);
        }
        assert_eq!(here.waiting.len(), MOST, "and then it is a fault");
        // What repeats what waits is no longer than it.
        let [mut here, _there] = trunks();
        while here.waiting.is_empty() {
            here.say(close(0)).unwrap();
        }
        for turn in 0..100_000u32 {
            here.say(ControlMessage::Ring { link: turn % 7 }).unwrap();
            let text = [(turn % 251) as u8; 40];
            let part = turn % 2;
            here.say(ControlMessage::Name { nic: 5, part, text })
                .unwrap();
        }
        assert_eq!(here.waiting.len(), 1 + 7 + 2);
        assert!(there.hear().unwrap().is_some());
    }

    #[test]
    fn the_newest_name_is_said_and_rings_are_said_again_after_they_were() {
        let [mut here, mut there] = trunks();
        while here.waiting.is_empty() {
            here.say(ControlMessage::Close { link: 0 }).unwrap();
        }
        let name = |byte| ControlMessage::Name {
            nic: 5,
            part: 0,
            text: [byte; 40],
        };
        let ring = ControlMessage::Ring { link: 3 };
        for note in [name(1), ring, name(2), ring] {
            here.say(note).unwrap();
        }
        let mut heard = Vec::new();
        loop {
            here.flush().unwrap();
            match there.hear().unwrap() {
                Some(ControlMessage::Close { .. }) => {}
                Some(note) => heard.push(note),
                None => break,
            }
        }
        assert_eq!(heard, [name(2), ring]);
        here.say(ring).unwrap();
        assert_eq!(there.hear().unwrap(), Some(ring));
    }
}
