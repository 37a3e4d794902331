//! The tree of files and folders, and all that may be done to it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::ledger::{self, Ledger};
use super::node::{Attributes, File, Fill, Folder, Kind, LAST_DATE, MAX_NODES, Node, ROOT, check};
use super::slots::Slots;

/// Everything in a space.
pub struct Store {
    pub(super) slots: Slots,
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) next: u64,
    /// The last version that was published.
    pub(super) published: u64,
    pub(super) ledger: Arc<dyn Ledger>,
    /// The ledger's places that are nobody's.
    pub(super) places: Vec<u32>,
    /// Of the ledger's last record.
    pub(super) serial: u64,
    /// How many have files open to write.
    writers: u64,
}

impl Store {
    /// What the ledger has, in these slots; of a new ledger, nothing.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn from_ledger(
        slots: Slots,
        ledger: Arc<dyn Ledger>,
        now: Duration,
    ) -> std::io::Result<Self> {
        let mut store = Self::empty(slots, ledger, now);
        store.restore()?;
        store.slots.clean();
        Ok(store)
    }

    fn empty(slots: Slots, ledger: Arc<dyn Ledger>, now: Duration) -> Self {
        let attributes = Attributes {
            mode: 0o755,
            modified: now,
            ..Attributes::default()
        };
        let root = Node {
            attributes,
            parent: ROOT,
            place: 0,
            linked: true,
            opens: 0,
            kind: Kind::Folder(Folder::default()),
        };
        Self {
            slots,
            nodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            published: 0,
            ledger,
            places: (1..ledger::places()).rev().collect(),
            serial: 0,
            writers: 0,
        }
    }

    /// Its slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// How full it is.
    #[must_use]
    pub fn fill(&self) -> Fill {
        let files = || self.nodes.values().filter_map(Node::file);
        let published = files().filter(|file| file.version.is_some()).count();
        Fill {
            published,
            unfinished: files().count() - published,
            nodes: self.nodes.len(),
        }
    }

    /// A file or folder by its number.
    ///
    /// # Errors
    /// There is none.
    pub fn node(&self, number: u64) -> Result<&Node, StoreError> {
        self.nodes.get(&number).ok_or(StoreError::Missing)
    }

    /// Change its attributes.
    ///
    /// # Errors
    /// There is none.
    pub fn set_attributes(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<(), StoreError> {
        let attributes = &mut self.node_mut(number)?.attributes;
        change(attributes);
        attributes.modified = attributes.modified.min(LAST_DATE);
        self.write_down(number);
        Ok(())
    }

    /// The number of what has this name in a folder.
    ///
    /// # Errors
    /// There is none, or no such folder.
    pub fn look_up(&self, folder: u64, name: &[u8]) -> Result<u64, StoreError> {
        match name {
            b"." => Ok(folder),
            b".." => Ok(self.node(folder)?.parent),
            _ => {
                let names = &self.folder(folder)?.by_name;
                names.get(name).copied().ok_or(StoreError::Missing)
            }
        }
    }

    /// What is in a folder and has a higher number than `after`, by number.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn list(
        &self,
        folder: u64,
        after: u64,
    ) -> Result<impl Iterator<Item = (u64, &[u8])>, StoreError> {
        // The guest chooses `after`, up to the largest number there is.
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let entries = self.folder(folder)?.by_number.range(behind);
        Ok(entries.map(|(number, name)| (*number, name.as_slice())))
    }

    /// Make a file, not yet published, or a folder; returns its number.
    ///
    /// # Errors
    /// The name is impossible or there already, or there are too many.
    pub fn make(
        &mut self,
        folder: u64,
        name: &[u8],
        is_folder: bool,
        attributes: Attributes,
    ) -> Result<u64, StoreError> {
        check(name)?;
        if self.folder(folder)?.by_name.contains_key(name) {
            return Err(StoreError::Exists);
        }
        if !self.node(folder)?.linked {
            return Err(StoreError::Missing);
        }
        if self.nodes.len() >= MAX_NODES {
            return Err(StoreError::TooMany);
        }
        // There is one: a file or folder has at most one.
        let place = self.places.pop().ok_or(StoreError::TooMany)?;
        let number = self.next;
        self.next += 1;
        let kind = match is_folder {
            true => Kind::Folder(Folder::default()),
            false => Kind::File(File::default()),
        };
        let node = Node {
            attributes,
            parent: folder,
            place,
            linked: true,
            opens: 0,
            kind,
        };
        self.folder_mut(folder)?.insert(name, number);
        self.nodes.insert(number, node);
        self.write_down(number);
        Ok(number)
    }

    /// Somebody opens it, to write into it or not.
    ///
    /// # Errors
    /// It does not exist.
    pub fn open(&mut self, number: u64, writes: bool) -> Result<(), StoreError> {
        let node = self.node_mut(number)?;
        node.opens = node.opens.saturating_add(1);
        if let (Kind::File(file), true) = (&mut node.kind, writes) {
            file.writers = file.writers.saturating_add(1);
            self.count_writers(self.writers.saturating_add(1));
        }
        Ok(())
    }

    /// Somebody closes it, who had it open to write or not. When the last writer does, the file
    /// is whole: clients get it. A guest that closes what it did not open does so to itself alone.
    pub fn close(&mut self, number: u64, writes: bool) {
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        node.opens = node.opens.saturating_sub(1);
        if let (Kind::File(file), true) = (&mut node.kind, writes) {
            let closed = u64::from(file.writers > 0);
            file.writers = file.writers.saturating_sub(1);
            let published = file.settle(self.published + 1);
            self.count_writers(self.writers.saturating_sub(closed));
            self.publish(number, published);
        }
        self.forget_unused(number);
    }

    /// Nobody has anything open any more: the VM is gone. Returns how many files it left half
    /// written, which go; what was published stays.
    pub fn abandon(&mut self) -> usize {
        let numbers: Vec<_> = self.nodes.keys().copied().collect();
        let mut lost = 0;
        self.count_writers(0);
        for number in numbers {
            let Some(node) = self.nodes.get_mut(&number) else {
                continue;
            };
            node.opens = 0;
            if let Kind::File(file) = &mut node.kind {
                file.writers = 0;
            }
            let (parent, linked) = (node.parent, node.linked);
            if linked && node.file().is_some_and(|file| file.version.is_none()) {
                lost += 1;
                if let Ok(folder) = self.folder_mut(parent) {
                    folder.remove_number(number);
                }
                self.unlink(number);
            } else {
                self.forget_unused(number);
            }
        }
        lost
    }

    /// Make room for a write into a file, which is unpublished until its writers close it. Returns where
    /// its bytes belong, as places and lengths; the caller puts them there before anybody reads.
    ///
    /// # Errors
    /// [`StoreError::Full`] changes nothing: try again when slots have returned.
    pub fn write(
        &mut self,
        number: u64,
        offset: u64,
        length: u64,
        now: Duration,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let slots = self.slots.clone();
        let (file, _) = self.file_mut(number)?;
        let places = file.content.write(&slots, offset, length)?;
        // Before the caller writes anything there.
        self.strike_out(number);
        let (file, attributes) = self.file_mut(number)?;
        file.version = None;
        attributes.modified = now;
        Ok(places)
    }

    /// Cut a file, or make it longer by zeros.
    ///
    /// # Errors
    /// It is none, or would be too large.
    pub fn truncate(&mut self, number: u64, size: u64, now: Duration) -> Result<(), StoreError> {
        let (slots, next) = (self.slots.clone(), self.published + 1);
        // Before a slot goes.
        self.strike_out(number);
        let (file, attributes) = self.file_mut(number)?;
        if let Err(error) = file.content.truncate(&slots, size) {
            self.write_down(number);
            return Err(error);
        }
        file.version = None;
        attributes.modified = now;
        let published = file.settle(next);
        self.publish(number, published);
        Ok(())
    }

    fn count_writers(&mut self, writers: u64) {
        if (self.writers == 0) != (writers == 0) {
            self.slots.writing(writers > 0);
        }
        self.writers = writers;
    }

    pub(super) fn node_mut(&mut self, number: u64) -> Result<&mut Node, StoreError> {
        self.nodes.get_mut(&number).ok_or(StoreError::Missing)
    }

    pub(super) fn folder(&self, number: u64) -> Result<&Folder, StoreError> {
        match &self.node(number)?.kind {
            Kind::Folder(folder) => Ok(folder),
            Kind::File(_) => Err(StoreError::NotAFolder),
        }
    }

    pub(super) fn folder_mut(&mut self, number: u64) -> Result<&mut Folder, StoreError> {
        match &mut self.node_mut(number)?.kind {
            Kind::Folder(folder) => Ok(folder),
            Kind::File(_) => Err(StoreError::NotAFolder),
        }
    }

    fn file_mut(&mut self, number: u64) -> Result<(&mut File, &mut Attributes), StoreError> {
        let node = self.node_mut(number)?;
        match &mut node.kind {
            Kind::File(file) => Ok((file, &mut node.attributes)),
            Kind::Folder(_) => Err(StoreError::AFolder),
        }
    }

    pub(super) fn unlink(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.linked = false;
            ledger::strike(&*self.ledger, node.place);
            self.places.push(node.place);
            self.forget_unused(number);
        }
    }

    fn forget_unused(&mut self, number: u64) {
        let used = |node: &Node| node.linked || node.opens > 0;
        if self.nodes.get(&number).is_some_and(|node| !used(node)) {
            self.nodes.remove(&number);
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
