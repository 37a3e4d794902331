//! Boards and hosts. The only board is 0, with the endpoints of this host or VM. Its gateway
//! reaches other endpoints: members of the message plane by their names, and with an uplink also
//! the hosts that the uplink has found.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use message::Board;

use crate::abi::MapperState;
use crate::codes::{Result, Return};
use crate::library::{self, Library};
use crate::limits::HOSTNAME;

/// The names of members that the program has looked up.
static MEMBERS: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// Returns the NIC id of a board.
pub(crate) fn nic_of_board(board: u32) -> Result<u64> {
    let library = library::get()?;
    match board {
        0 => Ok(library.board.nic()),
        _ => Err(Return::BOARD_UNKNOWN),
    }
}

/// Returns the board of a NIC id.
pub(crate) fn board_of_nic(nic: u64) -> Result<u32> {
    match library::get()?.board.nic() == nic {
        true => Ok(0),
        false => Err(Return::NIC_NOT_FOUND),
    }
}

/// Returns the NIC id of a host or board. Programs use `host`, `host:0` and `localhost` for their
/// own board. With an uplink, other names must be known to it. With only a gateway, every other
/// name is taken for a member's, because a NIC id is a hash of the name.
pub(crate) fn nic_of_host(name: &[u8]) -> Result<u64> {
    let library = library::get()?;
    let host = name.strip_suffix(b":0").unwrap_or(name);
    if host == library.host.as_bytes() || host == b"localhost" {
        return Ok(library.board.nic());
    }
    let name = std::str::from_utf8(host).ok();
    name.into_iter()
        .for_each(|name| library.board.discover(name));
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

/// Returns the name of a board: this one, one that the uplink has found, or one whose name the
/// program has looked up.
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

/// Returns the mapper state, from which Open MPI derives the id of its network.
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
