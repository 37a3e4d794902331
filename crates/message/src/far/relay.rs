//! What is between the two windows of a mediated link.
//!
//! Records are read, checked and written anew; data is copied from window to window. A member can
//! thus make the other end believe nothing that it could not have said to it directly. A record is
//! taken only when there is room for the largest one at the other side, so nothing is ever kept
//! here, and a receiver that does not read holds its sender back.

use window::Ends;
use window::courtesy::{Awaited, Courtesy};
use window::lane::{Consumer, Producer, Record};

use super::BURST;
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
    pub(super) fn doze(&mut self) {
        for half in &mut self.halves {
            half.ends.sleeper.doze();
        }
    }

    /// Tell both ends that somebody looks.
    pub(super) fn rise(&mut self) {
        for half in &mut self.halves {
            half.ends.sleeper.rise();
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

/// Bytes of the largest record of each lane.
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
const LARGEST: [u32; 2] = [MEDIUM as u32, CHUNK];

fn could_forward(from: &Half, to: &mut Half) -> bool {
    let lanes = from.ends.consumers.iter().zip(&mut to.ends.producers);
    let mut lanes = lanes.zip(LARGEST);
    lanes.any(|((from, to), largest)| {
        from.has_record() && to.room(largest).map_or(true, |room| room.is_some())
    })
}

fn forward(from: &mut Half, to: &mut Half) -> Result<Taken, Blame> {
    let mut taken = Taken::default();
    // Mostly: a relay looks at each end many times for each record.
    if !from.has_record() {
        return Ok(taken);
    }
    let lanes = from.ends.consumers.iter_mut().zip(&mut to.ends.producers);
    let lanes = lanes.zip(LARGEST).zip([message, control]);
    for (lane, (((consumer, producer), largest), carry)) in lanes.enumerate() {
        for _ in 0..BURST {
            // Room is asked for only when there is something to go there.
            if !consumer.has_record() {
                break;
            }
            let room = producer.room(largest).map_err(|_| Blame::To)?;
            let Some(record) = room.and_then(|_| consumer.pop()) else {
                break;
            };
            taken.bytes += carry(&record, consumer, producer)?;
            taken.records += 1;
            taken.messages += u64::from(lane == 0);
            to.told = true;
        }
        from.told |= consumer.release();
    }
    Ok(taken)
}

/// Pass a message on; returns how many bytes of it there were.
fn message(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, Blame> {
    match Envelope::decode(record).ok_or(Blame::From)? {
        Envelope::Eager { length, .. } => {
            to.push(record);
            Ok(length as u64)
        }
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
    let room = to.room(length).map_err(|_| Blame::To)?;
    // There is room for the largest.
    let room = room.ok_or(Blame::To)?;
    to.carry(room.offset.into(), from, offset.into(), length)
        .ok_or(Blame::From)?;
    to.push_with(&record(room.offset, length), room);
    Ok(length.into())
}
