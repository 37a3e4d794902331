//! One side of a trunk.

use std::collections::VecDeque;

use window::Ends;
use window::lane::{Consumer, Producer};

use super::note::Note;
use crate::peer::Fault;

#[derive(Debug)]
pub(super) struct Trunk {
    out: Producer,
    into: Consumer,
    /// Notes without room, in order. A link has at most a few of them here, and each name two.
    waiting: VecDeque<Note>,
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
            told: false,
        }
    }

    /// Say something, now or when there is room.
    pub(super) fn say(&mut self, note: Note) -> Result<(), Fault> {
        let same = self.waiting.iter_mut().find(|other| note.replaces(other));
        match same {
            Some(other) => *other = note,
            None => self.waiting.push_back(note),
        }
        self.flush()
    }

    /// Say what waits, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        while let Some(note) = self.waiting.front() {
            if !self.out.has_room()? {
                break;
            }
            self.out.push(&note.encode());
            self.waiting.pop_front();
            self.told = true;
        }
        Ok(())
    }

    /// What the other side says next.
    pub(super) fn hear(&mut self) -> Result<Option<Note>, Fault> {
        let Some(record) = self.into.pop() else {
            self.into.release();
            return Ok(None);
        };
        self.into.release();
        Note::decode(&record).map(Some).ok_or(Fault::Nonsense)
    }

    /// Whether there is something to hear.
    pub(super) fn has_note(&self) -> bool {
        self.into.has_record()
    }
}
