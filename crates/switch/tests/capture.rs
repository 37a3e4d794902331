//! Captures: a reader gets all frames of a port, as its VM sees them, and forwarding does not wait for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::{AsFd, OwnedFd};

use common::{Outside, Plane, learn_addresses, lost};
use front_end::{Layout, Nic, Options, TEST_TIMEOUT, features, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use switch::capture::{Direction, MAX_DATAGRAM, read};
use switch::control::{Order, PortId};
use switch::guard::{Rules, VlanRules};

/// The direction of a frame, its length, and the bytes that were captured.
type CapturedFrame = (Direction, u32, Vec<u8>);

/// The reader of a capture.
struct Reader(OwnedFd);

impl Reader {
    /// Starts a capture of a port.
    fn new(plane: &Plane, port: u16, capture: u32, most: u32) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.unwrap();
        let port = PortId(port);
        let order = Order::Capture {
            port,
            capture,
            most,
        };
        plane.order(&order, Some(theirs.as_fd()));
        Self(ours)
    }

    /// Returns the number of missed frames, and the frames of one datagram, if there is one.
    fn next(&self) -> Option<(u64, Vec<CapturedFrame>)> {
        let mut bytes = vec![0; MAX_DATAGRAM + 1];
        let (length, _) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
        assert!(length <= MAX_DATAGRAM);
        let (missed, frames) = read(&bytes[..length])?;
        let frames = frames.map(|frame| {
            assert!(frame.time > 1_700_000_000_000_000_000);
            (frame.direction, frame.length, frame.bytes.to_vec())
        });
        Some((missed, frames.collect()))
    }

    /// Waits for `count` frames.
    fn take(&self, count: usize) -> Vec<(Direction, Vec<u8>)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let guard = Timespec {
                tv_sec: TEST_TIMEOUT.as_secs() as i64,
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            assert!(poll(&mut fds, Some(&guard)).unwrap() > 0, "{taken:?}");
            let (missed, frames) = self.next().unwrap();
            assert_eq!(missed, 0);
            taken.extend(frames.into_iter().map(|(direction, length, bytes)| {
                assert_eq!(length as usize, bytes.len());
                (direction, bytes)
            }));
        }
        assert_eq!(taken.len(), count);
        taken
    }
}

fn linux() -> Options {
    Options {
        features: features::LINUX,
        ..Options::default()
    }
}

/// Two NICs whose addresses are learnt.
fn two(plane: &mut Plane) -> [Nic; 2] {
    let mut nics = [1, 2].map(|port| plane.nic(port, linux()));
    learn_addresses(&mut nics, &[1, 2]);
    nics
}

fn to(station: u16, from: u16, number: u64) -> Vec<u8> {
    let length = 60 + (number as usize * 977) % 1400;
    frame::numbered(frame::mac(station), frame::mac(from), number, length)
}

use Direction::{Received, Sent};

#[test]
fn both_directions_are_shown_whole_and_in_order() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane);
    let reader = Reader::new(&plane, 1, 0, u32::MAX);
    plane.wait_for_orders();
    for number in 0..300 {
        let layout = [Layout::One, Layout::Pieces(100), Layout::Indirect(70)][number as usize % 3];
        a.wait_to_send(&to(2, 1, number), layout);
        assert_eq!(b.wait_to_receive().frame, to(2, 1, number));
        b.wait_to_send(&to(1, 2, number), layout);
        assert_eq!(a.wait_to_receive().frame, to(1, 2, number));
        let both = [(Sent, to(2, 1, number)), (Received, to(1, 2, number))];
        assert_eq!(reader.take(2), both);
    }
    let hello = frame::numbered(frame::BROADCAST, frame::mac(2), 7, 60);
    b.wait_to_send(&hello, Layout::One);
    assert_eq!(reader.take(1), [(Received, hello)]);
}

#[test]
fn a_gso_frame_is_captured_whole_and_only_as_many_bytes_as_requested() {
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane);
    let few = Reader::new(&plane, 2, 0, 20);
    plane.wait_for_orders();
    let tcp = frame::tcp(frame::mac(2), frame::mac(1), 9, &[5; 8000]);
    // A GSO frame with a partial checksum (5.1.6).
    let header = [1, 1, 54, 0, 0x88, 5, 34, 0, 16, 0, 0, 0];
    assert!(a.send_with(&header, &tcp, Layout::One));
    b.wait_to_receive();
    plane.wait_for_orders();
    let (missed, frames) = few.next().unwrap();
    assert_eq!((missed, frames.len()), (0, 1));
    assert_eq!(frames[0], (Received, tcp.len() as u32, tcp[..20].to_vec()));
}

#[test]
fn a_trunk_is_captured_with_tags_and_an_access_port_without() {
    let mut plane = Plane::new();
    let vlans = |untagged, tagged: &[(u16, u16)]| Rules {
        vlan: Some(VlanRules {
            untagged,
            tagged: tagged.to_vec(),
        }),
        ..Rules::default()
    };
    plane.rules(1, vlans(None, &[(10, 20)]));
    plane.rules(2, vlans(Some(10), &[]));
    let [mut a, mut b] = [1, 2].map(|port| plane.nic(port, linux()));
    let readers = [1, 2].map(|port| Reader::new(&plane, port, 0, u32::MAX));
    plane.wait_for_orders();
    let bare = to(2, 1, 3);
    let tagged = [&bare[..12], &[0x81, 0, 0, 10], &bare[12..]].concat();
    a.wait_to_send(&tagged, Layout::One);
    assert_eq!(b.wait_to_receive().frame, bare);
    let back = to(1, 2, 4);
    let back_tagged = [&back[..12], &[0x81, 0, 0, 10], &back[12..]].concat();
    b.wait_to_send(&back, Layout::One);
    assert_eq!(a.wait_to_receive().frame, back_tagged);
    assert_eq!(
        readers[0].take(2),
        [(Sent, tagged), (Received, back_tagged)]
    );
    assert_eq!(readers[1].take(2), [(Received, bare), (Sent, back)]);
}

#[test]
fn an_uplink_is_captured_in_both_directions() {
    let mut plane = Plane::new();
    let outside = Outside::attach(&plane);
    let mut a = plane.nic(1, linux());
    let reader = Reader::new(&plane, 9, 0, u32::MAX);
    plane.wait_for_orders();
    let (out, back) = (to(90, 1, 1), to(1, 90, 2));
    a.wait_to_send(&out, Layout::One);
    assert_eq!(outside.receive().1, out);
    outside.send(&[0; 12], &back);
    assert_eq!(a.wait_to_receive().frame, back);
    assert_eq!(reader.take(2), [(Received, out), (Sent, back)]);
}

#[test]
fn a_slow_reader_gets_the_number_of_missed_frames_and_forwarding_does_not_wait() {
    const COUNT: u64 = 3000;
    let mut plane = Plane::new();
    let [mut a, mut b] = two(&mut plane);
    let reader = Reader::new(&plane, 1, 0, u32::MAX);
    plane.wait_for_orders();
    for number in 0..COUNT {
        a.wait_to_send(&to(2, 1, number), Layout::One);
        assert_eq!(b.wait_to_receive().frame, to(2, 1, number));
    }
    plane.wait_for_orders();
    let mut shown = 0;
    while let Some((_, frames)) = reader.next() {
        shown += frames.len() as u64;
    }
    assert!(shown < COUNT);
    a.wait_to_send(&to(2, 1, COUNT), Layout::One);
    b.wait_to_receive();
    plane.wait_for_orders();
    let (missed, frames) = reader.next().unwrap();
    assert_eq!((missed + shown, frames.len()), (COUNT, 1));
    assert_eq!(lost(&plane.counters(1).drops), 0);
}

#[test]
fn a_capture_continues_with_the_next_vm_and_ends_by_order() {
    let mut plane = Plane::new();
    let first = Reader::new(&plane, 1, 0, u32::MAX);
    let second = Reader::new(&plane, 1, 1, u32::MAX);
    for number in 0..3 {
        let [mut a, mut b] = two(&mut plane);
        // The broadcasts of both.
        let broadcasts = first.take(2).len();
        a.wait_to_send(&to(2, 1, number), Layout::One);
        b.wait_to_receive();
        assert_eq!(first.take(1), [(Sent, to(2, 1, number))]);
        second.take(broadcasts + 1);
        drop(a);
        plane.detached(1);
        drop(b);
        plane.detached(2);
    }
    plane.order(
        &Order::EndCapture {
            port: PortId(1),
            capture: 0,
        },
        None,
    );
    // A reader that closes its socket does not affect forwarding.
    drop(second);
    let [mut a, mut b] = two(&mut plane);
    a.wait_to_send(&to(2, 1, 9), Layout::One);
    assert_eq!(b.wait_to_receive().frame, to(2, 1, 9));
    plane.wait_for_orders();
    assert!(first.next().is_none());
}
