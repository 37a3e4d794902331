//! What is between the two windows of a mediated link.
//!
//! Records are read, checked and written anew; data is copied from window to window. A member can
//! thus make the other end believe nothing that it could not have said to it directly. A record is
//! taken only when there is room for it at the other side, for the largest if it has data: so nothing
//! is ever kept here, and a receiver that does not read holds its sender back.
//!
//! What a short message waits for is here: from the look that finds it to the slot it is written into.
//! So that way is inlined, and everything else comes after it: who is woken, who is charged.

use window::lane::{Consumer, Producer, Record};
use window::yielding::{Awaited, Courtesy};
use window::{Broken, Ends};

use super::limits::BURST;
use crate::limits::{CHUNK, MEDIUM};
use crate::wire::{self, Control, Envelope, Source};

/// Which end of a link.
pub(super) type Side = usize;

/// The window with one of the ends.
#[derive(Debug)]
struct Half {
    ends: Ends,
    /// The end must be woken, if it sleeps.
    told: bool,
    awaited: Awaited,
}

impl Half {
    /// Whether its end sent something that was not taken.
    #[inline(always)]
    fn has_record(&self) -> bool {
        let [messages, control] = &self.ends.consumers;
        messages.has_record() || control.has_record()
    }
}

#[derive(Debug)]
pub(super) struct Relay {
    halves: [Half; 2],
}

/// What the ends of a relay are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// What was taken from each end.
    pub(super) taken: [Taken; 2],
    /// These ends sleep and must be woken.
    pub(super) rings: [bool; 2],
    /// An end waits for this processor to take what was passed on.
    pub(super) hinders: bool,
}

/// What was taken from an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Records of any kind.
    pub(super) records: u64,
    /// Those that begin a message.
    pub(super) messages: u64,
    /// Bytes of messages.
    pub(super) bytes: u64,
}

/// The end that broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guilty(pub(super) Side);

impl Relay {
    pub(super) fn new(ends: [Ends; 2]) -> Self {
        let half = |ends| Half {
            ends,
            told: false,
            awaited: Awaited::default(),
        };
        Self {
            halves: ends.map(half),
        }
    }

    /// Whether neither end sent anything that was not taken.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        let [one, other] = &self.halves;
        !(one.has_record() || other.has_record())
    }

    /// Move what can be moved, both ways.
    pub(super) fn turn(&mut self, courtesy: &Courtesy) -> Result<Turn, Guilty> {
        let mut turn = Turn::default();
        let [one, other] = &mut self.halves;
        turn.taken = [
            forward(one, other).map_err(|blame| blame.of(0, 1))?,
            forward(other, one).map_err(|blame| blame.of(1, 0))?,
        ];
        let [from_one, from_other] = turn.taken.map(|taken| taken.records > 0);
        if from_one {
            one.awaited.came(courtesy);
        }
        if from_other {
            other.awaited.came(courtesy);
        }
        turn.hinders = from_one && other.awaited.shares() || from_other && one.awaited.shares();
        for (half, ring) in self.halves.iter_mut().zip(&mut turn.rings) {
            *ring = std::mem::take(&mut half.told) && half.ends.ringer.must_ring();
        }
        Ok(turn)
    }

    /// Whether everything that one end sent has been taken.
    pub(super) fn is_drained(&self, from: Side) -> bool {
        self.halves.get(from).is_none_or(|half| !half.has_record())
    }

    /// Tell both ends that nobody looks.
    pub(super) fn prepare_to_wait(&mut self) {
        for half in &mut self.halves {
            half.ends.sleeper.prepare_to_wait();
        }
    }

    /// Tell both ends that somebody looks.
    pub(super) fn finish_wait(&mut self) {
        for half in &mut self.halves {
            half.ends.sleeper.finish_wait();
        }
    }

    /// Whether a turn would move something. A fault is something.
    pub(super) fn has_work(&mut self) -> bool {
        let [one, other] = &mut self.halves;
        could_forward(one, other) || could_forward(other, one)
    }
}

/// Who is to blame when a record cannot be moved.
#[derive(Clone, Copy, Debug)]
enum Blame {
    From,
    To,
}

impl Blame {
    fn of(self, from: Side, to: Side) -> Guilty {
        match self {
            Self::From => Guilty(from),
            Self::To => Guilty(to),
        }
    }
}

impl From<Broken> for Blame {
    /// Who takes records breaks what says how many it took.
    fn from(_: Broken) -> Self {
        Self::To
    }
}

/// Bytes of the largest record of each lane.
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
const LARGEST: [u32; 2] = [MEDIUM as u32, CHUNK];

fn could_forward(from: &Half, to: &mut Half) -> bool {
    let lanes = from.ends.consumers.iter().zip(&mut to.ends.producers);
    let mut lanes = lanes.zip(LARGEST);
    lanes.any(|((from, to), largest)| {
        let tag = from.tag();
        tag.is_some_and(|tag| has_room(to, tag, largest).unwrap_or(true))
    })
}

/// Whether there is room for a record with this tag: a slot if it is all in its slot, else also the data
/// of the largest.
#[inline(always)]
fn has_room(to: &mut Producer, tag: u32, largest: u32) -> Result<bool, Broken> {
    match wire::eager_length(tag) {
        Some(_) => to.has_room(),
        None => to.room(largest).map(|room| room.is_some()),
    }
}

/// Move what one end sent on to the other.
#[inline(always)]
fn forward(from: &mut Half, to: &mut Half) -> Result<Taken, Blame> {
    let mut taken = Taken::default();
    // Mostly: one end speaks at a time.
    if !from.has_record() {
        return Ok(taken);
    }
    let [messages, controls] = &mut from.ends.consumers;
    let [to_messages, to_controls] = &mut to.ends.producers;
    let [medium, chunk] = LARGEST;
    taken.messages = pass(messages, to_messages, medium, &mut taken.bytes, message)?;
    let rest = pass(controls, to_controls, chunk, &mut taken.bytes, control)?;
    taken.records = taken.messages + rest;
    to.told |= taken.records > 0;
    from.told |= messages.release() | controls.release();
    Ok(taken)
}

/// Move a lane's records on while there is room, as many as are one link's turn; returns how many.
#[inline(always)]
fn pass(
    from: &mut Consumer,
    to: &mut Producer,
    largest: u32,
    bytes: &mut u64,
    carry: impl Fn(&Record, &mut Consumer, &mut Producer) -> Result<u64, Blame>,
) -> Result<u64, Blame> {
    let mut records = 0;
    while records < BURST as u64 {
        let Some(tag) = from.tag() else {
            break;
        };
        if !has_room(to, tag, largest)? {
            break;
        }
        let record = from.take(tag);
        *bytes += carry(&record, from, to)?;
        records += 1;
    }
    Ok(records)
}

/// Pass a message on; returns how many bytes of it there were.
#[inline(always)]
fn message(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, Blame> {
    let Some(length) = wire::eager_length(record.tag) else {
        return larger(record, from, to);
    };
    to.push(record);
    Ok(length as u64)
}

/// Pass a message on that is not in its slot.
#[inline(never)]
fn larger(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, Blame> {
    match Envelope::decode(record).ok_or(Blame::From)? {
        // It was none when its tag was looked at.
        Envelope::Eager { .. } => Err(Blame::From),
        Envelope::Medium {
            value,
            offset,
            length,
            sender,
        } => {
            let place = |at, length| wire::medium(value, at, length, sender);
            data((offset, length), place, from, to)
        }
        // The other end cannot read this one's heap.
        Envelope::Offer {
            value,
            length,
            sender,
            ..
        } => {
            to.push(&wire::offer(value, length, sender, Source::Stream));
            Ok(0)
        }
    }
}

/// Pass control on; returns how many bytes of a message went with it.
#[inline(never)]
fn control(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, Blame> {
    match Control::decode(record).ok_or(Blame::From)? {
        Control::Chunk {
            receiver,
            offset,
            length,
        } => {
            let place = |offset, length| {
                let chunk = Control::Chunk {
                    receiver,
                    offset,
                    length,
                };
                chunk.encode()
            };
            data((offset, length), place, from, to)
        }
        // They share no memory.
        Control::Share(_) | Control::Copied { .. } => Err(Blame::From),
        same => {
            to.push(&same.encode());
            Ok(0)
        }
    }
}

/// Copy a record's data, and push the record that says where it is now.
fn data(
    (offset, length): (u32, u32),
    record: impl Fn(u32, u32) -> Record,
    from: &mut Consumer,
    to: &mut Producer,
) -> Result<u64, Blame> {
    let room = to.room(length)?;
    // There is room for the largest.
    let room = room.ok_or(Blame::To)?;
    to.carry(room.offset.into(), from, offset.into(), length)
        .ok_or(Blame::From)?;
    to.push_with(&record(room.offset, length), room);
    Ok(length.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect;
    use window::{Side, Window};

    /// A relay, and its ends.
    fn relay() -> (Relay, [Ends; 2]) {
        let windows = [(); 2].map(|()| Window::create(connect::layout().unwrap()).unwrap());
        let [ours, theirs] = [Side::Guest, Side::Creator]
            .map(|side| windows.each_ref().map(|window| window.ends(side).unwrap()));
        (Relay::new(ours), theirs)
    }

    fn send_medium(lane: &mut Producer) {
        let room = lane.room(LARGEST[0]).unwrap().unwrap();
        let record = wire::medium(7, room.offset, LARGEST[0], None);
        lane.push_with(&record, room);
    }

    /// What was taken from the first end.
    fn taken(relay: &mut Relay) -> u64 {
        relay.turn(&Courtesy::default()).unwrap().taken[0].records
    }

    #[test]
    fn what_needs_no_data_waits_for_none() {
        let (mut relay, [mut here, there]) = relay();
        let [out, _] = &mut here.producers;
        let fill = out.capacity() / MEDIUM;
        (0..fill).for_each(|_| send_medium(out));
        assert_eq!(taken(&mut relay), fill);
        out.push(&wire::eager_bytes(7, b"short"));
        assert!(!relay.is_idle() && relay.has_work());
        assert_eq!(taken(&mut relay), 1);
        send_medium(out);
        assert!(!relay.is_idle() && !relay.has_work());
        assert_eq!(taken(&mut relay), 0);
        let [mut messages, _] = there.consumers;
        for _ in 0..fill {
            assert_eq!(messages.pop().unwrap().tag & 0xff, 2);
        }
        assert_eq!(messages.pop(), Some(wire::eager_bytes(7, b"short")));
    }

    #[test]
    fn a_short_message_longer_than_a_slot_is_the_senders_fault() {
        let (mut relay, [mut here, _there]) = relay();
        here.producers[0].push(&Record {
            tag: wire::eager_tag(49),
            body: [7; 7],
        });
        assert!(relay.has_work());
        let turn = relay.turn(&Courtesy::default());
        assert_eq!(turn, Err(Guilty(0)));
    }
}
