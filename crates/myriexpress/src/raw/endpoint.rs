//! Opening and closing endpoints, and their progress.

use super::pointer::{List, Out};
use super::{globally, limit, with};
use crate::abi::{Endpoint, ErrorHandler, Parameter, Pointer, Request, UnexpectedHandler};
use crate::codes::{Result, Return};
use crate::connect::{self, Parameters};
use crate::exchange;
use crate::table;

/// The keys of `mx_param_t`.
const ERROR_HANDLER: u32 = 0;
const UNEXPECTED_MAX: u32 = 1;
const CONTEXT_ID: u32 = 2;

#[unsafe(no_mangle)]
extern "C" fn mx_open_endpoint(
    board: u32,
    id: u32,
    key: u32,
    parameters: List<Parameter>,
    count: u32,
    endpoint: Out<Endpoint>,
) -> Return {
    globally(|| {
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
            // This library has a limit of its own, and loses nothing at it.
            UNEXPECTED_MAX => {}
            CONTEXT_ID => {
                let [bits, shift, ..] = parameter.value.to_ne_bytes();
                parameters.contexts = connect::contexts(bits, shift)?;
            }
            _ => return Err(Return::BAD_PARAM_NAME),
        }
    }
    Ok(parameters)
}

/// The handler in a parameter.
fn handler(value: u64) -> Option<ErrorHandler> {
    let address = usize::try_from(value).ok()?;
    let pointer = std::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: by the parameter's key it is a function of this type, or null, which is none: MX
    // asks that of `mx_open_endpoint`.
    unsafe { std::mem::transmute::<*const (), Option<ErrorHandler>>(pointer) }
}

#[unsafe(no_mangle)]
extern "C" fn mx_close_endpoint(endpoint: Endpoint) -> Return {
    with(endpoint, table::close)
}

#[unsafe(no_mangle)]
extern "C" fn mx_wakeup(endpoint: Endpoint) -> Return {
    with(endpoint, exchange::wake)
}

#[unsafe(no_mangle)]
extern "C" fn mx_disable_progression(endpoint: Endpoint) -> Return {
    with(endpoint, exchange::disable)
}

#[unsafe(no_mangle)]
extern "C" fn mx_reenable_progression(endpoint: Endpoint) -> Return {
    with(endpoint, exchange::enable)
}

#[unsafe(no_mangle)]
extern "C" fn mx_progress(endpoint: Endpoint) -> Return {
    with(endpoint, |shared| shared.enter()?.work().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn mx_set_request_timeout(
    endpoint: Endpoint,
    request: Request,
    milliseconds: u32,
) -> Return {
    with(endpoint, |shared| {
        exchange::set_limit(shared, request, limit(milliseconds))
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_register_unexp_handler(
    endpoint: Endpoint,
    handler: Option<UnexpectedHandler>,
    context: Pointer,
) -> Return {
    with(endpoint, |shared| {
        exchange::set_handler(shared, handler, context)
    })
}
