//! How files and folders lose their names, and get others.

use super::error::StoreError;
use super::node::{Kind, ROOT, check};
use super::tree::Store;

impl Store {
    /// Take a file's or an empty folder's name away. What is open stays until it is closed.
    ///
    /// # Errors
    /// There is none of this name, or it is of the other kind.
    pub fn remove(&mut self, folder: u64, name: &[u8], is_folder: bool) -> Result<(), StoreError> {
        let number = self.removable(folder, name, is_folder)?;
        self.folder_mut(folder)?.remove(name);
        self.unlink(number);
        Ok(())
    }

    /// The number of what has this name, if it can lose it.
    fn removable(&self, folder: u64, name: &[u8], is_folder: bool) -> Result<u64, StoreError> {
        let number = *(self.folder(folder)?.by_name.get(name)).ok_or(StoreError::Missing)?;
        match (&self.node(number)?.kind, is_folder) {
            (Kind::File(_), true) => Err(StoreError::NotAFolder),
            (Kind::Folder(_), false) => Err(StoreError::AFolder),
            (Kind::Folder(inner), true) if !inner.by_name.is_empty() => Err(StoreError::NotEmpty),
            _ => Ok(number),
        }
    }

    /// Give a file or folder another name, in place of what has it now, unless `keep`.
    ///
    /// # Errors
    /// As when making and removing; or a folder would get into itself.
    pub fn rename(
        &mut self,
        (folder, name): (u64, &[u8]),
        (new_folder, new_name): (u64, &[u8]),
        keep: bool,
    ) -> Result<(), StoreError> {
        check(new_name)?;
        let number = *(self.folder(folder)?.by_name.get(name)).ok_or(StoreError::Missing)?;
        if !self.node(new_folder)?.linked {
            return Err(StoreError::Missing);
        }
        if self.is_within(new_folder, number)? {
            return Err(StoreError::Name);
        }
        let replaced = match self.folder(new_folder)?.by_name.get(new_name) {
            Some(_) if keep => return Err(StoreError::Exists),
            Some(other) if *other == number => return Ok(()),
            Some(_) => {
                let is_folder = self.node(number)?.is_folder();
                Some(self.removable(new_folder, new_name, is_folder)?)
            }
            None => None,
        };
        self.folder_mut(folder)?.remove(name);
        let folder = self.folder_mut(new_folder)?;
        folder.remove(new_name);
        folder.insert(new_name, number);
        self.node_mut(number)?.parent = new_folder;
        // First who comes, then who goes: the ledger always has one of them under this name.
        self.write_down(number);
        if let Some(replaced) = replaced {
            self.unlink(replaced);
        }
        Ok(())
    }

    /// Whether `place` is `folder` or somewhere in it.
    fn is_within(&self, mut place: u64, folder: u64) -> Result<bool, StoreError> {
        while place != ROOT {
            if place == folder {
                return Ok(true);
            }
            place = self.node(place)?.parent;
        }
        Ok(folder == ROOT)
    }
}
