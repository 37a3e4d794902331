//! A message plane in the program's process, whose endpoints reach other hosts by the program's own calls.
//!
//! # Theory of operation
//!
//! A daemon's uplink needs the processor that a polling program has, and each message then takes two context switches
//! on each host. Here gateway, broker and uplink belong to the program, and the program's own calls carry out their
//! work: an endpoint that polls, sends or waits first calls [`Uplink::turn`], which moves frames of the packet socket
//! into the links' windows and back. An endpoint that sleeps waits for the packet socket, too. So no other thread
//! runs between two messages.
//!
//! A thread of the plane looks every 10 ms whether the program made any call meanwhile. If not, the program
//! computes, and the thread acknowledges, retransmits and answers in its place.
//!
//! The bytes of large messages travel in datagrams of UDP, where both sides are such programs and datagrams arrive ([`mxoe::Datagrams`]).
//!
//! Several processes can serve one interface so: they have a folder in common, and each has a socket, a gateway and a broker of its own
//! ([`SharedInterface`]). Endpoints of one board reach each other by its sockets, without the plane. If a daemon's uplink has the
//! same interface, the board is the daemon's, and its gateway reaches the VMs of this host.
//!
//! A program without an interface can have a plane of datagrams beside a daemon ([`DatagramPlane`](super::DatagramPlane)), whose uplink has that socket only.
//!
//! MXoE has no frame that says that an endpoint is closed. A host answers the frames for it, but nothing answers for a process that has
//! ended. So each close is told to the partner ([`mxoe::Node::notify_closed`]).
//!
//! A buffered send ends when the message is copied, and the partner may acknowledge it later. So the end of the plane waits until
//! all partners have acknowledged, for [`LINGER`] at most.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mxoe::wire::Mac;
use mxoe::{Datagrams, Port};
use rustix::io::Errno;
use window::waiter::{Token, Waiter};

use super::directory::NamedNic;
use super::in_process_parts::{Parts, Sockets};
use super::interface_folder::InterfaceFolder;
use super::interface_offer::{InterfaceOffer, OfferedSockets};
use super::program_folder::ProgramFolder;
use super::shared_interface::{INTERVAL, SharedInterface};
use super::uplink::Uplink;
use crate::address::{Board, GATEWAY};
use crate::error::Error;
use crate::plane::Plane;

/// The longest time that the end of a plane waits for acknowledgements.
const LINGER: Duration = Duration::from_secs(10);

/// The folder of the plane's own sockets, which exists until this is dropped.
#[derive(Debug, Default)]
struct Folder {
    /// Its locks are this process's numbers.
    _of_interface: Option<InterfaceFolder>,
    _of_program: Option<ProgramFolder>,
}

#[derive(Debug)]
struct Shared {
    parts: Mutex<Parts>,
    ends: AtomicBool,
}

/// A message plane in the program's process.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Dropped last.
    _folder: Folder,
}

impl InProcess {
    /// Opens a plane on a network interface, as the host of this name, and returns its board. The plane's files are in
    /// `folder`, which other processes of the host may use for the same interface at the same time, with the same name. If one
    /// of them is a daemon ([`DaemonInterface`](super::DaemonInterface)), the board is the daemon's.
    ///
    /// # Errors
    /// The folder is that of another interface, a file in it is malformed, the interface cannot be used ([`Port::open`]), or the kernel
    /// has no memory or descriptors left.
    pub fn open(folder: &Path, interface: &str, name: &str) -> Result<Board, Error> {
        let unusable = |error: std::io::Error| {
            let text = format!(
                "cannot use the interface {interface}: {error}; check its name and MTU, and give the program \
                 CAP_NET_RAW"
            );
            Error::Join(text)
        };
        let mac = mxoe::address(interface).map_err(unusable)?;
        let opened = InterfaceFolder::open(folder, mac.nic())?;
        let socket = Port::open_shared_socket(interface);
        let port = socket.and_then(|socket| Port::adopt_shared(socket, mac));
        let sockets = Sockets {
            port: Some(port.map_err(unusable)?),
            datagrams: Datagrams::open_socket(interface)
                .and_then(Datagrams::adopt)
                .ok(),
        };
        Self::serve_interface(opened, sockets, mac, name)
    }

    /// Opens a plane on the interface of a daemon's uplink, by the sockets that came with its [offer](InterfaceOffer). The program serves the
    /// interface only beside the daemon, or beside other programs of the daemon.
    pub(super) fn open_offered(
        folder: &Path,
        offer: &InterfaceOffer,
        offered: OfferedSockets,
    ) -> Result<Board, Error> {
        let opened = InterfaceFolder::open_beside_daemon(folder, offer.mac.nic())?;
        let sockets = Sockets {
            port: Some(Port::adopt_shared(offered.frames, offer.mac)?),
            datagrams: offered
                .datagrams
                .and_then(|socket| Datagrams::adopt(socket).ok()),
        };
        Self::serve_interface(opened, sockets, offer.mac, &offer.host_name)
    }

    /// Serves the interface of a folder. The file that comes with the folder keeps other processes from opening it until this process has
    /// announced the host, if it answers for the host.
    fn serve_interface(
        (shared_folder, _opening): (InterfaceFolder, File),
        sockets: Sockets,
        mac: Mac,
        name: &str,
    ) -> Result<Board, Error> {
        let nic = mac.nic();
        // After the port is open, so that no host is missed.
        let known = shared_folder.known_hosts()?;
        let locks = Arc::clone(&shared_folder.locks);
        let sharing = SharedInterface::of_program(locks, mac, shared_folder.serial, known);
        let named_nic = NamedNic {
            nic,
            name: name.to_owned(),
        };
        let own = &shared_folder.own;
        let board = Board::claim(&shared_folder.board, nic)?;
        let board = board.with_gateway_in(own, shared_folder.members.clone());
        let mut parts = Parts::join(own, &board, sockets, named_nic, Some(sharing))?;
        parts.announce();
        let folder = Folder {
            _of_interface: Some(shared_folder),
            ..Folder::default()
        };
        let plane = Self::begin(parts, folder)?;
        Ok(board.with_plane(Arc::new(plane)))
    }

    /// Opens a plane that takes all frames in datagrams, for endpoints on a board of a daemon. Also returns the path of the socket of its gateway.
    pub(super) fn open_program(
        board: &Board,
        datagrams: Datagrams,
    ) -> Result<(Self, PathBuf), Error> {
        let folder = ProgramFolder::create()?;
        let nic = board.nic();
        let named_nic = NamedNic {
            nic,
            name: format!("{nic:012x}"),
        };
        let sockets = Sockets {
            port: None,
            datagrams: Some(datagrams),
        };
        let own = board.clone().with_gateway_in(folder.sockets(), Vec::new());
        let mut parts = Parts::join(folder.sockets(), &own, sockets, named_nic, None)?;
        parts.announce();
        let gateway = folder.sockets().join(GATEWAY);
        let folder = Folder {
            _of_program: Some(folder),
            ..Folder::default()
        };
        Ok((Self::begin(parts, folder)?, gateway))
    }

    /// Begins the thread of a plane.
    fn begin(parts: Parts, folder: Folder) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            parts: Mutex::new(parts),
            ends: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("message-plane".to_owned())
            .spawn(move || seen.serve_while_program_computes())?;
        Ok(Self {
            shared,
            thread: Some(thread),
            _folder: folder,
        })
    }
}

impl Shared {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_while_program_computes(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            std::thread::park_timeout(INTERVAL);
            let mut parts = self.parts();
            parts.call_uplink(Uplink::look_after_others);
            if !std::mem::take(&mut parts.called) {
                parts.serve();
            }
        }
    }
}

impl Plane for InProcess {
    #[inline]
    fn poll(&self) {
        if let Ok(mut parts) = self.shared.parts.try_lock() {
            parts.called = true;
            parts.call_uplink(Uplink::turn);
        }
    }

    fn serve(&self) {
        let mut parts = self.shared.parts();
        parts.called = true;
        parts.serve();
    }

    fn claim(&self, endpoint: u32) -> Result<bool, Error> {
        let mut parts = self.shared.parts();
        // Other hosts cannot name a greater number, and the endpoint's socket excludes others on this board.
        match (&mut parts.uplink, u8::try_from(endpoint)) {
            (Some(uplink), Ok(endpoint)) => uplink.claim(endpoint),
            _ => Ok(true),
        }
    }

    fn release(&self, endpoint: u32) {
        let mut parts = self.shared.parts();
        if let Ok(endpoint) = u8::try_from(endpoint) {
            parts.call_uplink(|uplink| uplink.release(endpoint));
        }
    }

    fn introduce(&self, endpoint: u32, (nic, peer): (u64, u32), program: SocketAddr) -> bool {
        let mut parts = self.shared.parts();
        let sleeps = parts.sleepers > 0;
        let host = Mac::from_nic(nic).filter(|mac| mac.is_host());
        let (Some(uplink), Some(host), Ok(endpoint), Ok(peer)) = (
            &mut parts.uplink,
            host,
            u8::try_from(endpoint),
            u8::try_from(peer),
        ) else {
            return false;
        };
        let peer = mxoe::Address {
            host,
            endpoint: peer,
        };
        let has_room = uplink.add_partner(endpoint, peer, program);
        if sleeps {
            // Datagrams of this program may arrive at a new socket.
            uplink.end_wakeups();
            let _lost_without_memory = uplink.begin_wakeups();
        }
        has_room
    }

    fn begin_sleep(&self) -> Duration {
        let mut parts = self.shared.parts();
        parts.sleepers = parts.sleepers.saturating_add(1);
        let first = parts.sleepers == 1;
        let Some(uplink) = &mut parts.uplink else {
            return Duration::MAX;
        };
        // Before the look for work: a frame that comes in between makes the socket readable.
        let is_woken = !first || uplink.begin_wakeups().is_ok();
        let limit = uplink.sleep_limit();
        if is_woken { limit } else { limit.min(INTERVAL) }
    }

    fn end_sleep(&self) {
        let mut parts = self.shared.parts();
        parts.sleepers = parts.sleepers.saturating_sub(1);
        if let (0, Some(uplink)) = (parts.sleepers, &mut parts.uplink) {
            uplink.end_wakeups();
        }
    }

    fn watch(&self, waiter: &Waiter, token: Token) -> Result<(), Errno> {
        let parts = self.shared.parts();
        waiter.add(&parts.broker.waiter, token)?;
        waiter.add(&parts.gateway.waiter, token)?;
        parts
            .uplink
            .iter()
            .try_for_each(|uplink| waiter.add(uplink, token))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread cannot panic.
            let _result = thread.join();
        }
        let end = Instant::now() + LINGER;
        let mut parts = self.shared.parts();
        parts.serve();
        while !parts.is_idle() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
            parts.serve();
        }
    }
}
