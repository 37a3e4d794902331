//! The folder by which the processes that serve one interface find each other.
//!
//! | file | |
//! |---|---|
//! | `lock` | each process has a shared lock; the first process after others has the exclusive lock for a moment |
//! | `opening` | locked by a process that opens: one after the other |
//! | `numbers` | its bytes are locked by the processes that have these numbers ([`ByteLocks`]) |
//! | `session` | serial number, address, and board of the interface, from the first process on until the last has ended |
//! | `members` | the NIC ids of the VMs of a daemon's plane |
//! | `processes/N/` | the sockets of a program's gateway, broker and uplink, and the hosts that it has found |
//! | `endpoints/N.sock` | the socket of an endpoint, if this folder is the board |
//!
//! If the first process is a program, the folder is also the programs' board. Otherwise their board is the daemon's, so that they have
//! the endpoints of one host, with the programs that use the daemon.
//!
//! Processes that may write the folder trust each other with its contents, but a malformed file ends the opening with a
//! sentence.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mxoe::wire::Mac;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use window::byte_locks::ByteLocks;

use super::directory;
use super::shared_interface::{SharedInterface, take_daemon, take_program_number};
use crate::address::{Board, random};
use crate::error::Error;
use crate::unix_group::{self, Rights};
use crate::wire::halves;

/// The file whose bytes are the numbers' locks.
const NUMBERS: &str = "numbers";

/// The file with the serial number, the interface's address and the board.
const SESSION: &str = "session";

/// The file with the members of a daemon's plane.
const MEMBERS: &str = "members";

/// The folder of the programs' folders.
const PROCESSES: &str = "processes";

/// The longest time that a process waits for others that open the same folder.
const OPENING: Duration = Duration::from_secs(30);

/// The board of programs without a daemon, as seen from the folder.
const OWN_BOARD: &str = ".";

/// An interface that this process serves, and others may serve.
#[derive(Debug)]
struct Session {
    /// The serial number that the programs announce.
    serial: u32,
    /// The programs' board, as seen from the folder.
    board: String,
    locks: ByteLocks,
    /// The lock of a process that is there.
    lock: File,
    /// Keeps other processes from opening the folder.
    opening: File,
}

impl Session {
    /// Joins the processes that serve the interface with this NIC id. The first process determines the board, and needs one.
    fn join(folder: &Path, nic: u64, board: Option<&str>) -> Result<Self, Error> {
        fs::create_dir_all(folder.join(PROCESSES))?;
        let opening = wait_for_others(folder)?;
        let lock = create(folder, "lock")?;
        if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? {
            let board = board.ok_or_else(|| no_daemon(folder))?;
            begin_session(folder, nic, board)?;
        }
        if !try_lock(&lock, FlockOperation::NonBlockingLockShared)? {
            return Err(Error::Join(format!(
                "another process has the files in {} for itself: end the programs of an earlier release",
                folder.display()
            )));
        }
        let (serial, board) = read_session(folder, nic)?;
        let numbers = folder.join(NUMBERS);
        let locks = ByteLocks::open(&numbers)?;
        unix_group::admit(folder, &numbers, Rights::ReadAndWrite)?;
        Ok(Self {
            serial,
            board,
            locks,
            lock,
            opening,
        })
    }
}

/// The folder of an interface, as a program has it.
#[derive(Debug)]
pub(super) struct InterfaceFolder {
    folder: PathBuf,
    /// The serial number that the programs announce.
    pub(super) serial: u32,
    /// The folder of this program.
    pub(super) own: PathBuf,
    /// The folder of the board.
    pub(super) board: PathBuf,
    /// The NIC ids of the VMs that the board's gateway reaches.
    pub(super) members: Vec<u64>,
    pub(super) locks: Arc<ByteLocks>,
    /// The lock of a process that is there.
    _lock: File,
}

impl InterfaceFolder {
    /// Opens the folder for an interface with this NIC id. The file that it also returns is a lock that keeps other processes from
    /// opening the folder.
    pub(super) fn open(folder: &Path, nic: u64) -> Result<(Self, File), Error> {
        Self::of_session(folder, Session::join(folder, nic, Some(OWN_BOARD))?)
    }

    /// The same, only if a daemon has the interface.
    pub(super) fn open_beside_daemon(folder: &Path, nic: u64) -> Result<(Self, File), Error> {
        let session = Session::join(folder, nic, None)?;
        match session.board.as_str() {
            OWN_BOARD => Err(no_daemon(folder)),
            _ => Self::of_session(folder, session),
        }
    }

    fn of_session(folder: &Path, session: Session) -> Result<(Self, File), Error> {
        let number = take_program_number(&session.locks)?.ok_or_else(|| {
            let folder = folder.display();
            Error::Join(format!("too many programs use the files in {folder}"))
        })?;
        let own = folder.join(PROCESSES).join(number.to_string());
        // A program that has ended may have left its files.
        match fs::remove_dir_all(&own) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::create_dir(&own)?;
        unix_group::admit(folder, &own, Rights::ReadAndWrite)?;
        let (board, members) = match session.board.as_str() {
            OWN_BOARD => (folder.to_owned(), Vec::new()),
            board => (folder.join(board), read_members(folder)?),
        };
        let opened = Self {
            folder: folder.to_owned(),
            serial: session.serial,
            own,
            board,
            members,
            locks: Arc::new(session.locks),
            _lock: session.lock,
        };
        Ok((opened, session.opening))
    }

    /// Returns the hosts that other processes of the interface have found.
    pub(super) fn known_hosts(&self) -> Result<Vec<Mac>, Error> {
        let mut folders = process_folders(&self.folder)?;
        folders.push(self.board.clone());
        let mut hosts: Vec<_> = folders
            .iter()
            .flat_map(|folder| directory::read(folder))
            .filter(|named_nic| !self.members.contains(&named_nic.nic))
            .filter_map(|named_nic| Mac::from_nic(named_nic.nic))
            .filter(|mac| mac.is_host())
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        Ok(hosts)
    }
}

/// An interface of a daemon's uplink that programs of the host may serve, too, see [`InProcess`](super::InProcess).
#[derive(Debug)]
pub struct DaemonInterface {
    /// The address of the interface.
    mac: Mac,
    locks: Arc<ByteLocks>,
    /// The lock of a process that is there.
    lock: File,
}

impl DaemonInterface {
    /// Lets the users of a Unix group serve the interface beside the daemon, or only its owner, without a group. The folder around it
    /// belongs to the same owner, and the users may pass it.
    ///
    /// # Errors
    /// The folder cannot be created, or its permissions cannot be changed.
    pub fn share(folder: &Path, group: Option<u32>) -> io::Result<()> {
        unix_group::share(folder, PROCESSES, group)
    }

    /// Opens the folder of the interface with this address, and takes over from programs that answer for the host. The programs will have
    /// their endpoints on the daemon's board: `board`, as seen from the folder. They reach the members with these NIC ids by the daemon's
    /// gateway.
    ///
    /// # Errors
    /// Programs serve the interface without a daemon, another daemon has the interface, or the folder cannot be written.
    pub fn open(
        folder: &Path,
        mac: Mac,
        board: &str,
        members: impl Iterator<Item = u64>,
    ) -> Result<Self, Error> {
        let session = Session::join(folder, mac.nic(), Some(board))?;
        if session.board != board {
            return Err(Error::Join(format!(
                "programs have begun to serve the interface without this daemon: end them, and start the daemon \
                 again (their files are in {})",
                folder.display()
            )));
        }
        if !take_daemon(&session.locks)? {
            let folder = folder.display();
            return Err(Error::Join(format!(
                "another daemon has the files in {folder}"
            )));
        }
        let lines = members.map(|nic| format!("{nic:012x}\n"));
        let file = folder.join(MEMBERS);
        fs::write(&file, lines.collect::<String>())?;
        unix_group::admit(folder, &file, Rights::Read)?;
        Ok(Self {
            mac,
            locks: Arc::new(session.locks),
            lock: session.lock,
        })
    }

    pub(super) fn sharing(self) -> SharedInterface {
        SharedInterface::of_daemon(self.locks, self.lock, self.mac)
    }
}

impl Drop for InterfaceFolder {
    fn drop(&mut self) {
        // The next process removes what is left.
        let _result = fs::remove_dir_all(&self.own);
    }
}

/// The sentence for a program that may serve the interface beside a daemon only.
fn no_daemon(folder: &Path) -> Error {
    let folder = folder.display();
    Error::Join(format!(
        "no daemon has the files in {folder}: start its uplink first"
    ))
}

/// Creates a file that all processes of the interface lock.
fn create(folder: &Path, name: &str) -> Result<File, Error> {
    let path = folder.join(name);
    let file = File::create(&path)?;
    unix_group::admit(folder, &path, Rights::ReadAndWrite)?;
    Ok(file)
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
    let opening = create(folder, "opening")?;
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
fn begin_session(folder: &Path, nic: u64, board: &str) -> Result<(), Error> {
    for own in process_folders(folder)? {
        // Other users may create anything there. A folder that stays prevents one program from using its number.
        let _left = fs::remove_dir_all(&own).or_else(|_| fs::remove_file(&own));
    }
    Board::clear(folder)?;
    let (serial, _) = halves(random()?);
    let text = format!("{serial:08x} {nic:012x} {board}\n");
    let file = folder.join(SESSION);
    fs::write(&file, text)?;
    Ok(unix_group::admit(folder, &file, Rights::Read)?)
}

/// Returns the serial number and the board of the processes that serve the interface with this NIC id.
fn read_session(folder: &Path, nic: u64) -> Result<(u32, String), Error> {
    let file = folder.join(SESSION);
    let text = fs::read_to_string(&file)?;
    let parsed = || {
        let (serial, rest) = text.trim_end().split_once(' ')?;
        let (nic, board) = rest.split_once(' ')?;
        let serial = u32::from_str_radix(serial, 16).ok()?;
        let nic = u64::from_str_radix(nic, 16).ok()?;
        Some(((serial, board.to_owned()), nic))
    };
    match parsed() {
        Some((session, found)) if found == nic => Ok(session),
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

/// Returns the NIC ids that a daemon has written.
fn read_members(folder: &Path) -> Result<Vec<u64>, Error> {
    let file = folder.join(MEMBERS);
    let text = fs::read_to_string(&file)?;
    let members = text.lines().map(|line| u64::from_str_radix(line, 16).ok());
    members.collect::<Option<_>>().ok_or_else(|| {
        let file = file.display();
        Error::Join(format!("{file} is malformed: start the daemon again"))
    })
}

/// Returns the folders of programs.
fn process_folders(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder.join(PROCESSES))?.flatten();
    Ok(entries.map(|entry| entry.path()).collect())
}

#[cfg(test)]
mod tests;
