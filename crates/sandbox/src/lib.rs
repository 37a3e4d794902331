//! What a process gives up before it touches what others write. Knows nothing of networks.
//!
//! # Theory of operation
//!
//! A data plane maps the memory of its network's VMs and parses what they say. Should one of them
//! find a way to run code in it, that code shall be able to do nothing but what the data plane
//! does anyway: use the descriptors it was handed. So before the first of them arrives, the process
//! goes through five stages, each of which stands alone, so that one the kernel does not offer, or
//! a hole in one, leaves the others. The first two are the process's ([`enter_process`]); then it
//! starts its threads, and each of them goes through the others by itself ([`enter_thread`]):
//!
//! 1. *identity* ([`identity`]): root becomes nobody.
//! 2. *namespaces* ([`namespaces`]): user, mount, network, IPC, host name and cgroup namespaces of
//!    its own, with an empty, read-only root folder: nothing of the host has a name.
//! 3. *privileges* ([`privileges`]): no capabilities, no way to get new ones, and no other process
//!    of the same user may look inside. The process dies with the one that started it.
//! 4. *files* ([`files`]): Landlock denies every use of files by name, of network ports, and
//!    signals to and abstract sockets of others.
//! 5. *calls* ([`calls`]): seccomp kills the process for any system call that is not noted beside
//!    the code that makes it. In a process most of whose threads are its libraries', the call fails
//!    instead.
//!
//! A stage that cannot be had is a [`Gap`], told to the caller; the process goes on without.
//!
//! Before all that, it closes the descriptors it has inherited unasked ([`close_inherited`]).
//!
//! Where a call is made, a comment says so: `// syscalls: recvmsg sendmsg`. The build script
//! collects these notes from the code of each kind of data plane ([`Duty`]); its list of allowed
//! calls is made of them and of nothing else.
#![deny(unsafe_code)]

mod calls;
mod files;
mod identity;
mod inherited;
mod namespaces;
mod privileges;

pub use calls::{Duty, noted};
pub use inherited::{close_inherited, take_inherited};

/// A stage the process has to do without.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {why}")]
pub struct Gap {
    /// The stage's name.
    pub stage: &'static str,
    /// What the kernel said.
    pub why: String,
}

/// Enters one stage; the error says why it cannot be had.
type Stage<'a> = &'a dyn Fn() -> Result<(), String>;

/// Go through the stages of the process, which must have one thread: identity and namespaces.
/// Descriptors that are open stay open. Returns the stages that could not be had.
#[must_use]
pub fn enter_process() -> Vec<Gap> {
    enter(&[
        ("identity", &identity::enter),
        ("namespaces", &namespaces::enter),
    ])
}

/// Go through the stages of a thread with this duty: privileges, files and calls. Every thread
/// must. One of [`Duty::Space`] does so for all threads that are started later, most of them by
/// libraries; by the others none can be started. Returns the stages that could not be had.
#[must_use]
pub fn enter_thread(duty: Duty) -> Vec<Gap> {
    enter(&[
        ("privileges", &privileges::enter),
        ("files", &files::enter),
        ("calls", &|| calls::enter(duty)),
    ])
}

fn enter(stages: &[(&'static str, Stage<'_>)]) -> Vec<Gap> {
    let gap = |(stage, enter): &(&'static str, Stage<'_>)| {
        let why = enter().err()?;
        Some(Gap { stage, why })
    };
    stages.iter().filter_map(gap).collect()
}

/// The version of Landlock that the kernel offers, 0 for none.
#[must_use]
pub fn landlock_version() -> u32 {
    files::version()
}

/// Whether the kernel can filter system calls.
#[must_use]
pub fn has_seccomp() -> bool {
    rustix::thread::secure_computing_mode().is_ok()
}
