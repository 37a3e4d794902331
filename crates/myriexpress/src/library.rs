//! State of the process: the board and the error handler.

use std::ffi::c_char;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use message::remote::{INTERFACE_VARIABLE, Way, open_board};
use message::{Board, MessageError};

use crate::abi::ErrorHandler;
use crate::codes::{Result, Return};
use crate::limits::{API, HOSTNAME};

/// The environment variable with the runtime directory. The default is that of `vicinity
/// --runtime-dir`.
const RUNTIME_DIR_VARIABLE: &str = "VICINITY_RUNTIME_DIR";
const DEFAULT_RUNTIME_DIR: &str = "/run/vicinity";

/// Environment variables of MX and Open-MX: with `0`, errors that would be fatal are returned.
/// Their other variables concern hardware and transports that this library does not have, so it
/// ignores them.
const FATAL: [&str; 2] = ["MX_ERRORS_ARE_FATAL", "OMX_FATAL_ERRORS"];

/// The state between `mx_init` and `mx_finalize`.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub(crate) board: Board,
    /// The name of this host or VM.
    pub(crate) host: String,
}

static LIBRARY: RwLock<Option<Library>> = RwLock::new(None);

static HANDLER: Mutex<ErrorHandler> = Mutex::new(fatal);

/// Whether [`fatal`] ends the process, see [`FATAL`].
static IS_FATAL: AtomicBool = AtomicBool::new(true);

/// `mx_init` of a program that was compiled for version `api` of the interface.
pub(crate) fn start(api: u32) -> Result {
    if api >> 8 & 0xff != API >> 8 {
        return Err(Return::BAD_LIB_VERSION);
    }
    let mut library = LIBRARY.write().unwrap_or_else(PoisonError::into_inner);
    if library.is_some() {
        return Err(Return::ALREADY_INITIALIZED);
    }
    let mut values = FATAL.iter().filter_map(std::env::var_os);
    IS_FATAL.store(values.all(|value| value != "0"), Ordering::Relaxed);
    let directory = std::env::var_os(RUNTIME_DIR_VARIABLE)
        .map_or_else(|| DEFAULT_RUNTIME_DIR.into(), PathBuf::from);
    let name = rustix::system::uname();
    // Leaves room for `:` and the number of a board.
    let host = name.nodename().to_string_lossy();
    let host: String = host.chars().take((HOSTNAME - 8) / 4).collect();
    let interface = std::env::var_os(INTERFACE_VARIABLE);
    let interface = interface
        .as_ref()
        .map(|interface| interface.to_string_lossy());
    let way = Way::chosen(interface.as_deref());
    let board = open_board(&directory, way, &host).map_err(|error| code(way, &error))?;
    *library = Some(Library { board, host });
    Ok(())
}

/// Returns the code for a board that cannot be opened.
fn code(way: Way<'_>, error: &MessageError) -> Return {
    if matches!(way, Way::Interface(_)) {
        // A code of MX does not name the cause, so the library prints it. If stderr cannot be written, only the code is left.
        let _ignored = writeln!(std::io::stderr(), "libmyriexpress: {error}");
    }
    match error {
        MessageError::Kernel(error) if error.kind() == ErrorKind::PermissionDenied => {
            Return::NO_PERM
        }
        _ => Return::NO_DEV,
    }
}

/// `mx_finalize`. `close_all` closes the endpoints that are still open.
pub(crate) fn stop(close_all: impl FnOnce()) -> Result {
    let library = LIBRARY
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    close_all();
    library.map(drop).ok_or(Return::NOT_INITIALIZED)
}

/// Returns the state that `mx_init` made.
pub(crate) fn get() -> Result<Library> {
    let library = LIBRARY.read().unwrap_or_else(PoisonError::into_inner);
    library.clone().ok_or(Return::NOT_INITIALIZED)
}

/// Sets the error handler of the process; returns the previous one.
pub(crate) fn set_handler(handler: Option<ErrorHandler>) -> ErrorHandler {
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut current, handler.unwrap_or(fatal))
}

/// Passes an error to the handler of the endpoint or else of the process. Returns the result of the
/// call.
pub(crate) fn report(own: Option<ErrorHandler>, code: Return) -> Return {
    let handler = own.unwrap_or_else(|| *HANDLER.lock().unwrap_or_else(PoisonError::into_inner));
    handler(code.text().as_ptr().cast_mut(), code)
}

/// `MX_ERRORS_ARE_FATAL`: prints the error and ends the process, unless the environment disables
/// it.
pub(crate) extern "C" fn fatal(_text: *mut c_char, code: Return) -> Return {
    if !IS_FATAL.load(Ordering::Relaxed) {
        return code;
    }
    // If stderr cannot be written, there is no other way to report the error.
    let _ignored = writeln!(
        std::io::stderr(),
        "libmyriexpress: {}",
        code.text().to_string_lossy()
    );
    std::process::exit(-1)
}

/// `MX_ERRORS_RETURN`: the call returns the error.
pub(crate) extern "C" fn return_error(_text: *mut c_char, code: Return) -> Return {
    code
}
