//! Pairs of front-ends connect, exchange frames and end a thousand times in every way, while two
//! neighbours exchange frames. The daemon keeps no resources of ended front-ends, and the
//! neighbours lose no frames.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::fmt::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use common::holdings::{Holdings, Memory};
use common::neighbours::{self, NEIGHBOURS, exchange, started};
use common::{Daemon, until};
use front_end::frame::{mac, numbered};
use front_end::wire::request;
use front_end::{Layout, Nic, Options, Wire, features};

/// Pairs of front-ends: one connects to the daemon, and the daemon connects to the other. There are
/// many pairs because the daemon allows at most 20 connections to one port in 10 seconds.
const PAIRS: u16 = 64;

/// Rounds of each pair. All pairs together make a thousand connections in each direction, a
/// thousand reboots of the guest, a thousand resets of the device, and a thousand ends with running
/// rings.
const LIVES: u16 = 16;

/// Returns the station numbers of a pair's two front-ends.
fn stations(pair: u16) -> [u16; 2] {
    [100 + pair, 300 + pair]
}

/// Returns a configuration in which every address is pinned, so that the switch floods no frame,
/// and the neighbours receive only each other's frames.
fn config() -> String {
    let mut text = "[[network]]\nname = \"lan\"\n".to_owned();
    let mut port = |station: u16, mode: &str| {
        let mac = mac(station).map(|octet| format!("{octet:02x}")).join(":");
        writeln!(
            text,
            "[[network.port]]\nvm = \"vm{station}\"\nmac = \"{mac}\"\nmode = \"{mode}\""
        )
        .unwrap();
    };
    for station in NEIGHBOURS {
        port(station, "server");
    }
    for [server, client] in (0..PAIRS).map(stations) {
        port(server, "server");
        port(client, "client");
    }
    text
}

fn socket(daemon: &Daemon, station: u16) -> std::path::PathBuf {
    daemon.path(&format!("lan/vm{station}.sock"))
}

fn connect(daemon: &Daemon, station: u16) -> Wire {
    Wire::new(UnixStream::connect(socket(daemon, station)).unwrap().into())
}

/// The front-ends of a pair, from their connections to their ends.
struct Lifecycle {
    random: fastrand::Rng,
    macs: [[u8; 6]; 2],
    sent: u64,
}

impl Lifecycle {
    fn run(mut self, wires: [Wire; 2]) {
        let mut nics = wires.map(|wire| started(wire, self.options()));
        for one in 0..2 {
            nics = self.again(nics, one, |nic| {
                // The guest's driver stops, and another with other features starts.
                let _bases = [nic.stop_ring(0), nic.stop_ring(1)];
            });
            let reset = self
                .random
                .choice([request::RESET_DEVICE, request::RESET_OWNER]);
            nics = self.again(nics, one, |nic| {
                assert!(nic.wire.send(reset.unwrap(), &[], &[]));
            });
        }
        self.talk(&mut nics);
        // They end one after the other, with frames to them in flight.
        let [first, mut second] = nics;
        drop(first);
        let to = self.macs;
        self.send(&mut second, [to[0], to[1]]);
    }

    fn options(&mut self) -> Options {
        let size = *[16, 64, 256].get(self.random.usize(0..3)).unwrap();
        let linux = self.random.bool();
        Options {
            size,
            features: [features::PLAIN, features::LINUX][usize::from(linux)],
            ..Options::default()
        }
    }

    /// Stops one of the front-ends by `stop` while they exchange frames, and starts it as another
    /// device.
    fn again(&mut self, mut nics: [Nic; 2], one: usize, stop: impl FnOnce(&Nic)) -> [Nic; 2] {
        self.talk(&mut nics);
        stop(&nics[one]);
        let mut place = 0..2;
        nics.map(|nic| match place.next() == Some(one) {
            true => started(nic.wire, self.options()),
            false => nic,
        })
    }

    /// Makes both send some frames to each other, without waiting for their delivery.
    fn talk(&mut self, nics: &mut [Nic; 2]) {
        let [a, b] = self.macs;
        for (nic, addresses) in nics.iter_mut().zip([[b, a], [a, b]]) {
            self.send(nic, addresses);
        }
        for nic in nics {
            while nic.receive().is_some() {}
        }
    }

    fn send(&mut self, nic: &mut Nic, [to, from]: [[u8; 6]; 2]) {
        for _ in 0..self.random.u16(0..=48) {
            nic.send(&numbered(to, from, self.sent, 200), Layout::One);
            self.sent += 1;
        }
    }
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some(&config()));
    let listeners: Vec<_> = (0..PAIRS)
        .map(|pair| UnixListener::bind(socket(&daemon, stations(pair)[1])).unwrap())
        .collect();
    let mut neighbours =
        NEIGHBOURS.map(|station| started(connect(&daemon, station), Options::default()));
    let over = AtomicBool::new(false);
    let mut before = None;
    let exchanged = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| exchange(&mut neighbours, &over));
        let lives = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for life in 0..LIVES {
                for (pair, listener) in (0..PAIRS).zip(&listeners) {
                    let stations = stations(pair);
                    let (stream, _) = listener.accept().unwrap();
                    let wires = [connect(&daemon, stations[0]), Wire::new(stream.into())];
                    let life = Lifecycle {
                        random: fastrand::Rng::with_seed(u64::from(life * PAIRS + pair)),
                        macs: stations.map(mac),
                        sent: 0,
                    };
                    life.run(wires);
                }
                // The daemon has made all its one-time allocations after the first rounds.
                if life == 1 {
                    before = Some(holds(&daemon));
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        let exchanged = traffic.join().unwrap();
        lives.map(|()| exchanged)
    });
    let exchanged = exchanged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (held, memory) = before.unwrap();
    held.assert_unchanged(&daemon, "lan", "after a thousand connections");
    let now = Memory::now(&daemon, "lan");
    println!("{exchanged} frames each way; {held:?}; KiB {memory:?} before, {now:?} after");
    memory.assert_holds(&now);
    assert!(exchanged > 0);
    neighbours::assert_lossless(&daemon, exchanged);
    for station in (0..PAIRS).flat_map(stations) {
        let port = daemon.port(&format!("vm{station}"));
        assert!(
            port["connections"].as_u64().unwrap() >= u64::from(LIVES),
            "{port}"
        );
        assert_eq!(port["quarantines"], 0, "{port}");
    }
    assert_eq!(daemon.network("lan")["restarts"], 0);
}

/// Returns what the daemon holds after it has removed all ended front-ends: the resources of the
/// neighbours, and a socket for each front-end to which it is trying to connect.
fn holds(daemon: &Daemon) -> (Holdings, Memory) {
    until("everybody's end", || {
        let ports = daemon.ports();
        let state = |port: &serde_json::Value| port["state"].clone();
        let waiting = ports.iter().filter(|port| state(port) == "waiting");
        let connected = ports.iter().filter(|port| state(port) == "connected");
        [waiting.count(), connected.count()] == [usize::from(PAIRS); 2]
    });
    (Holdings::settled(daemon, "lan"), Memory::now(daemon, "lan"))
}
