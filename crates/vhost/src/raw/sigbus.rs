//! Handles `SIGBUS`, so that a front-end that truncates its memory loses its own port and does not end
//! the process.
//!
//! The kernel raises `SIGBUS` on an access to a mapped page behind the end of its file. The handler
//! searches the mappings that [`Guard`] registered for the address. If it finds one, it maps anonymous
//! zero pages over the whole mapping, so that the interrupted access continues and reads zeroes, and marks
//! the mapping as truncated. A worker reads [`truncations`] once a round, and when the number has changed,
//! it removes the ports whose mapping is marked ([`Guard::truncated`]). For any other address, the handler
//! installs the previous handler again.

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits::MAX_MAPPINGS;
use crate::registered::Entry;

/// One entry of the table of registered mappings.
struct Slot {
    bounds: Entry,
    truncated: AtomicBool,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const {
    Slot {
        bounds: Entry::new(),
        truncated: AtomicBool::new(false),
    }
}; MAX_MAPPINGS];

/// The number of entries that were ever used, which bounds the handler's search.
static USED: AtomicUsize = AtomicUsize::new(0);

static TRUNCATIONS: AtomicUsize = AtomicUsize::new(0);

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Returns the number of mappings found truncated since the process started. A caller compares it with the
/// last value to detect a truncation at low cost.
#[inline]
#[must_use]
pub fn truncations() -> usize {
    TRUNCATIONS.load(Ordering::Relaxed)
}

/// The registration of one mapping.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Registers a mapping, if the table has room.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        let end = start.checked_add(length)?;
        let index = SLOTS.iter().position(|slot| slot.bounds.take(start, end))?;
        USED.fetch_max(index + 1, Ordering::Release);
        Some(Self(index))
    }

    /// Returns whether the mapping was found truncated.
    pub(super) fn truncated(&self) -> bool {
        let slot = SLOTS.get(self.0);
        slot.is_some_and(|slot| slot.truncated.load(Ordering::Relaxed))
    }

    /// Removes the registration; called once, before the mapping is unmapped.
    pub(super) fn release(&self) {
        if let Some(slot) = SLOTS.get(self.0) {
            slot.truncated.store(false, Ordering::Relaxed);
            slot.bounds.free();
        }
    }
}

/// Installs the handler, once per process.
///
/// # Errors
/// The kernel refuses, which no known Linux does.
pub fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value.
    let (mut action, mut previous): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = on_sigbus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: this only reads the present handler into a valid place.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if PREVIOUS.set(previous).is_err() {
        return Ok(());
    }
    // SAFETY: `on_sigbus` has the signature that SA_SIGINFO requires, and only uses what a signal
    // handler may: atomic loads and stores, mmap and sigaction, all async-signal-safe.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo_t, and SIGBUS fills `si_addr`.
    let address = unsafe { (*info).si_addr() }.addr();
    if replace(address) {
        return;
    }
    if let Some(previous) = PREVIOUS.get() {
        // syscalls: rt_sigaction
        // SAFETY: the value came from the kernel. The processor repeats the faulting access on return,
        // and the signal then reaches the previous handler.
        unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
    }
}

/// Maps zero pages over the registered mapping that contains `address`; returns false when there is none.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for slot in SLOTS.iter().take(used) {
        let Some((start, end)) = slot.bounds.bounds_around(address) else {
            continue;
        };
        // syscalls: mmap
        // SAFETY: the range is exactly one mapping of this crate: bounds of two mappings are never
        // mixed, and a mapping is unregistered before it is unmapped. The interrupted access is inside
        // the mapping and keeps it mapped, so nothing else is replaced. The pages stay readable and
        // writable, so pointers into the mapping stay valid.
        let mapped = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(start),
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        slot.truncated.store(true, Ordering::Relaxed);
        TRUNCATIONS.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    false
}
