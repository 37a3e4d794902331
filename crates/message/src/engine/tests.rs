//! Tests of the engine with a link whose other end is scripted.

use window::Window;
use window::attach::Channel;
use window::layout::{LaneSize, Layout};

use super::*;
use crate::copy_choice::Flow;
use crate::limits::{CREDITS, MEDIUM_WITH_CREDIT, MESSAGES, OFFER_AFTER};
use crate::process_memory::ProcessMemory;
use crate::wire::Envelope;

/// Bytes that are streamed in one turn.
#[allow(clippy::cast_possible_truncation, reason = "a few chunks")]
const TURN: u32 = CHUNKS as u32 * CHUNK;

/// A lane with room for all chunks of a turn, as if the peer took each at once.
const CONTROL: LaneSize = LaneSize {
    slots: 256,
    data: 2 * TURN,
};

const PEER: Peer = Peer {
    index: 3,
    generation: 1,
};

/// Returns an engine, its link, and the other ends of that.
fn engine() -> (Engine, Link, window::Ends) {
    let layout = Layout::new([MESSAGES, CONTROL]).unwrap();
    let window = Window::create(layout).unwrap();
    let other = window.ends(window::Side::Creator).unwrap();
    let (channel, _channel) = Channel::pair().unwrap();
    let process = ProcessMemory::of_peer(&channel);
    let ends = window.ends(window::Side::Attacher).unwrap();
    let mut link = Link::new(ends, channel, None, true);
    link.process = process;
    let engine = Engine::new(Contexts::default(), Heap::new(1 << 20).unwrap());
    (engine, link, other)
}

/// The uplink confirms a message that the other host has received. It may do so before this side
/// runs again after its last chunk.
#[test]
fn a_receiver_confirms_a_streamed_message_right_after_its_last_chunk() {
    let (mut engine, mut link, mut other) = engine();
    let peer = PEER;
    for length in [1, CHUNK, TURN - CHUNK, TURN - CHUNK + 1, TURN] {
        let memory = Memory::Bytes(vec![7; length as usize]);
        let request = engine.send(&mut link, peer, 5, memory, true).unwrap();
        let (sender, wanted) = (request.handle(), u64::from(length));
        let pull = Control::Pull {
            sender,
            receiver: 9,
            wanted,
            confirmed: true,
            credits: 0,
        };
        let done = Control::Done {
            sender,
            taken: wanted,
        };
        for reply in [pull, done] {
            other.producers[1].push(&reply.encode());
            engine.serve(&mut link, peer).unwrap();
        }
        let ended = engine.requests.take(request).unwrap();
        assert_eq!(
            (ended.status.code, ended.status.taken),
            (Code::Success, wanted)
        );
        for lane in &mut other.consumers {
            while lane.pop().is_some() {
                lane.skip();
            }
            lane.release();
        }
    }
}

/// The receiver of the engine's messages.
struct Receiver<'a> {
    ends: &'a mut window::Ends,
    /// What the last offer reported.
    credited: u64,
}

impl<'a> Receiver<'a> {
    fn new(ends: &'a mut window::Ends) -> Self {
        Self { ends, credited: 0 }
    }

    /// Takes the next message: an offer, or `None` for one that is sent whole.
    fn take(&mut self) -> Option<(Handle, Flow)> {
        let lane = &mut self.ends.consumers[0];
        let record = lane.pop().unwrap();
        lane.skip();
        lane.release();
        match Envelope::decode(&record, MEDIUM_WITH_CREDIT).unwrap() {
            Envelope::Offer {
                sender,
                source: Source::Process { flow, credited, .. },
                ..
            } => {
                self.credited = credited;
                Some((sender, flow))
            }
            Envelope::Medium { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for an offered message, grants credits, and takes what is streamed.
    fn pull(&mut self, engine: &mut Engine, link: &mut Link, sender: Handle, credits: u32) {
        let pull = Control::Pull {
            sender,
            receiver: 9,
            wanted: MEDIUM_WITH_CREDIT,
            confirmed: false,
            credits,
        };
        self.ends.producers[1].push(&pull.encode());
        engine.serve(link, PEER).unwrap();
        while self.ends.consumers[1].pop().is_some() {
            self.ends.consumers[1].skip();
        }
        self.ends.consumers[1].release();
    }

    /// Has the engine offer a message, and grants credits for it. Returns the flow.
    fn grant(&mut self, engine: &mut Engine, link: &mut Link, credits: u32) -> Flow {
        send(engine, link, MEDIUM_WITH_CREDIT);
        let (sender, flow) = self.take().unwrap();
        self.pull(engine, link, sender, credits);
        flow
    }

    /// Sends the engine a message.
    fn answer(&mut self, engine: &mut Engine, link: &mut Link) {
        self.ends.producers[0].push(&wire::eager_bytes(1, b"answer"));
        engine.serve(link, PEER).unwrap();
    }
}

fn send(engine: &mut Engine, link: &mut Link, length: u64) -> Request {
    let memory = Memory::Bytes(vec![7; usize::try_from(length).unwrap()]);
    engine.send(link, PEER, 5, memory, false).unwrap()
}

/// A flow is single if each message is sent after the end of the last one, and after one of the peer. The first of several messages is, too, so one
/// alone does not make it single.
#[test]
fn an_offer_tells_how_the_messages_follow_each_other() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    let next = |other: &mut Receiver, engine: &mut Engine, link: &mut Link| {
        send(engine, link, MEDIUM_WITH_CREDIT);
        other.take().unwrap()
    };
    // Nothing of the peer yet.
    let (first, flow) = next(&mut other, engine, link);
    assert_eq!(flow, Flow::Several);
    other.answer(engine, link);
    // The first one has not ended.
    let (second, flow) = next(&mut other, engine, link);
    assert_eq!(flow, Flow::Several);
    other.pull(engine, link, first, 0);
    other.pull(engine, link, second, 0);
    let expected = [Flow::Several, Flow::Single, Flow::Single];
    for (number, expected) in expected.into_iter().enumerate() {
        other.answer(engine, link);
        let (sender, flow) = next(&mut other, engine, link);
        assert_eq!(flow, expected, "{number}");
        other.pull(engine, link, sender, 0);
    }
    // No answer since.
    let (sender, flow) = next(&mut other, engine, link);
    assert_eq!(flow, Flow::Several);
    other.pull(engine, link, sender, 0);
    other.answer(engine, link);
    assert_eq!(next(&mut other, engine, link).1, Flow::Several);
}

#[test]
fn credits_are_for_messages_of_their_flow_and_length() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    for credits in [0, 0, 2] {
        other.answer(engine, link);
        other.grant(engine, link, credits);
    }
    // Those are for the single flow.
    assert_eq!(other.grant(engine, link, 0), Flow::Several);
    other.answer(engine, link);
    send(engine, link, MEDIUM_WITH_CREDIT + 1);
    let (long, _) = other.take().unwrap();
    other.pull(engine, link, long, 0);
    for _ in 0..2 {
        other.answer(engine, link);
        let request = send(engine, link, MEDIUM_WITH_CREDIT);
        assert_eq!(other.take(), None, "with a credit");
        assert!(engine.requests.ended(request).unwrap());
    }
    other.answer(engine, link);
    send(engine, link, MEDIUM_WITH_CREDIT);
    assert!(other.take().is_some(), "no credit is left");
}

/// A sender does not wait until its credits are used up: their renewal takes a moment, in which it may have much to send.
#[test]
fn a_message_is_offered_while_credits_are_left() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    // More than one may grant: so many count.
    other.grant(engine, link, 2 * CREDITS);
    let mut left = CREDITS;
    while left > 0 {
        for _ in 0..OFFER_AFTER.min(left) {
            send(engine, link, MEDIUM_WITH_CREDIT);
            assert_eq!(other.take(), None, "with a credit");
        }
        left = left.saturating_sub(OFFER_AFTER);
        send(engine, link, MEDIUM_WITH_CREDIT + 1);
        assert!(other.take().is_some(), "too long, and renews no credits");
        assert_eq!(other.credited, u64::from(OFFER_AFTER) * MEDIUM_WITH_CREDIT);
        send(engine, link, MEDIUM_WITH_CREDIT);
        assert!(other.take().is_some(), "{left}");
    }
    send(engine, link, MEDIUM_WITH_CREDIT);
    assert!(other.take().is_some(), "no credit is left");
}

/// A program that asks for credits sends a message without one in its own way first, and offers its data later: the next messages have credits meanwhile.
#[test]
fn a_program_that_asks_gets_further_credits_before_it_offers() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    other.grant(engine, link, CREDITS);
    let mut asked = |count: u32| -> Vec<bool> {
        let ask = |_| link.use_credit(&engine.requests, MEDIUM_WITH_CREDIT);
        (0..count).map(ask).collect()
    };
    let answers = asked(2 * OFFER_AFTER);
    let declined = answers.iter().filter(|answer| !**answer).count();
    assert_eq!(declined, 1, "{answers:?}");
    let memory = Memory::Bytes(vec![7; usize::try_from(MEDIUM_WITH_CREDIT).unwrap()]);
    engine.send(link, PEER, 5, memory, true).unwrap();
    assert!(other.take().is_some(), "a synchronous message is offered");
    assert_eq!(
        other.credited,
        u64::from(2 * OFFER_AFTER - 1) * MEDIUM_WITH_CREDIT
    );
}

/// A message with a credit waits for room as a shorter one does, and an offer reports what was sent.
#[test]
fn messages_with_credits_wait_for_room_in_their_order() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    let fits = u64::from(MESSAGES.data) / MEDIUM_WITH_CREDIT;
    let count = u32::try_from(fits + 1).unwrap();
    assert_eq!(other.grant(engine, link, count), Flow::Several);
    let sent: Vec<_> = (0..=count)
        .map(|_| send(engine, link, MEDIUM_WITH_CREDIT))
        .collect();
    let ended: Vec<_> = sent
        .iter()
        .map(|request| engine.requests.ended(*request).unwrap())
        .collect();
    assert_eq!(ended, [true, true, true, true, false, false]);
    assert!(!engine.could_flush(link).unwrap());
    assert_eq!(other.take(), None);
    assert!(engine.could_flush(link).unwrap());
    engine.serve(link, PEER).unwrap();
    for _ in 0..fits {
        assert_eq!(other.take(), None);
    }
    assert!(other.take().is_some(), "the last one has no credit");
    assert_eq!(other.credited, u64::from(count) * MEDIUM_WITH_CREDIT);
}

/// The receiver takes credits back by granting none.
#[test]
fn the_last_pull_counts() {
    let (mut engine, mut link, mut other) = engine();
    let (engine, link, mut other) = (&mut engine, &mut link, Receiver::new(&mut other));
    for _ in 0..2 {
        send(engine, link, MEDIUM_WITH_CREDIT + 1);
    }
    for credits in [CREDITS, 0] {
        let (sender, _) = other.take().unwrap();
        other.pull(engine, link, sender, credits);
    }
    send(engine, link, MEDIUM_WITH_CREDIT);
    assert!(other.take().is_some());
}
