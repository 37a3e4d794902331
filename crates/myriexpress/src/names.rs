//! Boards and hosts. There is one board, 0, and the endpoints on it are those of this host.

use crate::abi::MapperState;
use crate::codes::{Result, Return};
use crate::library::{self, Library};

/// A NIC id from a board's number.
pub(crate) fn nic_of_board(board: u32) -> Result<u64> {
    let library = library::get()?;
    match board {
        0 => Ok(library.board.nic()),
        _ => Err(Return::BOARD_UNKNOWN),
    }
}

/// A board's number from its NIC id.
pub(crate) fn board_of_nic(nic: u64) -> Result<u32> {
    match library::get()?.board.nic() == nic {
        true => Ok(0),
        false => Err(Return::NIC_NOT_FOUND),
    }
}

/// A NIC id from the name of a host or of a board: programs say `host`, `host:0` and `localhost`.
pub(crate) fn nic_of_host(name: &[u8]) -> Result<u64> {
    let library = library::get()?;
    let host = name.strip_suffix(b":0").unwrap_or(name);
    match host == library.host.as_bytes() || host == b"localhost" {
        true => Ok(library.board.nic()),
        false => Err(Return::HOST_NOT_FOUND),
    }
}

/// The name of the board of a NIC id.
pub(crate) fn host_of_nic(nic: u64) -> Result<String> {
    let Library { board, host } = library::get()?;
    match board.nic() == nic {
        true => Ok(format!("{host}:0")),
        false => Err(Return::NIC_NOT_FOUND),
    }
}

/// What Open MPI takes its network's id from.
pub(crate) fn mapper_state() -> Result<MapperState> {
    let nic = library::get()?.board.nic();
    let [_, _, mac @ ..] = nic.to_be_bytes();
    Ok(MapperState {
        board: 0,
        mac,
        iport: 0,
        map_version: 1,
        num_hosts: 1,
        configured: 1,
        routes_valid: 1,
        level: 0,
        flags: 0,
    })
}
