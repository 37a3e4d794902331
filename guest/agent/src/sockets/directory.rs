//! The directory: what the host says about the VMs that this VM may reach, and about this VM.
//!
//! ```text
//! vicinity-sockets 1
//! self 3
//! address 3 0 1 10.0.0.3 22 5000-5010     CID, index, network, address, TCP ports
//! address 4 0 1 10.0.0.4 5432
//! end
//! ```
//! Addresses of the same network reach each other by Ethernet. The ports of another VM are those to which this VM may
//! connect, those of this VM the ones that it may offer.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Most bytes of a directory.
pub(super) const MAX_BYTES: u64 = 1 << 18;

/// Most addresses, and most ranges of ports of one: those of the table.
pub(super) const MAX_ENTRIES: usize = 1024;
/// See [`MAX_ENTRIES`].
pub(super) const MAX_RANGES: usize = 16;

/// An address of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) cid: u32,
    /// Its number among the addresses of its VM.
    pub(super) index: u8,
    pub(super) network: u32,
    pub(super) address: Ipv4Addr,
    pub(super) ports: Vec<RangeInclusive<u16>>,
}

/// All addresses that the host tells; empty if it tells none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) own_cid: u32,
    pub(super) entries: Vec<Entry>,
}

impl Directory {
    /// Reads the host's text. Returns `None` if it is incomplete, or of another version.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.strip_suffix("end\n")?;
        let mut lines = text.lines();
        if lines.next()? != "vicinity-sockets 1" {
            return None;
        }
        let own_cid = lines.next()?.strip_prefix("self ")?.parse().ok()?;
        let entries = lines.map(entry).collect::<Option<Vec<_>>>()?;
        (entries.len() <= MAX_ENTRIES).then_some(Self { own_cid, entries })
    }

    /// Returns this VM's addresses.
    pub(super) fn own(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| entry.cid == self.own_cid)
    }

    /// Returns the address of a VM with this index.
    pub(super) fn entry(&self, cid: u32, index: u8) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.cid == cid && entry.index == index)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.strip_prefix("address ")?.split(' ');
    let entry = Entry {
        cid: words.next()?.parse().ok()?,
        index: words.next()?.parse().ok()?,
        network: words.next()?.parse().ok()?,
        address: words.next()?.parse().ok()?,
        ports: words.map(range).collect::<Option<_>>()?,
    };
    (entry.ports.len() <= MAX_RANGES).then_some(entry)
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "vicinity-sockets 1\nself 3\naddress 3 0 1 10.0.0.3 22 5000-5010\n\
                        address 4 1 1 10.0.0.4\nend\n";

    #[test]
    fn the_hosts_text_is_read() {
        let directory = Directory::read(TEXT).unwrap();
        let own: Vec<_> = directory.own().collect();
        assert_eq!(own[0].ports, [22..=22, 5000..=5010]);
        assert_eq!(own.len(), 1);
        let other = directory.entry(4, 1).unwrap();
        assert_eq!((other.network, other.address), (1, [10, 0, 0, 4].into()));
        assert_eq!(directory.entry(4, 0), None);
    }

    #[test]
    fn a_part_and_another_version_are_nothing() {
        for cut in 0..TEXT.len() {
            assert_eq!(Directory::read(&TEXT[..cut]), None);
        }
        assert_eq!(
            Directory::read(&TEXT.replace("sockets 1", "sockets 2")),
            None
        );
    }

    proptest! {
        /// A text with other bytes is refused, or keeps to the table's limits.
        #[test]
        fn no_text_exceeds_the_table(at in any::<prop::sample::Index>(), byte in "[ -~]", repeat in 0usize..1200) {
            let lines = "address 4 1 1 10.0.0.4\n".repeat(repeat);
            let mut text = TEXT.replace("end\n", &format!("{lines}end\n"));
            let at = at.index(text.len());
            text.replace_range(at..=at, &byte);
            if let Some(directory) = Directory::read(&text) {
                prop_assert!(directory.entries.len() <= MAX_ENTRIES);
                prop_assert!(directory.entries.iter().all(|entry| entry.ports.len() <= MAX_RANGES));
            }
        }
    }
}
