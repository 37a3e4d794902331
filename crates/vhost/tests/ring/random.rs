//! A driver and the device take random steps, and must agree on the state of the ring.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// A step of the driver or the device.
#[derive(Clone, Debug)]
enum Step {
    Send(Layout, usize),
    DriverPublishes,
    DriverReclaims,
    DriverWantsCall,
    DeviceTakes(u16),
    DeviceReturns(usize),
    DevicePublishes,
    DeviceWantsKick,
    DeviceSuppressesKicks,
}

fn step() -> impl Strategy<Value = Step> {
    let layout = prop_oneof![
        3 => Just(Layout::One),
        1 => Just(Layout::SeparateHeader),
        1 => (1_u32..200).prop_map(Layout::Pieces),
        1 => (1_u32..200).prop_map(Layout::Indirect),
    ];
    prop_oneof![
        4 => (layout, frame::SHORTEST..400_usize).prop_map(|(layout, length)| Step::Send(layout, length)),
        2 => Just(Step::DriverPublishes),
        1 => Just(Step::DriverReclaims),
        1 => Just(Step::DriverWantsCall),
        2 => (0_u16..100).prop_map(Step::DeviceTakes),
        3 => (0_usize..8).prop_map(Step::DeviceReturns),
        2 => Just(Step::DevicePublishes),
        1 => Just(Step::DeviceWantsKick),
        1 => Just(Step::DeviceSuppressesKicks),
    ]
}

fn agree(steps: Vec<Step>, options: Options) {
    let (mut nic, mut backend) = device(options);
    let memory = Arc::clone(backend.memory());
    let ring = ring(&mut backend, TX);
    let (mut sent, mut shown, mut got) = (0, 0, 0);
    let mut taken: VecDeque<u16> = VecDeque::new();
    let mut lengths = HashMap::new();
    let (mut unpublished, mut device_sleeps, mut driver_sleeps) = (0, false, false);
    for step in steps {
        match step {
            Step::Send(layout, length) => {
                if nic.enqueue(&[0; 12], &numbered(sent, length), layout) {
                    lengths.insert(sent, length);
                    sent += 1;
                }
                driver_sleeps = false;
            }
            Step::DriverPublishes => {
                let kick = nic.tx.publish();
                assert!(
                    kick || !device_sleeps || sent == shown,
                    "the device sleeps for ever"
                );
                device_sleeps &= !kick;
                shown = sent;
            }
            Step::DriverReclaims => {
                nic.reclaim();
                driver_sleeps = false;
            }
            Step::DriverWantsCall => driver_sleeps = !nic.tx.ask_for_call(),
            Step::DeviceTakes(most) => {
                for (head, bytes) in look(ring, &memory, most).unwrap() {
                    assert_eq!(frame::number(&bytes[12..]), got, "order");
                    assert_eq!(lengths.remove(&got), Some(bytes.len() - 12));
                    got += 1;
                    ring.consume(1);
                    taken.push_back(head);
                }
                device_sleeps = false;
            }
            Step::DeviceReturns(most) => {
                let count = most.min(taken.len());
                ring.put_used_run(taken.drain(..count));
                unpublished += count;
            }
            Step::DevicePublishes => {
                let call = ring.publish();
                assert!(
                    call || !driver_sleeps || unpublished == 0,
                    "the driver sleeps for ever"
                );
                driver_sleeps &= !call;
                unpublished = 0;
            }
            Step::DeviceWantsKick => device_sleeps = !ring.enable_kicks(0).unwrap(),
            Step::DeviceSuppressesKicks => {
                ring.disable_kicks();
                device_sleeps = false;
            }
        }
    }
    // At the end, every frame arrives and every chain is returned.
    let _ = nic.tx.publish();
    loop {
        let chains = look(ring, &memory, u16::MAX).unwrap();
        if chains.is_empty() {
            break;
        }
        for (head, bytes) in chains {
            assert_eq!(frame::number(&bytes[12..]), got);
            got += 1;
            ring.consume(1);
            taken.push_back(head);
        }
    }
    assert_eq!(got, sent);
    ring.put_used_run(taken.into_iter());
    let _ = ring.publish();
    nic.reclaim();
    assert_eq!(
        (nic.in_flight(), nic.tx.free()),
        (0, usize::from(options.size))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_driver_and_the_device_agree(
        steps in prop::collection::vec(step(), 1..2000),
        base: u16,
        event_idx: bool,
        in_order: bool,
        size in prop::sample::select(vec![1_u16, 4, 64, 256]),
        regions in 1_u64..4,
    ) {
        let features = if event_idx { features::PLAIN } else { without_event_idx().features };
        let features = if in_order { features | features::IN_ORDER } else { features };
        agree(steps, Options { features, base, size, regions, receive_bytes: 64, ..Options::default() });
    }

    #[test]
    fn spec_2_7_7_2_event_arithmetic_holds_everywhere(base: u16, behind in 0_u16..40, step in 0_u16..40) {
        // The event index is anywhere around the published index.
        let options = Options { base, size: 64, ..Options::default() };
        let (mut nic, mut backend) = device(options);
        for _ in 0..step {
            assert!(nic.enqueue(&[0; 12], &[1; 60], Layout::One));
        }
        let _ = nic.tx.publish();
        let event = base.wrapping_add(behind).wrapping_sub(20);
        nic.ram.store(nic.tx.available + 4 + 2 * 64, event);
        let memory = Arc::clone(backend.memory());
        let ring = ring(&mut backend, TX);
        for (head, _) in look(ring, &memory, u16::MAX).unwrap() {
            ring.put_used(head, 0);
        }
        let passed = (0..step).any(|ahead| base.wrapping_add(ahead) == event);
        prop_assert_eq!(ring.publish(), passed);
    }
}
