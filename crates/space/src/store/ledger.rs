//! The ledger: the record of the published files, from which a new process reopens a store as it was acknowledged.
//!
//! The ledger is memory that outlives the process. It has two tables: records of files and directories, and records of
//! slots.
//!
//! ```text
//!   0                        MAX_NODES * 512 bytes       + slots * 32 bytes
//!   +------------------------+---------------------------+
//!   | node records (512 B)   | slot records (32 B)       |
//!   +------------------------+---------------------------+
//!   kind, name length, mode, uid, gid,     version, block of the file,
//!   mtime, parent, version, size,          valid bytes
//!   serial, name
//! ```
//!
//! Each record is within one page and is written by one call, so a process that is killed wrote it completely or not at
//! all. The store writes the records of a file's slots before the record of the file, and erases the record of a file before
//! it changes the file. Therefore each file in the ledger is complete. A ledger of zeros is empty.
//!
//! The reader trusts no record, because a process that talks to a guest wrote the ledger.

use std::collections::HashMap;
use std::time::Duration;

use super::node::{Attributes, LAST_DATE, MAX_NAME, MAX_NODES, check_name};
use super::slots::SlotRecord;

/// The version of the layout of ledger and slots. Each change of the layout needs a new version, so that a program never
/// reads memory that another program wrote in another layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Bytes of the record of a file or directory, and of the record of a slot.
const NODE_RECORD_BYTES: usize = 512;
const SLOT_RECORD_BYTES: usize = 32;

/// Upper bound of versions and serials. No real counter reaches it.
const MAX_COUNTER: u64 = 1 << 62;

/// Records that one call reads.
const RECORDS_PER_READ: usize = 64;

/// Offset of the name in a node record.
const NAME_OFFSET: usize = 64;
const _: () = assert!(NAME_OFFSET + MAX_NAME <= NODE_RECORD_BYTES);

/// Offset of the table of slot records.
const SLOT_TABLE_OFFSET: u64 = (MAX_NODES * NODE_RECORD_BYTES) as u64;

/// The kind of a node record. Zero marks a free record.
const DIRECTORY: u8 = 1;
const FILE: u8 = 2;

/// Memory that outlives the process. Offsets are in bytes from its start.
pub trait Ledger: Send + Sync {
    /// Writes bytes, all within one page. If the write fails, a later process does not have them.
    fn write(&self, at: u64, bytes: &[u8]);

    /// Fills `to` with the bytes at `at`. Bytes that were never written read as zeros.
    ///
    /// # Errors
    /// Returns the error of the host's memory.
    fn read(&self, at: u64, to: &mut [u8]) -> std::io::Result<()>;
}

/// Returns the bytes of the ledger of a space with `slots` slots.
#[must_use]
pub fn ledger_bytes(slots: u32) -> u64 {
    SLOT_TABLE_OFFSET + u64::from(slots) * SLOT_RECORD_BYTES as u64
}

/// The record of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRecord {
    pub(super) attributes: Attributes,
    /// Index of the record of the parent directory.
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    /// Serial number of the write: later records have higher ones.
    pub(super) serial: u64,
    /// For a file: its version, and its length in bytes.
    pub(super) file: Option<(u64, u64)>,
}

/// Writes the record of a file or directory at `index`.
pub(super) fn write_node(ledger: &dyn Ledger, index: u32, record: &NodeRecord) {
    let mut bytes = [0; NODE_RECORD_BYTES];
    let Attributes {
        mode,
        uid,
        gid,
        modified,
    } = record.attributes;
    let (version, size) = record.file.unwrap_or_default();
    let length = u8::try_from(record.name.len()).unwrap_or(0);
    let kind = match record.file {
        Some(_) => FILE,
        None => DIRECTORY,
    };
    let fields: [(usize, &[u8]); 11] = [
        (0, &[kind, length]),
        (4, &mode.to_le_bytes()),
        (8, &uid.to_le_bytes()),
        (12, &gid.to_le_bytes()),
        (16, &modified.as_secs().to_le_bytes()),
        (24, &modified.subsec_nanos().to_le_bytes()),
        (28, &record.parent.to_le_bytes()),
        (32, &version.to_le_bytes()),
        (40, &size.to_le_bytes()),
        (48, &record.serial.to_le_bytes()),
        (NAME_OFFSET, &record.name),
    ];
    for (at, field) in fields {
        if let Some(to) = bytes.get_mut(at..at + field.len()) {
            to.copy_from_slice(field);
        }
    }
    ledger.write(u64::from(index) * NODE_RECORD_BYTES as u64, &bytes);
}

/// Erases the record at `index`.
pub(super) fn erase_node(ledger: &dyn Ledger, index: u32) {
    ledger.write(u64::from(index) * NODE_RECORD_BYTES as u64, &[0]);
}

/// Writes the record of a slot.
pub(super) fn write_slot(ledger: &dyn Ledger, slot: u32, record: SlotRecord) {
    let mut bytes = [0; SLOT_RECORD_BYTES];
    let (version, rest) = bytes.split_at_mut(8);
    let (index, valid) = rest.split_at_mut(8);
    version.copy_from_slice(&record.version.to_le_bytes());
    index.copy_from_slice(&u64::from(record.block).to_le_bytes());
    if let Some(valid) = valid.get_mut(..8) {
        valid.copy_from_slice(&record.valid_bytes.to_le_bytes());
    }
    ledger.write(
        SLOT_TABLE_OFFSET + u64::from(slot) * SLOT_RECORD_BYTES as u64,
        &bytes,
    );
}

/// Returns all valid records of files and directories, with their indices. Relations between records are not checked.
pub(super) fn read_nodes(ledger: &dyn Ledger) -> std::io::Result<Vec<(u32, NodeRecord)>> {
    let mut records = Vec::new();
    for_each_record(
        ledger,
        0,
        max_records(),
        |index, bytes: &[u8; NODE_RECORD_BYTES]| {
            records.extend(parse_node(bytes).map(|record| (index, record)));
        },
    )?;
    Ok(records)
}

/// Returns the slot records of each version, with the indices of the slots.
pub(super) fn read_slots(
    ledger: &dyn Ledger,
    max_slots: u32,
) -> std::io::Result<HashMap<u64, Vec<(u32, SlotRecord)>>> {
    let mut slots: HashMap<u64, Vec<(u32, SlotRecord)>> = HashMap::new();
    for_each_record(
        ledger,
        SLOT_TABLE_OFFSET,
        max_slots,
        |slot, bytes: &[u8; SLOT_RECORD_BYTES]| {
            let record = SlotRecord {
                version: read_u64(bytes, 0),
                block: u32::try_from(read_u64(bytes, 8)).unwrap_or(u32::MAX),
                valid_bytes: read_u64(bytes, 16),
            };
            if (1..MAX_COUNTER).contains(&record.version) {
                slots
                    .entry(record.version)
                    .or_default()
                    .push((slot, record));
            }
        },
    )?;
    Ok(slots)
}

/// Calls `take` for each of `count` records of `SIZE` bytes from offset `start`.
fn for_each_record<const SIZE: usize>(
    ledger: &dyn Ledger,
    start: u64,
    count: u32,
    mut take: impl FnMut(u32, &[u8; SIZE]),
) -> std::io::Result<()> {
    let mut chunk = [[0; SIZE]; RECORDS_PER_READ];
    let mut at = 0;
    while at < count {
        let left = usize::try_from(count - at)
            .unwrap_or(RECORDS_PER_READ)
            .min(RECORDS_PER_READ);
        let chunk = chunk.get_mut(..left).unwrap_or_default();
        ledger.read(
            start + u64::from(at) * SIZE as u64,
            chunk.as_flattened_mut(),
        )?;
        for (index, record) in (at..).zip(&*chunk) {
            take(index, record);
        }
        at = at.saturating_add(u32::try_from(left).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Returns the number of node records of a ledger.
pub(super) fn max_records() -> u32 {
    u32::try_from(MAX_NODES).unwrap_or(u32::MAX)
}

fn parse_node(bytes: &[u8; NODE_RECORD_BYTES]) -> Option<NodeRecord> {
    let kind = *bytes.first()?;
    let length = usize::from(*bytes.get(1)?);
    let name = bytes.get(NAME_OFFSET..NAME_OFFSET + length)?.to_vec();
    let file = match kind {
        DIRECTORY => None,
        FILE => Some((read_u64(bytes, 32), read_u64(bytes, 40))),
        _ => return None,
    };
    let serial = read_u64(bytes, 48);
    if serial >= MAX_COUNTER || file.is_some_and(|(version, _)| version >= MAX_COUNTER) {
        return None;
    }
    // Only the root directory has no name.
    if !name.is_empty() {
        check_name(&name).ok()?;
    }
    let nanos = read_u32(bytes, 24).min(999_999_999);
    Some(NodeRecord {
        attributes: Attributes {
            mode: read_u32(bytes, 4) & 0o7777,
            uid: read_u32(bytes, 8),
            gid: read_u32(bytes, 12),
            modified: Duration::new(read_u64(bytes, 16), nanos).min(LAST_DATE),
        },
        parent: read_u32(bytes, 28),
        name,
        serial,
        file,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|from| from.first_chunk());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|from| from.first_chunk());
    field.map_or(0, |field| u64::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Bytes(Mutex<Vec<u8>>);

    impl Ledger for Bytes {
        fn write(&self, at: u64, bytes: &[u8]) {
            let at = usize::try_from(at).unwrap();
            self.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn read(&self, at: u64, to: &mut [u8]) -> std::io::Result<()> {
            let at = usize::try_from(at).unwrap();
            to.copy_from_slice(&self.0.lock().unwrap()[at..at + to.len()]);
            Ok(())
        }
    }

    /// If this test fails because the layout changed, change [`LAYOUT_VERSION`] too. Otherwise the new program reads ledgers of the
    /// old layout as if they were its own.
    #[test]
    fn the_layout_has_not_changed_without_its_version() {
        let length = usize::try_from(ledger_bytes(8)).unwrap();
        let ledger = Bytes(Mutex::new(vec![0; length]));
        let record = NodeRecord {
            attributes: Attributes {
                mode: 0o640,
                uid: 3,
                gid: 4,
                modified: Duration::new(5, 6),
            },
            parent: 7,
            name: b"name".to_vec(),
            serial: 8,
            file: Some((9, 10)),
        };
        write_node(&ledger, 1, &record);
        let slot = SlotRecord {
            version: 9,
            block: 11,
            valid_bytes: 12,
        };
        write_slot(&ledger, 2, slot);
        let bytes = ledger.0.lock().unwrap();
        let written = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
        let expected = [
            (512, 2),
            (513, 4),
            (516, 0xa0),
            (517, 1),
            (520, 3),
            (524, 4),
            (528, 5),
            (536, 6),
            (540, 7),
            (544, 9),
            (552, 10),
            (560, 8),
            (576, b'n'),
            (577, b'a'),
            (578, b'm'),
            (579, b'e'),
            (8_388_672, 9),
            (8_388_680, 11),
            (8_388_688, 12),
        ];
        let written: Vec<_> = written.map(|(at, byte)| (at, *byte)).collect();
        assert_eq!(
            (LAYOUT_VERSION, length, &*written),
            (1, 8_388_864, &expected[..])
        );
    }
}
