//! Tests of the engine with a link whose other end is scripted.

use window::Window;
use window::attach::Channel;
use window::layout::{LaneSize, Layout};

use super::*;
use crate::limits::MESSAGES;

/// Bytes that are streamed in one turn.
#[allow(clippy::cast_possible_truncation, reason = "a few chunks")]
const TURN: u32 = CHUNKS as u32 * CHUNK;

/// A lane with room for all chunks of a turn, as if the peer took each at once.
const CONTROL: LaneSize = LaneSize {
    slots: 256,
    data: 2 * TURN,
};

/// The uplink confirms a message that the other host has received. It may do so before this side
/// runs again after its last chunk.
#[test]
fn a_receiver_confirms_a_streamed_message_right_after_its_last_chunk() {
    let layout = Layout::new([MESSAGES, CONTROL]).unwrap();
    let window = Window::create(layout).unwrap();
    let mut other = window.ends(window::Side::Creator).unwrap();
    let (channel, _channel) = Channel::pair().unwrap();
    let ends = window.ends(window::Side::Attacher).unwrap();
    let mut link = Link::new(ends, channel, None, true);
    let heap = Heap::new(1 << 20).unwrap();
    let mut engine = Engine::new(Contexts::default(), heap);
    let peer = Peer {
        index: 3,
        generation: 1,
    };
    for length in [1, CHUNK, TURN - CHUNK, TURN - CHUNK + 1, TURN] {
        let memory = Memory::Bytes(vec![7; length as usize]);
        let request = engine.send(&mut link, peer, 5, memory, true).unwrap();
        let (sender, wanted) = (request.handle(), u64::from(length));
        let pull = Control::Pull {
            sender,
            receiver: 9,
            wanted,
            confirmed: true,
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
