//! The folder by which the processes that serve one interface find each other.
//!
//! | file | |
//! |---|---|
//! | `lock` | each process has a shared lock; the first process after others has the exclusive lock for a moment |
//! | `opening` | locked by a process that opens: one after the other |
//! | `numbers` | its bytes are locked by the processes that have these numbers ([`ByteLocks`]) |
//! | `session` | the serial number and address of the interface, from the first process on until the last has ended |
//! | `process-N/` | the sockets of a process's gateway, broker and uplink, and the hosts that it has found |
//! | `N.sock` | the socket of an endpoint |
//!
//! Processes that may write the folder trust each other with its contents, but a malformed file ends the opening with a
//! sentence.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mxoe::wire::Mac;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use window::byte_locks::ByteLocks;

use super::directory;
use super::shared_interface::take_process_number;
use crate::address::random;
use crate::error::Error;
use crate::wire::halves;

/// The prefix of the folder of a process.
const PROCESS: &str = "process-";

/// The longest time that a process waits for others that open the same folder.
const OPENING: Duration = Duration::from_secs(30);

/// The folder of an interface, as a process has it.
#[derive(Debug)]
pub(super) struct InterfaceFolder {
    folder: PathBuf,
    /// The serial number that the processes announce.
    pub(super) serial: u32,
    /// The folder of this process.
    pub(super) own: PathBuf,
    pub(super) locks: Arc<ByteLocks>,
    /// The lock of a process that is there.
    _lock: File,
}

impl InterfaceFolder {
    /// Opens the folder for an interface with this NIC id. The file that it also returns is a lock that keeps other processes from
    /// opening the folder.
    pub(super) fn open(folder: &Path, nic: u64) -> Result<(Self, File), Error> {
        fs::create_dir_all(folder)?;
        let opening = wait_for_others(folder)?;
        let lock = File::create(folder.join("lock"))?;
        if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
            begin_session(folder, nic)?;
        }
        if !try_lock(&lock, FlockOperation::NonBlockingLockShared)? {
            return Err(Error::Join(format!(
                "another process has the files in {} for itself: end the programs of an earlier release",
                folder.display()
            )));
        }
        let serial = read_session(folder, nic)?;
        let locks = ByteLocks::open(&folder.join("numbers"))?;
        let number = take_process_number(&locks)?.ok_or_else(|| {
            let folder = folder.display();
            Error::Join(format!("too many processes use the files in {folder}"))
        })?;
        let own = folder.join(format!("{PROCESS}{number}"));
        // A process that has ended may have left its files.
        match fs::remove_dir_all(&own) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::create_dir(&own)?;
        let opened = Self {
            folder: folder.to_owned(),
            serial,
            own,
            locks: Arc::new(locks),
            _lock: lock,
        };
        Ok((opened, opening))
    }

    /// Returns the hosts that other processes of the interface have found.
    pub(super) fn known_hosts(&self) -> Result<Vec<Mac>, Error> {
        let mut hosts: Vec<_> = process_folders(&self.folder)?
            .iter()
            .flat_map(|folder| directory::read(folder))
            .filter_map(|named_nic| Mac::from_nic(named_nic.nic))
            .filter(|mac| mac.is_host())
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        Ok(hosts)
    }
}

impl Drop for InterfaceFolder {
    fn drop(&mut self) {
        // The next process removes what is left.
        let _result = fs::remove_dir_all(&self.own);
    }
}

/// Locks a file. Returns false if another process has a lock that excludes this one.
fn try_lock(file: &File, operation: FlockOperation) -> Result<bool, Error> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until no other process opens the folder, and keeps others from it until the file is dropped.
fn wait_for_others(folder: &Path) -> Result<File, Error> {
    let opening = File::create(folder.join("opening"))?;
    let end = Instant::now() + OPENING;
    while !try_lock(&opening, FlockOperation::NonBlockingLockExclusive)? {
        if Instant::now() > end {
            return Err(Error::Join(format!(
                "another process has begun to open {} and does not finish: end that process",
                folder.display()
            )));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(opening)
}

/// Removes what processes have left that have all ended, and chooses a serial number.
fn begin_session(folder: &Path, nic: u64) -> Result<(), Error> {
    for own in process_folders(folder)? {
        fs::remove_dir_all(own)?;
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "sock")
        {
            fs::remove_file(path)?;
        }
    }
    let (serial, _) = halves(random()?);
    let text = format!("{serial:08x} {nic:012x}\n");
    Ok(fs::write(folder.join("session"), text)?)
}

/// Returns the serial number of the processes that serve the interface with this NIC id.
fn read_session(folder: &Path, nic: u64) -> Result<u32, Error> {
    let file = folder.join("session");
    let text = fs::read_to_string(&file)?;
    let parsed = text.trim_end().split_once(' ').and_then(|(serial, nic)| {
        let serial = u32::from_str_radix(serial, 16).ok()?;
        Some((serial, u64::from_str_radix(nic, 16).ok()?))
    });
    match parsed {
        Some((serial, found)) if found == nic => Ok(serial),
        Some((_, found)) => Err(Error::Join(format!(
            "the programs with files in {} serve an interface with the address {found:012x}, and this one has \
             {nic:012x}: give each host a runtime directory of its own, and end programs that began before the \
             address changed",
            folder.display()
        ))),
        None => Err(Error::Join(format!(
            "{} is malformed: end all programs that serve this interface",
            file.display()
        ))),
    }
}

/// Returns the folders of processes.
fn process_folders(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_process = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PROCESS))
    };
    Ok(entries.filter(is_process).collect())
}

#[cfg(test)]
mod tests;
