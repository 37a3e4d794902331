//! Free memory of the heap.
#![allow(unsafe_code)]

/// Returns free memory to the kernel. Parsing the command line needs a description of all commands, some hundred KiB,
/// which a program that then runs for days would keep.
pub(crate) fn trim() {
    // SAFETY: it takes a number, and the allocator locks what it works on.
    // Whether there was any is of no interest.
    let _some = unsafe { libc::malloc_trim(0) };
}
