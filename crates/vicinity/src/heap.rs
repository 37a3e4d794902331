//! Memory of the heap that nobody uses.
#![allow(unsafe_code)]

/// Gives it back to the kernel. To read the command line takes a description of all commands, some
/// hundred KiB, and a program that then waits for days would keep them.
pub(crate) fn trim() {
    // SAFETY: it takes a number, and the allocator locks what it works on.
    // Whether there was any is of no interest.
    let _some = unsafe { libc::malloc_trim(0) };
}
