//! A guest that writes anything into its memory: two rings in it, driven by a whole switch, with a
//! well-behaved neighbour.
//!
//! An input is: which features, and whether writes are logged; how many frames the good one sends, and in its five high bits how
//! many patches there are; base of the rings (u16); the beginning of guest memory (rings, tables,
//! frames); and last the patches (offset u16, value u16), each followed by a turn of the switch.
#![no_main]

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use front_end::features::protocol;
use front_end::wire::{addresses, log, logged_addresses, number, request, state};
use front_end::{Layout, Nic, Options, Queue, Ram, Wire, features, frame};
use libfuzzer_sys::fuzz_target;
use switch::context::WorkerContext;
use switch::mac::Mac;
use switch::port::{Backend, Guest, Kind, Port};
use switch::switch::Switch;

/// Size of the hostile rings, and where they are: close together, so that inputs stay short.
const SIZE: u16 = 8;
const RX: u64 = 0;
const TX: u64 = 256;
/// Guest memory an input describes.
const IMAGE: usize = 2048;
const REGION: u64 = 4096;

const HOSTILE: u16 = 0;
const GOOD: u16 = 1;

/// A bit for each page of both regions.
const LOG_BYTES: u64 = 1;

/// The memory of logs.
fn logs() -> &'static Ram {
    static LOG: OnceLock<Ram> = OnceLock::new();
    LOG.get_or_init(|| Ram::new(4096))
}

struct World {
    switch: Switch,
    context: WorkerContext,
    good: Nic,
}

fn port(backend: Backend) -> Port {
    let kind = Kind::Guest(Box::new(Guest::new(backend)));
    Port::new(String::new(), kind)
}

fn serve_messages(backend: &mut Backend) {
    while let Ok(Some(message)) = backend.receive() {
        backend.apply(message).expect("a handshake");
    }
}

impl World {
    fn new() -> Self {
        vhost::sigbus::install().expect("a signal handler");
        let mut switch = Switch::default();
        for station in [HOSTILE, GOOD] {
            assert!(
                switch
                    .table
                    .pin(Mac::from_octets(frame::mac(station)), station)
            );
        }
        let (wire, theirs) = Wire::pair();
        let mut backend = Backend::new(theirs, 1).expect("a socket");
        let options = Options {
            features: features::LINUX,
            size: 64,
            ..Options::default()
        };
        let mut good = Nic::new(wire, options);
        good.start(|| serve_messages(&mut backend));
        assert!(switch.add(GOOD, port(backend)));
        let context = WorkerContext::new(0);
        Self {
            switch,
            context,
            good,
        }
    }

    /// Take the hostile port out. Forgetting its pinned address first spares a walk through the
    /// whole residency table.
    fn remove_hostile(&mut self) {
        let mac = Mac::from_octets(frame::mac(HOSTILE));
        self.switch.table.forget(mac);
        drop(self.switch.remove(HOSTILE));
        assert!(self.switch.table.pin(mac, HOSTILE));
    }

    /// One turn of both, and of the good one's driver.
    fn turn(&mut self) {
        self.context.now = Instant::now();
        for number in [HOSTILE, GOOD] {
            let _ = self.switch.serve(&mut self.context, number);
        }
        while let Some((number, _)) = self.switch.take_fault() {
            assert_eq!(number, HOSTILE, "a good port was blamed");
            self.remove_hostile();
        }
        while let Some(received) = self.good.receive() {
            check(&received.header, &received.frame);
        }
        self.good.reclaim();
    }
}

/// Whatever a hostile neighbour sends, this one gets only what it negotiated.
fn check(header: &[u8], frame: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    assert!(frame.len() >= 14);
    assert!(header[0] & !1 == 0, "flags");
    assert!(matches!(header[1] & 0x7f, 0 | 1 | 4), "a way to cut");
    if header[0] & 1 != 0 {
        assert!(word(6) >= 14 && word(6) + word(8) + 2 <= frame.len());
    }
    if header[1] != 0 {
        assert!(header[0] & 1 != 0 && word(4) > 0);
    }
}

/// A guest with this in its memory, its rings started.
fn hostile(control: [u8; 4], image: &[u8]) -> (Wire, Arc<Ram>, Backend) {
    let [taken, _, low, high] = control;
    let ram = Arc::new(Ram::in_regions(REGION, 2));
    ram.write(0, image);
    let (wire, theirs) = Wire::pair();
    let mut backend = Backend::new(theirs, 1).expect("a socket");
    let all = features::LINUX & !features::PROTOCOL_FEATURES;
    let logged = taken & 4 != 0;
    let taken = match taken % 4 {
        0 => all,
        1 => all & !features::EVENT_IDX,
        2 => all & !features::MRG_RXBUF & !features::GUEST_TSO4,
        _ => 0,
    };
    let taken = if logged {
        let feature = number(protocol::LOG_SHMFD);
        wire.send(request::SET_PROTOCOL_FEATURES, &feature, &[]);
        // As short as it can be.
        let payload = log(LOG_BYTES, 0);
        wire.send(request::SET_LOG_BASE, &payload, &[logs().fd()]);
        taken | features::LOG_ALL
    } else {
        taken
    };
    wire.send(request::SET_FEATURES, &number(taken), &[]);
    let mut table = state(2, 0);
    for region in ram.regions() {
        table.extend(region.to_bytes());
    }
    wire.send(request::SET_MEM_TABLE, &table, &[ram.fd(), ram.fd()]);
    let base = u16::from_le_bytes([low, high]);
    for (ring, at) in [(0, RX), (1, TX)] {
        let queue = Queue::new(Arc::clone(&ram), at, SIZE, ring == 0, 0);
        let [descriptors, used, available] = queue.user_addresses();
        let place = if logged {
            logged_addresses(ring, queue.user_addresses(), queue.used)
        } else {
            addresses(ring, descriptors, used, available)
        };
        wire.send(request::SET_VRING_NUM, &state(ring, SIZE.into()), &[]);
        wire.send(request::SET_VRING_BASE, &state(ring, base.into()), &[]);
        wire.send(request::SET_VRING_ADDR, &place, &[]);
        let kick = queue.kick_fd().as_fd();
        wire.send(request::SET_VRING_KICK, &number(ring.into()), &[kick]);
    }
    serve_messages(&mut backend);
    (wire, ram, backend)
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fuzz_target!(|data: &[u8]| {
    let Some((control, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let patched = (4 * usize::from(control[1] >> 3)).min(rest.len());
    let (image, patches) = rest.split_at(rest.len() - patched);
    let image = &image[..image.len().min(IMAGE)];
    let (_wire, ram, backend) = hostile(*control, image);
    WORLD.with_borrow_mut(|world| {
        assert!(world.switch.add(HOSTILE, port(backend)));
        let count = control[1] % 8;
        for number in 0..count {
            let bytes = frame::numbered(
                frame::mac(HOSTILE),
                frame::mac(GOOD),
                number.into(),
                30 + 300 * usize::from(number),
            );
            world.good.send(&bytes, Layout::One);
        }
        world.turn();
        for patch in patches.chunks_exact(4) {
            let [a, b, c, d] = [patch[0], patch[1], patch[2], patch[3]];
            let offset = u64::from(u16::from_le_bytes([a, b])) % IMAGE as u64;
            ram.store(offset & !1, u16::from_le_bytes([c, d]));
            world.turn();
        }
        world.remove_hostile();
        world.turn();
        let marked = logs().take(0);
        assert_eq!(marked & !0b11, 0, "pages that are not in memory");
        assert!(marked == 0 || control[0] & 4 != 0, "logged unasked");
        assert_eq!(
            world.good.in_flight(),
            0,
            "the good one's frames were not handed back"
        );
    });
});
