//! Removes and renames files and directories.

use super::error::StoreError;
use super::node::{Kind, ROOT, check_name};
use super::tree::Store;

impl Store {
    /// Unlinks a file or an empty directory. An open file or directory exists until it is closed.
    ///
    /// # Errors
    /// Returns an error if nothing has this name, it is of the other kind, or the directory is not empty.
    pub fn remove(
        &mut self,
        directory: u64,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), StoreError> {
        let inode = self.removable(directory, name, is_directory)?;
        self.directory_mut(directory)?.remove(name);
        self.unlink(inode);
        Ok(())
    }

    /// Returns the inode number of the file or directory of this name, if it can be unlinked.
    fn removable(
        &self,
        directory: u64,
        name: &[u8],
        is_directory: bool,
    ) -> Result<u64, StoreError> {
        let inode = *(self.directory(directory)?.by_name.get(name)).ok_or(StoreError::NotFound)?;
        match (&self.node(inode)?.kind, is_directory) {
            (Kind::File(_), true) => Err(StoreError::NotADirectory),
            (Kind::Directory(_), false) => Err(StoreError::IsADirectory),
            (Kind::Directory(inner), true) if !inner.by_name.is_empty() => {
                Err(StoreError::NotEmpty)
            }
            _ => Ok(inode),
        }
    }

    /// Renames a file or directory. An existing file or empty directory of the new name is replaced, unless `no_replace` is
    /// set.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create) and [`remove`](Self::remove), and an error if a directory would move into
    /// itself.
    pub fn rename(
        &mut self,
        (directory, name): (u64, &[u8]),
        (new_directory, new_name): (u64, &[u8]),
        no_replace: bool,
    ) -> Result<(), StoreError> {
        check_name(new_name)?;
        let inode = *(self.directory(directory)?.by_name.get(name)).ok_or(StoreError::NotFound)?;
        if !self.node(new_directory)?.linked {
            return Err(StoreError::NotFound);
        }
        if self.is_within(new_directory, inode)? {
            return Err(StoreError::InvalidName);
        }
        let replaced = match self.directory(new_directory)?.by_name.get(new_name) {
            Some(_) if no_replace => return Err(StoreError::AlreadyExists),
            Some(other) if *other == inode => return Ok(()),
            Some(_) => {
                let is_directory = self.node(inode)?.is_directory();
                Some(self.removable(new_directory, new_name, is_directory)?)
            }
            None => None,
        };
        self.directory_mut(directory)?.remove(name);
        let directory = self.directory_mut(new_directory)?;
        directory.remove(new_name);
        directory.insert(new_name, inode);
        self.node_mut(inode)?.parent = new_directory;
        // Write the new record before the old one is erased, so the ledger always has a file under this name.
        self.persist(inode);
        if let Some(replaced) = replaced {
            self.unlink(replaced);
        }
        Ok(())
    }

    /// Returns whether `inode` is `directory` or a descendant of it.
    fn is_within(&self, mut inode: u64, directory: u64) -> Result<bool, StoreError> {
        while inode != ROOT {
            if inode == directory {
                return Ok(true);
            }
            inode = self.node(inode)?.parent;
        }
        Ok(directory == ROOT)
    }
}
