//! Checks for sockets in the networks' folders on which no process listens.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::check::Check;
use crate::config::Mode;
use crate::status::{NetworkStatus, PortStatus};

/// The sockets on which a process listens, in this network namespace.
#[derive(Debug)]
pub(super) struct Listening(BTreeSet<PathBuf>);

impl Listening {
    pub(super) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/net/unix").unwrap_or_default())
    }

    /// Parses lines of `/proc/net/unix` (proc(5)): address, users, protocol, flags, type, state,
    /// inode, path.
    fn parse(text: &str) -> Self {
        /// `__SO_ACCEPTCON`: a process listens on the socket.
        const LISTENS: &str = "00010000";
        let path = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, _, _, LISTENS, _, _, _, ..] => {
                    // A path may contain spaces.
                    let at = line.find(" /")?;
                    Some(PathBuf::from(line.get(at + 1..)?))
                }
                _ => None,
            }
        };
        Self(text.lines().filter_map(path).collect())
    }

    /// Finds the sockets of QEMU processes that died. The daemon tries to connect to each of them
    /// without success.
    pub(super) fn checks(&self, networks: &[NetworkStatus], ports: &[PortStatus]) -> Vec<Check> {
        let qemus = ports.iter().filter(|port| port.mode == Some(Mode::Client));
        let listed = qemus.filter_map(|port| port.socket.as_deref().map(PathBuf::from));
        let accepting = networks.iter().filter(|network| network.accept);
        let found = accepting.flat_map(|network| sockets(Path::new(&network.folder)));
        let ours: BTreeSet<PathBuf> = listed.chain(found).collect();
        // Sockets on which Vicinity itself listens are not stale.
        let server = |path: &PathBuf| {
            let mut ports = ports.iter().filter(|port| port.mode == Some(Mode::Server));
            ports.any(|port| port.socket.as_deref().map(Path::new) == Some(path))
        };
        let stale = ours.into_iter().filter(|path| path.exists());
        let stale = stale.filter(|path| !self.0.contains(path) && !server(path));
        let checks: Vec<_> = stale
            .map(|path| {
                Check::warn(
                    "sockets",
                    format!("no process listens on {}: its QEMU died", path.display()),
                    format!("start the VM again, or `rm {}`", path.display()),
                )
            })
            .collect();
        match checks.is_empty() {
            true => vec![Check::ok("sockets", "no stale sockets")],
            false => checks,
        }
    }
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "sock"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_listens_is_listening() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 123 /run/a b/web.sock\n\
            ffff: 00000003 00000000 00000000 0001 03 124 /run/connected.sock\n\
            ffff: 00000002 00000000 00010000 0001 01 125 @abstract\n";
        let listening = Listening::parse(text);
        let expected: BTreeSet<_> = ["/run/a b/web.sock"].map(PathBuf::from).into();
        assert_eq!(listening.0, expected);
    }
}
