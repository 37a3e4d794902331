//! A member of the message plane that writes anything anywhere into its region and sends any
//! control message and record, while two others exchange messages through the host.
//!
//! The input is a list of steps; see `attack.rs`, which the tests share. All inputs use the same
//! host: state that one input leaves behind must not affect the next.
#![no_main]

#[path = "../../crates/message/tests/common/attack.rs"]
mod attack;
#[path = "../../crates/message/tests/common/mod.rs"]
mod common;
#[path = "../../crates/message/tests/common/honest.rs"]
mod honest;

use std::cell::RefCell;

use attack::{Attack, STEP};
use honest::{Honest, connect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    thread_local!(static HONEST: RefCell<Option<Honest>> = const { RefCell::new(None) });
    HONEST.with_borrow_mut(|honest| {
        let honest = honest.get_or_insert_with(|| Honest::new(false));
        let mut attack = Attack::new(&honest.folder.path().join("host/a.sock"), "b");
        connect(&mut attack, honest);
        for step in data.chunks_exact(STEP) {
            attack.step(step.try_into().expect("a step"));
            // An endpoint must answer the attacker's connects.
            honest.b.progress();
        }
        attack.ring();
        honest.talk();
        attack.go();
    });
});
