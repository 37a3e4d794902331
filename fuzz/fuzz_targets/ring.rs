//! A guest that writes anything into its memory, which contains two rings of a port of a whole
//! switch, beside a port of a well-behaved neighbour.
//!
//! An input has a byte that selects the features and whether dirty pages are logged; a byte with
//! the number of frames that the neighbour sends and, in its five high bits, the number of patches;
//! the base of the rings (u16); the start of guest memory (rings, tables, frames); and at its end
//! the patches (offset u16, value u16). After each patch, the switch serves both ports once.
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

/// Size and addresses of the hostile rings, which are close together to keep inputs short.
const SIZE: u16 = 8;
const RX: u64 = 0;
const TX: u64 = 256;
/// Bytes of guest memory that an input describes.
const IMAGE: usize = 2048;
const REGION: u64 = 4096;

const HOSTILE: u16 = 0;
const NEIGHBOUR: u16 = 1;

/// One bit for each page of both regions.
const LOG_BYTES: u64 = 1;

/// The memory of the dirty logs.
fn log_memory() -> &'static Ram {
    static LOG: OnceLock<Ram> = OnceLock::new();
    LOG.get_or_init(|| Ram::new(4096))
}

struct Fixture {
    switch: Switch,
    context: WorkerContext,
    neighbour: Nic,
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

impl Fixture {
    fn new() -> Self {
        vhost::sigbus::install().expect("a signal handler");
        let mut switch = Switch::default();
        for station in [HOSTILE, NEIGHBOUR] {
            assert!(
                switch
                    .table
                    .pin(Mac::from_octets(frame::mac(station)), station, 0)
            );
        }
        let (wire, theirs) = Wire::pair();
        let mut backend = Backend::new(theirs, 1).expect("a socket");
        let options = Options {
            features: features::LINUX,
            size: 64,
            ..Options::default()
        };
        let mut neighbour = Nic::new(wire, options);
        neighbour.start(|| serve_messages(&mut backend));
        assert!(switch.add(NEIGHBOUR, port(backend)));
        let context = WorkerContext::new(0);
        Self {
            switch,
            context,
            neighbour,
        }
    }

    /// Removes the hostile port. Forgetting its pinned address first avoids a walk through the
    /// whole FDB.
    fn remove_hostile(&mut self) {
        let mac = Mac::from_octets(frame::mac(HOSTILE));
        self.switch.table.remove(mac);
        drop(self.switch.remove(HOSTILE));
        assert!(self.switch.table.pin(mac, HOSTILE, 0));
    }

    /// Serves both ports once, and runs the neighbour's driver.
    fn serve_all(&mut self) {
        self.context.now = Instant::now();
        for number in [HOSTILE, NEIGHBOUR] {
            let _ = self.switch.serve(&mut self.context, number);
        }
        while let Some((number, _)) = self.switch.take_fault() {
            assert_eq!(number, HOSTILE, "the switch faulted the neighbour");
            self.remove_hostile();
        }
        while let Some(received) = self.neighbour.receive() {
            check(&received.header, &received.frame);
        }
        self.neighbour.reclaim();
    }
}

/// Checks that the neighbour receives only what it negotiated, whatever the hostile port sends.
fn check(header: &[u8], frame: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    assert!(frame.len() >= 14);
    assert!(header[0] & !1 == 0, "flags");
    assert!(matches!(header[1] & 0x7f, 0 | 1 | 4), "GSO type");
    if header[0] & 1 != 0 {
        assert!(word(6) >= 14 && word(6) + word(8) + 2 <= frame.len());
    }
    if header[1] != 0 {
        assert!(header[0] & 1 != 0 && word(4) > 0);
    }
}

/// Makes a guest with this image in its memory, and starts its rings.
fn hostile(control: [u8; 4], image: &[u8]) -> (Wire, Arc<Ram>, Backend) {
    let [selected, _, low, high] = control;
    let ram = Arc::new(Ram::in_regions(REGION, 2));
    ram.write(0, image);
    let (wire, theirs) = Wire::pair();
    let mut backend = Backend::new(theirs, 1).expect("a socket");
    let all = features::LINUX & !features::PROTOCOL_FEATURES;
    let logged = selected & 4 != 0;
    let selected = match selected % 4 {
        0 => all,
        1 => all & !features::EVENT_IDX,
        2 => all & !features::MRG_RXBUF & !features::GUEST_TSO4,
        _ => 0,
    };
    let selected = if logged {
        let feature = number(protocol::LOG_SHMFD);
        wire.send(request::SET_PROTOCOL_FEATURES, &feature, &[]);
        // The shortest log that is valid.
        let payload = log(LOG_BYTES, 0);
        wire.send(request::SET_LOG_BASE, &payload, &[log_memory().fd()]);
        selected | features::LOG_ALL
    } else {
        selected
    };
    wire.send(request::SET_FEATURES, &number(selected), &[]);
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
    static FIXTURE: RefCell<Fixture> = RefCell::new(Fixture::new());
}

fuzz_target!(|data: &[u8]| {
    let Some((control, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let patched = (4 * usize::from(control[1] >> 3)).min(rest.len());
    let (image, patches) = rest.split_at(rest.len() - patched);
    let image = &image[..image.len().min(IMAGE)];
    let (_wire, ram, backend) = hostile(*control, image);
    FIXTURE.with_borrow_mut(|fixture| {
        assert!(fixture.switch.add(HOSTILE, port(backend)));
        let count = control[1] % 8;
        for number in 0..count {
            let bytes = frame::numbered(
                frame::mac(HOSTILE),
                frame::mac(NEIGHBOUR),
                number.into(),
                30 + 300 * usize::from(number),
            );
            fixture.neighbour.send(&bytes, Layout::One);
        }
        fixture.serve_all();
        for patch in patches.chunks_exact(4) {
            let [a, b, c, d] = [patch[0], patch[1], patch[2], patch[3]];
            let offset = u64::from(u16::from_le_bytes([a, b])) % IMAGE as u64;
            ram.store(offset & !1, u16::from_le_bytes([c, d]));
            fixture.serve_all();
        }
        fixture.remove_hostile();
        fixture.serve_all();
        let marked = log_memory().take(0);
        assert_eq!(marked & !0b11, 0, "pages that are not in memory");
        assert!(
            marked == 0 || control[0] & 4 != 0,
            "the log was not enabled"
        );
        assert_eq!(
            fixture.neighbour.in_flight(),
            0,
            "the switch holds frames of the neighbour"
        );
    });
});
