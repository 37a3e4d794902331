//! The hypervisor that this machine runs under, as CPUID reports it.

/// Returns the hypervisor's signature; `None` on a machine without a hypervisor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    use std::arch::x86_64::__cpuid;

    /// Leaf 1, ECX: a hypervisor is present and has leaves of its own.
    const PRESENT: u32 = 1 << 31;
    const LEAVES: u32 = 0x4000_0000;
    #[allow(unused_unsafe, reason = "safe in later releases of Rust")]
    // SAFETY: every processor of 64 bits has the instruction; it reads nothing but registers.
    let leaf = |number| unsafe { __cpuid(number) };
    if leaf(1).ecx & PRESENT == 0 {
        return None;
    }
    let registers = leaf(LEAVES);
    let words = [registers.ebx, registers.ecx, registers.edx].map(u32::to_le_bytes);
    words.as_flattened().try_into().ok()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    None
}
