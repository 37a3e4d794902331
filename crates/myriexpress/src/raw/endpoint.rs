//! Calls that open and close endpoints and control their progress.

use super::pointer::{List, Out};
use super::{endpoint_call, process_call, timeout};
use crate::abi::{Endpoint, ErrorHandler, Parameter, Pointer, Request, UnexpectedHandler};
use crate::codes::{Result, Return};
use crate::connect::{self, Parameters};
use crate::exchange;
use crate::raw::endpoint_lock::Threads;
use crate::shared::Shared;

/// The keys of `mx_param_t`.
const ERROR_HANDLER: u32 = 0;
const UNEXPECTED_MAX: u32 = 1;
const CONTEXT_ID: u32 = 2;
/// Keys of this library only.
const HANDLER_DATA: u32 = 0x5601;
const IN_PLACE: u32 = 0x5602;
const SERIALIZED: u32 = 0x5603;

#[unsafe(no_mangle)]
extern "C" fn mx_open_endpoint(
    board: u32,
    id: u32,
    key: u32,
    parameters: List<Parameter>,
    count: u32,
    endpoint: Out<Endpoint>,
) -> Return {
    process_call(|| {
        let parameters = read(parameters.parameters(count)?)?;
        if endpoint.is_null() {
            return Err(Return::BAD_ENDPOINT);
        }
        endpoint.put(connect::open(board, id, key, &parameters)?);
        Ok(())
    })
}

fn read(list: &[Parameter]) -> Result<Parameters> {
    let mut parameters = Parameters::default();
    for parameter in list {
        match parameter.key {
            ERROR_HANDLER => parameters.handler = handler(parameter.value),
            // Ignored: this library has a limit of its own, at which it loses no message.
            UNEXPECTED_MAX => {}
            CONTEXT_ID => {
                let [bits, shift, ..] = parameter.value.to_ne_bytes();
                parameters.contexts = connect::contexts(bits, shift)?;
            }
            HANDLER_DATA => {
                let length = connect::handler_data(word(parameter.value))?;
                parameters.handler_data = length;
            }
            IN_PLACE => parameters.in_place = word(parameter.value) != 0,
            SERIALIZED if word(parameter.value) != 0 => parameters.threads = Threads::Serialized,
            SERIALIZED => {}
            _ => return Err(Return::BAD_PARAM_NAME),
        }
    }
    Ok(parameters)
}

/// Returns the `uint32_t` in a parameter.
fn word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Returns the handler in a parameter.
fn handler(value: u64) -> Option<ErrorHandler> {
    let address = usize::try_from(value).ok()?;
    let pointer = std::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: MX requires that a parameter with this key holds a function of this type or null, and
    // null is `None`.
    unsafe { std::mem::transmute::<*const (), Option<ErrorHandler>>(pointer) }
}

#[unsafe(no_mangle)]
extern "C" fn mx_close_endpoint(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, Shared::close)
}

#[unsafe(no_mangle)]
extern "C" fn mx_wakeup(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, exchange::wake)
}

#[unsafe(no_mangle)]
extern "C" fn mx_disable_progression(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, exchange::disable)
}

#[unsafe(no_mangle)]
extern "C" fn mx_reenable_progression(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, exchange::enable)
}

#[unsafe(no_mangle)]
extern "C" fn mx_progress(endpoint: Endpoint) -> Return {
    endpoint_call(endpoint, |shared| {
        shared.lock_for_call()?.progress().map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_set_request_timeout(
    endpoint: Endpoint,
    request: Request,
    milliseconds: u32,
) -> Return {
    endpoint_call(endpoint, |shared| {
        exchange::set_timeout(shared, request, timeout(milliseconds))
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_register_unexp_handler(
    endpoint: Endpoint,
    handler: Option<UnexpectedHandler>,
    context: Pointer,
) -> Return {
    endpoint_call(endpoint, |shared| {
        exchange::set_handler(shared, handler, context)
    })
}
