//! Who runs this machine, as the processor says it.

/// What the hypervisor calls itself; `None` on a machine that has none.
#[cfg(target_arch = "x86_64")]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    use std::arch::x86_64::__cpuid;

    /// In leaf 1, ECX: there is a hypervisor, and leaves of its own.
    const PRESENT: u32 = 1 << 31;
    const LEAVES: u32 = 0x4000_0000;
    #[allow(unused_unsafe, reason = "safe in later releases of Rust")]
    // SAFETY: every processor of 64 bits has the instruction; it reads nothing but registers.
    let leaf = |number| unsafe { __cpuid(number) };
    if leaf(1).ecx & PRESENT == 0 {
        return None;
    }
    let said = leaf(LEAVES);
    let words = [said.ebx, said.ecx, said.edx].map(u32::to_le_bytes);
    words.as_flattened().try_into().ok()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    None
}
