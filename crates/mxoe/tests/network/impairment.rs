//! Messages of every kind over a network that loses, duplicates and reorders frames.

use std::time::Duration;

use mxoe::{Code, Event, Message, StreamedSend};
use proptest::prelude::*;

use crate::net::{Impairment, Network, at, pattern, udp};

const LENGTHS: [usize; 12] = [
    0, 5, 32, 33, 128, 129, 4096, 4097, 32_768, 32_769, 100_000, 300_000,
];

/// A message of a plan: its length, whether it is synchronous, and how many quarters of it the
/// receiver pulls if it is offered.
type Planned = (usize, bool, u32);

fn plan() -> impl Strategy<Value = Vec<Planned>> {
    let length = prop::sample::select(LENGTHS.to_vec());
    prop::collection::vec((length, any::<bool>(), 0..=4u32), 1..40)
}

fn impairment() -> impl Strategy<Value = Impairment> {
    (0..30u8, 0..30u8, 0..2000u16).prop_map(|(loss, duplication, jitter_us)| Impairment {
        longest: None,
        no_datagrams: false,
        loss,
        duplication,
        jitter_us,
    })
}

fn exchange(plans: &[Vec<Planned>; 2], impairment: Impairment, seed: u64) {
    // Half of the networks have hosts that take datagrams.
    let mut network = Network::with_udp(2, 500, |node| (seed % 2 == 0).then(|| udp(node)));
    network.impairment = impairment;
    network.rng = fastrand::Rng::with_seed(seed);
    assert_eq!(network.connect(0, 1), Code::Success);
    // The connected side may send as well.
    let mut expected = [0; 2];
    let mut pulls = [Vec::new(), Vec::new()];
    let mut fed: [Vec<(StreamedSend, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut left = 0;
    for from in 0..2 {
        for (value, (length, synchronous, _)) in (0..).zip(&plans[from]) {
            let data = pattern(*length, value);
            let message = (value, data);
            let to = at(1 - from, 3);
            let now = network.now;
            let node = &mut network.nodes[from];
            // The program supplies every other large message in pieces.
            match length {
                32_769.. if value % 2 == 0 => {
                    let length = *length as u32;
                    node.offer(now, 3, to, (value, length), value).unwrap();
                }
                _ => node.send(now, 3, to, message, *synchronous, value).unwrap(),
            }
            left += 2;
        }
    }
    let end = network.now + Duration::from_secs(3000);
    while left > 0 {
        assert!(network.step(end), "{left} results are missing");
        for node in 0..2 {
            while let Some((from, message)) = network.take_message(node) {
                assert_eq!(from, at(1 - node, 3));
                let (Message::Whole { value, .. } | Message::Offered { value, .. }) = &message;
                assert_eq!(*value, expected[node], "in order, once");
                expected[node] += 1;
                let (planned, synchronous, quarters) = plans[1 - node][*value as usize];
                match message {
                    Message::Whole { value, data } => {
                        assert!(!synchronous);
                        assert_eq!(data, pattern(planned, value));
                        left -= 1;
                    }
                    Message::Offered {
                        value,
                        length,
                        offer,
                    } => {
                        assert_eq!(length as usize, planned);
                        let (now, wanted) = (network.now, length / 4 * quarters);
                        let pull = network.nodes[node].pull(now, 3, offer, wanted, value);
                        pulls[node].push((value, pull.unwrap(), Vec::new(), wanted));
                    }
                }
            }
            for (_, pull, data, _) in &mut pulls[node] {
                while let Some(piece) = network.nodes[node].next_piece(network.now, 3, *pull) {
                    data.extend(piece);
                }
            }
            while let Some(event) = network.next_event(node) {
                match event {
                    Event::Pulled { token, code } => {
                        assert_eq!(code, Code::Success);
                        let is = |pull: &(u64, _, _, _)| pull.0 == token;
                        let place = pulls[node].iter().position(is).unwrap();
                        let (_, _, data, wanted) = pulls[node].remove(place);
                        let length = plans[1 - node][token as usize].0;
                        assert_eq!(data, &pattern(length, token)[..wanted as usize]);
                        left -= 1;
                    }
                    Event::PullRequest {
                        token,
                        source,
                        total,
                        ..
                    } => {
                        fed[node].push((source, pattern(total as usize, token)));
                    }
                    Event::Sent { token, code, taken } => {
                        assert_eq!(code, Code::Success);
                        let (length, synchronous, quarters) = plans[node][token as usize];
                        let large = synchronous || length > 32_768;
                        let expected = if large {
                            length as u32 / 4 * quarters
                        } else {
                            length as u32
                        };
                        assert_eq!(taken, expected);
                        left -= 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let now = network.now;
            for (source, data) in &mut fed[node] {
                // Any number of bytes at a time.
                let most = network.rng.usize(0..50_000);
                let space = network.nodes[node].send_buffer(3, *source);
                let count = space.len().min(data.len()).min(most);
                space[..count].copy_from_slice(&data[..count]);
                network.nodes[node].commit(now, 3, *source, count);
                data.drain(..count);
            }
        }
    }
    // No message arrives twice, and all timers but one stop.
    network.impairment = Impairment::default();
    network.advance(Duration::from_secs(20));
    for node in 0..2 {
        assert_eq!(network.next_event(node), None);
        assert_eq!(network.take_message(node), None);
        // The remaining timer is that of the next probe.
        assert!(network.nodes[node].deadline() > Some(network.now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn mxoe_4_everything_arrives_once_in_order_under_impairment(
        there in plan(), back in plan(), impairment in impairment(), seed: u64
    ) {
        exchange(&[there, back], impairment, seed);
    }
}

#[test]
fn mxoe_4_sequence_numbers_wrap() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    for value in 0..20_000 {
        network.send(0, 1, value, vec![1]).unwrap();
    }
    for value in 0..20_000 {
        assert_eq!(network.value(1), value);
    }
}

#[test]
fn mxoe_5_3_a_lost_frame_costs_milliseconds() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    // The first message gives the node its first sample of the response time.
    for value in 0..20 {
        network.impairment.loss = if value == 0 { 0 } else { 5 };
        let before = network.now;
        let data = pattern(1 << 20, value);
        network.send(0, 1, value, data).unwrap();
        let offer = network.offered(1);
        let now = network.now;
        let pull = network.nodes[1]
            .pull(now, 3, offer, 1 << 20, value)
            .unwrap();
        network.until(|network| {
            let now = network.now;
            while network.nodes[1].next_piece(now, 3, pull).is_some() {}
            match network.next_event(0) {
                Some(Event::Sent { .. }) => Some(()),
                _ => None,
            }
        });
        // The message has 256 frames, of which about a dozen are lost. With the dialect's timeouts,
        // each loss could cost a second.
        let took = network.now - before;
        assert!(took < Duration::from_millis(500), "{value}: {took:?}");
    }
}
