//! The nodes of the tree: files and directories, and their names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::content::Content;
use super::error::StoreError;

/// The inode number of the root directory.
pub const ROOT: u64 = 1;

/// Longest name, in bytes (`NAME_MAX` of Linux).
pub const MAX_NAME: usize = 255;

/// Most files and directories of a store. Each takes some hundred bytes of host memory, and the guest must not be able to
/// exhaust that.
pub const MAX_NODES: usize = 16_384;

/// Attributes that programs in the guest set and read. The store does not interpret them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits (the low 12 bits of `st_mode`).
    pub mode: u32,
    /// Owner (user id).
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Time of the last modification since 1970, at most [`LAST_DATE`].
    pub modified: Duration,
}

/// The last second of the year 9999. HTTP cannot express later dates (RFC 9110, 5.6.7).
pub const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// A file or directory.
#[derive(Debug)]
pub struct Node {
    /// The attributes.
    pub attributes: Attributes,
    /// Inode number of the parent directory. After the node was unlinked, of the last parent.
    pub(super) parent: u64,
    /// Index of its record in the ledger, while it is linked.
    pub(super) record: u32,
    /// Whether the node has a name.
    pub(super) linked: bool,
    /// Number of open handles.
    pub(super) open_count: u32,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Directory(Directory),
    File(File),
}

/// The entries of a directory, by name and by inode number. The order by inode number is stable while entries are removed,
/// so `readdir` can continue at an inode number.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) by_name: HashMap<Vec<u8>, u64>,
    pub(super) by_inode: BTreeMap<u64, Vec<u8>>,
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) content: Content,
    /// The version under which the file was published, counted from 1 in this store; `None` while the file is unfinished.
    pub(super) version: Option<u64>,
    /// Number of handles that are open for writing.
    pub(super) writer_count: u32,
}

/// A snapshot of a published file for one transmission. Its slots stay in use as long as it exists.
#[derive(Clone, Debug)]
pub struct Object {
    /// The bytes.
    pub content: Content,
    /// The version. Each publication of any file of the store has another one.
    pub version: u64,
    /// Time of the last modification since 1970.
    pub modified: Duration,
}

/// The result of a client's look-up of a path.
#[derive(Debug)]
pub enum Lookup {
    /// A published file.
    Object(Object),
    /// An unfinished file.
    Unfinished,
    /// Nothing, or a directory.
    Nothing,
}

/// Numbers of files and nodes in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Published files.
    pub published: usize,
    /// Unfinished files.
    pub unfinished: usize,
    /// Files and directories, the root included.
    pub nodes: usize,
}

impl Node {
    /// Returns whether the node is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    /// Returns the content of a file; `None` for a directory.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(file) => Some(&file.content),
            Kind::Directory(_) => None,
        }
    }

    /// Returns whether the node has a name.
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
    /// Publishes the file as `version`, if no handle is open for writing and the file is unfinished. Returns the number of
    /// versions published: 0 or 1.
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

/// Returns an error unless a file or directory may have this name.
pub(super) fn check_name(name: &[u8]) -> Result<(), StoreError> {
    let invalid =
        matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0));
    match invalid || name.len() > MAX_NAME {
        true => Err(StoreError::InvalidName),
        false => Ok(()),
    }
}
