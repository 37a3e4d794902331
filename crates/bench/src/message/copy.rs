//! Measures one copy by one processor. Its time is the lower bound for a message that is copied once.

use std::hint::black_box;
use std::time::Instant;

use vm_harness::error::{Error, Result};

use super::iterations::count;
use crate::cpus::SWITCH_CPU;
use report::message_perf::Figures;
use vm_harness::affinity::pin;

/// The shortest copy: shorter ones take no longer than a read of the clock.
pub(super) const MIN_LENGTH: u32 = 32 << 10;

/// Measures copies of `length` bytes. The latency is the time of one copy and not half of a round trip, because
/// nothing is copied back.
pub(super) fn measure(length: u32) -> Result<Figures> {
    let copier = std::thread::spawn(move || {
        pin(SWITCH_CPU)?;
        let from = vec![1u8; length as usize];
        let mut to = vec![0; length as usize];
        let copies = count(length, 2 << 30, 50_000);
        let mut micros = Vec::new();
        let start = Instant::now();
        for _ in 0..copies {
            let before = Instant::now();
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            micros.push(before.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Figures::new(&micros, copies, start.elapsed()))
    });
    let failed = |_| Error::Host("the thread that copies panicked".to_owned());
    copier.join().map_err(failed)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_measured() {
        let figures = measure(1 << 20).unwrap();
        assert!(figures.p50_us > 0.0 && figures.p50_us <= figures.p99_us);
        assert!(figures.messages_per_s > 0.0);
    }
}
