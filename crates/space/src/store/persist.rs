//! What of a store outlives its process: how it is written down in the ledger, and read again.

use std::collections::HashMap;

use super::content::Content;
use super::ledger::{self, Record};
use super::node::{File, Folder, Kind, Node, ROOT};
use super::slots::SlotRecord;
use super::tree::Store;

type Versions = HashMap<u64, Vec<(u32, SlotRecord)>>;

impl Store {
    /// A file has been published so many times, once or not at all.
    pub(super) fn publish(&mut self, number: u64, times: u64) {
        if times > 0 {
            self.published += times;
            self.write_down(number);
        }
    }

    /// A file is about to change: what the ledger has of it is not true any more.
    pub(super) fn strike_out(&self, number: u64) {
        let node = self.nodes.get(&number).filter(|node| node.linked);
        if let Some(node) = node.filter(|node| node.file().is_some_and(|f| f.version.is_some())) {
            ledger::strike(&*self.ledger, node.place);
        }
    }

    /// Write a folder, or a published file, down as it is.
    pub(super) fn write_down(&mut self, number: u64) {
        let serial = self.serial + 1;
        let Some(node) = self.nodes.get(&number).filter(|node| node.linked) else {
            return;
        };
        let Some(parent) = self.nodes.get(&node.parent) else {
            return;
        };
        let name = match &parent.kind {
            Kind::Folder(folder) => folder.by_number.get(&number).cloned(),
            Kind::File(_) => None,
        };
        let file = match &node.kind {
            Kind::Folder(_) => None,
            Kind::File(file) => {
                let Some(version) = file.version else { return };
                for (slot, record) in file.content.written(version) {
                    ledger::put_slot(&*self.ledger, slot, record);
                }
                Some((version, file.content.size()))
            }
        };
        let record = Record {
            attributes: node.attributes,
            parent: parent.place,
            name: name.unwrap_or_default(),
            serial,
            file,
        };
        ledger::put(&*self.ledger, node.place, &record);
        self.serial = serial;
    }

    /// Take in what the ledger has and makes sense: what hangs together from the outermost folder on,
    /// in slots that are there. All else is struck out.
    pub(super) fn restore(&mut self) -> std::io::Result<()> {
        let records = ledger::records(&*self.ledger)?;
        let mut versions = ledger::slots(&*self.ledger, self.slots.most())?;
        // No version comes twice: slots of what is gone stay written down until they are taken again.
        self.published = versions.keys().copied().max().unwrap_or(0);
        let last = records.iter().map(|(_, record)| record.serial).max();
        self.serial = last.unwrap_or(0);
        let mut claims: HashMap<u64, u32> = HashMap::new();
        let below = records.iter().filter(|(place, _)| *place > 0);
        for (version, _) in below.filter_map(|(_, record)| record.file) {
            *claims.entry(version).or_default() += 1;
        }
        let claimed_twice = |record: &Record| {
            let version = record.file.map(|(version, _)| version);
            version.is_some_and(|version| claims.get(&version) != Some(&1))
        };
        let mut inside: HashMap<u32, Vec<(u32, Record)>> = HashMap::new();
        for (place, record) in records {
            match place {
                0 if record.file.is_none() => self.restore_root(&record),
                _ if place == 0 || claimed_twice(&record) => ledger::strike(&*self.ledger, place),
                _ => inside
                    .entry(record.parent)
                    .or_default()
                    .push((place, record)),
            }
        }
        // Each folder once, so folders that claim to be in each other lead nowhere.
        let mut folders = vec![(0, ROOT)];
        while let Some((place, number)) = folders.pop() {
            let mut records = inside.remove(&place).unwrap_or_default();
            // Of two with one name, the later is right.
            records.sort_by_key(|(_, record)| std::cmp::Reverse(record.serial));
            for (place, record) in records {
                let is_folder = record.file.is_none();
                match self.take_in(number, place, &record, &mut versions) {
                    Some(number) if is_folder => folders.push((place, number)),
                    Some(_) => {}
                    None => ledger::strike(&*self.ledger, place),
                }
            }
        }
        for (place, _) in inside.into_values().flatten() {
            ledger::strike(&*self.ledger, place);
        }
        let used: std::collections::HashSet<u32> =
            self.nodes.values().map(|node| node.place).collect();
        self.places.retain(|place| !used.contains(place));
        Ok(())
    }

    fn restore_root(&mut self, record: &Record) {
        if let Some(root) = self.nodes.get_mut(&ROOT) {
            root.attributes = record.attributes;
        }
    }

    /// Put what a record says into a folder; returns its number.
    fn take_in(
        &mut self,
        parent: u64,
        place: u32,
        record: &Record,
        versions: &mut Versions,
    ) -> Option<u64> {
        let kind = match record.file {
            None => Kind::Folder(Folder::default()),
            Some((version, size)) => {
                let content = self.content(versions.remove(&version), size)?;
                self.published = self.published.max(version);
                Kind::File(File {
                    content,
                    version: Some(version),
                    writers: 0,
                })
            }
        };
        let Kind::Folder(folder) = &mut self.nodes.get_mut(&parent)?.kind else {
            return None;
        };
        if record.name.is_empty() || folder.by_name.contains_key(&record.name) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        folder.insert(&record.name, number);
        let node = Node {
            attributes: record.attributes,
            parent,
            place,
            linked: true,
            opens: 0,
            kind,
        };
        self.nodes.insert(number, node);
        Some(number)
    }

    fn content(&self, written: Option<Vec<(u32, SlotRecord)>>, size: u64) -> Option<Content> {
        let take = |(index, record)| Some((self.slots.take_again(index)?, record));
        let written = written.unwrap_or_default().into_iter().map(take);
        Content::restored(&self.slots, size, written.collect::<Option<_>>()?)
    }
}
