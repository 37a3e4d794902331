//! A front-end that truncates its memory costs its own port, not the process.
//!
//! The kernel raises `SIGBUS` when a mapped page lies behind the end of its file. The handler
//! looks the address up among the mappings registered by [`Guard`]; if it finds one, it puts
//! anonymous zero pages over the whole mapping, so that the interrupted access goes on and reads
//! zeroes, and marks it hit. Whoever drives the data path asks [`hits`] once a round and then
//! drops the port whose mapping says [`Guard::hit`]. Any other address is handed to whatever
//! handler was there before.

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits::MAX_MAPPINGS;
use crate::registered::Entry;

/// One registered mapping.
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

/// Entries at and above this one were never used; it bounds the handler's search.
static USED: AtomicUsize = AtomicUsize::new(0);

static TRUNCATIONS: AtomicUsize = AtomicUsize::new(0);

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Mappings found truncated since the process started. A cheap "did anything happen".
#[inline]
#[must_use]
pub fn truncations() -> usize {
    TRUNCATIONS.load(Ordering::Relaxed)
}

/// Registration of one mapping.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Register a mapping, if there is room.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        let end = start.checked_add(length)?;
        let index = SLOTS.iter().position(|slot| slot.bounds.take(start, end))?;
        USED.fetch_max(index + 1, Ordering::Release);
        Some(Self(index))
    }

    /// Whether the mapping was found truncated.
    pub(super) fn truncated(&self) -> bool {
        let slot = SLOTS.get(self.0);
        slot.is_some_and(|slot| slot.truncated.load(Ordering::Relaxed))
    }

    /// Forget the mapping; called once, before it is unmapped.
    pub(super) fn release(&self) {
        if let Some(slot) = SLOTS.get(self.0) {
            slot.truncated.store(false, Ordering::Relaxed);
            slot.bounds.free();
        }
    }
}

/// Install the handler, once for the process.
///
/// # Errors
/// The kernel refused, which it does not on any Linux known to us.
pub fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value.
    let (mut action, mut previous): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = on_sigbus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: reading the present handler into a valid place changes nothing.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if PREVIOUS.set(previous).is_err() {
        return Ok(());
    }
    // SAFETY: `on_sigbus` has the signature SA_SIGINFO asks for and does only what a signal
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
        // SAFETY: the value came from the kernel. The faulting access is repeated on return and
        // then meets the previous handler.
        unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
    }
}

/// Put zero pages over the registered mapping that holds `address`; false when there is none.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for slot in SLOTS.iter().take(used) {
        let Some((start, end)) = slot.bounds.bounds_around(address) else {
            continue;
        };
        // syscalls: mmap
        // SAFETY: the range is exactly one mapping of ours: bounds of two are never mixed, and it
        // is unregistered before it is unmapped. It holds the address that the interrupted access
        // is at, which keeps it mapped, so nothing else is replaced. The pages stay readable and
        // writable, so pointers into it stay valid.
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
