//! The relay of a mediated link, between the link's two windows.
//!
//! The relay decodes records, checks them, and encodes them anew; it copies data from window to
//! window. So a member can send the other end nothing through the relay that it could not send
//! directly. The relay takes a record only when the other side has room for it, or for the largest
//! record if it has data. So the relay stores nothing, and a receiver that does not read holds its
//! sender back.
//!
//! The latency of a short message arises here: from the poll that finds it to the slot that it is
//! written into. So that path is inlined, and everything else comes after it: wake-ups and
//! counters.

use window::lane::{Consumer, Producer, Record};
use window::yielding::{AwaitedPeer, Yielder};
use window::{Ends, ProtocolError};

use super::limits::BURST;
use crate::limits::{CHUNK, MEDIUM};
use crate::published::Published;
use crate::wire::{self, Control, Envelope, Source};

/// The index of an end of a link.
pub(super) type Side = usize;

/// The relay's side of the window with one end.
#[derive(Debug)]
struct RelayEnd {
    ends: Ends,
    /// What the end has not been woken for since.
    published: Published,
    awaited: AwaitedPeer,
}

impl RelayEnd {
    /// Returns whether the end sent a record that was not taken.
    #[inline(always)]
    fn has_record(&self) -> bool {
        let [messages, control] = &self.ends.consumers;
        messages.has_record() || control.has_record()
    }
}

#[derive(Debug)]
pub(super) struct Relay {
    ends: [RelayEnd; 2],
}

/// The result of one call of [`Relay::forward_records`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// What was taken from each end.
    pub(super) taken: [TakenCounts; 2],
    /// The ends that sleep and must be woken.
    pub(super) rings: [bool; 2],
    /// An end needs this processor to take what was forwarded.
    pub(super) needs_cpu: bool,
}

/// What was taken from an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenCounts {
    /// Records of any kind.
    pub(super) records: u64,
    /// Records that begin a message.
    pub(super) messages: u64,
    /// Bytes of messages.
    pub(super) bytes: u64,
}

/// The end that violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultyEnd(pub(super) Side);

impl Relay {
    pub(super) fn new(ends: [Ends; 2]) -> Self {
        let end = |ends| RelayEnd {
            ends,
            published: Published::Nothing,
            awaited: AwaitedPeer::default(),
        };
        Self {
            ends: ends.map(end),
        }
    }

    /// Returns whether all that both ends sent was taken.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        let [one, other] = &self.ends;
        !(one.has_record() || other.has_record())
    }

    /// Forwards records in both directions.
    pub(super) fn forward_records(&mut self, yielder: &Yielder) -> Result<Forwarded, FaultyEnd> {
        let mut forwarded = Forwarded::default();
        let [one, other] = &mut self.ends;
        forwarded.taken = [
            forward(one, other).map_err(|fault| fault.of(0, 1))?,
            forward(other, one).map_err(|fault| fault.of(1, 0))?,
        ];
        let [from_one, from_other] = forwarded.taken.map(|taken| taken.records > 0);
        if from_one {
            one.awaited.arrived(yielder);
        }
        if from_other {
            other.awaited.arrived(yielder);
        }
        forwarded.needs_cpu =
            from_one && other.awaited.shares_cpu() || from_other && one.awaited.shares_cpu();
        for (end, ring) in self.ends.iter_mut().zip(&mut forwarded.rings) {
            *ring = end.published.take_wakeup(&mut end.ends.ringer);
        }
        Ok(forwarded)
    }

    /// Returns whether all that one end sent was taken.
    pub(super) fn is_drained(&self, from: Side) -> bool {
        self.ends.get(from).is_none_or(|end| !end.has_record())
    }

    /// Announces to both ends that the relay sleeps, except to those whose doorbells are suppressed. A record that the relay
    /// has left waits for room at the other end.
    pub(super) fn prepare_to_wait(&mut self, suppressed: [bool; 2]) {
        let [one, other] = &mut self.ends;
        let need_room = [other.has_record(), one.has_record()];
        let ends = [one, other].into_iter().zip(need_room);
        for ((end, needs_room), suppressed) in ends.zip(suppressed) {
            if !suppressed {
                end.ends.sleeper.prepare_to_wait(needs_room);
            }
        }
    }

    /// Announces to both ends that the relay is awake.
    pub(super) fn finish_wait(&mut self) {
        for end in &mut self.ends {
            end.ends.sleeper.finish_wait();
        }
    }

    /// Returns whether [`forward_records`](Self::forward_records) would forward a record, or report a fault.
    pub(super) fn has_work(&mut self) -> bool {
        let [one, other] = &mut self.ends;
        could_forward(one, other) || could_forward(other, one)
    }
}

/// The end at fault when a record cannot be forwarded.
#[derive(Clone, Copy, Debug)]
enum FaultAt {
    From,
    To,
}

impl FaultAt {
    fn of(self, from: Side, to: Side) -> FaultyEnd {
        match self {
            Self::From => FaultyEnd(from),
            Self::To => FaultyEnd(to),
        }
    }
}

impl From<ProtocolError> for FaultAt {
    /// The consumer of a lane writes the released count.
    fn from(_: ProtocolError) -> Self {
        Self::To
    }
}

/// Bytes of the largest record of each lane.
#[allow(clippy::cast_possible_truncation, reason = "32 KiB")]
const LARGEST: [u32; 2] = [MEDIUM as u32, CHUNK];

fn could_forward(from: &mut RelayEnd, to: &mut RelayEnd) -> bool {
    let lanes = from.ends.consumers.iter_mut().zip(&mut to.ends.producers);
    let mut lanes = lanes.zip(LARGEST);
    lanes.any(|((from, to), largest)| {
        let tag = from.tag();
        tag.is_some_and(|tag| has_room(to, tag, largest).unwrap_or(true))
    })
}

/// Returns whether there is room for a record with this tag: a slot if the record has no data,
/// otherwise also space for the largest data.
#[inline(always)]
fn has_room(to: &mut Producer, tag: u32, largest: u32) -> Result<bool, ProtocolError> {
    match wire::eager_length(tag) {
        Some(_) => to.has_room(),
        None => to.room(largest).map(|room| room.is_some()),
    }
}

/// Forwards what one end sent to the other.
#[inline(always)]
fn forward(from: &mut RelayEnd, to: &mut RelayEnd) -> Result<TakenCounts, FaultAt> {
    let mut taken = TakenCounts::default();
    // The usual case: one end sends at a time.
    if !from.has_record() {
        return Ok(taken);
    }
    let [messages, controls] = &mut from.ends.consumers;
    let [to_messages, to_controls] = &mut to.ends.producers;
    let [medium, chunk] = LARGEST;
    taken.messages = pass(messages, to_messages, medium, &mut taken.bytes, message)?;
    let rest = pass(controls, to_controls, chunk, &mut taken.bytes, control)?;
    taken.records = taken.messages + rest;
    to.published.add_records(taken.records > 0);
    from.published
        .add_room(messages.release() | controls.release());
    Ok(taken)
}

/// Forwards a lane's records while there is room, at most one link's share; returns how many.
#[inline(always)]
fn pass(
    from: &mut Consumer,
    to: &mut Producer,
    largest: u32,
    bytes: &mut u64,
    carry: impl Fn(&Record, &mut Consumer, &mut Producer) -> Result<u64, FaultAt>,
) -> Result<u64, FaultAt> {
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

/// Forwards a message; returns its length.
#[inline(always)]
fn message(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, FaultAt> {
    let Some(length) = wire::eager_length(record.tag) else {
        return larger(record, from, to);
    };
    to.push(record);
    Ok(length as u64)
}

/// Forwards a message that is not in its slot.
#[inline(never)]
fn larger(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, FaultAt> {
    match Envelope::decode(record, MEDIUM).ok_or(FaultAt::From)? {
        // `tag` is not that of an eager message.
        Envelope::Eager { .. } => Err(FaultAt::From),
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

/// Forwards a control record; returns the bytes of a message that it carries.
#[inline(never)]
fn control(record: &Record, from: &mut Consumer, to: &mut Producer) -> Result<u64, FaultAt> {
    match Control::decode(record).ok_or(FaultAt::From)? {
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
        // The ends share no memory.
        Control::Share(_) | Control::Copied { .. } => Err(FaultAt::From),
        same => {
            to.push(&same.encode());
            Ok(0)
        }
    }
}

/// Copies a record's data, and pushes the record with the new offset.
fn data(
    (offset, length): (u32, u32),
    record: impl Fn(u32, u32) -> Record,
    from: &mut Consumer,
    to: &mut Producer,
) -> Result<u64, FaultAt> {
    let room = to.room(length)?;
    // There is room for the largest data.
    let room = room.ok_or(FaultAt::To)?;
    to.copy_from(room.offset.into(), from, offset.into(), length)
        .ok_or(FaultAt::From)?;
    to.push_with_data(&record(room.offset, length), room);
    Ok(length.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect;
    use window::doorbell::Ringer;
    use window::{Side, Window};

    /// A relay, and its ends.
    fn relay() -> (Relay, [Ends; 2]) {
        let windows = [(); 2].map(|()| Window::create(connect::layout().unwrap()).unwrap());
        let [ours, theirs] = [Side::Attacher, Side::Creator]
            .map(|side| windows.each_ref().map(|window| window.ends(side).unwrap()));
        (Relay::new(ours), theirs)
    }

    fn send_medium(lane: &mut Producer) {
        let room = lane.room(LARGEST[0]).unwrap().unwrap();
        let record = wire::medium(7, room.offset, LARGEST[0], None);
        lane.push_with_data(&record, room);
    }

    /// What was taken from the first end.
    fn taken(relay: &mut Relay) -> u64 {
        relay.forward_records(&Yielder::default()).unwrap().taken[0].records
    }

    #[test]
    fn a_record_without_data_waits_for_no_data_space() {
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

    /// An end that sleeps is woken for room only if it needs room, and for a record always.
    #[test]
    fn released_data_wakes_an_end_that_needs_room() {
        for needs_room in [false, true] {
            let (mut relay, [mut here, mut there]) = relay();
            for end in [&mut here, &mut there] {
                end.sleeper.prepare_to_wait(needs_room);
            }
            send_medium(&mut here.producers[0]);
            let forwarded = relay.forward_records(&Yielder::default()).unwrap();
            assert_eq!(forwarded.rings, [needs_room, true]);
        }
    }

    /// What the relay leaves waits for room at the other end, so that end has to wake it when it releases data.
    #[test]
    fn a_relay_that_leaves_a_record_is_woken_for_room() {
        let (mut relay, [mut here, mut there]) = relay();
        let [out, _] = &mut here.producers;
        let fill = out.capacity() / MEDIUM;
        (0..fill).for_each(|_| send_medium(out));
        assert_eq!(taken(&mut relay), fill);
        for woken in [[false; 2], [false, true]] {
            relay.prepare_to_wait([false; 2]);
            let ringers = [&mut here.ringer, &mut there.ringer];
            assert_eq!(ringers.map(Ringer::needs_wakeup_for_room), woken);
            relay.finish_wait();
            send_medium(&mut here.producers[0]);
            assert_eq!(taken(&mut relay), 0);
        }
    }

    /// An end whose doorbells are suppressed does not ring.
    #[test]
    fn a_sleep_is_not_announced_where_doorbells_are_suppressed() {
        let (mut relay, [mut here, mut there]) = relay();
        for suppressed in [[true, false], [false; 2]] {
            relay.prepare_to_wait(suppressed);
            let ringers = [&mut here.ringer, &mut there.ringer];
            assert_eq!(ringers.map(Ringer::needs_wakeup), suppressed.map(|it| !it));
            relay.finish_wait();
        }
    }

    #[test]
    fn a_short_message_longer_than_a_slot_is_the_senders_fault() {
        let (mut relay, [mut here, _there]) = relay();
        here.producers[0].push(&Record {
            tag: wire::eager_tag(49),
            body: [7; 7],
        });
        assert!(relay.has_work());
        let turn = relay.forward_records(&Yielder::default());
        assert_eq!(turn, Err(FaultyEnd(0)));
    }
}
