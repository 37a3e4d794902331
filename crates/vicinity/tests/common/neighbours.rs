//! Two neighbours that exchange frames and detect every lost frame.

use std::sync::atomic::{AtomicBool, Ordering};

use front_end::frame::{mac, number, numbered};
use front_end::{Layout, Nic, Options, Wire};

use super::Daemon;

/// Their stations; the VMs are called `vm1` and `vm2`.
pub(crate) const NEIGHBOURS: [u16; 2] = [1, 2];

/// Frames that a neighbour sends before it receives: fewer than the other neighbour has buffers.
const BURST: u64 = 32;

/// Starts a device, and returns when its rings run.
pub(crate) fn started(wire: Wire, options: Options) -> Nic {
    let mut nic = Nic::new(wire, options);
    nic.start(|| {});
    nic.sync();
    nic
}

/// Exchanges frames until `over`, and asserts that none is lost. Returns how many frames each
/// neighbour has sent.
pub(crate) fn exchange([first, second]: &mut [Nic; 2], over: &AtomicBool) -> u64 {
    let [a, b] = NEIGHBOURS.map(mac);
    let mut next = 0;
    while !over.load(Ordering::Relaxed) {
        burst(first, second, [b, a], next);
        burst(second, first, [a, b], next);
        next += BURST;
    }
    next
}

/// Sends a burst of frames, and asserts that they arrive.
fn burst(from: &mut Nic, to: &mut Nic, addresses: [[u8; 6]; 2], next: u64) {
    for number in next..next + BURST {
        let frame = numbered(addresses[0], addresses[1], number, 200);
        from.wait_to_send(&frame, Layout::One);
    }
    for expected in next..next + BURST {
        let frame = to.wait_to_receive().frame;
        assert_eq!(
            frame[..12],
            addresses.concat(),
            "a frame of somebody else's"
        );
        assert_eq!(number(&frame), expected);
    }
}

/// Asserts that, by the daemon's counters, all sent frames arrived.
pub(crate) fn assert_lossless(daemon: &Daemon, exchanged: u64) {
    assert!(exchanged > 0);
    for station in NEIGHBOURS {
        let counters = &daemon.port(&format!("vm{station}"))["counters"];
        assert_eq!(counters["tx_frames"], exchanged);
        assert_eq!(counters["rx_frames"], exchanged);
        let drops = counters["drops"].as_object().unwrap();
        assert!(drops.values().all(|count| *count == 0), "{counters}");
    }
}
