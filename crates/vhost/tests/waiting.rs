//! Measures how long a worker waits because of a front-end's memory: when it is unmapped, and when the
//! worker faults on its pages. docs/security.md lists the waits that cannot be avoided, with the figures
//! that this test prints:
//!
//! `VICINITY_UNMAP_GIB=509 cargo test --release -p vicinity-vhost --test waiting -- --ignored --nocapture`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use vhost::raw::Mapping;
use vhost::reclaim;

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// Most regions of a front-end.
const REGIONS: u64 = 509;

fn memory(size: u64, flags: MemfdFlags) -> OwnedFd {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("waiting", flags).unwrap();
    ftruncate(&memory, size).unwrap();
    memory
}

/// Reads a byte of each page, as the copy of a frame does.
fn touch(mapping: &Mapping, pages: impl Iterator<Item = u64>) {
    for page in pages {
        let mut byte = [0];
        mapping.span(page * PAGE, 1).unwrap().read(&mut byte);
        // Without a use of the byte, the compiler removes the read.
        black_box(byte);
    }
}

fn all_pages(mapping: &Mapping) -> std::ops::Range<u64> {
    0..mapping.size() as u64 / PAGE
}

/// The longest gaps of a thread: between two page reads, and, as a control, where the thread reads no page.
/// The control shows what this machine takes from every thread, such as the time of other virtual machines.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    reads: Gaps,
    control: Gaps,
}

/// The longest times between two points of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    /// By the clock.
    elapsed: Duration,
    /// In which the thread slept, as a thread does that waits for a semaphore of the kernel. A thread that
    /// another one preempts does not sleep.
    asleep: Duration,
    /// By the CPU time of the thread: the page fault and spin locks.
    executing: Duration,
}

/// The state of a thread before or after a page read.
struct Point {
    at: Instant,
    executed: Duration,
    /// The number of times that the thread has given up its CPU to wait (getrusage(2), `ru_nvcsw`).
    sleeps: i64,
}

impl Point {
    fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        Self {
            at: Instant::now(),
            executed: processor_time(),
            sleeps: usage.voluntary_context_switches(),
        }
    }
}

impl Gaps {
    fn extend(&mut self, from: &Point, to: &Point) {
        let elapsed = to.at - from.at;
        self.elapsed = self.elapsed.max(elapsed);
        if to.sleeps > from.sleeps {
            self.asleep = self.asleep.max(elapsed);
        }
        self.executing = self.executing.max(to.executed - from.executed);
    }
}

/// Returns the longest gaps of a thread that takes page faults, as a worker does: first while it runs
/// alone, and then while `beside` runs.
fn longest_gaps(beside: impl FnOnce()) -> [Figures; 2] {
    let over = AtomicBool::new(false);
    let work = || {
        let memory = memory(64 << 20, MemfdFlags::empty());
        // The first read of each page also allocates and clears the page.
        let mapping = Mapping::new(memory.as_fd(), 0, 64 << 20).unwrap();
        touch(&mapping, all_pages(&mapping));
        drop(mapping);
        let mut longest = Figures::default();
        while !over.load(Ordering::Relaxed) {
            // A new mapping each time, so that page faults occur: they need the lock that `munmap` holds.
            let mapping = Mapping::new(memory.as_fd(), 0, 64 << 20).unwrap();
            let mut before = Point::now();
            for page in all_pages(&mapping) {
                touch(&mapping, page..=page);
                let after = Point::now();
                longest.reads.extend(&before, &after);
                before = Point::now();
                longest.control.extend(&after, &before);
            }
        }
        longest
    };
    let during = |run: &mut dyn FnMut()| {
        over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let worker = scope.spawn(work);
            run();
            over.store(true, Ordering::Relaxed);
            worker.join().unwrap()
        })
    };
    let alone = during(&mut || thread::sleep(Duration::from_secs(2)));
    let mut beside = Some(beside);
    let both = during(&mut || beside.take().unwrap()());
    [alone, both]
}

/// The memory of a VM: regions that map the same memfd of one GiB, with all pages faulted in.
fn vm(gib: u64) -> Vec<Mapping> {
    let memory = memory(GIB, MemfdFlags::empty());
    let regions = (0..gib.min(REGIONS)).map(|_| {
        let region = Mapping::new(memory.as_fd(), 0, GIB).unwrap();
        touch(&region, all_pages(&region));
        region
    });
    let regions: Vec<_> = regions.collect();
    // Eight bytes of page tables for each page.
    assert!(
        page_tables() >= gib.min(REGIONS) * (GIB / PAGE * 8),
        "pages are not mapped"
    );
    regions
}

/// Returns the size of the page tables of this process in bytes.
fn page_tables() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}

fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let large = maps.lines().filter(|line| line.contains("memfd:waiting"));
    large.count()
}

/// Returns the CPU time of this thread. It excludes other threads on the same processor, such as the one
/// that unmaps.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_worker_does_not_unmap_memory_itself() {
    // Before the reclaim threads start, a mapping is unmapped where it is dropped.
    let regions = vm(4);
    let started = processor_time();
    drop(regions);
    let inline = processor_time() - started;
    reclaim::start(|| {}).unwrap();
    let regions = vm(4);
    let started = processor_time();
    drop(regions);
    let handed_over = processor_time() - started;
    assert!(
        handed_over * 10 < inline,
        "{handed_over:?} beside {inline:?} in the same thread"
    );
    let started = Instant::now();
    while mapped() > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "it is mapped");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "takes all CPUs and much memory: `make soak` runs it"]
fn figures_of_a_large_vm_that_goes() {
    reclaim::start(|| {}).unwrap();
    let gib = std::env::var("VICINITY_UNMAP_GIB").map_or(16, |gib| gib.parse().unwrap());
    let regions = vm(gib);
    let mut took = [Duration::ZERO; 2];
    let [alone, both] = longest_gaps(|| {
        let started = Instant::now();
        drop(regions);
        took[0] = started.elapsed();
        // The worker's own mapping may exist as well.
        while mapped() > 1 {
            thread::sleep(Duration::from_millis(10));
        }
        took[1] = started.elapsed();
    });
    println!(
        "{gib} GiB: handed over in {:?}, unmapped after {:?}; longest gaps of a worker {both:?}, alone {alone:?}",
        took[0], took[1]
    );
}

#[test]
#[ignore = "prints figures: `make soak` runs it"]
fn figures_of_faults_in_memory_that_the_front_end_changes() {
    let file = memory(GIB, MemfdFlags::empty());
    let region = Mapping::new(file.as_fd(), 0, GIB).unwrap();
    let longest = |over: &AtomicBool| {
        let mut longest = Duration::ZERO;
        let mut page = 0_u64;
        while !over.load(Ordering::Relaxed) {
            page = (page + 97) % (GIB / PAGE);
            let started = Instant::now();
            touch(&region, page..=page);
            longest = longest.max(started.elapsed());
        }
        longest
    };
    let over = AtomicBool::new(false);
    let (alone, punched) = thread::scope(|scope| {
        let worker = scope.spawn(|| longest(&over));
        thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::Relaxed);
        let alone = worker.join().unwrap();
        over.store(false, Ordering::Relaxed);
        let worker = scope.spawn(|| longest(&over));
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            // Allocate all pages again, so that the hole punches have pages to free.
            fallocate(&file, FallocateFlags::empty(), 0, GIB).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, 0, GIB).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        (alone, worker.join().unwrap())
    });
    println!(
        "a page of 4 KiB that is not there: {alone:?}; in 1 GiB that is punched again and again: {punched:?}"
    );
    for (name, flag, size) in [
        ("2 MiB", MemfdFlags::HUGE_2MB, 2 << 20),
        ("1 GiB", MemfdFlags::HUGE_1GB, GIB),
    ] {
        let file = memfd_create(
            "huge",
            flag | MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING,
        );
        let Ok(file) = file else {
            println!("no huge pages of {name} here");
            continue;
        };
        ftruncate(&file, size).unwrap();
        // Mappings do not reserve huge pages, so the first access could raise SIGBUS. Allocate the page
        // and free it again, to check that one is available.
        if fallocate(&file, FallocateFlags::empty(), 0, size).is_err() {
            println!("no huge page of {name} is free here");
            continue;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 0, size).unwrap();
        let region = Mapping::new(file.as_fd(), 0, size).unwrap();
        let started = Instant::now();
        touch(&region, 0..=0);
        println!(
            "a huge page of {name}, zeroed when it is touched: {:?}",
            started.elapsed()
        );
    }
}
