//! Whether a program's loads from a region come from the processor's caches.
//!
//! A guest's kernel maps a BAR uncached when a program maps it through `resource2` in sysfs (Linux
//! `drivers/pci/mmap.c`). Some processors obey, others do not: KVM on AMD always does, KVM on Intel
//! does when a device without coherent DMA is assigned, and TCG never does. No file shows a program
//! which memory type is in force, so this module measures. An uncached load is a transaction on the
//! bus of 100 ns and more; a load from a cache takes a nanosecond, or some ten under TCG, which
//! emulates both alike. The comparison with private memory of the same program, in turns, keeps the
//! result right on a processor of any speed.

use std::hint::black_box;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::memfd;
use crate::raw::{Access, Mapping, Words};

/// Bytes that the measurement loads from.
const PAGE: u64 = 4096;

/// Words of 4 bytes in a page, and in a cache line of 64 bytes.
const WORDS: u32 = 1024;
const LINE: usize = 16;

/// How often one pass loads from each cache line of the page, and its loads together.
const REPEATS: u32 = 16;
const LOADS: u32 = REPEATS * (WORDS / 16);

/// Passes over each memory. The fastest counts: a virtual CPU that loses its processor makes a pass longer,
/// and nothing makes one shorter.
const PASSES: u32 = 8;

/// Uncached memory is at least so many times slower than cached memory, and takes at least so long for a load.
const TIMES: u32 = 8;
const MIN_UNCACHED: Duration = Duration::from_nanos(20);

/// What a load takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTime {
    /// From the region.
    pub region: Duration,
    /// From private memory of this program.
    pub private: Duration,
}

impl LoadTime {
    /// Measures the first page of a region. This takes less than a millisecond, or some ten milliseconds if the
    /// region is uncached.
    ///
    /// # Errors
    /// The kernel refuses to map the region's first page, or a page of this program's own.
    pub fn measure(region: BorrowedFd<'_>) -> Result<Self, Errno> {
        let private = memfd::create(c"vicinity-load-time", PAGE)?;
        let pages = [page(region)?, page(private.as_fd())?];
        let mut fastest = [Duration::MAX; 2];
        for _ in 0..PASSES {
            for (words, fastest) in pages.iter().zip(&mut fastest) {
                *fastest = pass(words).min(*fastest);
            }
        }
        let [region, private] = fastest.map(|pass| pass / LOADS);
        Ok(Self { region, private })
    }

    /// Whether the processor loads from the region without its caches.
    #[must_use]
    pub fn is_uncached(self) -> bool {
        self.region >= MIN_UNCACHED && self.region >= self.private * TIMES
    }
}

fn page(file: BorrowedFd<'_>) -> Result<Words, Errno> {
    let mapping = Arc::new(Mapping::new(file, 0, PAGE, Access::ReadWrite)?);
    Words::new(&mapping, 0, WORDS).ok_or(Errno::INVAL)
}

/// What the loads of one pass take together.
fn pass(words: &Words) -> Duration {
    let begin = Instant::now();
    for _ in 0..REPEATS {
        for index in (0..WORDS).step_by(LINE) {
            black_box(words.get(index).map(|word| word.load(Ordering::Relaxed)));
        }
    }
    begin.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_host_is_cached() {
        let region = memfd::create(c"region", PAGE).unwrap();
        let time = LoadTime::measure(region.as_fd()).unwrap();
        assert!(!time.is_uncached(), "{time:?}");
    }

    #[test]
    fn loads_that_take_a_bus_transaction_are_distinguished_from_slow_processors() {
        let is_uncached = |region, private| {
            let [region, private] = [region, private].map(Duration::from_nanos);
            LoadTime { region, private }.is_uncached()
        };
        // An AMD server under KVM, and one whose clock is slow.
        assert!(is_uncached(120, 1) && is_uncached(400, 5));
        // TCG, a cold cache, a clock without resolution.
        assert!(!is_uncached(12, 11) && !is_uncached(60, 30) && !is_uncached(3, 0));
    }

    #[test]
    fn a_file_that_cannot_be_mapped_is_an_error() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(LoadTime::measure(read.as_fd()).is_err());
    }
}
