//! The dirty log is exact: it marks every page of a guest's memory that the switch writes, and no other page.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::bare::{attach, messages};
use common::{Plane, exchange};
use front_end::features::{self, EVENT_IDX, INDIRECT_DESC, LINUX, MRG_RXBUF, PROTOCOL_FEATURES};
use front_end::log::PAGE;
use front_end::queue::{INDIRECT, NEXT};
use front_end::{Layout, Log, Nic, Options, Queue, Ram, Wire, frame};
use proptest::prelude::*;
use switch::context::WorkerContext;
use switch::switch::Switch;

/// The difference between the log address of a used ring and its guest-physical address: the two need not
/// be equal.
const LOG_OFFSET: u64 = 1 << 30;

type Pages = BTreeSet<u64>;

/// Returns the pages of these bytes.
fn pages(address: u64, length: u64) -> impl Iterator<Item = u64> {
    let end = (address + length).div_ceil(PAGE);
    (address / PAGE..end).take(if length == 0 { 0 } else { usize::MAX })
}

fn number<const N: usize>(ram: &Ram, address: u64) -> u64 {
    let mut bytes = [0; 8];
    ram.read(address, &mut bytes[..N]);
    u64::from_le_bytes(bytes)
}

/// Returns the buffers of a chain: address and length.
fn buffers(ram: &Ram, queue: &Queue, head: u64) -> Vec<(u64, u64)> {
    let (mut table, mut index, mut found) = (queue.descriptors, head, Vec::new());
    loop {
        let at = table + 16 * index;
        let (address, length) = (number::<8>(ram, at), number::<4>(ram, at + 8));
        let (flags, next) = (number::<2>(ram, at + 12) as u16, number::<2>(ram, at + 14));
        if flags & INDIRECT != 0 {
            (table, index) = (address, 0);
            continue;
        }
        found.push((address, length));
        if flags & NEXT == 0 {
            return found;
        }
        index = next;
    }
}

/// Returns the fields of a used ring that the device writes: index, flags, and `avail_event`.
fn seen(ram: &Ram, queue: &Queue) -> [u64; 3] {
    let event = queue.used + 4 + 8 * u64::from(queue.size());
    [queue.used + 2, queue.used, event].map(|at| number::<2>(ram, at))
}

/// Returns the pages that the device has written since the state `before`: as log addresses, and as
/// addresses in memory.
fn written(ram: &Ram, queue: &Queue, before: [u64; 3]) -> (Pages, Pages) {
    let (mut logged, mut places) = (Pages::new(), Pages::new());
    let mut used = |offset, length| {
        logged.extend(pages(queue.used + offset + LOG_OFFSET, length));
        places.extend(pages(queue.used + offset, length));
    };
    let now = seen(ram, queue);
    if now[0] != before[0] {
        used(2, 2);
    }
    if now[1] != before[1] {
        used(0, 2);
    }
    if now[2] != before[2] {
        used(4 + 8 * u64::from(queue.size()), 2);
    }
    let mut index = before[0] as u16;
    let mut chains = Vec::new();
    while index != now[0] as u16 {
        let offset = 4 + 8 * u64::from(index % queue.size());
        used(offset, 8);
        let element = queue.used + offset;
        chains.push((number::<4>(ram, element), number::<4>(ram, element + 4)));
        index = index.wrapping_add(1);
    }
    for (head, mut left) in chains {
        for (address, length) in buffers(ram, queue, head) {
            let length = length.min(left);
            left -= length;
            logged.extend(pages(address, length));
            places.extend(pages(address, length));
        }
        assert_eq!(left, 0, "written past a chain");
    }
    (logged, places)
}

/// A guest whose memory is compared with the log.
struct Watched {
    nic: Nic,
    log: Log,
    logging: bool,
    /// All memory, before and after.
    images: [Vec<u8>; 2],
    seen: [[u64; 3]; 2],
}

impl Watched {
    fn new(nic: Nic) -> Self {
        let bytes: u64 = nic.ram.regions().iter().map(|r| r.size).sum();
        let log = Log::new(bytes + LOG_OFFSET);
        let mut watched = Self {
            nic,
            log,
            logging: false,
            images: [(); 2].map(|()| vec![0; bytes as usize]),
            seen: [[0; 3]; 2],
        };
        watched.snapshot();
        watched
    }

    /// Records the present content of memory.
    fn snapshot(&mut self) {
        self.nic.ram.read(0, &mut self.images[0]);
        self.seen = [&self.nic.rx, &self.nic.tx].map(|queue| seen(&self.nic.ram, queue));
    }

    /// Compares the pages that were logged since [`Watched::snapshot`] with those that were written.
    fn check(&mut self) {
        let logged = self.log.take();
        let (mut expected, mut places) = (Pages::new(), Pages::new());
        for (queue, seen) in [&self.nic.rx, &self.nic.tx].into_iter().zip(self.seen) {
            let (more, at) = written(&self.nic.ram, queue, seen);
            expected.extend(more);
            places.extend(at);
        }
        let [before, now] = &mut self.images;
        self.nic.ram.read(0, now);
        let step = PAGE as usize;
        let both = before.chunks(step).zip(now.chunks(step));
        let changed = (0..).zip(both).filter(|(_, (old, new))| old != new);
        for (page, _) in changed {
            assert!(
                places.contains(&page),
                "page {page} was written unexpectedly"
            );
        }
        if self.logging {
            assert_eq!(logged, expected, "the log");
        } else {
            assert_eq!(
                logged,
                Pages::new(),
                "the log of a guest that does not migrate"
            );
        }
    }
}

struct World {
    switch: Switch,
    context: WorkerContext,
    guests: [Watched; 2],
}

impl World {
    fn new(options: [Options; 2]) -> Self {
        let mut switch = Switch::default();
        let mut number = 0;
        let guests = options.map(|options| {
            let (wire, theirs) = Wire::pair();
            attach(&mut switch, number, theirs);
            let mut nic = Nic::new(wire, options);
            nic.start(|| messages(&mut switch, number));
            number += 1;
            Watched::new(nic)
        });
        Self {
            switch,
            context: WorkerContext::new(0),
            guests,
        }
    }

    /// Lets the switch forward, checks what it wrote, and lets the guests receive.
    fn turn(&mut self) {
        self.guests.iter_mut().for_each(Watched::snapshot);
        self.context.now = Instant::now();
        let Self {
            switch, context, ..
        } = self;
        while (0..2).any(|number| switch.serve(context, number).moved > 0) {}
        assert!(self.switch.take_fault().is_none());
        for guest in &mut self.guests {
            guest.check();
            while guest.nic.receive().is_some() {}
            guest.nic.reclaim();
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Turn => self.turn(),
            Step::Log { at, on } => {
                let (switch, guest) = (&mut self.switch, &mut self.guests[*at]);
                if guest.logging == *on {
                    return;
                }
                guest.logging = *on;
                let port = *at as u16;
                let pump = || messages(switch, port);
                if *on {
                    let used = [&guest.nic.rx, &guest.nic.tx].map(|queue| queue.used + LOG_OFFSET);
                    let mut pump = pump;
                    guest.nic.set_log_base(&guest.log, &mut pump);
                    guest.nic.log_all(used, &mut pump);
                } else {
                    guest.nic.stop_log(pump);
                }
            }
            Step::Send {
                at,
                to,
                bytes,
                layout,
                cut,
            } => {
                let (from, nic) = (frame::mac(*at as u16), &mut self.guests[*at].nic);
                let to = [frame::mac(1 - *at as u16), frame::BROADCAST][usize::from(*to)];
                let cut = *cut && nic.options.features & LINUX == LINUX;
                if cut {
                    let mut header = [1, 1, 54, 0, 0, 4, 34, 0, 16, 0, 0, 0];
                    header[5] = 3;
                    let bytes = frame::tcp(to, from, 1, &vec![7; *bytes]);
                    nic.send_with(&header, &bytes, *layout);
                } else {
                    let bytes = frame::numbered(to, from, *bytes as u64, *bytes);
                    nic.send(&bytes, *layout);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Turn,
    Log {
        at: usize,
        on: bool,
    },
    Send {
        at: usize,
        to: bool,
        bytes: usize,
        layout: Layout,
        cut: bool,
    },
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::One),
        Just(Layout::SeparateHeader),
        (100_u32..5000).prop_map(Layout::Pieces),
        (100_u32..5000).prop_map(Layout::Indirect),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 30_usize..1600, 1 => 1600_usize..20_000];
    let send = (0_usize..2, any::<bool>(), bytes, layout(), any::<bool>()).prop_map(
        |(at, to, bytes, layout, cut)| Step::Send {
            at,
            to,
            bytes,
            layout,
            cut,
        },
    );
    prop_oneof![
        4 => send,
        2 => Just(Step::Turn),
        1 => (0_usize..2, any::<bool>()).prop_map(|(at, on)| Step::Log { at, on }),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let features = prop::sample::select(vec![
        LINUX,
        features::PLAIN,
        LINUX & !EVENT_IDX,
        features::PLAIN & !MRG_RXBUF,
        PROTOCOL_FEATURES | INDIRECT_DESC,
    ]);
    let base = prop::sample::select(vec![0, 65_500]);
    let size = prop::sample::select(vec![64, 256, 1024]);
    (features, base, size, 1600_u32..9000, layout(), 1_u64..4).prop_map(
        |(features, base, size, receive_bytes, receive_layout, regions)| Options {
            features,
            base,
            size,
            receive_bytes,
            receive_layout,
            regions,
            pairs: 1,
            post: true,
            replies: false,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the log with all memory, page by page, and with the writes that the used rings imply.
    /// Logging begins and ends at any time.
    #[test]
    fn spec_migration_the_log_names_what_was_written_and_nothing_else(
        a in options(),
        b in options(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new([a, b]);
        for step in &steps {
            world.step(step);
        }
        world.turn();
    }
}

/// Does what a front-end does in a migration: copies memory while the guest receives, copies the pages in
/// the log again, and then stops the rings and copies the rest.
#[test]
fn memory_copied_by_the_log_under_traffic_is_memory() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for _ in 0..3 {
        let log = b.log();
        b.start_log(&log, || {});
        b.sync();
        let ram = std::sync::Arc::clone(&b.ram);
        let over = AtomicBool::new(false);
        let mut copy = std::thread::scope(|scope| {
            let copier = scope.spawn(|| {
                let mut copy = vec![0; ram.regions()[0].size as usize];
                ram.read(0, &mut copy);
                let mut rounds = 0;
                while rounds < 10 || !over.load(Ordering::Relaxed) {
                    copy_pages(&ram, &log, &mut copy);
                    rounds += 1;
                }
                copy
            });
            exchange((&mut a, 1), (&mut b, 2), 5_000, 1500);
            exchange((&mut b, 2), (&mut a, 1), 1_000, 200);
            over.store(true, Ordering::Relaxed);
            copier.join().unwrap()
        });
        let bases = [0, 1].map(|ring| b.stop_ring(ring));
        copy_pages(&ram, &log, &mut copy);
        // Memory that only the device writes: the hypervisor logs the guest's own writes.
        let used = |queue: &Queue| (queue.used, 6 + 8 * u64::from(queue.size()));
        let buffers = 2 * Queue::bytes(256).next_multiple_of(PAGE);
        for (address, length) in [used(&b.rx), used(&b.tx), (buffers, 256 * 1600)] {
            let mut bytes = vec![0; length as usize];
            ram.read(address, &mut bytes);
            let copied = &copy[address as usize..][..bytes.len()];
            assert!(bytes == copied, "memory at {address:#x} was not logged");
        }
        // The rings can resume at the used index.
        assert_eq!(
            bases.map(u64::from),
            [&b.rx, &b.tx].map(|queue| seen(&ram, queue)[0])
        );
        b.stop_log(|| {});
        b.start_rings(bases, || {});
        b.sync();
        plane.forget_running(2);
        drop(log.take());
        exchange((&mut a, 1), (&mut b, 2), 1_000, 1500);
        assert_eq!(log.take(), Pages::new(), "logged after the end");
    }
}

fn copy_pages(ram: &Ram, log: &Log, copy: &mut [u8]) {
    for page in log.take() {
        let at = (page * PAGE) as usize;
        let end = (at + PAGE as usize).min(copy.len());
        ram.read(at as u64, &mut copy[at..end]);
    }
}

/// At the end of a migration, the front-end stops the rings, here of a guest without receive buffers for
/// which frames wait. The base of each ring equals its used index: the device has returned every chain that
/// it took, so another host can resume at the used index.
#[test]
fn a_guest_with_a_full_ring_stops_where_its_used_index_is() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    // From now on it posts no more buffers.
    b.options.post = false;
    let log = b.log();
    b.start_log(&log, || {});
    b.sync();
    let mut copy = vec![0; b.ram.regions()[0].size as usize];
    b.ram.read(0, &mut copy);
    let mut sent = 0;
    while plane.counters(1).backpressured == 0 {
        for _ in 0..32 {
            let bytes = frame::numbered(frame::mac(2), frame::mac(1), sent, 1000);
            sent += u64::from(a.send(&bytes, Layout::One));
        }
    }
    assert!(b.send(
        &frame::numbered(frame::mac(1), frame::mac(2), 0, 1000),
        Layout::One
    ));
    b.wait_until_sent();
    let bases = [0, 1].map(|ring| b.stop_ring(ring));
    copy_pages(&b.ram, &log, &mut copy);
    assert_eq!(
        bases.map(u64::from),
        [&b.rx, &b.tx].map(|queue| seen(&b.ram, queue)[0])
    );
    // Every buffer is full, and the copy has all of them.
    for number in 0.. {
        let Some(received) = b.receive() else {
            assert_eq!(number, 256, "frames received");
            break;
        };
        assert_eq!(frame::number(&received.frame), number);
    }
    let buffers = (2 * Queue::bytes(256).next_multiple_of(PAGE)) as usize;
    let mut bytes = vec![0; 256 * 1600];
    b.ram.read(buffers as u64, &mut bytes);
    assert!(
        bytes == copy[buffers..][..bytes.len()],
        "not all was logged"
    );
    // The sender does not wait for a guest that is detached.
    drop(b);
    a.wait_until_sent();
}
