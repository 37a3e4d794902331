//! The file that client programs map: guest/sockets/layout.h.
//!
//! The file stays the same for as long as the VM runs, because programs keep their mappings. Readers see a change whole
//! or not at all by the sequence number, which is odd while the agent writes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::directory::{Directory, Entry, MAX_ENTRIES, MAX_RANGES};

/// The file.
pub(super) const PATH: &str = "/run/vicinity-agent/sockets";

const MAGIC: [u8; 8] = *b"VICSOCK1";

const HEADER: usize = 64;

const ENTRY: usize = 84;

/// Where the header has the sequence.
const SEQUENCE: u64 = 16;

const UP: u16 = 1;
const OWN: u16 = 2;

/// What the table says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// New connections may go by AF_VSOCK.
    pub(super) is_enabled: bool,
    pub(super) directory: Directory,
    /// The CIDs whose agents answer.
    pub(super) up: BTreeSet<u32>,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Table(File);

impl Table {
    /// Opens the file, or makes it.
    pub(super) fn open() -> io::Result<Self> {
        Self::open_at(Path::new(PATH))
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o644).open(path)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.set_len((HEADER + MAX_ENTRIES * ENTRY) as u64)?;
        let table = Self(file);
        table.show(&Shown::default());
        Ok(table)
    }

    /// Writes the table. A program that reads in the middle reads again.
    pub(super) fn show(&self, shown: &Shown) {
        if let Err(error) = self.try_show(shown) {
            eprintln!("vicinity-agent: cannot write {PATH}: {error}");
        }
    }

    fn try_show(&self, shown: &Shown) -> io::Result<()> {
        let mut last = [0; 4];
        self.0.read_exact_at(&mut last, SEQUENCE)?;
        // An agent that was killed in the middle left an odd number.
        let odd = u32::from_ne_bytes(last).wrapping_add(1) | 1;
        self.0.write_all_at(&odd.to_ne_bytes(), SEQUENCE)?;
        let entries = shown.directory.entries.iter().take(MAX_ENTRIES);
        let bytes: Vec<u8> = entries
            .clone()
            .flat_map(|item| entry(item, shown))
            .collect();
        self.0.write_all_at(&bytes, HEADER as u64)?;
        let netns = fs::metadata("/proc/self/ns/net")?.ino();
        self.0.write_all_at(&MAGIC, 0)?;
        self.0.write_all_at(&netns.to_ne_bytes(), 8)?;
        let count = u32::try_from(entries.len()).unwrap_or(0);
        let words = [u32::from(shown.is_enabled), shown.directory.own_cid, count];
        self.0
            .write_all_at(&words.map(u32::to_ne_bytes).concat(), SEQUENCE + 4)?;
        let even = odd.wrapping_add(1);
        self.0.write_all_at(&even.to_ne_bytes(), SEQUENCE)
    }
}

fn entry(entry: &Entry, shown: &Shown) -> Vec<u8> {
    let mut flags = 0;
    if shown.up.contains(&entry.cid) {
        flags |= UP;
    }
    if entry.cid == shown.directory.own_cid {
        flags |= OWN;
    }
    let ranges = entry.ports.iter().take(MAX_RANGES);
    let mut bytes = entry.address.octets().to_vec();
    bytes.extend(entry.cid.to_ne_bytes());
    bytes.extend(entry.network.to_ne_bytes());
    bytes.extend(u16::from(entry.index).to_ne_bytes());
    bytes.extend(u16::to_ne_bytes(flags));
    bytes.extend(u32::try_from(ranges.len()).unwrap_or(0).to_ne_bytes());
    for range in ranges {
        bytes.extend(range.start().to_ne_bytes());
        bytes.extend(range.end().to_ne_bytes());
    }
    bytes.resize(ENTRY, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "vicinity-sockets 1\nself 3\naddress 3 0 1 10.0.0.3 22\n\
                        address 4 1 7 10.0.0.4 22 5000-5010\nend\n";

    #[test]
    fn the_file_has_the_layout_of_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/sockets");
        let shown = Shown {
            is_enabled: true,
            directory: Directory::read(TEXT).unwrap(),
            up: BTreeSet::from([4]),
        };
        Table::open_at(&path).unwrap().show(&shown);
        // Another agent continues with the file.
        Table::open_at(&path).unwrap().show(&shown);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 64 + 84 * 1024);
        assert_eq!(&bytes[..8], b"VICSOCK1");
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(word(16) % 2, 0);
        assert_eq!([word(20), word(24), word(28)], [1, 3, 2]);
        let second = 64 + 84;
        assert_eq!(bytes[second..second + 4], [10, 0, 0, 4]);
        assert_eq!([word(second + 4), word(second + 8)], [4, 7]);
        assert_eq!(word(second + 12), 1 | 1 << 16);
        assert_eq!(word(64 + 12), 2 << 16);
        assert_eq!([word(second + 16), word(second + 20)], [2, 22 | 22 << 16]);
        assert_eq!(word(second + 24), 5000 | 5010 << 16);
    }
}
