//! `mx_init` and other calls that concern the process.

use std::ffi::{c_char, c_int};

use super::process_call;
use crate::abi::ErrorHandler;
use crate::codes::{Return, StatusCode};
use crate::{library, table};

#[unsafe(no_mangle)]
static MX_ERRORS_ARE_FATAL: ErrorHandler = library::fatal;

#[unsafe(no_mangle)]
static MX_ERRORS_RETURN: ErrorHandler = library::return_error;

/// Libraries of one program may each call `mx_init`, so the second call is never fatal.
#[unsafe(no_mangle)]
extern "C" fn mx__init_api(api: u32) -> Return {
    match library::start(api) {
        Err(Return::ALREADY_INITIALIZED) => Return::ALREADY_INITIALIZED,
        other => process_call(|| other),
    }
}

#[unsafe(no_mangle)]
extern "C" fn mx_finalize() -> Return {
    process_call(|| library::stop(table::close_all))
}

/// The only call that works before `mx_init`.
#[unsafe(no_mangle)]
extern "C" fn mx_set_error_handler(handler: Option<ErrorHandler>) -> ErrorHandler {
    library::set_handler(handler)
}

#[unsafe(no_mangle)]
extern "C" fn mx_strerror(code: Return) -> *const c_char {
    code.text().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn mx_strstatus(code: StatusCode) -> *const c_char {
    code.text().as_ptr()
}

/// Does nothing, because this library has no registration cache.
#[unsafe(no_mangle)]
extern "C" fn mx__regcache_clean(_memory: crate::abi::Pointer, _length: usize) -> c_int {
    0
}
