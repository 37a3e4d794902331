//! Addresses: NIC ids, endpoints, and the paths of their sockets.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use window::attach::Channel;
use window::region::UnitAllocator;

use crate::plane::{Plane, ProgramPlane};
use crate::program_address::ProgramAddress;
use crate::remote::directory;
use crate::unix_group::{self, Rights};

/// The longest time that [`Board::discover`] waits. Hosts announce themselves several times in this time.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of a gateway's socket.
pub(crate) const GATEWAY: &str = "gateway.sock";

/// The folder of the endpoints' sockets in that of the board.
const ENDPOINTS: &str = "endpoints";

/// The file of the locks by which programs allocate from the member's heap.
const HEAP: &str = "heap";

/// An endpoint's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The NIC id: a MAC address as a number, first octet in bits 47 to 40.
    pub nic: u64,
    /// The endpoint on that NIC.
    pub endpoint: u32,
}

/// A NIC of this host in the message plane: a directory in which each open endpoint has a socket. A
/// process that may use the directory may connect to the endpoints in it, and may take any free
/// address on it: the directory's permissions are the boundary of trust. They can admit the users of a Unix group
/// ([`Board::share`]).
#[derive(Clone, Debug)]
pub struct Board {
    folder: PathBuf,
    /// The folder of the gateway: the same, unless each process with endpoints on the board has a gateway of its own.
    gateway_folder: PathBuf,
    /// The NIC ids that only a gateway in the board's folder reaches.
    members: Vec<u64>,
    nic: u64,
    /// Whether only the uplink of the daemon reaches other hosts, although its interface is offered to other users.
    pub(crate) needs_uplink: bool,
    /// The plane of this process, if the board is not that of a daemon or a gateway.
    pub(crate) plane: Option<Arc<dyn Plane>>,
    /// The plane of datagrams that this process may have beside a daemon.
    pub(crate) program_plane: Option<Arc<dyn ProgramPlane>>,
}

impl Board {
    /// Opens the board in `folder`. The first open gives it a NIC id: a random, locally
    /// administered address.
    ///
    /// # Errors
    /// The directory cannot be created or read, or its file `nic` holds no NIC id.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder.join(ENDPOINTS))?;
        let file = folder.join("nic");
        let nic = match read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create(folder, &file)?;
                read(&file)?
            }
            other => other?,
        };
        Ok(Self::with_gateway(folder, nic))
    }

    /// Lets the users of a Unix group have endpoints on the board in `folder`, or only its owner, without a group. The folder around it
    /// belongs to the same owner, and the users may pass it.
    ///
    /// # Errors
    /// The folder cannot be created, or its permissions cannot be changed.
    pub fn share(folder: &Path, group: Option<u32>) -> io::Result<()> {
        unix_group::share(folder, ENDPOINTS, group)
    }

    /// Removes the endpoints' sockets of processes that have all ended, if there are any.
    pub(crate) fn clear(folder: &Path) -> io::Result<()> {
        match sockets(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            found => found?.try_for_each(fs::remove_file),
        }
    }

    /// Returns a board whose gateway is in the same folder.
    fn with_gateway(folder: &Path, nic: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            gateway_folder: folder.to_owned(),
            members: Vec::new(),
            nic,
            needs_uplink: false,
            plane: None,
            program_plane: None,
        }
    }

    /// Returns the NIC id.
    #[must_use]
    pub fn nic(&self) -> u64 {
        self.nic
    }

    /// Opens the board in `folder` with this NIC id, for a gateway.
    ///
    /// # Errors
    /// The directory cannot be written, or endpoints are open there under another NIC id.
    pub fn claim(folder: &Path, nic: u64) -> io::Result<Self> {
        fs::create_dir_all(folder.join(ENDPOINTS))?;
        let file = folder.join("nic");
        if read(&file).ok() != Some(nic) {
            if let Some(open) = sockets(folder)?.find(|socket| is_open(socket)) {
                let text = format!(
                    "{} is open under another NIC id: end what uses it",
                    open.display()
                );
                return Err(io::Error::new(ErrorKind::ResourceBusy, text));
            }
            fs::write(&file, format!("{nic:012x}\n"))?;
        }
        unix_group::admit(folder, &file, Rights::Read)?;
        Ok(Self::with_gateway(folder, nic))
    }

    /// Returns the same board, with the gateway that this process has in a folder of its own. The daemon's gateway in the board's
    /// folder reaches these members.
    pub(crate) fn with_gateway_in(self, gateway_folder: &Path, members: Vec<u64>) -> Self {
        Self {
            gateway_folder: gateway_folder.to_owned(),
            members,
            ..self
        }
    }

    /// Returns the same board, for a program that does not get the interface of the daemon's uplink.
    pub(crate) fn without_interface(self) -> Self {
        Self {
            needs_uplink: true,
            ..self
        }
    }

    /// Returns the same board, with the plane that its endpoints carry out.
    pub(crate) fn with_plane(self, plane: Arc<dyn Plane>) -> Self {
        Self {
            plane: Some(plane),
            ..self
        }
    }

    /// Returns the same board, for a program that can have a plane of datagrams.
    pub(crate) fn with_program_plane(self, plane: Arc<dyn ProgramPlane>) -> Self {
        Self {
            program_plane: Some(plane),
            ..self
        }
    }

    /// Returns where this program takes datagrams of programs on other hosts, if it does.
    pub(crate) fn program_address(&self) -> Option<ProgramAddress> {
        self.program_plane.as_ref()?.address()
    }

    /// Returns the NIC id of the member with this name. Every host computes the same id.
    #[must_use]
    pub fn nic_of(name: &str) -> u64 {
        // FNV-1a: any well-distributed hash works; the host refuses two names with one id.
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        local(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }

    /// Returns the NIC id of a member or host by name: as the uplink reported it, otherwise
    /// [`nic_of`](Self::nic_of).
    #[must_use]
    pub fn find(&self, name: &str) -> u64 {
        let found = self.hosts().find(|(_, known)| known == name);
        found.map_or_else(|| Self::nic_of(name), |(nic, _)| nic)
    }

    /// Waits until the plane of this process has discovered the host of this name, for [`DISCOVERY_TIMEOUT`] at most.
    /// Returns at once on other boards, whose daemon has run before.
    pub fn discover(&self, name: &str) {
        let Some(plane) = &self.plane else {
            return;
        };
        let end = Instant::now() + DISCOVERY_TIMEOUT;
        while !self.hosts().any(|(_, known)| known == name) && Instant::now() < end {
            plane.serve();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the NIC ids and names of the members and other hosts that the uplinks reported, each once.
    pub fn hosts(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let mut named_nics = directory::read(&self.gateway_folder);
        if self.gateway_folder != self.folder {
            let known = directory::read(&self.folder);
            named_nics.retain(|named_nic| known.iter().all(|other| other.nic != named_nic.nic));
            // Members first, as the daemon has them.
            named_nics.splice(..0, known);
        }
        let named_nics = named_nics.into_iter();
        named_nics.map(|named_nic| (named_nic.nic, named_nic.name))
    }

    /// Returns whether the board has a gateway to other NICs.
    #[must_use]
    pub fn has_gateway(&self) -> bool {
        self.gateway_folder.join(GATEWAY).exists()
    }

    /// Returns the ids of the endpoints that are open on the board, in order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn endpoints(&self) -> io::Result<Vec<u32>> {
        let number = |path: PathBuf| path.file_stem()?.to_str()?.parse().ok();
        let open = sockets(&self.folder)?.filter(|socket| is_open(socket));
        let mut open: Vec<u32> = open.filter_map(number).collect();
        open.sort_unstable();
        Ok(open)
    }

    /// Returns whether the plane of this process, if there is one, reaches a NIC, and not a daemon's gateway.
    pub(crate) fn is_reached_in_process(&self, nic: u64) -> bool {
        self.plane.is_some() && nic != self.nic && !self.members.contains(&nic)
    }

    /// Returns the folder of the socket and directory of the gateway that this process has, or else that all processes use.
    pub(crate) fn gateway_folder(&self) -> &Path {
        &self.gateway_folder
    }

    /// Returns the folder of the gateway that reaches a NIC.
    fn folder_of_gateway_to(&self, nic: u64) -> &Path {
        match self.members.contains(&nic) {
            true => &self.folder,
            false => &self.gateway_folder,
        }
    }

    /// Lets the users of the board's group, if it has one, read a file that this process has created for them.
    pub(crate) fn admit_readers(&self, path: &Path) -> io::Result<()> {
        unix_group::admit(&self.folder, path, Rights::Read)
    }

    /// Lets the users of the board's group, if it has one, connect to a socket of this process.
    pub(crate) fn admit_clients(&self, socket: &Path) -> io::Result<()> {
        unix_group::admit(&self.folder, socket, Rights::ReadAndWrite)
    }

    /// Lets the users of the board's group, if it has one, allocate from the member's heap.
    pub(crate) fn admit_to_heap(&self) -> io::Result<()> {
        let file = self.folder.join(HEAP);
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)?;
        unix_group::admit(&self.folder, &file, Rights::ReadAndWrite)
    }

    /// Returns the path of the socket of the gateway that reaches a NIC.
    pub(crate) fn gateway_to(&self, nic: u64) -> PathBuf {
        self.folder_of_gateway_to(nic).join(GATEWAY)
    }

    /// Returns the allocator of the member's heap, which all programs that use the gateway to a NIC share.
    pub(crate) fn heap_allocator(&self, nic: u64) -> UnitAllocator {
        UnitAllocator::file_locks(self.folder_of_gateway_to(nic).join(HEAP))
    }

    /// Returns the path of an endpoint's socket.
    #[must_use]
    pub(crate) fn socket(&self, endpoint: u32) -> PathBuf {
        self.folder.join(ENDPOINTS).join(format!("{endpoint}.sock"))
    }
}

fn read(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    u64::from_str_radix(text.trim(), 16)
        .ok()
        .filter(|nic| *nic >> 48 == 0)
        .ok_or_else(|| {
            let text = format!(
                "{} holds no NIC id: remove it when no endpoint is open",
                file.display()
            );
            io::Error::new(ErrorKind::InvalidData, text)
        })
}

/// Creates the file with a random id, atomically; an existing file stays.
fn create(folder: &Path, file: &Path) -> io::Result<()> {
    let own = folder.join(format!(".nic-{}", std::process::id()));
    let nic = local(random()?);
    fs::File::create(&own)?.write_all(format!("{nic:012x}\n").as_bytes())?;
    let linked = fs::hard_link(&own, file);
    fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Makes a locally administered unicast address of any number.
fn local(number: u64) -> u64 {
    number & 0xfcff_ffff_ffff | 0x0200_0000_0000
}

fn sockets(folder: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(folder.join(ENDPOINTS))?;
    let entries = entries.flatten().map(|entry| entry.path());
    Ok(entries.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "sock")
    }))
}

/// Returns whether a process has this socket of an endpoint. One that was killed leaves its file, to which the kernel refuses connects.
fn is_open(socket: &Path) -> bool {
    // EAGAIN: the process has not accepted earlier connects yet.
    matches!(Channel::connect_directly(socket), Ok(_) | Err(Errno::AGAIN))
}

/// Returns a random number from the kernel.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // Eight bytes always come whole (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

    use super::*;

    #[test]
    fn a_board_keeps_its_nic_id() {
        let folder = tempfile::tempdir().unwrap();
        let nic = Board::open(folder.path()).unwrap().nic();
        assert_eq!(Board::open(folder.path()).unwrap().nic(), nic);
        // Locally administered, unicast, 48 bits.
        assert_eq!(nic >> 40 & 0x03, 0x02);
        assert_eq!(nic >> 48, 0);
        fs::write(folder.path().join("nic"), "1000000000000").unwrap();
        assert!(Board::open(folder.path()).is_err());
    }

    #[test]
    fn a_killed_program_leaves_no_endpoint_open_under_the_nic_id_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::claim(folder.path(), 7).unwrap();
        let socket = board.socket(3);
        let listener = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        net::listen(&listener, 1).unwrap();
        let claim = || Board::claim(folder.path(), 8);
        let error = claim().unwrap_err();
        assert!(error.to_string().contains("3.sock is open"), "{error}");
        // The kernel closes the socket of a killed program, and leaves its file.
        drop(listener);
        assert!(socket.exists());
        assert_eq!(claim().unwrap().nic(), 8);
    }
}
