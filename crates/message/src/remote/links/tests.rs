use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use window::Side;

use super::*;
use crate::address::Address;
use crate::handshake::{ACCEPTED, FULL};
use crate::remote::adaptive_polling::AdaptivePolling;
use crate::remote::control_channel::ControlChannel;
use crate::remote::control_message::{FROM_MEMBER, OtherEnd};
use crate::remote::limits::LINKS;
use crate::remote::resources::Member;

/// A broker with two members, and their ends of the control channels.
fn broker() -> (Broker, [ControlChannel; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let members = ["a", "b"].map(|name| Member {
        name: name.to_owned(),
        ..Member::default()
    });
    let mut broker = Broker::new(folder.path(), &members).unwrap();
    let channels = [0, 1].map(|number| {
        let member = &mut broker.members[number];
        let window = broker.link_pools[member.link_pool]
            .region
            .control_window(member.index)
            .unwrap();
        window.reset().unwrap();
        member.gateway_joined(ControlChannel::new(window.ends(Side::Creator).unwrap()), 1);
        ControlChannel::new(window.ends(Side::Attacher).unwrap())
    });
    (broker, channels)
}

/// The first member's number of the link.
const ID: LinkId = FROM_MEMBER | 1;

/// The first member connects to the second; returns the second member's number of the link.
fn connect(broker: &mut Broker, b: &mut ControlChannel) -> LinkId {
    let address = |member: usize| Address {
        nic: broker.members[member].nic,
        endpoint: 1,
    };
    broker.handle_message(0, ControlMessage::connects(ID, address(0), address(1)));
    let Ok(Some(ControlMessage::Connect { link, .. })) = b.receive() else {
        panic!("the second member received no connect");
    };
    link
}

fn answer(link: LinkId, verdict: u32) -> ControlMessage {
    ControlMessage::Answer {
        link,
        window: 0,
        verdict,
        session: 2,
        other_end: OtherEnd::default(),
        program: None,
    }
}

#[test]
fn without_memory_a_link_is_refused_and_no_gateway_is_faulty() {
    let (mut broker, [mut a, mut b]) = broker();
    let link = connect(&mut broker, &mut b);
    // A window that cannot be mapped.
    for link in broker.links.values_mut() {
        link.ends[1].window = LINKS;
    }
    broker.handle_message(1, answer(link, ACCEPTED));
    assert!(broker.faulty.is_empty());
    assert_eq!(a.receive(), Ok(Some(answer(ID, FULL))));
    assert_eq!(b.receive(), Ok(Some(ControlMessage::Close { link })));
    broker.handle_message(1, ControlMessage::Close { link });
    assert!(broker.links.is_empty());
    assert!(broker.members.iter().all(|member| member.links.is_empty()));
}

/// How often the host announced to the first member's end of the link that it sleeps, or is awake
/// again.
fn sleep_announcements(broker: &Broker) -> u32 {
    let end = broker.links.values().next().unwrap().ends[0];
    let link_pool = &broker.link_pools[broker.members[end.member].link_pool];
    let window = link_pool.region.link(end.window).unwrap();
    let mut word = [0; 4];
    // The doorbell of a window's attacher, see `window::layout`.
    window.bytes().unwrap().read(4096, &mut word).unwrap();
    u32::from_le_bytes(word)
}

#[test]
fn while_relays_are_busy_the_host_does_not_sleep_and_still_checks_sockets() {
    let (mut broker, [_a, mut b]) = broker();
    let link = connect(&mut broker, &mut b);
    broker.handle_message(1, answer(link, ACCEPTED));
    let (mut caller, watched_is_ready) = UnixStream::pair().unwrap();
    broker.watch(&watched_is_ready).unwrap();
    caller.write_all(b"!").unwrap();
    // Busy for the rest of this test.
    broker
        .polling
        .moved(Instant::now() + Duration::from_secs(3600));
    let mut turns = 0..3;
    broker.serve(|_| turns.next().is_some()).unwrap();
    assert!(broker.is_watched_ready());
    assert_eq!(sleep_announcements(&broker), 0);
    broker.polling = AdaptivePolling::default();
    let mut turns = 0..3;
    broker.serve(|_| turns.next().is_some()).unwrap();
    assert_eq!(sleep_announcements(&broker), 6);
}

/// A program in a VM rings by the VM's gateway, which costs the VM two context switches.
#[test]
fn after_a_record_the_host_does_not_announce_short_sleeps_to_a_vm() {
    for is_vm in [true, false] {
        let (mut broker, [_a, mut b]) = broker();
        let link = connect(&mut broker, &mut b);
        broker.handle_message(1, answer(link, ACCEPTED));
        broker.members[0].page.set_interruptible(is_vm);
        // For the rest of this test, a record was just moved, and another program keeps the processor.
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        broker.polling.yielded(now, later);
        broker.polling.moved(later);
        broker.polling.set_has_vms(true);
        let (mut caller, watched_is_ready) = UnixStream::pair().unwrap();
        broker.watch(&watched_is_ready).unwrap();
        caller.write_all(b"!").unwrap();
        let mut turns = 0..3;
        broker.serve(|_| turns.next().is_some()).unwrap();
        // Without a VM, the first sleep is the last one: the broker polls then.
        let expected = if is_vm { 0 } else { 2 };
        assert_eq!(sleep_announcements(&broker), expected);
    }
}

/// The host may sleep as soon as it has taken the close, and no doorbell rings for what it has not passed on.
#[test]
fn a_close_is_passed_on_at_once_if_nothing_is_left_to_forward() {
    let (mut broker, [mut a, mut b]) = broker();
    let link = connect(&mut broker, &mut b);
    broker.handle_message(1, answer(link, ACCEPTED));
    assert!(broker.links.values().all(|link| link.relay.is_some()));
    a.send(ControlMessage::Close { link: ID }).unwrap();
    broker.turn().unwrap();
    assert_eq!(b.receive(), Ok(Some(ControlMessage::Close { link })));
}
