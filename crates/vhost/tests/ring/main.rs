//! The split ring and the chain walker, against a driver written from the specification.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;
mod random;

use std::sync::Arc;

use common::{device, serve};
use front_end::queue::{INDIRECT, NEXT, WRITE};
use front_end::wire::{request, state};
use front_end::{Buffer, Layout, Nic, Options, features, frame};
use vhost::backend::Backend;
use vhost::chain::Batch;
use vhost::copy::Cursor;
use vhost::fault::RingFault;
use vhost::limits::{BATCH, BATCH_SPANS, MAX_CHAIN};
use vhost::memory::GuestMemory;
use vhost::ring::Ring;

const RX: usize = 0;
const TX: usize = 1;

fn ring(backend: &mut Backend, number: usize) -> &mut Ring {
    backend.vring_mut(number).unwrap().active_mut().unwrap()
}

/// Returns the bytes of every chain that is available now.
fn look(
    ring: &mut Ring,
    memory: &GuestMemory,
    most: u16,
) -> Result<Vec<(u16, Vec<u8>)>, RingFault> {
    let mut batch = Batch::new();
    ring.collect(memory, most, &mut batch)?;
    let read = |chain: &vhost::chain::Chain| {
        let mut bytes = vec![0; chain.bytes as usize];
        let mut cursor = Cursor::new(batch.spans(chain));
        assert_eq!(cursor.read(&mut bytes), bytes.len());
        assert_eq!(cursor.read(&mut [0]), 0, "more spans than bytes");
        (chain.head, bytes)
    };
    Ok(batch.chains().iter().map(read).collect())
}

/// Takes and returns every available chain; returns the frames without their headers.
fn take_all(backend: &mut Backend) -> Vec<Vec<u8>> {
    let memory = Arc::clone(backend.memory());
    let ring = ring(backend, TX);
    let mut frames = Vec::new();
    loop {
        let chains = look(ring, &memory, u16::MAX).unwrap();
        if chains.is_empty() {
            return frames;
        }
        ring.consume(chains.len() as u16);
        for (head, bytes) in chains {
            ring.put_used(head, 0);
            frames.push(bytes[12..].to_vec());
        }
        let _ = ring.publish();
    }
}

fn numbered(number: u64, length: usize) -> Vec<u8> {
    frame::numbered(frame::mac(2), frame::mac(1), number, length)
}

fn without_event_idx() -> Options {
    Options {
        features: features::PLAIN & !features::EVENT_IDX,
        ..Options::default()
    }
}

#[test]
fn spec_2_7_13_indices_wrap_at_65536() {
    for size in [1, 2, 256] {
        let options = Options {
            size,
            base: 65_400,
            ..Options::default()
        };
        let (mut nic, mut backend) = device(options);
        let mut expected = 0;
        for number in 0..70_000 {
            let bytes = numbered(number, 64);
            if !nic.enqueue(&[0; 12], &bytes, Layout::One) || number % 7 == 0 {
                let _ = nic.tx.publish();
                for bytes in take_all(&mut backend) {
                    assert_eq!(frame::number(&bytes), expected);
                    expected += 1;
                }
                if nic.reclaim() > 0 && expected == number {
                    assert!(nic.enqueue(&[0; 12], &bytes, Layout::One));
                }
            }
        }
        let _ = nic.tx.publish();
        expected += take_all(&mut backend).len() as u64;
        assert_eq!(expected, 70_000);
    }
}

#[test]
fn the_largest_ring_works() {
    let options = Options {
        size: 32_768,
        post: false,
        receive_bytes: 64,
        ..Options::default()
    };
    let (mut nic, mut backend) = device(options);
    assert_eq!(nic.post(u16::MAX), 32_768);
    let _ = nic.rx.publish();
    assert_eq!(ring(&mut backend, RX).available().unwrap(), 32_768);
    nic.rx
        .publish_wrong_index(nic.rx.published().wrapping_add(1));
    assert!(ring(&mut backend, RX).available().is_err());
}

#[test]
fn spec_2_7_7_2_a_call_is_wanted_when_the_used_event_is_passed() {
    // All distances between the index at which the driver wants a call and the published index.
    for base in [0, 65_533] {
        for wanted in 0..6 {
            for first in 1..4_u16 {
                let options = Options {
                    base,
                    ..Options::default()
                };
                let (mut nic, mut backend) = device(options);
                for _ in 0..8 {
                    assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
                }
                let _ = nic.tx.publish();
                nic.tx.call_after(wanted);
                let memory = Arc::clone(backend.memory());
                let ring = ring(&mut backend, TX);
                let chains = look(ring, &memory, u16::MAX).unwrap();
                ring.consume(8);
                let mut done = 0;
                for step in [first, 8 - first] {
                    for _ in 0..step {
                        ring.put_used(chains[usize::from(done)].0, 0);
                        done += 1;
                    }
                    // This step passes the event index: it publishes the element at `wanted`.
                    let passed = (done - step..done).contains(&wanted);
                    assert_eq!(ring.publish(), passed, "{base} {wanted} {first}");
                    assert!(!ring.publish(), "nothing new");
                }
            }
        }
    }
}

#[test]
fn spec_2_7_7_1_without_event_idx_the_flag_suppresses_calls() {
    let (mut nic, mut backend) = device(without_event_idx());
    for suppressed in [true, false, true] {
        if suppressed {
            nic.tx.suppress_calls();
        } else {
            nic.tx.ask_for_call();
        }
        assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
        let _ = nic.tx.publish();
        let memory = Arc::clone(backend.memory());
        let ring = ring(&mut backend, TX);
        let head = look(ring, &memory, 1).unwrap()[0].0;
        ring.consume(1);
        ring.put_used(head, 0);
        assert_eq!(ring.publish(), !suppressed);
    }
}

#[test]
fn spec_2_7_10_kicks_are_enabled_and_suppressed() {
    for options in [Options::default(), without_event_idx()] {
        let (mut nic, mut backend) = device(options);
        let send = |nic: &mut Nic| {
            assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
            nic.tx.publish()
        };
        assert!(!ring(&mut backend, TX).enable_kicks(0).unwrap());
        assert!(send(&mut nic), "enabled, and no kick came");
        ring(&mut backend, TX).disable_kicks();
        take_all(&mut backend);
        ring(&mut backend, TX).disable_kicks();
        for _ in 0..5 {
            assert!(!send(&mut nic), "suppressed, and a kick came");
        }
        // A chain is available already: the device must not sleep now.
        assert!(ring(&mut backend, TX).enable_kicks(0).unwrap());
        take_all(&mut backend);
        assert!(!ring(&mut backend, TX).enable_kicks(0).unwrap());
        assert!(send(&mut nic));
    }
}

#[test]
fn spec_2_7_10_a_ring_that_is_too_short_is_not_empty() {
    for options in [Options::default(), without_event_idx()] {
        let (mut nic, mut backend) = device(Options {
            post: false,
            ..options
        });
        nic.post(3);
        let _ = nic.rx.publish();
        // The device has seen three chains, which are too few: the fourth causes a kick.
        assert!(!ring(&mut backend, RX).enable_kicks(3).unwrap());
        nic.post(1);
        assert!(nic.rx.publish());
        // The device has seen two chains: the others came before it enabled kicks.
        assert!(ring(&mut backend, RX).enable_kicks(2).unwrap());
    }
}

#[test]
fn more_than_a_batch_is_taken_in_batches() {
    let (_nic, mut backend) = device(Options::default());
    let memory = Arc::clone(backend.memory());
    let ring = ring(&mut backend, RX);
    let mut seen = Vec::new();
    loop {
        let mut batch = Batch::new();
        ring.collect(&memory, u16::MAX, &mut batch).unwrap();
        let count = batch.chains().len();
        assert_eq!(batch.is_full(), count == BATCH);
        if count == 0 {
            break;
        }
        seen.extend(batch.chains().iter().map(|chain| chain.head));
        ring.consume(count as u16);
    }
    assert_eq!(seen.len(), 256);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 256);
}

#[test]
fn a_batch_whose_spans_are_used_up_leaves_the_rest_in_the_ring() {
    let options = Options {
        size: 4096,
        ..Options::default()
    };
    let (mut nic, mut backend) = device(options);
    for number in 0..5 {
        let bytes = numbered(number, 600 - 12);
        assert!(nic.enqueue(&[0; 12], &bytes, Layout::Pieces(1)));
    }
    let _ = nic.tx.publish();
    let memory = Arc::clone(backend.memory());
    let ring = ring(&mut backend, TX);
    for (expected, count) in [(0, 2), (2, 2), (4, 1)] {
        let chains = look(ring, &memory, u16::MAX).unwrap();
        assert_eq!(chains.len(), count.min(BATCH_SPANS / 600));
        for (number, (_, bytes)) in (expected..).zip(&chains) {
            assert_eq!(frame::number(&bytes[12..]), number);
        }
        ring.consume(chains.len() as u16);
    }
}

#[test]
fn spec_2_7_8_chains_are_seen_once_they_are_published() {
    let (mut nic, mut backend) = device(Options::default());
    for _ in 0..20 {
        assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::Pieces(10)));
    }
    let _ = nic.tx.publish();
    let memory = Arc::clone(backend.memory());
    let ring = ring(&mut backend, TX);
    let chains = look(ring, &memory, u16::MAX).unwrap();
    ring.consume(20);
    ring.put_used_run(chains.iter().map(|chain| chain.0));
    assert_eq!(nic.tx.take_used(), None, "seen before it was published");
    let _ = ring.publish();
    for (head, _) in chains {
        assert_eq!(nic.tx.take_used(), Some((head, 0)));
    }
}

#[test]
fn spec_2_7_9_one_element_stands_for_a_batch_in_order() {
    let options = Options {
        features: features::PLAIN | features::IN_ORDER,
        size: 8,
        ..Options::default()
    };
    let (mut nic, mut backend) = device(options);
    let memory = Arc::clone(backend.memory());
    for batch in [3, 1, 8, 5] {
        for _ in 0..batch {
            assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
        }
        let _ = nic.tx.publish();
        let at = nic.tx.used + 4 + 8 * u64::from(nic.tx.used_index() % 8);
        let ring = ring(&mut backend, TX);
        let chains = look(ring, &memory, u16::MAX).unwrap();
        ring.consume(batch);
        ring.put_used_run(chains.iter().map(|chain| chain.0));
        let _ = ring.publish();
        // The element is at the position of the first chain and has the head of the last one.
        let mut id = [0; 4];
        nic.ram.read(at, &mut id);
        assert_eq!(u32::from_le_bytes(id), u32::from(chains.last().unwrap().0));
        assert_eq!(nic.reclaim(), usize::from(batch));
    }
}

#[test]
fn chains_that_arrive_after_the_last_read_of_the_index_are_not_missed() {
    // Chains that arrive while the device finds the earlier ones too few cause a kick, or are found by
    // `enable_kicks`.
    let options = Options {
        post: false,
        ..Options::default()
    };
    let (mut nic, mut backend) = device(options);
    nic.post(2);
    let _ = nic.rx.publish();
    let ring = ring(&mut backend, RX);
    assert_eq!(ring.refresh().unwrap(), 2);
    nic.post(1);
    let _ = nic.rx.publish();
    assert_eq!(ring.seen(), 2);
    assert!(ring.enable_kicks(ring.seen()).unwrap());
}

#[test]
fn spec_2_7_4_buffers_may_cross_memory_regions() {
    let options = Options {
        regions: 8,
        size: 16,
        ..Options::default()
    };
    let (mut nic, mut backend) = device(options);
    let border = nic.ram.regions()[3].guest;
    let region = nic.ram.regions()[3].size as u32;
    // Across one border, and across two, with a whole region in between.
    for (before, length) in [(1, 2), (700, 1400), (10, region + 20)] {
        let address = border - before;
        let bytes: Vec<u8> = (0..length).map(|byte| (byte % 253) as u8).collect();
        nic.ram.write(address, &bytes);
        assert!(nic.tx.add(&[Buffer { address, length }]).is_some());
        let _ = nic.tx.publish();
        let memory = Arc::clone(backend.memory());
        let ring = ring(&mut backend, TX);
        let mut batch = Batch::new();
        ring.collect(&memory, 1, &mut batch).unwrap();
        let chain = batch.chains()[0];
        assert_eq!(
            batch.spans(&chain).len(),
            if length > region { 3 } else { 2 }
        );
        assert_eq!(look(ring, &memory, 1).unwrap()[0].1, bytes);
        ring.consume(1);
        ring.put_used(chain.head, 0);
        let _ = ring.publish();
        assert!(nic.tx.take_used().is_some());
    }
}

#[test]
fn the_longest_chain_is_followed_and_a_longer_one_is_not() {
    for (pieces, allowed) in [(MAX_CHAIN, true), (MAX_CHAIN + 1, false)] {
        for indirect in [false, true] {
            let options = Options {
                size: 2048,
                ..Options::default()
            };
            let (mut nic, mut backend) = device(options);
            let layout = if indirect {
                Layout::Indirect(1)
            } else {
                Layout::Pieces(1)
            };
            let bytes = vec![7; pieces as usize - 12];
            assert!(nic.enqueue(&[0; 12], &bytes, layout));
            let _ = nic.tx.publish();
            let memory = Arc::clone(backend.memory());
            match look(ring(&mut backend, TX), &memory, 1) {
                Ok(chains) => assert!(allowed && chains[0].1[12..] == bytes),
                Err(fault) => assert_eq!((fault, allowed), (RingFault::ChainTooLong, false)),
            }
        }
    }
}

#[test]
fn spec_2_7_5_3_an_indirect_table_ends_a_chain() {
    // Direct buffers may precede the table. Its own `next` field is ignored.
    let (mut nic, mut backend) = device(Options::default());
    let at = 0x8000;
    nic.ram.write(at, &[5; 64]);
    let table = at + 0x100;
    nic.ram.write(
        table,
        &front_end::queue::descriptor(
            Buffer {
                address: at + 16,
                length: 48,
            },
            0,
            0,
        ),
    );
    nic.tx.set_descriptor(
        0,
        Buffer {
            address: at,
            length: 16,
        },
        NEXT,
        1,
    );
    nic.tx.set_descriptor(
        1,
        Buffer {
            address: table,
            length: 16,
        },
        INDIRECT,
        77,
    );
    nic.tx.offer(0);
    let _ = nic.tx.publish();
    let memory = Arc::clone(backend.memory());
    assert_eq!(
        look(ring(&mut backend, TX), &memory, 1).unwrap(),
        [(0, vec![5; 64])]
    );
}

#[test]
fn an_invalid_chain_leaves_those_before_it_in_the_batch() {
    let (mut nic, mut backend) = device(Options::default());
    for _ in 0..3 {
        assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
    }
    nic.tx.set_descriptor(
        200,
        Buffer {
            address: 0x8000,
            length: 60,
        },
        WRITE,
        0,
    );
    nic.tx.offer(200);
    let _ = nic.tx.publish();
    let memory = Arc::clone(backend.memory());
    let mut batch = Batch::new();
    let fault = ring(&mut backend, TX).collect(&memory, u16::MAX, &mut batch);
    assert_eq!(
        fault,
        Err(RingFault::Direction("writable in a transmit ring"))
    );
    assert_eq!(batch.chains().len(), 3);
}

#[test]
fn a_ring_moves_with_its_memory() {
    let (mut nic, mut backend) = device(Options::default());
    for number in 0..5 {
        assert!(nic.send(&numbered(number, 80), Layout::One));
        let (table, fds) = nic.memory_table();
        nic.wire.send(request::SET_MEM_TABLE, &table, &fds);
        serve(&mut backend).unwrap();
        assert_eq!(frame::number(&take_all(&mut backend)[0]), number);
        assert_eq!(nic.reclaim(), 1);
    }
    nic.wire.send(request::GET_VRING_BASE, &state(1, 0), &[]);
    serve(&mut backend).unwrap();
    assert_eq!(nic.wire.state(request::GET_VRING_BASE), (1, 5));
}
