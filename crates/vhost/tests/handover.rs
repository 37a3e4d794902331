//! A device continues in another process, and its front-end does not notice.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use front_end::wire::{number, request};
use front_end::{Layout, Nic, Options, Wire, frame};
use vhost::backend::Backend;
use vhost::chain::Batch;
use vhost::fault::{Fault, ProtocolFault};
use vhost::features::protocol;
use vhost::handover::{Key, Setting, StoredSetting, settings};
use vhost::offer::Offer;

/// What the owner of a device keeps.
#[derive(Default)]
struct Store(BTreeMap<Key, (Vec<u8>, Option<OwnedFd>)>);

impl Store {
    fn store(&mut self, changes: Vec<Setting>) {
        for change in changes {
            match change {
                Setting::Set(stored) => {
                    self.0
                        .insert(stored.key, (stored.payload, stored.descriptor));
                }
                Setting::Remove(key) => drop(self.0.remove(&key)),
                Setting::RemoveAll(number) => self.0.retain(|key, _| key.0 != number),
            }
        }
    }

    fn stored(&self) -> Vec<StoredSetting> {
        let same = |fd: &OwnedFd| fd.try_clone().unwrap();
        let stored = self
            .0
            .iter()
            .map(|(key, (payload, descriptor))| StoredSetting {
                key: *key,
                payload: payload.clone(),
                descriptor: descriptor.as_ref().map(same),
            });
        stored.collect()
    }
}

fn serve(backend: &mut Backend, store: &mut Store) {
    while let Some(message) = backend.receive().unwrap() {
        store.store(settings(&message).unwrap());
        backend.apply(message).unwrap();
    }
}

/// Takes all frames of the first pair, and returns their number.
fn take_frames(backend: &Backend) -> usize {
    let mut vring = backend.vring(1).unwrap();
    let Some(ring) = vring.active_mut() else {
        return 0;
    };
    let mut batch = Batch::new();
    ring.collect(backend.memory(), 64, &mut batch).unwrap();
    ring.consume(batch.chains().len() as u16);
    ring.put_used_run(batch.chains().iter().map(|chain| chain.head));
    if ring.publish() {
        vring.call().unwrap();
    }
    batch.chains().len()
}

fn frame(number: u64) -> Vec<u8> {
    frame::numbered(frame::BROADCAST, frame::mac(1), number, 60)
}

#[test]
fn a_device_continues_in_another_process_where_it_was() {
    for features in [front_end::features::PLAIN, front_end::features::LINUX] {
        let (wire, theirs) = Wire::pair();
        let same = theirs.try_clone().unwrap();
        let mut store = Store::default();
        let mut backend = Backend::new(theirs, 1).unwrap();
        let options = Options {
            features,
            base: 65_530,
            regions: 3,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| serve(&mut backend, &mut store));
        let mut sent = 0;
        for round in 0..5 {
            for _ in 0..7 {
                nic.wait_to_send(&frame(sent), Layout::One);
                sent += 1;
            }
            assert_eq!(take_frames(&backend), 7, "round {round}");
            // The process is killed: its socket is closed without being shut down.
            std::mem::forget(backend);
            backend = Backend::new(same.try_clone().unwrap(), 1).unwrap();
            backend.restore(store.stored()).unwrap();
        }
        // A message that the first process did not read yet is answered by the last one.
        assert!(nic.wire.send(request::GET_FEATURES, &[], &[]));
        serve(&mut backend, &mut store);
        assert!(nic.wire.number(request::GET_FEATURES) & features == features);
        // A ring that was stopped stays stopped, and starts again where the front-end says.
        assert!(
            nic.wire
                .send(request::GET_VRING_BASE, &front_end::wire::state(1, 0), &[])
        );
        serve(&mut backend, &mut store);
        let (_, base) = nic.wire.state(request::GET_VRING_BASE);
        assert_eq!(base as u16, 65_530_u16.wrapping_add(35));
        let mut next: Backend = Backend::new(same.try_clone().unwrap(), 1).unwrap();
        next.restore(store.stored()).unwrap();
        assert!(!next.vring(1).unwrap().is_running() && next.vring(0).unwrap().is_running());
    }
}

#[test]
fn settings_that_are_no_settings_are_refused() {
    let restore = |key: Key, payload: Vec<u8>| {
        let (_wire, theirs) = Wire::pair();
        let mut backend: Backend = Backend::new(theirs, 1).unwrap();
        let descriptor = None;
        backend.restore([StoredSetting {
            key,
            payload,
            descriptor,
        }])
    };
    assert_eq!(
        restore((1, 0), Vec::new()),
        Err(ProtocolFault::Unknown(1).into())
    );
    assert!(matches!(restore((2, 0), vec![1]), Err(Fault::Protocol(_))));
    assert!(matches!(
        restore((2, 0), number(1 << 63)),
        Err(Fault::Protocol(_))
    ));
    assert!(matches!(
        restore((12, 0), number(0)),
        Err(Fault::Protocol(_))
    ));
    assert!(matches!(
        restore((12, 0), number(1 << 8)),
        Err(Fault::Ring { .. })
    ));
}

#[test]
fn a_configuration_space_is_read_in_parts() {
    let (wire, theirs) = Wire::pair();
    let offer = Offer {
        vrings: 2,
        features: vhost::features::VERSION_1 | vhost::features::PROTOCOL_FEATURES,
        protocol_features: protocol::CONFIG,
        config: vec![1, 2, 3, 4, 5, 6, 7, 8],
    };
    let mut backend: Backend = Backend::offering(theirs, offer).unwrap();
    let ask = |offset: u32, size: u32| {
        let head = [offset, size, 9].into_iter().flat_map(u32::to_ne_bytes);
        let payload: Vec<u8> = head.chain(vec![0; size as usize]).collect();
        assert!(wire.send(24, &payload, &[]));
    };
    ask(0, 8);
    let message = backend.receive().unwrap().unwrap();
    assert_eq!(
        backend.apply(message),
        Err(ProtocolFault::NotNegotiated(24).into())
    );
    assert!(wire.send(
        request::SET_PROTOCOL_FEATURES,
        &number(protocol::CONFIG),
        &[]
    ));
    ask(0, 8);
    ask(6, 2);
    // Past the end, there is a reply without bytes.
    ask(6, 3);
    ask(u32::MAX, 2);
    while let Some(message) = backend.receive().unwrap() {
        backend.apply(message).unwrap();
    }
    for (offset, bytes) in [
        (0_u32, vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (6, vec![7, 8]),
        (6, Vec::new()),
        (u32::MAX, Vec::new()),
    ] {
        let (to, payload) = wire.reply().unwrap();
        let size = bytes.len() as u32;
        let head: Vec<u8> = [offset, size, 9]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        assert_eq!((to, payload), (24, [head, bytes].concat()));
    }
    // A size that is not that of the payload.
    assert!(wire.send(24, &[0; 13], &[]));
    let _ = wire.as_fd();
    assert!(matches!(
        backend.receive(),
        Err(Fault::Protocol(ProtocolFault::Size { .. }))
    ));
}
