//! Boards and hosts. There is one board, 0. Endpoints on it are those of this host or VM; those of
//! others are reached through its gateway, if there is one, by the names of the message plane's
//! members, and with an uplink also by those of other hosts that were found.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use message::Board;

use crate::abi::MapperState;
use crate::codes::{Result, Return};
use crate::library::{self, Library};
use crate::limits::HOSTNAME;

/// The members whose names were asked for.
static MEMBERS: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

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
/// With an uplink, other names are those it knows; with a gateway only, any other name is that of a
/// member, whether there is one or not.
pub(crate) fn nic_of_host(name: &[u8]) -> Result<u64> {
    let library = library::get()?;
    let host = name.strip_suffix(b":0").unwrap_or(name);
    if host == library.host.as_bytes() || host == b"localhost" {
        return Ok(library.board.nic());
    }
    let name = std::str::from_utf8(host).ok();
    let mut hosts = library.board.hosts().peekable();
    if hosts.peek().is_some() {
        let found = hosts.find(|(_, known)| name == Some(known.as_str()));
        return found.map(|(nic, _)| nic).ok_or(Return::HOST_NOT_FOUND);
    }
    let member = name.filter(|name| {
        let sane = !name.is_empty() && name.len() < HOSTNAME && !name.contains(':');
        sane && library.board.has_gateway()
    });
    let member = member.ok_or(Return::HOST_NOT_FOUND)?;
    let nic = Board::nic_of(member);
    let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    members.insert(nic, member.to_owned());
    Ok(nic)
}

/// The name of the board of a NIC id: of the own one, of one that the uplink knows, or of one that
/// was asked for by its name.
pub(crate) fn host_of_nic(nic: u64) -> Result<String> {
    let Library { board, host } = library::get()?;
    if board.nic() == nic {
        return Ok(format!("{host}:0"));
    }
    if let Some((_, name)) = board.hosts().find(|(known, _)| *known == nic) {
        return Ok(format!("{name}:0"));
    }
    let members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    members.get(&nic).cloned().ok_or(Return::NIC_NOT_FOUND)
}

/// What Open MPI takes its network's id from.
pub(crate) fn mapper_state() -> Result<MapperState> {
    let board = library::get()?.board;
    let [_, _, mac @ ..] = board.nic().to_be_bytes();
    let hosts = board.hosts().count().max(1);
    Ok(MapperState {
        board: 0,
        mac,
        iport: 0,
        map_version: 1,
        num_hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
        configured: 1,
        routes_valid: 1,
        level: 0,
        flags: 0,
    })
}
