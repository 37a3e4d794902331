//! `mx_init` and what belongs to it.

use std::ffi::{c_char, c_int};

use super::globally;
use crate::abi::ErrorHandler;
use crate::codes::{Return, StatusCode};
use crate::{library, table};

#[unsafe(no_mangle)]
static MX_ERRORS_ARE_FATAL: ErrorHandler = library::fatal;

#[unsafe(no_mangle)]
static MX_ERRORS_RETURN: ErrorHandler = library::pass;

/// A program that is made of parts may call it once for each: that is never fatal.
#[unsafe(no_mangle)]
extern "C" fn mx__init_api(api: u32) -> Return {
    match library::start(api) {
        Err(Return::ALREADY_INITIALIZED) => Return::ALREADY_INITIALIZED,
        other => globally(|| other),
    }
}

#[unsafe(no_mangle)]
extern "C" fn mx_finalize() -> Return {
    globally(|| library::stop(table::close_all))
}

/// The only one that works before `mx_init`.
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

/// There is no cache of registrations to be cleaned.
#[unsafe(no_mangle)]
extern "C" fn mx__regcache_clean(_memory: crate::abi::Pointer, _length: usize) -> c_int {
    0
}
