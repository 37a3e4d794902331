//! The process at the other end of a Unix socket, as the kernel reports it; no value comes from the process itself.

#[allow(unsafe_code, reason = "options of sockets that no library has")]
mod option;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::geteuid;
use rustix::time::Timespec;
use tokio::net::UnixStream;

use crate::config::{Owner, matches};

/// Bytes of a process's cgroup list that are read at most.
const CGROUPS: u64 = 1 << 16;

/// A process that connected, or that listens where we connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its user's number.
    user: u32,
    /// Its security label, where the host has a security module.
    label: Option<String>,
    /// Its cgroup's path, as [`Owner::cgroup`] is matched with it.
    cgroup: Option<String>,
}

impl Peer {
    /// Returns the process at the other end of this socket.
    ///
    /// # Errors
    /// `socket` is no Unix socket.
    pub(super) fn of(socket: &UnixStream) -> io::Result<Self> {
        let credentials = socket.peer_cred()?;
        let process = credentials.pid();
        Ok(Self {
            user: credentials.uid(),
            label: option::label(socket.as_fd()),
            cgroup: process.and_then(|process| cgroup(socket.as_fd(), process).ok()),
        })
    }

    /// Checks whether the process may connect to a socket of this owner; the error says why not.
    pub(super) fn check(&self, owner: &Owner) -> Result<(), String> {
        if let Some(user) = owner
            .user
            .filter(|user| *user != self.user && self.user != 0)
        {
            return Err(format!("it runs as user {}, not {user}", self.user));
        }
        demand(
            "security label",
            owner.label.as_deref(),
            self.label.as_deref(),
        )?;
        demand("cgroup", owner.cgroup.as_deref(), self.cgroup.as_deref())
    }

    /// Returns whether it runs as this process's user, or as root.
    pub(super) fn is_own_user(&self) -> bool {
        [0, geteuid().as_raw()].contains(&self.user)
    }
}

fn demand(what: &str, pattern: Option<&str>, found: Option<&str>) -> Result<(), String> {
    match (pattern, found) {
        (None, _) => Ok(()),
        (Some(pattern), Some(found)) if matches(pattern, found) => Ok(()),
        (Some(pattern), Some(found)) => Err(format!(
            "its {what} is `{}`, not `{pattern}`",
            found.escape_debug()
        )),
        (Some(pattern), None) => Err(format!("its {what} is unknown, but must match `{pattern}`")),
    }
}

/// The path of a process's cgroup (version 2), with systemd's escapes undone.
fn cgroup(socket: std::os::fd::BorrowedFd<'_>, process: i32) -> io::Result<String> {
    // Opened before the read, so that the file is that of this process, or of none.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(format!("/proc/{process}"), flags, Mode::empty())?;
    if let Some(handle) = option::process(socket)? {
        // The process that connected still runs, so its id was not reused.
        let mut ended = [PollFd::new(&handle, PollFlags::IN)];
        if poll(&mut ended, Some(&Timespec::default()))? > 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, "cgroup", flags, Mode::empty())?);
    let mut text = String::new();
    file.take(CGROUPS).read_to_string(&mut text)?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(|path| path.replace(r"\x2d", "-"))
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: u32, label: &str, cgroup: &str) -> Peer {
        Peer {
            user,
            label: Some(label.to_owned()),
            cgroup: Some(cgroup.to_owned()),
        }
    }

    #[test]
    fn a_process_of_another_owner_is_refused() {
        let web = of(
            64055,
            "libvirt-1 (enforce)",
            "/machine.slice/machine-qemu-1-web.scope",
        );
        let owner = |user, label: Option<&str>, cgroup: Option<&str>| Owner {
            user,
            label: label.map(str::to_owned),
            cgroup: cgroup.map(str::to_owned),
        };
        for fits in [
            owner(None, None, None),
            owner(Some(64055), None, None),
            owner(
                None,
                Some("libvirt-1 *"),
                Some("*/machine-qemu-*-web.scope"),
            ),
        ] {
            assert_eq!(web.check(&fits), Ok(()));
        }
        for (other, word) in [
            (owner(Some(107), None, None), "user 64055"),
            (owner(Some(64055), Some("libvirt-2 *"), None), "label"),
            (owner(None, None, Some("*-db.scope")), "cgroup"),
        ] {
            let why = web.check(&other).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        // Root runs QEMUs too, each with a label of its own.
        let root = of(0, "libvirt-2 (enforce)", "/");
        assert_eq!(root.check(&owner(Some(107), None, None)), Ok(()));
        assert!(
            root.check(&owner(Some(107), Some("libvirt-1 *"), None))
                .is_err()
        );
        // An unknown value never matches.
        let unknown = Peer::default();
        assert!(unknown.check(&owner(None, Some("*"), None)).is_err());
        assert!(unknown.check(&owner(None, None, Some("*"))).is_err());
    }

    #[tokio::test]
    async fn the_kernel_reports_the_connecting_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.user, geteuid().as_raw());
        assert!(peer.is_own_user());
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        assert_eq!(peer.cgroup, own.map(|path| path.replace(r"\x2d", "-")));
        let own = std::fs::read_to_string("/proc/self/attr/current").ok();
        let own = own.map(|label| label.trim_end_matches(['\n', '\0']).to_owned());
        if let (Some(own), Some(label)) = (own, &peer.label) {
            assert_eq!(*label, own);
        }
    }
}
