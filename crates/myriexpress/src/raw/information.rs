//! Calls about boards and hosts, and `mx_get_info`.

use std::ffi::c_int;

use super::pointer::{Buffer, Out, Text};
use super::{endpoint_call, process_call};
use crate::abi::{Endpoint, MapperState};
use crate::codes::{Result, Return};
use crate::{info, library, names, shared};

#[unsafe(no_mangle)]
extern "C" fn mx_board_number_to_nic_id(board: u32, nic: Out<u64>) -> Return {
    process_call(|| {
        nic.put(names::nic_of_board(board)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_nic_id_to_board_number(nic: u64, board: Out<u32>) -> Return {
    process_call(|| {
        board.put(names::board_of_nic(nic)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_hostname_to_nic_id(name: Text, nic: Out<u64>) -> Return {
    process_call(|| {
        library::get()?;
        let name = name.bytes().filter(|_| !nic.is_null());
        let name = name.ok_or(Return::BAD_HOSTNAME_ARGS)?;
        nic.put(names::nic_of_host(&name)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_nic_id_to_hostname(nic: u64, name: Buffer) -> Return {
    process_call(|| {
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
    input: Buffer,
    input_length: u32,
    output: Buffer,
    output_length: u32,
) -> Return {
    let get = |shared: Option<&shared::Shared>| -> Result {
        let mut value = info::value(shared, key, input.get(input_length).as_deref())?;
        if output.is_null() {
            return Err(Return::BAD_INFO_VAL);
        }
        let room = output_length as usize;
        if room < value.len() {
            let last = value.iter().take_while(|byte| **byte != 0).count();
            if !info::is_text(key) || room <= last {
                return Err(Return::BAD_INFO_LENGTH);
            }
            value.truncate(room);
        }
        output.put(&value);
        Ok(())
    };
    match endpoint.0 {
        0 => process_call(|| get(None)),
        _ => endpoint_call(endpoint, |shared| get(Some(shared))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn mx_open_board(board: c_int, handle: Out<c_int>) -> Return {
    process_call(|| {
        let number = u32::try_from(board).map_err(|_| Return::BOARD_UNKNOWN)?;
        names::nic_of_board(number)?;
        handle.put(board);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx__get_mapper_state(handle: c_int, state: Out<MapperState>) -> Return {
    process_call(|| {
        if handle != 0 {
            return Err(Return::BOARD_UNKNOWN);
        }
        state.put(names::mapper_state()?);
        Ok(())
    })
}
