//! What CPUID reports: the hypervisor that this machine runs under, and the family of its processor.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__cpuid, CpuidResult};
use std::sync::OnceLock;

/// The hypervisor signature of QEMU's emulation.
pub(crate) const EMULATION: &[u8; 12] = b"TCGTCGTCGTCG";

/// Returns whether QEMU emulates this machine's processor.
pub(crate) fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| hypervisor().as_ref() == Some(EMULATION))
}

/// Returns a leaf of CPUID.
#[cfg(target_arch = "x86_64")]
fn leaf(number: u32) -> CpuidResult {
    #[allow(unused_unsafe, reason = "safe in later releases of Rust")]
    // SAFETY: every processor of 64 bits has the instruction; it reads nothing but registers.
    unsafe {
        __cpuid(number)
    }
}

/// Returns the hypervisor's signature; `None` on a machine without a hypervisor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    /// Leaf 1, ECX: a hypervisor is present and has leaves of its own.
    const PRESENT: u32 = 1 << 31;
    const LEAVES: u32 = 0x4000_0000;
    if leaf(1).ecx & PRESENT == 0 {
        return None;
    }
    let registers = leaf(LEAVES);
    signature([registers.ebx, registers.ecx, registers.edx])
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor() -> Option<[u8; 12]> {
    None
}

/// Returns the family of an AMD processor: 25 of Zen 3 and 4, 26 of Zen 5.
#[cfg(target_arch = "x86_64")]
pub(super) fn amd_family() -> Option<u32> {
    let vendor = leaf(0);
    let is_amd = signature([vendor.ebx, vendor.edx, vendor.ecx]) == Some(*b"AuthenticAMD");
    is_amd.then(|| family(leaf(1).eax))
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn amd_family() -> Option<u32> {
    None
}

/// Returns the family in leaf 1, EAX (AMD64 Architecture Programmer's Manual 3, E.3.2): the extended family is added to a base family of 15.
#[cfg(target_arch = "x86_64")]
fn family(signature: u32) -> u32 {
    match signature >> 8 & 0xf {
        0xf => 0xf + (signature >> 20 & 0xff),
        base => base,
    }
}

#[cfg(target_arch = "x86_64")]
fn signature(registers: [u32; 3]) -> Option<[u8; 12]> {
    let words = registers.map(u32::to_le_bytes);
    words.as_flattened().try_into().ok()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn families_are_those_that_linux_shows() {
        // Of a Zen 3 (0xa20f12), a Zen 4 (0xa60f12), a Zen 5 (0xb00f21) and an Emerald Rapids (0xc06f2).
        assert_eq!(
            [0xa2_0f12, 0xa6_0f12, 0xb0_0f21, 0xc_06f2].map(family),
            [25, 25, 26, 6]
        );
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let value = |key: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(key));
            lines.next()?.split_once(": ").map(|(_, value)| value)
        };
        let shown = value("vendor_id").filter(|vendor| *vendor == "AuthenticAMD");
        let shown = shown.and_then(|_| value("cpu family")?.parse().ok());
        assert_eq!(amd_family(), shown);
    }
}
