//! How long a thread that serves waits for memory of a front-end: that goes, or whose pages have to be found
//! first. What cannot be kept from it stands in docs/security.md, with the figures that this prints:
//!
//! `VICINITY_UNMAP_GIB=509 cargo test --release -p vicinity-vhost --test waiting -- --ignored --nocapture`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// Touch every page, as frames do.
fn touch(mapping: &Mapping, pages: impl Iterator<Item = u64>) {
    for page in pages {
        let mut byte = [0];
        mapping.span(page * PAGE, 1).unwrap().read(&mut byte);
    }
}

fn all_pages(mapping: &Mapping) -> std::ops::Range<u64> {
    0..mapping.size() as u64 / PAGE
}

/// The longest time between two looks of a thread that copies and meets new pages meanwhile, as a worker
/// does: without anything beside it, and while `beside` runs.
fn longest_gaps(beside: impl FnOnce()) -> [Duration; 2] {
    let over = AtomicBool::new(false);
    let work = || {
        let memory = memory(64 << 20, MemfdFlags::empty());
        let mut longest = Duration::ZERO;
        let mut before = Instant::now();
        while !over.load(Ordering::Relaxed) {
            // Page tables of its own, again and again: a fault needs what `munmap` holds.
            let mapping = Mapping::new(memory.as_fd(), 0, 64 << 20).unwrap();
            for page in all_pages(&mapping) {
                touch(&mapping, page..=page);
                longest = longest.max(before.elapsed());
                before = Instant::now();
            }
            drop(mapping);
            before = Instant::now();
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

/// A VM's memory: regions of one memfd of a GiB, each page of each one touched.
fn vm(gib: u64) -> Vec<Mapping> {
    let memory = memory(GIB, MemfdFlags::empty());
    let regions = (0..gib.min(REGIONS)).map(|_| {
        let region = Mapping::new(memory.as_fd(), 0, GIB).unwrap();
        touch(&region, all_pages(&region));
        region
    });
    regions.collect()
}

fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let large = maps.lines().filter(|line| line.contains("memfd:waiting"));
    large.count()
}

/// How long this thread has run. What other threads do on its processor meanwhile does not count: the one
/// that unmaps may be woken there.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn the_thread_that_serves_does_not_unmap() {
    // Where it is dropped, it is unmapped, before the threads are there.
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
        // What the worker maps itself is small, and comes and goes.
        while mapped() > 1 {
            thread::sleep(Duration::from_millis(10));
        }
        took[1] = started.elapsed();
    });
    println!(
        "{gib} GiB: handed over in {:?}, unmapped after {:?}; longest gap of a worker {both:?}, alone {alone:?}",
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
            // Filled again by whole pages, so that there is much to punch.
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
        // Without a reserve the first touch would be a SIGBUS; this asks for the page, and gives it back.
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
