//! Takes rights away from a process before it handles untrusted input. Independent of networks.
//!
//! # Theory of operation
//!
//! ```text
//!  process                       each thread
//!  identity ──▶ namespaces ──▶ privileges ──▶ files ──▶ calls ──▶ untrusted input
//!                              (capabilities) (Landlock) (seccomp)
//! ```
//!
//! A data plane maps the memory of its network's VMs and parses what they send. If a VM finds a way to
//! run code in the data plane, that code must be able to do nothing but what the data plane does anyway:
//! use the descriptors that it received. So before the first VM connects, the process enters five
//! stages. Each is independent of the others, so they hold even if the kernel does not offer one, or one
//! has a hole. The process enters the first two ([`enter_process`]); then it starts its threads, and each
//! thread enters the others by itself ([`enter_thread`]):
//!
//! 1. *identity* ([`identity`]): root becomes the user `nobody`.
//! 2. *namespaces* ([`namespaces`]): user, mount, network and IPC namespaces of
//!    its own, with an empty, read-only root folder: no path leads to a file of the host.
//! 3. *privileges* ([`privileges`]): no capabilities, no way to get new ones, and no other process
//!    of the same user may trace this one. The kernel kills the process when its parent ends.
//! 4. *files* ([`files`]): Landlock denies every use of files by name, of network ports, and
//!    signals to and abstract sockets of others.
//! 5. *calls* ([`calls`]): seccomp kills the process for any system call that is not noted beside
//!    the code that makes it. In a process most of whose threads belong to its libraries, the call fails
//!    instead.
//!
//! A stage that the process cannot enter is a [`MissingStage`], which the caller receives; the process continues
//! without that stage.
//!
//! Before the stages, the process closes the descriptors that it inherited and does not need
//! ([`close_inherited`]).
//!
//! A comment beside each system call names it: `// syscalls: recvmsg sendmsg`. The build script
//! collects these notes from the code of each kind of data plane ([`ProcessKind`]). The list of allowed
//! calls consists of these notes and of nothing else.
//!
//! # Example
//!
//! ```no_run
//! for missing in sandbox::enter_process() {
//!     eprintln!("not confined: {missing}");
//! }
//! ```
#![deny(unsafe_code)]

mod calls;
mod files;
mod identity;
mod inherited;
mod namespaces;
mod privileges;

pub use calls::{ProcessKind, noted};
pub use inherited::{close_inherited, take_inherited};

/// A stage that the process cannot enter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {why}")]
pub struct MissingStage {
    /// The stage's name.
    pub stage: &'static str,
    /// The kernel's reason.
    pub why: String,
}

/// Enters one stage. The error is the reason why that is impossible.
type Stage<'a> = &'a dyn Fn() -> Result<(), String>;

/// Enters the stages of the process, which must have one thread: identity and namespaces. Open
/// descriptors stay open. Returns the stages that the process could not enter.
#[must_use]
pub fn enter_process() -> Vec<MissingStage> {
    enter(&[
        ("identity", &identity::enter),
        ("namespaces", &namespaces::enter),
    ])
}

/// Enters the stages of a thread with this kind: privileges, files and calls. Every thread must call
/// this. With [`ProcessKind::Space`] the stages also hold for all threads that are started later, most of them
/// by libraries; with any other kind no thread can be started afterwards. Returns the stages that the
/// thread could not enter.
#[must_use]
pub fn enter_thread(kind: ProcessKind) -> Vec<MissingStage> {
    enter(&[
        ("privileges", &privileges::enter),
        ("files", &files::enter),
        ("calls", &|| calls::enter(kind)),
    ])
}

fn enter(stages: &[(&'static str, Stage<'_>)]) -> Vec<MissingStage> {
    let missing = |(stage, enter): &(&'static str, Stage<'_>)| {
        let why = enter().err()?;
        Some(MissingStage { stage, why })
    };
    stages.iter().filter_map(missing).collect()
}

/// Returns the version of Landlock that the kernel offers, 0 for none.
#[must_use]
pub fn landlock_version() -> u32 {
    files::version()
}

/// Returns whether the kernel can filter system calls.
#[must_use]
pub fn has_seccomp() -> bool {
    rustix::thread::secure_computing_mode().is_ok()
}
