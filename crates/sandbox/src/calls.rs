//! seccomp: allows the system calls that are noted beside the code that makes them, and no others.

use std::collections::BTreeMap;

use rustix::process::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

include!(concat!(env!("OUT_DIR"), "/noted.rs"));

// What the code does not call itself, but the language's runtime and the C library do for it:
//
// memory that is allocated and given back
// syscalls: brk mmap mremap munmap
// the log
// syscalls: write
// the time, on machines whose clock the vDSO cannot read
// syscalls: clock_gettime
// the end of a signal handler; the handler of an unexpected fault is restored, so that the fault
// ends the process
// syscalls: rt_sigreturn rt_sigaction
// the end, in order, by a panic (its unwinder has a lock) or by `abort`
// syscalls: futex exit_group sigaltstack rt_sigprocmask gettid getpid tgkill
// the end of a thread
// syscalls: exit madvise
// descriptors that are closed; debug builds first ask whether they are open
// syscalls: close fcntl

/// The kind of a data plane. Each kind has its own list of allowed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// A network.
    Network,
    /// The message plane.
    Messages,
    /// The message plane's uplink.
    Uplink,
    /// A VM's space.
    Space,
    /// The sockets plane.
    Vsock,
}

impl ProcessKind {
    fn calls(self) -> &'static [(&'static str, i64)] {
        match self {
            Self::Network => NETWORK,
            Self::Messages => MESSAGES,
            Self::Uplink => UPLINK,
            Self::Space => SPACE,
            Self::Vsock => VSOCK,
        }
    }

    /// Returns what happens on a call that is not noted.
    fn default_action(self) -> SeccompAction {
        match self {
            // A new version of a library may make calls that have no note. They fail as if the kernel did
            // not implement them, which libraries handle.
            Self::Space => SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
            _ => SeccompAction::KillProcess,
        }
    }
}

/// Returns the name of every allowed system call, in alphabetical order.
#[must_use]
pub fn noted(kind: ProcessKind) -> Vec<&'static str> {
    kind.calls().iter().map(|(name, _)| *name).collect()
}

/// Allows the noted calls. Any other call kills the process, or fails.
pub(crate) fn enter(kind: ProcessKind) -> Result<(), String> {
    let filter = filter(kind).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&filter)
        .map_err(|error| format!("the kernel does not support seccomp: {error}"))
}

fn filter(kind: ProcessKind) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules = BTreeMap::new();
    for (name, number) in kind.calls() {
        rules.insert(*number, conditions(kind, name)?);
    }
    SeccompFilter::new(
        rules,
        kind.default_action(),
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?
    .try_into()
}

/// Returns the alternatives for a call's arguments. Without a rule any arguments are allowed.
fn conditions(
    kind: ProcessKind,
    name: &str,
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let conditions = match name {
        // Libraries query their own descriptors in many ways, and may send signals to their own threads.
        "fcntl" | "rt_sigaction" if kind == ProcessKind::Space => Vec::new(),
        // Threads may be created, processes may not.
        "clone" => vec![masked(
            0,
            libc::CLONE_THREAD,
            libc::CLONE_THREAD.unsigned_abs().into(),
        )],
        "prctl" => vec![equal(0, libc::PR_SET_NAME)],
        "mprotect" => vec![masked(2, libc::PROT_EXEC, 0)],
        // Memory must not be executable.
        "mmap" => vec![masked(2, libc::PROT_EXEC, 0)],
        // Signals may only be sent to this process.
        "tgkill" => vec![equal(0, getpid().as_raw_nonzero().get())],
        // Descriptors may be made non-blocking, and nothing else.
        "ioctl" => vec![equal_wide(1, libc::FIONBIO)],
        // The supervisor keeps duplicates of front-ends' descriptors.
        "fcntl" if kind == ProcessKind::Vsock => {
            [libc::F_GETFD, libc::F_GET_SEALS, libc::F_DUPFD_CLOEXEC]
                .map(|operation| equal(1, operation))
                .into()
        }
        // The uplink shares the endpoints of its interface with programs by locks.
        "fcntl" if kind == ProcessKind::Uplink => [
            libc::F_GETFD,
            libc::F_GET_SEALS,
            libc::F_OFD_GETLK,
            libc::F_OFD_SETLK,
        ]
        .map(|question| equal(1, question))
        .into(),
        "fcntl" => [libc::F_GETFD, libc::F_GET_SEALS]
            .map(|question| equal(1, question))
            .into(),
        // The uplink leaves the frames for these endpoints to the programs.
        "setsockopt" if kind == ProcessKind::Uplink => {
            return Ok(vec![SeccompRule::new(vec![
                equal(1, libc::SOL_SOCKET)?,
                equal(2, libc::SO_ATTACH_FILTER)?,
            ])?]);
        }
        "rt_sigaction" => signals(kind)
            .iter()
            .map(|signal| equal(0, *signal))
            .collect(),
        _ => Vec::new(),
    };
    let rules = conditions.into_iter();
    rules
        .map(|condition| SeccompRule::new(vec![condition?]))
        .collect()
}

/// Returns the signals whose handlers may be changed: those of faults, and that of the alarm where a
/// thread creates one.
fn signals(kind: ProcessKind) -> &'static [i32] {
    match kind {
        ProcessKind::Messages => &[libc::SIGBUS, libc::SIGSEGV, libc::SIGABRT, libc::SIGALRM],
        _ => &[libc::SIGBUS, libc::SIGSEGV, libc::SIGABRT],
    }
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn equal(argument: u8, value: i32) -> Condition {
    let (length, operator) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
    SeccompCondition::new(argument, length, operator, bits(value))
}

/// Returns an `int` as it is in a register.
fn bits(value: i32) -> u64 {
    u64::from(u32::from_ne_bytes(value.to_ne_bytes()))
}

fn equal_wide(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: i32, value: u64) -> Condition {
    let operator = SeccompCmpOp::MaskedEq(bits(mask));
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ProcessKind; 5] = [
        ProcessKind::Network,
        ProcessKind::Messages,
        ProcessKind::Uplink,
        ProcessKind::Space,
        ProcessKind::Vsock,
    ];

    #[test]
    fn the_notes_make_a_filter() {
        for kind in ALL {
            assert!(!filter(kind).unwrap().is_empty());
            assert!(noted(kind).is_sorted());
        }
    }

    #[test]
    fn calls_that_reach_for_something_are_not_noted() {
        for call in [
            "open", "openat", "socket", "connect", "bind", "execve", "clone3", "ptrace", "kill",
        ] {
            for kind in ALL {
                assert!(!noted(kind).contains(&call), "{call}");
            }
        }
        let cloning = ALL.map(|kind| noted(kind).contains(&"clone"));
        assert_eq!(cloning, [false, false, false, true, false]);
    }
}
