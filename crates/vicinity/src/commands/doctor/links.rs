//! The state of network interfaces, read from sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Bytes of the longest packet.
    pub(super) mtu: u32,
    /// The interface is administratively up.
    pub(super) up: bool,
    /// The interface is a tap: its peer is on this host.
    pub(super) tap: bool,
    /// The interface is a port of a bridge, or of another device that forwards its frames.
    pub(super) enslaved: bool,
    /// The host has an address on the interface.
    pub(super) addressed: bool,
}

impl Link {
    /// Returns whether a receiver gets the frames: a bridge, the host or, for a NIC, the device at
    /// the other end of its cable.
    pub(super) fn leads_somewhere(&self) -> bool {
        !self.tap || self.enslaved || self.addressed
    }
}

/// Returns the state of those of these interfaces that exist.
pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, Link> {
    let addressed = addressed();
    let found = names.filter_map(|name| {
        let mut link = read(Path::new("/sys/class/net"), name)?;
        link.addressed = addressed.iter().any(|it| it == name);
        Some((name.to_owned(), link))
    });
    found.collect()
}

fn read(root: &Path, name: &str) -> Option<Link> {
    /// `IFF_UP`.
    const UP: u32 = 1;
    let home = root.join(name);
    let text = |file: &str| fs::read_to_string(home.join(file)).ok();
    let flags = text("flags")?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    Some(Link {
        mtu: text("mtu")?.trim().parse().ok()?,
        up: flags & UP != 0,
        tap: home.join("tun_flags").exists(),
        enslaved: home.join("master").exists(),
        addressed: false,
    })
}

/// Returns the interfaces that have IPv4 routes, or IPv6 addresses other than link-local ones.
fn addressed() -> Vec<String> {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let v4 = routes.lines().skip(1);
    let v4 = v4.filter_map(|line| Some(line.split_whitespace().next()?.to_owned()));
    let addresses = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    // Address, index, prefix, scope, flags, name: `if_inet6` of proc(5).
    let v6 = addresses.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, _, _, "00", _, name] => Some((*name).to_owned()),
            _ => None,
        }
    });
    v4.chain(v6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("vic0");
        fs::create_dir(&home).unwrap();
        for (file, text) in [("mtu", "9000\n"), ("flags", "0x1003\n"), ("tun_flags", "")] {
            fs::write(home.join(file), text).unwrap();
        }
        let mut link = read(folder.path(), "vic0").unwrap();
        assert!(link.up && link.tap && link.mtu == 9000);
        assert!(!link.leads_somewhere());
        link.tap = false;
        assert!(link.leads_somewhere(), "a NIC has a wire");
        fs::create_dir(home.join("master")).unwrap();
        assert!(read(folder.path(), "vic0").unwrap().leads_somewhere());
        assert_eq!(read(folder.path(), "vic1"), None);
    }
}
