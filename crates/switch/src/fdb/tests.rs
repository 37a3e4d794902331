//! Tests of the FDB: examples, and random operations compared with a hash map.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::limits::{AGEING, DUPLICATE_MOVES, DUPLICATE_SECONDS, MAX_DUPLICATES};
use crate::mac::Mac;

fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac::from_octets([0x52, 0x54, a, b, c, d])
}

#[test]
fn a_learnt_address_moves_and_ages() {
    let table = Fdb::new();
    assert_eq!(table.learn(mac(1), 3, 10, u32::MAX), Learnt::New);
    assert_eq!(table.lookup(mac(1), 10), Some(3));
    assert_eq!(table.learn(mac(1), 4, 20, u32::MAX), Learnt::Moved(3));
    assert_eq!(table.lookup(mac(1), 20 + AGEING), Some(4));
    assert_eq!(table.lookup(mac(1), 21 + AGEING), None);
}

#[test]
fn a_pinned_address_neither_moves_nor_ages() {
    let table = Fdb::new();
    assert!(table.pin(mac(1), 3, 0));
    assert_eq!(table.learn(mac(1), 4, 20, u32::MAX), Learnt::Refused);
    table.remove_port(3);
    assert_eq!(table.lookup(mac(1), u32::MAX), Some(3));
}

#[test]
fn group_and_zero_addresses_are_not_learnt() {
    let table = Fdb::new();
    let group = Mac::from_octets([1, 0, 0x5e, 0, 0, 1]);
    assert_eq!(table.learn(group, 1, 0, u32::MAX), Learnt::Refused);
    assert_eq!(
        table.learn(Mac::from_octets([0; 6]), 1, 0, u32::MAX),
        Learnt::Refused
    );
    assert_eq!(table.entries(), 0);
}

#[test]
fn a_port_at_its_limit_learns_no_more() {
    let table = Fdb::new();
    assert_eq!(table.learn(mac(1), 3, 0, 1), Learnt::New);
    assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Refused);
    assert_eq!(table.learn(mac(1), 3, 0, 1), Learnt::Known);
    assert_eq!(table.learn(mac(2), 4, 0, 1), Learnt::New);
    assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Refused);
    table.remove(mac(1));
    assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Moved(4));
}

#[test]
fn a_full_table_refuses_and_still_answers() {
    let table = Fdb::new();
    for number in 0..u32::try_from(MAX_FDB_ENTRIES).unwrap() {
        assert_eq!(table.learn(mac(number), 1, 0, u32::MAX), Learnt::New);
    }
    assert_eq!(table.learn(mac(u32::MAX), 1, 0, u32::MAX), Learnt::Refused);
    assert_eq!(table.lookup(mac(u32::MAX), 0), None);
    assert_eq!(table.lookup(mac(7), 0), Some(1));
}

#[test]
fn ageing_visits_every_slot() {
    let table = Fdb::new();
    for number in 0..1000 {
        table.learn(mac(number), 1, 0, u32::MAX);
    }
    assert_eq!((table.entries(), table.count(1)), (1000, 1000));
    for _ in 0..SLOTS / 1024 {
        table.age(AGEING + 1);
    }
    assert_eq!((table.entries(), table.count(1)), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u32, u16),
    Pin(u32, u16),
    Forget(u32),
    ForgetPort(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let address = 0_u32..60;
    let port = 0_u16..4;
    prop_oneof![
        (address.clone(), port.clone()).prop_map(|(m, p)| Step::Learn(m, p)),
        (address.clone(), port.clone()).prop_map(|(m, p)| Step::Pin(m, p)),
        address.prop_map(Step::Forget),
        port.prop_map(Step::ForgetPort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..200), key: u64) {
        let mut table = Fdb::new();
        // A poor key makes long probe sequences, which exercise removal.
        table.key = (key % 64) | 1;
        let mut model: HashMap<u32, (u16, bool)> = HashMap::new();
        for step in steps {
            match step {
                Step::Learn(m, p) => {
                    table.learn(mac(m), p, 0, u32::MAX);
                    let entry = model.entry(m).or_insert((p, false));
                    if !entry.1 { entry.0 = p; }
                }
                Step::Pin(m, p) => {
                    table.pin(mac(m), p, 0);
                    model.insert(m, (p, true));
                }
                Step::Forget(m) => {
                    table.remove(mac(m));
                    model.remove(&m);
                }
                Step::ForgetPort(p) => {
                    table.remove_port(p);
                    model.retain(|_, (port, pinned)| *port != p || *pinned);
                }
            }
            prop_assert_eq!(table.entries() as usize, model.len());
            for port in 0..4 {
                let count = model.values().filter(|entry| entry.0 == port).count();
                prop_assert_eq!(table.count(port) as usize, count);
            }
            for m in 0..60 {
                prop_assert_eq!(table.lookup(mac(m), 0), model.get(&m).map(|entry| entry.0));
            }
        }
    }
}

#[test]
fn an_address_that_moves_back_and_forth_is_a_duplicate() {
    let table = Fdb::new();
    table.learn(mac(1), 3, 0, u32::MAX);
    for step in 0..DUPLICATE_MOVES {
        assert_eq!(table.duplicates(step), [], "after {step} moves");
        let to = if step % 2 == 0 { 4 } else { 3 };
        table.learn(mac(1), to, step, u32::MAX);
    }
    let last = DUPLICATE_MOVES - 1;
    let [found] = table.duplicates(last)[..] else {
        panic!("not one");
    };
    assert_eq!((found.key.mac(), found.key.vlan()), (mac(1), 0));
    assert_eq!((found.other(3), found.other(4)), (Some(4), Some(3)));
    assert_eq!(found.moves, u64::from(DUPLICATE_MOVES));
    assert_eq!(table.new_duplicate(), Some(found));
    assert_eq!(table.new_duplicate(), None, "each is returned once");
    // The address stays at one port, and is no duplicate in the end.
    assert_eq!(table.duplicates(last + DUPLICATE_SECONDS).len(), 1);
    assert_eq!(table.duplicates(last + DUPLICATE_SECONDS + 1), []);
}

#[test]
fn an_address_that_moves_rarely_is_no_duplicate() {
    let table = Fdb::new();
    table.learn(mac(1), 3, 0, u32::MAX);
    let pause = DUPLICATE_SECONDS / 3;
    for step in 1..20 {
        let to = if step % 2 == 0 { 4 } else { 3 };
        table.learn(mac(1), to, step * pause, u32::MAX);
        assert_eq!(table.duplicates(step * pause), []);
    }
}

#[test]
fn a_port_that_uses_a_pinned_address_of_another_is_reported() {
    let table = Fdb::new();
    let key = FdbKey::new(mac(1), 7);
    table.pin(key, 3, 0);
    for second in 0..DUPLICATE_MOVES {
        table.learn(key, 4, second, u32::MAX);
    }
    let [found] = table.duplicates(DUPLICATE_MOVES)[..] else {
        panic!("not one");
    };
    assert_eq!((found.ports, found.key.vlan()), ([4, 3], 7));
    table.remove_port(4);
    assert_eq!(table.duplicates(DUPLICATE_MOVES), [], "its port is gone");
}

#[test]
fn many_addresses_that_move_once_do_not_hide_a_duplicate() {
    let table = Fdb::new();
    let fight = |step: u32| {
        table.learn(mac(1), 3 + u16::try_from(step % 2).unwrap(), 0, u32::MAX);
    };
    (0..3).for_each(fight);
    for number in 0..=u32::try_from(MAX_DUPLICATES).unwrap() {
        table.learn(mac(1000 + number), 5, 0, u32::MAX);
        table.learn(mac(1000 + number), 6, 0, u32::MAX);
    }
    (3..=DUPLICATE_MOVES).for_each(fight);
    assert_eq!(table.duplicates(0).len(), 1);
}
