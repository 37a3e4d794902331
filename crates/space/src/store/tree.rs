//! The store: the tree of files and directories, and the operations on it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::ledger::{self, Ledger};
use super::node::{
    Attributes, Directory, File, Kind, LAST_DATE, MAX_NODES, Node, ROOT, Usage, check_name,
};
use super::slots::SlotPool;

/// The file system of a space.
pub struct Store {
    pub(super) slots: SlotPool,
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) next_inode: u64,
    /// The last version under which a file was published.
    pub(super) last_version: u64,
    pub(super) ledger: Arc<dyn Ledger>,
    /// Indices of the free node records of the ledger.
    pub(super) free_records: Vec<u32>,
    /// Serial of the last record written to the ledger.
    pub(super) last_serial: u64,
    /// Number of handles that are open for writing, of all files.
    writers: u64,
}

impl Store {
    /// Restores the store of a ledger, with these slots. A new ledger gives an empty store.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub fn from_ledger(
        slots: SlotPool,
        ledger: Arc<dyn Ledger>,
        now: Duration,
    ) -> std::io::Result<Self> {
        let mut store = Self::empty(slots, ledger, now);
        store.restore()?;
        store.slots.release_free_pages();
        Ok(store)
    }

    fn empty(slots: SlotPool, ledger: Arc<dyn Ledger>, now: Duration) -> Self {
        let attributes = Attributes {
            mode: 0o755,
            modified: now,
            ..Attributes::default()
        };
        let root = Node {
            attributes,
            parent: ROOT,
            record: 0,
            linked: true,
            open_count: 0,
            kind: Kind::Directory(Directory::default()),
        };
        Self {
            slots,
            nodes: HashMap::from([(ROOT, root)]),
            next_inode: ROOT + 1,
            last_version: 0,
            ledger,
            free_records: (1..ledger::max_records()).rev().collect(),
            last_serial: 0,
            writers: 0,
        }
    }

    /// Returns the pool of slots.
    #[must_use]
    pub fn slots(&self) -> &SlotPool {
        &self.slots
    }

    /// Returns the numbers of files and nodes.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let files = || self.nodes.values().filter_map(Node::file);
        let published = files().filter(|file| file.version.is_some()).count();
        Usage {
            published,
            unfinished: files().count() - published,
            nodes: self.nodes.len(),
        }
    }

    /// Returns the file or directory of an inode number.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn node(&self, inode: u64) -> Result<&Node, StoreError> {
        self.nodes.get(&inode).ok_or(StoreError::NotFound)
    }

    /// Changes the attributes of a file or directory.
    ///
    /// # Errors
    /// Returns an error if there is none of this inode number.
    pub fn set_attributes(
        &mut self,
        inode: u64,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<(), StoreError> {
        let attributes = &mut self.node_mut(inode)?.attributes;
        change(attributes);
        attributes.modified = attributes.modified.min(LAST_DATE);
        self.persist(inode);
        Ok(())
    }

    /// Returns the inode number of the entry `name` of a directory.
    ///
    /// # Errors
    /// Returns an error if there is no such entry or directory.
    pub fn look_up(&self, directory: u64, name: &[u8]) -> Result<u64, StoreError> {
        match name {
            b"." => Ok(directory),
            b".." => Ok(self.node(directory)?.parent),
            _ => {
                let names = &self.directory(directory)?.by_name;
                names.get(name).copied().ok_or(StoreError::NotFound)
            }
        }
    }

    /// Returns the entries of a directory with an inode number above `after`, in ascending order.
    ///
    /// # Errors
    /// Returns an error if there is no such directory.
    pub fn list(
        &self,
        directory: u64,
        after: u64,
    ) -> Result<impl Iterator<Item = (u64, &[u8])>, StoreError> {
        // The guest chooses `after`; it can be `u64::MAX`.
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let entries = self.directory(directory)?.by_inode.range(range);
        Ok(entries.map(|(inode, name)| (*inode, name.as_slice())))
    }

    /// Creates an unfinished file or a directory and returns its inode number.
    ///
    /// # Errors
    /// Returns an error if the name is invalid or exists, or if there are too many files and directories.
    pub fn create(
        &mut self,
        directory: u64,
        name: &[u8],
        is_directory: bool,
        attributes: Attributes,
    ) -> Result<u64, StoreError> {
        check_name(name)?;
        if self.directory(directory)?.by_name.contains_key(name) {
            return Err(StoreError::AlreadyExists);
        }
        if !self.node(directory)?.linked {
            return Err(StoreError::NotFound);
        }
        if self.nodes.len() >= MAX_NODES {
            return Err(StoreError::TooMany);
        }
        // A record is free, because each file or directory has at most one.
        let record = self.free_records.pop().ok_or(StoreError::TooMany)?;
        let inode = self.next_inode;
        self.next_inode += 1;
        let kind = match is_directory {
            true => Kind::Directory(Directory::default()),
            false => Kind::File(File::default()),
        };
        let node = Node {
            attributes,
            parent: directory,
            record,
            linked: true,
            open_count: 0,
            kind,
        };
        self.directory_mut(directory)?.insert(name, inode);
        self.nodes.insert(inode, node);
        self.persist(inode);
        Ok(inode)
    }

    /// Opens a file or directory, for writing or not.
    ///
    /// # Errors
    /// Returns an error if it does not exist.
    pub fn open(&mut self, inode: u64, writes: bool) -> Result<(), StoreError> {
        let node = self.node_mut(inode)?;
        node.open_count = node.open_count.saturating_add(1);
        if let (Kind::File(file), true) = (&mut node.kind, writes) {
            file.writer_count = file.writer_count.saturating_add(1);
            self.set_writers(self.writers.saturating_add(1));
        }
        Ok(())
    }

    /// Closes a handle that was opened for writing or not. The close of the last writer publishes the file. A guest that
    /// closes more handles than it opened affects its own files only.
    pub fn close(&mut self, inode: u64, writes: bool) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        node.open_count = node.open_count.saturating_sub(1);
        if let (Kind::File(file), true) = (&mut node.kind, writes) {
            let closed = u64::from(file.writer_count > 0);
            file.writer_count = file.writer_count.saturating_sub(1);
            let published = file.publish_if_closed(self.last_version + 1);
            self.set_writers(self.writers.saturating_sub(closed));
            self.publish(inode, published);
        }
        self.remove_unused(inode);
    }

    /// Closes all handles and removes unfinished files, because the VM disconnected or mounts anew. Published files remain.
    /// Returns the number of files removed.
    pub fn end_session(&mut self) -> usize {
        let inodes: Vec<_> = self.nodes.keys().copied().collect();
        let mut removed = 0;
        self.set_writers(0);
        for inode in inodes {
            let Some(node) = self.nodes.get_mut(&inode) else {
                continue;
            };
            node.open_count = 0;
            if let Kind::File(file) = &mut node.kind {
                file.writer_count = 0;
            }
            let (parent, linked) = (node.parent, node.linked);
            if linked && node.file().is_some_and(|file| file.version.is_none()) {
                removed += 1;
                if let Ok(directory) = self.directory_mut(parent) {
                    directory.remove_inode(inode);
                }
                self.unlink(inode);
            } else {
                self.remove_unused(inode);
            }
        }
        removed
    }

    /// Allocates slots for a write to a file, which is unfinished until its writers close it. Returns the ranges (offset and
    /// length) in the slots' memory; the caller writes the bytes there before it unlocks the store.
    ///
    /// # Errors
    /// Returns [`StoreError::Full`] without a change if too few slots are free. The caller may retry when slots become free.
    pub fn write(
        &mut self,
        inode: u64,
        offset: u64,
        length: u64,
        now: Duration,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let slots = self.slots.clone();
        let (file, _) = self.file_mut(inode)?;
        let ranges = file.content.write(&slots, offset, length)?;
        // Erase the record before the caller writes to the slots.
        self.invalidate(inode);
        let (file, attributes) = self.file_mut(inode)?;
        file.version = None;
        attributes.modified = now;
        Ok(ranges)
    }

    /// Changes the length of a file. Added bytes are zeros.
    ///
    /// # Errors
    /// Returns an error if it is not a file, or would be too large.
    pub fn truncate(&mut self, inode: u64, size: u64, now: Duration) -> Result<(), StoreError> {
        let (slots, next) = (self.slots.clone(), self.last_version + 1);
        // Erase the record before a slot becomes free.
        self.invalidate(inode);
        let (file, attributes) = self.file_mut(inode)?;
        if let Err(error) = file.content.truncate(&slots, size) {
            self.persist(inode);
            return Err(error);
        }
        file.version = None;
        attributes.modified = now;
        let published = file.publish_if_closed(next);
        self.publish(inode, published);
        Ok(())
    }

    fn set_writers(&mut self, writers: u64) {
        if (self.writers == 0) != (writers == 0) {
            self.slots.set_writing(writers > 0);
        }
        self.writers = writers;
    }

    pub(super) fn node_mut(&mut self, inode: u64) -> Result<&mut Node, StoreError> {
        self.nodes.get_mut(&inode).ok_or(StoreError::NotFound)
    }

    pub(super) fn directory(&self, inode: u64) -> Result<&Directory, StoreError> {
        match &self.node(inode)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) => Err(StoreError::NotADirectory),
        }
    }

    pub(super) fn directory_mut(&mut self, inode: u64) -> Result<&mut Directory, StoreError> {
        match &mut self.node_mut(inode)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) => Err(StoreError::NotADirectory),
        }
    }

    fn file_mut(&mut self, inode: u64) -> Result<(&mut File, &mut Attributes), StoreError> {
        let node = self.node_mut(inode)?;
        match &mut node.kind {
            Kind::File(file) => Ok((file, &mut node.attributes)),
            Kind::Directory(_) => Err(StoreError::IsADirectory),
        }
    }

    pub(super) fn unlink(&mut self, inode: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.linked = false;
            ledger::erase_node(&*self.ledger, node.record);
            self.free_records.push(node.record);
            self.remove_unused(inode);
        }
    }

    fn remove_unused(&mut self, inode: u64) {
        let used = |node: &Node| node.linked || node.open_count > 0;
        if self.nodes.get(&inode).is_some_and(|node| !used(node)) {
            self.nodes.remove(&inode);
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut to = to.debug_struct("Store");
        to.field("slots", &self.slots)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
