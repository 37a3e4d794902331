//! Files, folders and their names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::content::Content;
use super::error::StoreError;

/// The number of the folder that all else is in.
pub const ROOT: u64 = 1;

/// Longest name, in bytes (Linux: `NAME_MAX`).
pub const MAX_NAME: usize = 255;

/// Files and folders a store holds. A folder's entry takes some hundred bytes of the host's
/// memory, which the guest must not use up.
pub const MAX_NODES: usize = 16_384;

/// What programs in the guest set and ask, and nothing here looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, of the low 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was written last, since 1970; at most [`LAST_DATE`].
    pub modified: Duration,
}

/// The last second of the year 9999: HTTP has no later dates (RFC 9110, 5.6.7).
pub const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// A file or folder.
#[derive(Debug)]
pub struct Node {
    /// Its attributes.
    pub attributes: Attributes,
    /// The folder it is in; its own if it was removed.
    pub(super) parent: u64,
    /// The place of its record in the ledger, while it has a name.
    pub(super) record: u32,
    /// It has a name.
    pub(super) linked: bool,
    /// How many have it open.
    pub(super) open_count: u32,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Directory(Directory),
    File(File),
}

/// Names both ways: by number they are in an order that removals do not change.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) by_name: HashMap<Vec<u8>, u64>,
    pub(super) by_inode: BTreeMap<u64, Vec<u8>>,
}

/// A file as clients see it, once it is whole.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) content: Content,
    /// Which of the versions published in this store it is, counted from 1; none while it is
    /// being written.
    pub(super) version: Option<u64>,
    /// How many have it open for writing.
    pub(super) writer_count: u32,
}

/// A published file, as it was when it was asked for. It holds its slots.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its bytes.
    pub content: Content,
    /// Another one for each time that a file of the store was published.
    pub version: u64,
    /// When it was written, since 1970.
    pub modified: Duration,
}

/// What a path leads to for a client.
#[derive(Debug)]
pub enum Lookup {
    /// A published file.
    Object(Object),
    /// A file that is being written.
    Unfinished,
    /// Nothing, or a folder.
    Nothing,
}

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Files that are published.
    pub published: usize,
    /// Files that are being written.
    pub unfinished: usize,
    /// Files and folders.
    pub nodes: usize,
}

impl Node {
    /// Whether it is a folder.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    /// Its bytes: none, if it is a folder.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(file) => Some(&file.content),
            Kind::Directory(_) => None,
        }
    }

    /// Whether it has a name.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.linked
    }
}

impl Node {
    pub(super) fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::File(file) => Some(file),
            Kind::Directory(_) => None,
        }
    }
}

impl File {
    /// If nobody writes into it, it is whole: as this version, unless it was already. Returns how
    /// many versions that makes.
    pub(super) fn publish_if_closed(&mut self, version: u64) -> u64 {
        if self.writer_count > 0 || self.version.is_some() {
            return 0;
        }
        self.version = Some(version);
        1
    }
}

impl Directory {
    pub(super) fn insert(&mut self, name: &[u8], inode: u64) {
        self.by_name.insert(name.to_vec(), inode);
        self.by_inode.insert(inode, name.to_vec());
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(inode) = self.by_name.remove(name) {
            self.by_inode.remove(&inode);
        }
    }

    pub(super) fn remove_inode(&mut self, inode: u64) {
        if let Some(name) = self.by_inode.remove(&inode) {
            self.by_name.remove(&name);
        }
    }
}

/// Whether a file or folder may have this name.
pub(super) fn check_name(name: &[u8]) -> Result<(), StoreError> {
    let invalid =
        matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0));
    match invalid || name.len() > MAX_NAME {
        true => Err(StoreError::InvalidName),
        false => Ok(()),
    }
}
