//! The version of the installed QEMU.

use std::fmt;
use std::process::{Command, Stdio};

/// The oldest supported QEMU. QEMU 7.2 crashes as soon as a guest uses a vhost-user NIC under TCG.
pub(crate) const OLDEST: Version = Version(8, 2);

/// Since this version the option is `reconnect-ms`, and `reconnect` is deprecated.
pub(crate) const RECONNECT_MS: Version = Version(9, 2);

/// Name of the system emulator for guests of the host's architecture.
pub(crate) const PROGRAM: &str = match std::env::consts::ARCH.as_bytes() {
    b"aarch64" => "qemu-system-aarch64",
    b"riscv64" => "qemu-system-riscv64",
    _ => "qemu-system-x86_64",
};

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Asks `program` for its version. Returns `None` if the program cannot be started or prints
/// something else.
pub(crate) fn version(program: &str) -> Option<Version> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("QEMU emulator version ")?;
    let mut parts = rest.split(|letter: char| !letter.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some(Version(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright (c)";
        assert_eq!(parse(debian), Some(Version(10, 0)));
        assert_eq!(parse("QEMU emulator version 8.2.0"), Some(Version(8, 2)));
        assert_eq!(parse("something else"), None);
        assert!(Version(10, 0) > RECONNECT_MS);
        assert!(Version(7, 2) < OLDEST);
    }
}
