//! What is published, written down: a store that ends can be opened again as it was acknowledged.
//!
//! The ledger is memory that outlives the process: a table of records of files and folders, and one of
//! slots. Each record lies within a page and is written at once, so a process that is killed has written
//! it or not. A file's slots are written down before the file is, and it is struck out before any of it
//! changes: what the ledger has is whole. All zeros are an empty ledger.
//!
//! Who reads it trusts nothing in it: the process that wrote it was one that a guest talks to.

use std::collections::HashMap;
use std::time::Duration;

use super::node::{Attributes, LAST_DATE, MAX_NAME, MAX_NODES, check};
use super::slots::SlotRecord;

/// The version of how the ledger and the slots are laid out: another one for each change, so that a
/// program never serves what another one wrote differently.
pub const LAYOUT: u32 = 1;

/// Bytes of a file's or folder's record, and of a slot's.
const NODE: usize = 512;
const SLOT: usize = 32;

/// No count of versions or records comes so far.
const LAST: u64 = 1 << 62;

/// Records read at a time.
const STEP: usize = 64;

/// Where a record's name begins.
const NAME: usize = 64;
const _: () = assert!(NAME + MAX_NAME <= NODE);

/// Where the slots' table begins.
const SLOTS: u64 = (MAX_NODES * NODE) as u64;

/// What a record is of. Zero is nobody's.
const FOLDER: u8 = 1;
const FILE: u8 = 2;

/// Memory that outlives the process. Places are bytes from its start.
pub trait Ledger: Send + Sync {
    /// Write bytes, which lie within a page. If that fails, a later process misses them.
    fn write(&self, at: u64, bytes: &[u8]);

    /// Fill `to` with what was written; zeros where nothing was.
    ///
    /// # Errors
    /// The host cannot.
    fn read(&self, at: u64, to: &mut [u8]) -> std::io::Result<()>;
}

/// Bytes of the ledger of a space with so many slots.
#[must_use]
pub fn ledger_bytes(slots: u32) -> u64 {
    SLOTS + u64::from(slots) * SLOT as u64
}

/// A file's or folder's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) attributes: Attributes,
    /// Place of the record of the folder it is in.
    pub(super) parent: u32,
    pub(super) name: Vec<u8>,
    /// Higher in records that were written later.
    pub(super) serial: u64,
    /// Of a file: its version, and its length in bytes.
    pub(super) file: Option<(u64, u64)>,
}

/// Write a record at its place.
pub(super) fn put(ledger: &dyn Ledger, place: u32, record: &Record) {
    let mut bytes = [0; NODE];
    let Attributes {
        mode,
        user,
        group,
        modified,
    } = record.attributes;
    let (version, size) = record.file.unwrap_or_default();
    let length = u8::try_from(record.name.len()).unwrap_or(0);
    let kind = match record.file {
        Some(_) => FILE,
        None => FOLDER,
    };
    let fields: [(usize, &[u8]); 11] = [
        (0, &[kind, length]),
        (4, &mode.to_le_bytes()),
        (8, &user.to_le_bytes()),
        (12, &group.to_le_bytes()),
        (16, &modified.as_secs().to_le_bytes()),
        (24, &modified.subsec_nanos().to_le_bytes()),
        (28, &record.parent.to_le_bytes()),
        (32, &version.to_le_bytes()),
        (40, &size.to_le_bytes()),
        (48, &record.serial.to_le_bytes()),
        (NAME, &record.name),
    ];
    for (at, field) in fields {
        if let Some(to) = bytes.get_mut(at..at + field.len()) {
            to.copy_from_slice(field);
        }
    }
    ledger.write(u64::from(place) * NODE as u64, &bytes);
}

/// Strike a record out.
pub(super) fn strike(ledger: &dyn Ledger, place: u32) {
    ledger.write(u64::from(place) * NODE as u64, &[0]);
}

/// Write whose a slot is.
pub(super) fn put_slot(ledger: &dyn Ledger, slot: u32, record: SlotRecord) {
    let mut bytes = [0; SLOT];
    let (version, rest) = bytes.split_at_mut(8);
    let (index, valid) = rest.split_at_mut(8);
    version.copy_from_slice(&record.version.to_le_bytes());
    index.copy_from_slice(&u64::from(record.index).to_le_bytes());
    if let Some(valid) = valid.get_mut(..8) {
        valid.copy_from_slice(&record.valid.to_le_bytes());
    }
    ledger.write(SLOTS + u64::from(slot) * SLOT as u64, &bytes);
}

/// All records of files and folders that make sense by themselves, by place.
pub(super) fn records(ledger: &dyn Ledger) -> std::io::Result<Vec<(u32, Record)>> {
    let mut records = Vec::new();
    each(ledger, 0, places(), |place, bytes: &[u8; NODE]| {
        records.extend(record(bytes).map(|record| (place, record)));
    })?;
    Ok(records)
}

/// The slots of each version, as they were written down.
pub(super) fn slots(
    ledger: &dyn Ledger,
    most: u32,
) -> std::io::Result<HashMap<u64, Vec<(u32, SlotRecord)>>> {
    let mut slots: HashMap<u64, Vec<(u32, SlotRecord)>> = HashMap::new();
    each(ledger, SLOTS, most, |slot, bytes: &[u8; SLOT]| {
        let record = SlotRecord {
            version: long(bytes, 0),
            index: u32::try_from(long(bytes, 8)).unwrap_or(u32::MAX),
            valid: long(bytes, 16),
        };
        if (1..LAST).contains(&record.version) {
            slots
                .entry(record.version)
                .or_default()
                .push((slot, record));
        }
    })?;
    Ok(slots)
}

/// Read a table of so many records of `SIZE` bytes.
fn each<const SIZE: usize>(
    ledger: &dyn Ledger,
    start: u64,
    count: u32,
    mut take: impl FnMut(u32, &[u8; SIZE]),
) -> std::io::Result<()> {
    let mut step = [[0; SIZE]; STEP];
    let mut at = 0;
    while at < count {
        let left = usize::try_from(count - at).unwrap_or(STEP).min(STEP);
        let step = step.get_mut(..left).unwrap_or_default();
        ledger.read(start + u64::from(at) * SIZE as u64, step.as_flattened_mut())?;
        for (place, record) in (at..).zip(&*step) {
            take(place, record);
        }
        at = at.saturating_add(u32::try_from(left).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Places for records.
pub(super) fn places() -> u32 {
    u32::try_from(MAX_NODES).unwrap_or(u32::MAX)
}

fn record(bytes: &[u8; NODE]) -> Option<Record> {
    let kind = *bytes.first()?;
    let length = usize::from(*bytes.get(1)?);
    let name = bytes.get(NAME..NAME + length)?.to_vec();
    let file = match kind {
        FOLDER => None,
        FILE => Some((long(bytes, 32), long(bytes, 40))),
        _ => return None,
    };
    let serial = long(bytes, 48);
    if serial >= LAST || file.is_some_and(|(version, _)| version >= LAST) {
        return None;
    }
    // The outermost folder alone has no name.
    if !name.is_empty() {
        check(&name).ok()?;
    }
    let nanos = word(bytes, 24).min(999_999_999);
    Some(Record {
        attributes: Attributes {
            mode: word(bytes, 4) & 0o7777,
            user: word(bytes, 8),
            group: word(bytes, 12),
            modified: Duration::new(long(bytes, 16), nanos).min(LAST_DATE),
        },
        parent: word(bytes, 28),
        name,
        serial,
        file,
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|from| from.first_chunk());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

fn long(bytes: &[u8], at: usize) -> u64 {
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

    /// Whoever changes this has to change [`LAYOUT`], or another version's ledger is read as if it were ours.
    #[test]
    fn the_layout_is_that_of_its_version() {
        let length = usize::try_from(ledger_bytes(8)).unwrap();
        let ledger = Bytes(Mutex::new(vec![0; length]));
        let record = Record {
            attributes: Attributes {
                mode: 0o640,
                user: 3,
                group: 4,
                modified: Duration::new(5, 6),
            },
            parent: 7,
            name: b"name".to_vec(),
            serial: 8,
            file: Some((9, 10)),
        };
        put(&ledger, 1, &record);
        let slot = SlotRecord {
            version: 9,
            index: 11,
            valid: 12,
        };
        put_slot(&ledger, 2, slot);
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
        assert_eq!((LAYOUT, length, &*written), (1, 8_388_864, &expected[..]));
    }
}
