//! Counts the instructions that virtual CPUs execute under KVM, by a counter of the processor that runs only while the
//! processor is in the guest: the event `instructions:G` of `perf stat` (`perf-list(1)`, `exclude_host` of
//! `perf_event_open(2)`).
//!
//! QEMU's emulator counts with a plugin instead, see [`crate::instructions`].

use std::io::{self, ErrorKind};

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

use crate::error::{Error, Result};

/// Counters of threads, one for each.
#[derive(Debug)]
pub struct GuestInstructions(Vec<Counter>);

impl GuestInstructions {
    /// Starts to count the instructions that these threads execute in a guest: the threads of virtual CPUs.
    ///
    /// # Errors
    /// The kernel refuses, or the processor has no such counter; the error has the remedy.
    pub fn start(threads: &[u32]) -> Result<Self> {
        Self::start_event(threads, Hardware::INSTRUCTIONS, true)
    }

    fn start_event<E: Event + Copy>(threads: &[u32], event: E, guest: bool) -> Result<Self> {
        let start = |thread: &u32| {
            let thread = i32::try_from(*thread).map_err(|_| ErrorKind::InvalidInput)?;
            // The kernel does not share a pinned counter with other events, so that no count is an estimate.
            Builder::new(event)
                .observe_pid(thread)
                .exclude_host(guest)
                .exclude_kernel(false)
                .pinned(true)
                .enabled(true)
                .build()
        };
        let counters: io::Result<Vec<Counter>> = threads.iter().map(start).collect();
        counters.map(Self).map_err(|error| refusal(&error))
    }

    /// Returns the number of instructions since the start, of all threads together.
    ///
    /// # Errors
    /// Another user of the processor's counters has taken them all.
    pub fn read(&mut self) -> Result<u64> {
        let counts: io::Result<Vec<u64>> = self.0.iter_mut().map(Counter::read).collect();
        counts.map(|counts| counts.iter().sum()).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::Host(
                "the kernel gave the processor's counters to another program: end other runs of `perf`, and set \
                 kernel.nmi_watchdog=0"
                    .to_owned(),
            ),
            _ => refusal(&error),
        })
    }
}

/// Returns the reason why the kernel does not count, and the remedy.
fn refusal(error: &io::Error) -> Error {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => {
            "run as root (CAP_PERFMON), or set kernel.perf_event_paranoid to at most 1"
        }
        ErrorKind::NotFound | ErrorKind::Unsupported => {
            "the processor offers no counter of instructions here; if this machine is a VM, give it a virtual PMU \
             (QEMU: -cpu host,pmu=on)"
        }
        _ => "the thread may have ended",
    };
    Error::Host(format!(
        "the instructions of guests cannot be counted (perf_event_open: {error}): {remedy}"
    ))
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    fn this_thread() -> u32 {
        rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs()
    }

    /// A software event, which machines without a counter of instructions have, too. Skips where the kernel refuses it.
    #[test]
    fn threads_are_counted_together() {
        let threads = [this_thread(), this_thread()];
        let counters = GuestInstructions::start_event(&threads, Software::TASK_CLOCK, false);
        let mut counters = match counters {
            Ok(counters) => counters,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        let mut alone =
            GuestInstructions::start_event(&threads[..1], Software::TASK_CLOCK, false).unwrap();
        let mut sum = 0_u64;
        while alone.read().unwrap() < 5_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        // Nanoseconds of processor time, of the same thread twice.
        assert!(counters.read().unwrap() >= 10_000_000);
    }

    #[test]
    fn a_refusal_has_the_reason_and_the_remedy() {
        for (errno, parts) in [
            (
                rustix::io::Errno::ACCESS,
                ["Permission denied", "kernel.perf_event_paranoid"],
            ),
            (rustix::io::Errno::NOENT, ["No such file", "pmu=on"]),
            (rustix::io::Errno::OPNOTSUPP, ["not supported", "pmu=on"]),
            (
                rustix::io::Errno::SRCH,
                ["No such process", "may have ended"],
            ),
        ] {
            let text = refusal(&errno.into()).to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    /// A host without a counter refuses with a reason; a host with one counts no instructions of a guest that does not
    /// exist.
    #[test]
    fn a_thread_without_a_guest_has_no_instructions() {
        match GuestInstructions::start(&[this_thread()]) {
            Ok(mut counters) => assert_eq!(counters.read().unwrap(), 0),
            Err(error) => assert!(error.to_string().contains("cannot be counted"), "{error}"),
        }
    }
}
