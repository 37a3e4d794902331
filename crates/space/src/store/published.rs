//! Access to published files: by path for clients, and in the order of publication for the push.

use super::node::{Kind, Lookup, Object, ROOT};
use super::tree::Store;

/// A published file that is to be pushed. Its slots stay in use as long as it exists.
#[derive(Clone, Debug)]
pub struct PublishedFile {
    /// Inode number of the file.
    pub inode: u64,
    /// The names of its path, the outermost first.
    pub path: Vec<Vec<u8>>,
    /// A snapshot of the file.
    pub object: Object,
}

impl Store {
    /// Looks up a client's path, given as its names.
    pub fn find<'p>(&self, path: impl IntoIterator<Item = &'p [u8]>) -> Lookup {
        let mut inode = ROOT;
        for name in path {
            // Not `look_up`, because clients may not use `.` and `..`.
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

    /// Returns the file that was published first, among the published files without a handle open for writing for which
    /// `is_wanted` (of inode number, version and name) returns true.
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

    /// Returns the inode numbers and paths of the published files, in the order of publication.
    #[must_use]
    pub fn published_files(&self) -> Vec<(u64, Vec<Vec<u8>>)> {
        let files = self.nodes.iter();
        let files = files.filter_map(|(inode, node)| Some((node.file()?.version?, *inode)));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        let path = |(_, inode)| Some((inode, self.path(inode)?));
        files.into_iter().filter_map(path).collect()
    }

    /// Removes a file after its push succeeded, unless it has another version or path by now, or is open for writing.
    /// Returns whether it was removed.
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

    /// Returns the names of the path of a linked file or directory, the outermost first.
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
