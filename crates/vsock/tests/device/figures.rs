//! Figures of the data path, without VMs.
//!
//! `cargo test --release --package vicinity-vsock --test device figures -- --ignored --nocapture`

use std::hint::black_box;
use std::time::{Duration, Instant};

use vsock::header::Operation;

use crate::rig::{Rig, establish, header, received, send};

const ROUNDS: usize = 7;

/// Bytes of a packet, and packets of a burst: as many as 128 receive buffers of 3776 bytes have room for.
const PACKET: usize = 64 << 10;
const BURST: usize = 7;
const BURSTS: usize = 400;

/// Packets in the memory of the sender, before it uses the first place again.
const PLACES: usize = 128;

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the bytes a second that `memcpy` copies in the device's pattern: from 128 places that were written
/// before, into half a megabyte.
fn copy_rate() -> f64 {
    let mut sources = vec![0_u8; PLACES * PACKET];
    let mut sink = vec![0_u8; BURST * PACKET];
    let payload = vec![7_u8; PACKET];
    let mut took = Duration::ZERO;
    for burst in 0..BURSTS {
        for (place, into) in (burst * BURST..).zip(sink.chunks_exact_mut(PACKET)) {
            let at = place % PLACES * PACKET;
            sources[at..at + PACKET].copy_from_slice(&payload);
            let started = Instant::now();
            into.copy_from_slice(black_box(&sources[at..at + PACKET]));
            took += started.elapsed();
            black_box(&into);
        }
    }
    (BURSTS * BURST * PACKET) as f64 / took.as_secs_f64()
}

/// Returns the bytes a second that the device moves between two guests, in the time of the device alone.
fn packet_rate() -> f64 {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let (from, to) = ((0, 1024), (1, 22));
    establish(&mut rig, (&mut client, from), (&mut server, to));
    let payload = vec![7_u8; PACKET];
    let sent = header(Operation::ReadWrite, from, to, PACKET as u32);
    let mut took = Duration::ZERO;
    for _ in 0..BURSTS {
        for _ in 0..BURST {
            send(&mut client, &sent, &payload);
        }
        let started = Instant::now();
        rig.turn();
        took += started.elapsed();
        let bytes: usize = received(&mut server)
            .iter()
            .map(|(_, bytes)| bytes.len())
            .sum();
        assert_eq!(bytes, BURST * PACKET);
    }
    (BURSTS * BURST * PACKET) as f64 / took.as_secs_f64()
}

/// Returns the connections a second that begin, with the work of both drivers, and leaves them open.
fn connect_rate(count: u32) -> f64 {
    let mut rig = Rig::new(2);
    let (mut client, mut server) = (rig.boot(0), rig.boot(1));
    let started = Instant::now();
    for port in 0..count {
        let ends = ((0, 1024 + port), (1, 22));
        establish(&mut rig, (&mut client, ends.0), (&mut server, ends.1));
    }
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    assert_eq!(rig.plane.figures(0).connections, u64::from(count));
    rate
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_the_data_path() {
    let (mut packets, mut ratios, mut connects) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (plane, copy) = match round % 2 {
            0 => (packet_rate(), copy_rate()),
            _ => {
                let copy = copy_rate();
                (packet_rate(), copy)
            }
        };
        println!(
            "round {round}: {:.2} GB/s, memcpy {:.2} GB/s",
            plane / 1e9,
            copy / 1e9
        );
        packets.push(plane);
        ratios.push(plane / copy);
        connects.push(connect_rate(1000));
    }
    let rate = median(packets);
    println!(
        "packets of 64 KB between guests: {:.2} GB/s, {:.0} ns a packet, {:.2} of memcpy; {:.0} connects a second, \
            1,000 at once",
        rate / 1e9,
        PACKET as f64 / rate * 1e9,
        median(ratios),
        median(connects)
    );
}
