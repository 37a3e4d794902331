//! What of a store is sent: found by clients for its path, or sent unasked, first come first.

use super::node::{Kind, Lookup, Object, ROOT};
use super::tree::Store;

/// A published file that is to be sent somewhere. It holds its slots.
#[derive(Clone, Debug)]
pub struct PublishedFile {
    /// The file's number.
    pub inode: u64,
    /// The names that lead to it.
    pub path: Vec<Vec<u8>>,
    /// The file as it is now.
    pub object: Object,
}

impl Store {
    /// What a client gets for a path, given as its names.
    pub fn find<'p>(&self, path: impl IntoIterator<Item = &'p [u8]>) -> Lookup {
        let mut inode = ROOT;
        for name in path {
            // Not `look_up`: a client has no business with `..`.
            let inner = self.directory(inode).ok();
            match inner.and_then(|directory| directory.by_name.get(name)) {
                Some(inner) => inode = *inner,
                None => return Lookup::Nothing,
            }
        }
        match self.node(inode).ok().and_then(|node| node.file()) {
            Some(file) if file.version.is_none() => Lookup::Unfinished,
            Some(_) => self.object(inode).map_or(Lookup::Nothing, Lookup::Object),
            None => Lookup::Nothing,
        }
    }

    fn object(&self, inode: u64) -> Option<Object> {
        let node = self.node(inode).ok()?;
        let file = node.file()?;
        Some(Object {
            content: file.content.clone(),
            version: file.version?,
            modified: node.attributes.modified,
        })
    }

    /// Of the published files that nobody has open to write, and that are `is_wanted` by number, version and
    /// name, the one that has been published for longest.
    pub fn first_published(
        &self,
        is_wanted: impl Fn(u64, u64, &[u8]) -> bool,
    ) -> Option<PublishedFile> {
        let published = self.nodes.iter().filter_map(|(inode, node)| {
            let file = node
                .file()
                .filter(|file| node.linked && file.writer_count == 0)?;
            Some((file.version?, *inode))
        });
        let is_wanted = published.filter(|(version, inode)| {
            let name = self.name(*inode);
            name.is_some_and(|name| is_wanted(*inode, *version, name))
        });
        let (_, inode) = is_wanted.min()?;
        Some(PublishedFile {
            inode,
            path: self.path(inode)?,
            object: self.object(inode)?,
        })
    }

    /// The published files' numbers and paths, in the order in which they were published.
    #[must_use]
    pub fn published_files(&self) -> Vec<(u64, Vec<Vec<u8>>)> {
        let files = self.nodes.iter();
        let files = files.filter_map(|(inode, node)| Some((node.file()?.version?, *inode)));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        let path = |(_, inode)| Some((inode, self.path(inode)?));
        files.into_iter().filter_map(path).collect()
    }

    /// A parcel has come to where it was to go: the file goes, unless it is another one by now, is called
    /// otherwise, or somebody has it open to write. Whether it went.
    pub fn remove_pushed(&mut self, pushed: &PublishedFile) -> bool {
        let file = self.nodes.get(&pushed.inode);
        let file = file.filter(|node| node.linked).and_then(|node| node.file());
        let same = file.is_some_and(|file| {
            file.writer_count == 0 && file.version == Some(pushed.object.version)
        });
        if !same || self.path(pushed.inode).as_ref() != Some(&pushed.path) {
            return false;
        }
        let names = pushed.path.split_last();
        let parent = self.nodes.get(&pushed.inode).map(|node| node.parent);
        match (parent, names) {
            (Some(parent), Some((name, _))) => self.remove(parent, name, false).is_ok(),
            _ => false,
        }
    }

    /// The names that lead to a file or folder that has one, the outermost first.
    fn path(&self, mut inode: u64) -> Option<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        while inode != ROOT {
            names.push(self.name(inode)?.to_vec());
            inode = self.nodes.get(&inode)?.parent;
        }
        names.reverse();
        Some(names)
    }

    fn name(&self, inode: u64) -> Option<&[u8]> {
        let node = self.nodes.get(&inode).filter(|node| node.linked)?;
        match &self.nodes.get(&node.parent)?.kind {
            Kind::Directory(directory) => directory.by_inode.get(&inode).map(Vec::as_slice),
            Kind::File(_) => None,
        }
    }
}
