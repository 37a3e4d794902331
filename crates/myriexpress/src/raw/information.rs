//! Calls about boards and hosts, and `mx_get_info`.

use std::ffi::c_int;

use super::pointer::{Out, Room, Text};
use super::{globally, with};
use crate::abi::{Endpoint, MapperState};
use crate::codes::{Result, Return};
use crate::{info, library, names, shared};

#[unsafe(no_mangle)]
extern "C" fn mx_board_number_to_nic_id(board: u32, nic: Out<u64>) -> Return {
    globally(|| {
        nic.put(names::nic_of_board(board)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_nic_id_to_board_number(nic: u64, board: Out<u32>) -> Return {
    globally(|| {
        board.put(names::board_of_nic(nic)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_hostname_to_nic_id(name: Text, nic: Out<u64>) -> Return {
    globally(|| {
        library::get()?;
        let name = name.bytes().filter(|_| !nic.is_null());
        let name = name.ok_or(Return::BAD_HOSTNAME_ARGS)?;
        nic.put(names::nic_of_host(&name)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_nic_id_to_hostname(nic: u64, name: Room) -> Return {
    globally(|| {
        let host = names::host_of_nic(nic)?;
        if name.is_null() {
            return Err(Return::BAD_HOSTNAME_ARGS);
        }
        // At most 80 bytes, see `library::start`.
        name.put(format!("{host}\0").as_bytes());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_get_info(
    endpoint: Endpoint,
    key: u32,
    input: Room,
    input_length: u32,
    output: Room,
    output_length: u32,
) -> Return {
    let ask = |shared: Option<&shared::Shared>| -> Result {
        let mut answer = info::answer(shared, key, input.get(input_length).as_deref())?;
        if output.is_null() {
            return Err(Return::BAD_INFO_VAL);
        }
        let room = output_length as usize;
        if room < answer.len() {
            let last = answer.iter().take_while(|byte| **byte != 0).count();
            if !info::is_text(key) || room <= last {
                return Err(Return::BAD_INFO_LENGTH);
            }
            answer.truncate(room);
        }
        output.put(&answer);
        Ok(())
    };
    match endpoint.0 {
        0 => globally(|| ask(None)),
        _ => with(endpoint, |shared| ask(Some(shared))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn mx_open_board(board: c_int, handle: Out<c_int>) -> Return {
    globally(|| {
        let number = u32::try_from(board).map_err(|_| Return::BOARD_UNKNOWN)?;
        names::nic_of_board(number)?;
        handle.put(board);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx__get_mapper_state(handle: c_int, state: Out<MapperState>) -> Return {
    globally(|| {
        if handle != 0 {
            return Err(Return::BOARD_UNKNOWN);
        }
        state.put(names::mapper_state()?);
        Ok(())
    })
}
