//! A switch without workers, which the test itself drives.

use std::os::fd::OwnedFd;

use switch::port::{Backend, Guest, Kind, Port};
use switch::switch::Switch;

/// Adds a port whose front-end has the other end of `theirs`.
pub fn attach(switch: &mut Switch, number: u16, theirs: OwnedFd) {
    let backend = Backend::new(theirs, 1).unwrap();
    let kind = Kind::Guest(Box::new(Guest::new(backend)));
    assert!(switch.add(number, Port::new(String::new(), kind)));
}

/// Executes the messages of a front-end.
pub fn messages(switch: &mut Switch, number: u16) {
    let Some(Kind::Guest(guest)) = switch.port_mut(number).map(|port| &mut port.kind) else {
        panic!("no port {number}");
    };
    while let Some(message) = guest.backend.receive().unwrap() {
        guest.backend.apply(message).unwrap();
    }
}
