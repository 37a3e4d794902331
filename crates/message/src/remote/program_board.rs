//! The board of a program of this host or VM, and how it reaches other hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::datagram_plane::DatagramPlane;
use super::in_process::InProcess;
use super::interface_offer::InterfaceOffer;
use crate::address::Board;
use crate::error::Error;
use crate::unix_group::{self, Rights};

/// The folder of the board of this host or VM in the runtime directory.
pub const BOARD: &str = "message";

/// The file with the name of the uplink's interface, in the folder of the board.
const UPLINK: &str = "uplink";

/// The environment variable by which the user of a program chooses its [`Way`].
pub const INTERFACE_VARIABLE: &str = "VICINITY_INTERFACE";

/// The environment variable by which the user of a program chooses the interface on which the program takes [datagrams](DatagramPlane) of programs on other
/// hosts, or none, by an empty string.
pub const DATAGRAMS_VARIABLE: &str = "VICINITY_DATAGRAMS";

/// How a program reaches other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// The program serves this interface itself, with a daemon or without.
    Interface(&'a str),
    /// The program serves the interface that the daemon [offers](InterfaceOffer). Without an offer, the daemon serves it, and the program reaches other
    /// such programs by [datagrams](DatagramPlane).
    Offered,
    /// The daemon serves its interface.
    Daemon,
}

impl<'a> Way<'a> {
    /// Returns the way that [`INTERFACE_VARIABLE`] chooses, by its value: an interface, or an empty string for the daemon.
    #[must_use]
    pub fn chosen(variable: Option<&'a str>) -> Self {
        match variable {
            None => Self::Offered,
            Some("") => Self::Daemon,
            Some(interface) => Self::Interface(interface),
        }
    }
}

/// Returns the folder by which the processes that serve an interface find each other.
#[must_use]
pub fn interface_folder(runtime_dir: &Path, interface: &str) -> PathBuf {
    runtime_dir.join(format!("{BOARD}-{interface}"))
}

/// Opens the board of a program. `host_name` is the name of this host, unless a daemon has one.
///
/// # Errors
/// The board cannot be opened ([`Board::open`]), or an interface that the user chose cannot be used ([`InProcess::open`]).
pub fn open_board(runtime_dir: &Path, way: Way<'_>, host_name: &str) -> Result<Board, Error> {
    if let Way::Interface(interface) = way {
        let folder = interface_folder(runtime_dir, interface);
        return InProcess::open(&folder, interface, host_name);
    }
    if way == Way::Offered
        && let Some((offer, sockets)) = InterfaceOffer::ask(runtime_dir)
    {
        let folder = interface_folder(runtime_dir, &offer.interface);
        // The daemon may have begun to end. It has the program's messages then, as far as it runs.
        if let Ok(board) = InProcess::open_offered(&folder, &offer, sockets) {
            return Ok(board);
        }
    }
    let board = Board::open(&runtime_dir.join(BOARD))?;
    // A user who has chosen the daemon may depend on it.
    let board = match way == Way::Offered && InterfaceOffer::is_made(runtime_dir) {
        true => board.without_interface(),
        false => board,
    };
    let interface = match std::env::var(DATAGRAMS_VARIABLE) {
        Ok(none) if none.is_empty() => None,
        Ok(chosen) => Some(chosen),
        Err(_) if way == Way::Offered => named_interface(runtime_dir),
        Err(_) => None,
    };
    let Some(interface) = interface else {
        return Ok(board);
    };
    let plane = DatagramPlane::new(board.clone(), interface);
    Ok(board.with_program_plane(Arc::new(plane)))
}

/// Tells programs of the host, and those of the board's Unix group, the interface of the daemon's uplink: they take [datagrams](DatagramPlane)
/// of programs on other hosts there.
///
/// # Errors
/// The board's folder cannot be written.
pub fn name_interface(runtime_dir: &Path, interface: &str) -> io::Result<()> {
    let board = runtime_dir.join(BOARD);
    fs::create_dir_all(&board)?;
    let file = board.join(UPLINK);
    fs::write(&file, interface)?;
    unix_group::admit(&board, &file, Rights::Read)
}

/// Returns the interface of the daemon's uplink. A VM has none.
fn named_interface(runtime_dir: &Path) -> Option<String> {
    let found = fs::read_to_string(runtime_dir.join(BOARD).join(UPLINK)).ok()?;
    (!found.is_empty()).then_some(found)
}
