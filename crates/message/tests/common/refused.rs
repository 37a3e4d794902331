//! A kernel that refuses calls, as a container's filter does.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "tests; every binary uses its own part of this"
)]

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

pub const READ: libc::c_long = libc::SYS_process_vm_readv;
pub const WRITE: libc::c_long = libc::SYS_process_vm_writev;

/// From now on, the kernel refuses these calls to this thread, and to those that it starts.
pub fn refuse(calls: &[libc::c_long]) {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
