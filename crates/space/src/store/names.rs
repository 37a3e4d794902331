//! How files and folders lose their names, and get others.

use super::error::StoreError;
use super::node::{Kind, ROOT, check_name};
use super::tree::Store;

impl Store {
    /// Take a file's or an empty folder's name away. What is open stays until it is closed.
    ///
    /// # Errors
    /// There is none of this name, or it is of the other kind.
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

    /// The number of what has this name, if it can lose it.
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

    /// Give a file or folder another name, in place of what has it now, unless `no_replace`.
    ///
    /// # Errors
    /// As when making and removing; or a folder would get into itself.
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
        // First who comes, then who goes: the ledger always has one of them under this name.
        self.persist(inode);
        if let Some(replaced) = replaced {
            self.unlink(replaced);
        }
        Ok(())
    }

    /// Whether `inode` is `directory` or somewhere in it.
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
