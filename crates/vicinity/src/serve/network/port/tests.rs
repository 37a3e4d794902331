//! A port's decisions, with the time given.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use switch::control::Drops;
use switch::guard::VlanRules;

use super::admission::REDIAL_AFTER_REJECT;
use super::*;
use crate::config::Owner;
use crate::serve::network::quarantine::CONNECTS;
use crate::serve::peer::Peer;
use crate::status::State;

fn server() -> Port {
    let socket = "/nowhere/web.sock".into();
    Port::new(
        PortId(3),
        "web",
        PortKind::Server { socket },
        Settings::default(),
    )
}

fn client() -> Port {
    let kind = PortKind::Client {
        socket: "/nowhere/web.sock".into(),
        wake: Arc::default(),
    };
    Port::new(PortId(3), "web", kind, Settings::default())
}

/// A connection, its front-end's end, and the channel that reports that the port accepts the next one.
fn connection() -> (Connection, UnixStream, oneshot::Receiver<()>) {
    let (stream, front_end) = UnixStream::pair().unwrap();
    for end in [&stream, &front_end] {
        end.set_nonblocking(true).unwrap();
    }
    let stream = ForeignFd::from(OwnedFd::from(stream));
    let (next, accepts) = oneshot::channel();
    let peer = Peer::default();
    (Connection { stream, peer, next }, front_end, accepts)
}

fn closed(mut front_end: &UnixStream) -> bool {
    front_end.read(&mut [0]).is_ok_and(|count| count == 0)
}

fn accepts_next(next: &mut oneshot::Receiver<()>) -> bool {
    next.try_recv() == Err(oneshot::error::TryRecvError::Closed)
}

fn attach() -> Order {
    Order::Attach {
        port: PortId(3),
        name: "web".into(),
    }
}

fn state(port: &Port, now: Instant) -> State {
    port.status("lan", true, now).state
}

fn gone(port: &mut Port, now: Instant, orders: &mut Orders) {
    port.detached(Reason::Disconnected, &Counters::default(), now, orders);
}

#[tokio::test]
async fn a_front_end_is_attached_and_its_states_shown() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    assert_eq!(state(&port, now), State::Waiting);
    port.connected(connection().0, now, &mut orders);
    assert_eq!(orders.take(), [attach()]);
    assert_eq!(state(&port, now), State::Connected);
    port.running();
    assert_eq!(state(&port, now), State::Running);
    gone(&mut port, now, &mut orders);
    assert_eq!(state(&port, now), State::Waiting);
    assert_eq!(state_of_down_network(&port, now), State::Down);
}

fn state_of_down_network(port: &Port, now: Instant) -> State {
    port.status("lan", false, now).state
}

#[tokio::test]
async fn a_second_front_end_waits_for_its_turn() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    let (first, _a, mut next) = connection();
    port.connected(first, now, &mut orders);
    assert!(accepts_next(&mut next), "a second one may come");
    let (second, _b, mut next) = connection();
    port.connected(second, now, &mut orders);
    assert_eq!(orders.take(), [attach()], "only the first is attached");
    assert!(!accepts_next(&mut next), "a third one waits in the kernel");
    gone(&mut port, now, &mut orders);
    assert_eq!(orders.take(), [attach()], "now the second is");
    assert!(accepts_next(&mut next));
}

#[tokio::test]
async fn a_fault_quarantines_the_port_for_a_while() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    port.connected(connection().0, now, &mut orders);
    let (waiting, waiting_end, _next) = connection();
    port.connected(waiting, now, &mut orders);
    orders.take();
    let fault = Reason::Fault("descriptor loop".into());
    port.detached(fault, &Counters::default(), now, &mut orders);
    assert!(closed(&waiting_end), "the one that waited is sent away");
    let (late, late_end, mut next) = connection();
    port.connected(late, now, &mut orders);
    assert!(closed(&late_end), "and so is the next one");
    assert!(accepts_next(&mut next), "but it may try again");
    assert_eq!(orders.take(), []);
    let status = port.status("lan", true, now);
    assert_eq!(status.state, State::Quarantined);
    assert_eq!(status.quarantine_left_ms, Some(1000));
    assert_eq!(status.quarantines, 1);
    assert_eq!(status.reason.as_deref(), Some("descriptor loop"));

    let almost = now + Duration::from_millis(999);
    port.tick(almost, &mut orders);
    assert_eq!(state(&port, almost), State::Quarantined);
    let end = now + Duration::from_secs(1);
    assert_eq!(port.deadline(), Some(end));
    port.tick(end, &mut orders);
    assert_eq!(state(&port, end), State::Waiting);
    port.connected(connection().0, end, &mut orders);
    assert_eq!(orders.take(), [attach()]);
}

#[tokio::test]
async fn a_front_end_that_connects_all_the_time_is_quarantined() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    for _ in 0..CONNECTS {
        port.connected(connection().0, now, &mut orders);
        gone(&mut port, now, &mut orders);
    }
    assert_eq!(orders.take().len(), CONNECTS);
    port.connected(connection().0, now, &mut orders);
    assert_eq!(orders.take(), []);
    let status = port.status("lan", true, now);
    assert_eq!(status.state, State::Quarantined);
    assert!(status.reason.unwrap().contains("connects too often"));
}

#[tokio::test]
async fn a_fault_of_the_host_is_not_attributed_to_the_guest() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    port.connected(connection().0, now, &mut orders);
    let trouble = Reason::Host("out of descriptors".into());
    port.detached(trouble, &Counters::default(), now, &mut orders);
    let reason = port.status("lan", true, now).reason.unwrap();
    assert_eq!(reason, "the host cannot serve the port: out of descriptors");
}

#[tokio::test]
async fn counters_survive_reconnects() {
    let (mut port, mut orders, now) = (server(), Orders::default(), Instant::now());
    let counters = |frames| Counters {
        tx_frames: frames,
        drops: Drops {
            hairpin: 1,
            ..Drops::default()
        },
        ..Counters::default()
    };
    for frames in [5, 7] {
        port.connected(connection().0, now, &mut orders);
        port.detached(Reason::Disconnected, &counters(frames), now, &mut orders);
    }
    port.connected(connection().0, now, &mut orders);
    port.reported(PortReport {
        port: 3,
        running: true,
        counters: counters(100),
        ..PortReport::default()
    });
    let status = port.status("lan", true, now);
    assert_eq!(status.counters.tx_frames, 112);
    assert_eq!(status.counters.drops.hairpin, 3);
    assert_eq!(status.connections, 3);
    assert_eq!(status.state, State::Running);
    port.reported(PortReport {
        port: 3,
        running: true,
        logging: true,
        counters: counters(101),
        ..PortReport::default()
    });
    assert_eq!(state(&port, now), State::Migrating);
    port.lost();
    assert_eq!(port.status("lan", false, now).counters.tx_frames, 113);
}

#[tokio::test]
async fn a_client_port_is_dialed_again_when_its_front_end_is_gone() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    let (first, _a, mut next) = connection();
    port.connected(first, now, &mut orders);
    assert!(!accepts_next(&mut next), "not while it is served");
    gone(&mut port, now, &mut orders);
    assert!(accepts_next(&mut next));
}

#[tokio::test]
async fn a_client_port_is_not_dialed_in_quarantine() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    let (first, _a, mut next) = connection();
    port.connected(first, now, &mut orders);
    let fault = Reason::Fault("bad ring".into());
    port.detached(fault, &Counters::default(), now, &mut orders);
    assert!(!accepts_next(&mut next));
    port.tick(now + Duration::from_secs(1), &mut orders);
    assert!(accepts_next(&mut next));
}

#[tokio::test]
async fn the_reason_of_an_unreachable_front_end_is_shown_until_one_connects() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    port.unreachable("no QEMU".into());
    assert_eq!(
        port.status("lan", true, now).reason.as_deref(),
        Some("no QEMU")
    );
    port.connected(connection().0, now, &mut orders);
    assert_eq!(port.status("lan", true, now).reason, None);
}

#[tokio::test]
async fn no_front_end_is_dialed_while_the_network_is_down() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    let (first, _a, mut next) = connection();
    port.connected(first, now, &mut orders);
    port.lost();
    assert!(!accepts_next(&mut next), "not before there is a data plane");
    assert_eq!(state_of_down_network(&port, now), State::Down);
    port.reopen(&mut orders);
    assert!(accepts_next(&mut next));
    port.lost();
    let (late, late_end, mut next) = connection();
    port.reject(late);
    assert!(closed(&late_end));
    assert!(!accepts_next(&mut next));
    port.reopen(&mut orders);
    assert!(accepts_next(&mut next));
}

#[tokio::test]
async fn a_front_end_that_connects_to_us_tries_again_by_itself() {
    let mut port = server();
    let (late, late_end, mut next) = connection();
    port.reject(late);
    assert!(closed(&late_end));
    assert!(accepts_next(&mut next));
}

#[tokio::test]
async fn a_quarantine_outlives_the_data_plane_and_so_do_rules_and_a_pinned_address() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    let mac = "52:54:00:00:00:01".parse().unwrap();
    port.settings.mac = Some(mac);
    port.settings.rules.vlan = Some(VlanRules::access(10));
    let rules = Box::new(port.settings.rules.clone());
    let (first, _a, mut next) = connection();
    port.connected(first, now, &mut orders);
    let fault = Reason::Fault("bad ring".into());
    port.detached(fault, &Counters::default(), now, &mut orders);
    orders.take();
    port.lost();
    port.reopen(&mut orders);
    assert_eq!(state(&port, now), State::Quarantined);
    assert!(!accepts_next(&mut next));
    let port = PortId(3);
    let pin = Order::SetFdbEntry {
        mac,
        vlan: 10,
        port,
    };
    assert_eq!(orders.take(), [Order::SetRules { port, rules }, pin]);
}

#[tokio::test]
async fn a_storm_is_reported_as_long_as_it_lasts() {
    let (mut port, mut orders, now) = (client(), Orders::default(), Instant::now());
    let (first, _a, _next) = connection();
    port.connected(first, now, &mut orders);
    port.running();
    let report = |storm| PortReport {
        running: true,
        storm,
        ..PortReport::default()
    };
    for storm in [true, true, false] {
        port.reported(report(storm));
        let status = port.status("lan", true, now);
        assert_eq!(status.state, State::Running);
        let said = status.reason.is_some_and(|reason| reason.contains("storm"));
        assert_eq!(said, storm);
    }
}

/// A port whose owner has a security label that no test's front-end has, so that the port refuses every front-end.
fn owned(mut port: Port) -> Port {
    port.settings.owner = Owner {
        label: Some("of the owner".to_owned()),
        ..Owner::default()
    };
    port
}

#[tokio::test(start_paused = true)]
async fn a_foreign_process_is_refused_and_does_not_count() {
    let (mut port, mut orders, now) = (owned(server()), Orders::default(), Instant::now());
    for _ in 0..2 * CONNECTS {
        let (other_owner, end, mut next) = connection();
        port.connected(other_owner, now, &mut orders);
        assert!(closed(&end) && accepts_next(&mut next));
    }
    assert_eq!(orders.take(), []);
    assert_eq!(state(&port, now), State::Waiting, "no quarantine");
    // The owner connects. It has default rights here, because a test cannot always set a label.
    port.settings.owner = Owner::default();
    port.connected(connection().0, now, &mut orders);
    assert_eq!(orders.take(), [attach()]);
    let (waits, waiting_end, _next) = connection();
    port.connected(waits, now, &mut orders);
    // Neither another owner's process nor one more takes the place of the one that waits.
    let mut port = owned(port);
    port.connected(connection().0, now, &mut orders);
    port.settings.owner = Owner::default();
    let (third, third_end, _next) = connection();
    port.connected(third, now, &mut orders);
    assert!(closed(&third_end) && !closed(&waiting_end));
    gone(&mut port, now, &mut orders);
    assert_eq!(orders.take(), [attach()]);
    assert!(!closed(&waiting_end), "it was let in");
}

#[tokio::test(start_paused = true)]
async fn a_socket_on_which_a_foreign_process_listens_is_dialed_again_after_a_while() {
    let (mut port, mut orders, now) = (owned(client()), Orders::default(), Instant::now());
    let (other_owner, end, mut next) = connection();
    port.connected(other_owner, now, &mut orders);
    assert!(closed(&end) && !accepts_next(&mut next));
    let reason = port.status("lan", true, now).reason.unwrap();
    assert!(
        reason.contains("listens on the socket is not the owner"),
        "{reason}"
    );
    tokio::time::sleep(REDIAL_AFTER_REJECT + Duration::from_millis(1)).await;
    assert!(accepts_next(&mut next));
    assert_eq!(orders.take(), []);
}
