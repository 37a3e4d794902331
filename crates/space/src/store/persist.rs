//! Persistence: writes published files and directories to the ledger, and restores a store from it.

use std::collections::HashMap;

use super::content::Content;
use super::ledger::{self, NodeRecord};
use super::node::{Directory, File, Kind, Node, ROOT};
use super::slots::SlotRecord;
use super::tree::Store;

type Versions = HashMap<u64, Vec<(u32, SlotRecord)>>;

impl Store {
    /// Records that a file was published `times` times (0 or 1), and writes it to the ledger.
    pub(super) fn publish(&mut self, inode: u64, times: u64) {
        if times > 0 {
            self.last_version += times;
            self.persist(inode);
        }
    }

    /// Erases a published file's record from the ledger, because the file is about to change.
    pub(super) fn invalidate(&self, inode: u64) {
        let node = self.nodes.get(&inode).filter(|node| node.linked);
        if let Some(node) = node.filter(|node| node.file().is_some_and(|f| f.version.is_some())) {
            ledger::erase_node(&*self.ledger, node.record);
        }
    }

    /// Writes a directory or a published file to the ledger. Does nothing for unfinished and unlinked ones.
    pub(super) fn persist(&mut self, inode: u64) {
        let serial = self.last_serial + 1;
        let Some(node) = self.nodes.get(&inode).filter(|node| node.linked) else {
            return;
        };
        let Some(parent) = self.nodes.get(&node.parent) else {
            return;
        };
        let name = match &parent.kind {
            Kind::Directory(directory) => directory.by_inode.get(&inode).cloned(),
            Kind::File(_) => None,
        };
        let file = match &node.kind {
            Kind::Directory(_) => None,
            Kind::File(file) => {
                let Some(version) = file.version else { return };
                for (slot, record) in file.content.records(version) {
                    ledger::write_slot(&*self.ledger, slot, record);
                }
                Some((version, file.content.size()))
            }
        };
        let record = NodeRecord {
            attributes: node.attributes,
            parent: parent.record,
            name: name.unwrap_or_default(),
            serial,
            file,
        };
        ledger::write_node(&*self.ledger, node.record, &record);
        self.last_serial = serial;
    }

    /// Restores the files and directories of the ledger that are consistent: those that are reachable from the root, and
    /// whose slots exist. Erases all other records.
    pub(super) fn restore(&mut self) -> std::io::Result<()> {
        let records = ledger::read_nodes(&*self.ledger)?;
        let mut versions = ledger::read_slots(&*self.ledger, self.slots.max_slots())?;
        // No version is used twice. Slot records of removed files remain until their slots are allocated again, so the
        // next version must be higher than theirs.
        self.last_version = versions.keys().copied().max().unwrap_or(0);
        let last = records.iter().map(|(_, record)| record.serial).max();
        self.last_serial = last.unwrap_or(0);
        let mut version_counts: HashMap<u64, u32> = HashMap::new();
        let non_root = records.iter().filter(|(record_index, _)| *record_index > 0);
        for (version, _) in non_root.filter_map(|(_, record)| record.file) {
            *version_counts.entry(version).or_default() += 1;
        }
        let claimed_twice = |record: &NodeRecord| {
            let version = record.file.map(|(version, _)| version);
            version.is_some_and(|version| version_counts.get(&version) != Some(&1))
        };
        let mut by_parent: HashMap<u32, Vec<(u32, NodeRecord)>> = HashMap::new();
        for (record_index, record) in records {
            match record_index {
                0 if record.file.is_none() => self.restore_root(&record),
                _ if record_index == 0 || claimed_twice(&record) => {
                    ledger::erase_node(&*self.ledger, record_index);
                }
                _ => by_parent
                    .entry(record.parent)
                    .or_default()
                    .push((record_index, record)),
            }
        }
        // Each directory is visited once, so directories that claim to contain each other are never reached.
        let mut directories = vec![(0, ROOT)];
        while let Some((record_index, inode)) = directories.pop() {
            let mut records = by_parent.remove(&record_index).unwrap_or_default();
            // Of two records with one name, the later one is valid.
            records.sort_by_key(|(_, record)| std::cmp::Reverse(record.serial));
            for (record_index, record) in records {
                let is_directory = record.file.is_none();
                match self.restore_node(inode, record_index, &record, &mut versions) {
                    Some(inode) if is_directory => directories.push((record_index, inode)),
                    Some(_) => {}
                    None => ledger::erase_node(&*self.ledger, record_index),
                }
            }
        }
        for (record_index, _) in by_parent.into_values().flatten() {
            ledger::erase_node(&*self.ledger, record_index);
        }
        let used: std::collections::HashSet<u32> =
            self.nodes.values().map(|node| node.record).collect();
        self.free_records
            .retain(|record_index| !used.contains(record_index));
        Ok(())
    }

    fn restore_root(&mut self, record: &NodeRecord) {
        if let Some(root) = self.nodes.get_mut(&ROOT) {
            root.attributes = record.attributes;
        }
    }

    /// Adds the file or directory of a record to the directory `parent` and returns its inode number. Returns `None` if the
    /// record is inconsistent.
    fn restore_node(
        &mut self,
        parent: u64,
        record_index: u32,
        record: &NodeRecord,
        versions: &mut Versions,
    ) -> Option<u64> {
        let kind = match record.file {
            None => Kind::Directory(Directory::default()),
            Some((version, size)) => {
                let content = self.content(versions.remove(&version), size)?;
                self.last_version = self.last_version.max(version);
                Kind::File(File {
                    content,
                    version: Some(version),
                    writer_count: 0,
                })
            }
        };
        let Kind::Directory(directory) = &mut self.nodes.get_mut(&parent)?.kind else {
            return None;
        };
        if record.name.is_empty() || directory.by_name.contains_key(&record.name) {
            return None;
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        directory.insert(&record.name, inode);
        let node = Node {
            attributes: record.attributes,
            parent,
            record: record_index,
            linked: true,
            open_count: 0,
            kind,
        };
        self.nodes.insert(inode, node);
        Some(inode)
    }

    fn content(&self, records: Option<Vec<(u32, SlotRecord)>>, size: u64) -> Option<Content> {
        let take = |(index, record)| Some((self.slots.allocate_at(index)?, record));
        let records = records.unwrap_or_default().into_iter().map(take);
        Content::from_records(&self.slots, size, records.collect::<Option<_>>()?)
    }
}
