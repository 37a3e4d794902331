//! What of a store is sent: found by clients for its path, or sent unasked, first come first.

use super::node::{Found, Kind, Object, ROOT};
use super::tree::Store;

/// A published file that is to be sent somewhere. It holds its slots.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The file's number.
    pub number: u64,
    /// The names that lead to it.
    pub path: Vec<Vec<u8>>,
    /// The file as it is now.
    pub object: Object,
}

impl Store {
    /// What a client gets for a path, given as its names.
    pub fn find<'p>(&self, path: impl IntoIterator<Item = &'p [u8]>) -> Found {
        let mut number = ROOT;
        for name in path {
            // Not `look_up`: a client has no business with `..`.
            let inner = self.folder(number).ok();
            match inner.and_then(|folder| folder.by_name.get(name)) {
                Some(inner) => number = *inner,
                None => return Found::Nothing,
            }
        }
        match self.node(number).ok().and_then(|node| node.file()) {
            Some(file) if file.version.is_none() => Found::Unfinished,
            Some(_) => self.object(number).map_or(Found::Nothing, Found::Object),
            None => Found::Nothing,
        }
    }

    fn object(&self, number: u64) -> Option<Object> {
        let node = self.node(number).ok()?;
        let file = node.file()?;
        Some(Object {
            content: file.content.clone(),
            version: file.version?,
            modified: node.attributes.modified,
        })
    }

    /// Of the published files that nobody has open to write, and that are `wanted` by number, version and
    /// name, the one that has been published for longest.
    pub fn first_published(&self, wanted: impl Fn(u64, u64, &[u8]) -> bool) -> Option<Parcel> {
        let published = self.nodes.iter().filter_map(|(number, node)| {
            let file = node
                .file()
                .filter(|file| node.linked && file.writers == 0)?;
            Some((file.version?, *number))
        });
        let wanted = published.filter(|(version, number)| {
            let name = self.name(*number);
            name.is_some_and(|name| wanted(*number, *version, name))
        });
        let (_, number) = wanted.min()?;
        Some(Parcel {
            number,
            path: self.path(number)?,
            object: self.object(number)?,
        })
    }

    /// The published files' numbers and paths, in the order in which they were published.
    #[must_use]
    pub fn published_files(&self) -> Vec<(u64, Vec<Vec<u8>>)> {
        let files = self.nodes.iter();
        let files = files.filter_map(|(number, node)| Some((node.file()?.version?, *number)));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        let path = |(_, number)| Some((number, self.path(number)?));
        files.into_iter().filter_map(path).collect()
    }

    /// A parcel has come to where it was to go: the file goes, unless it is another one by now, is called
    /// otherwise, or somebody has it open to write. Whether it went.
    pub fn remove_sent(&mut self, parcel: &Parcel) -> bool {
        let file = self.nodes.get(&parcel.number);
        let file = file.filter(|node| node.linked).and_then(|node| node.file());
        let same = file
            .is_some_and(|file| file.writers == 0 && file.version == Some(parcel.object.version));
        if !same || self.path(parcel.number).as_ref() != Some(&parcel.path) {
            return false;
        }
        let names = parcel.path.split_last();
        let parent = self.nodes.get(&parcel.number).map(|node| node.parent);
        match (parent, names) {
            (Some(parent), Some((name, _))) => self.remove(parent, name, false).is_ok(),
            _ => false,
        }
    }

    /// The names that lead to a file or folder that has one, the outermost first.
    fn path(&self, mut number: u64) -> Option<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        while number != ROOT {
            names.push(self.name(number)?.to_vec());
            number = self.nodes.get(&number)?.parent;
        }
        names.reverse();
        Some(names)
    }

    fn name(&self, number: u64) -> Option<&[u8]> {
        let node = self.nodes.get(&number).filter(|node| node.linked)?;
        match &self.nodes.get(&node.parent)?.kind {
            Kind::Folder(folder) => folder.by_number.get(&number).map(Vec::as_slice),
            Kind::File(_) => None,
        }
    }
}
