//! What the process has one of: the board, and the handler of errors.

use std::ffi::c_char;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use message::Board;

use crate::abi::ErrorHandler;
use crate::codes::{Result, Return};
use crate::limits::{API, HOSTNAME};

/// The variable with the runtime directory; the same default as `vicinity --runtime-dir`.
const VARIABLE: &str = "VICINITY_RUNTIME_DIR";
const RUNTIME_DIR: &str = "/run/vicinity";

/// MX's own variable, and Open-MX's: `0` has errors returned where they would be fatal. All others that
/// they have are about what is not here.
const FATAL: [&str; 2] = ["MX_ERRORS_ARE_FATAL", "OMX_FATAL_ERRORS"];

/// What there is between `mx_init` and `mx_finalize`.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub(crate) board: Board,
    /// The name of this host.
    pub(crate) host: String,
}

static LIBRARY: RwLock<Option<Library>> = RwLock::new(None);

static HANDLER: Mutex<ErrorHandler> = Mutex::new(fatal);

/// Whether [`fatal`] is, see [`FATAL`].
static IS_FATAL: AtomicBool = AtomicBool::new(true);

/// `mx_init` of a program that was made for version `api`.
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
    let folder = std::env::var_os(VARIABLE).map_or_else(|| RUNTIME_DIR.into(), PathBuf::from);
    let board = Board::open(&folder.join("message")).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Return::NO_PERM,
        _ => Return::NO_DEV,
    })?;
    let name = rustix::system::uname();
    // Room for `:` and a board's number.
    let host = name.nodename().to_string_lossy();
    let host = host.chars().take((HOSTNAME - 8) / 4).collect();
    *library = Some(Library { board, host });
    Ok(())
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

/// What `mx_init` made.
pub(crate) fn get() -> Result<Library> {
    let library = LIBRARY.read().unwrap_or_else(PoisonError::into_inner);
    library.clone().ok_or(Return::NOT_INITIALIZED)
}

/// Have errors handled in another way; returns the way until now.
pub(crate) fn set_handler(handler: Option<ErrorHandler>) -> ErrorHandler {
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut current, handler.unwrap_or(fatal))
}

/// Have an error handled, by `own` or in the way of the process; returns what the call returns.
pub(crate) fn report(own: Option<ErrorHandler>, code: Return) -> Return {
    let handler = own.unwrap_or_else(|| *HANDLER.lock().unwrap_or_else(PoisonError::into_inner));
    handler(code.text().as_ptr().cast_mut(), code)
}

/// `MX_ERRORS_ARE_FATAL`: say it, and end the process, unless the environment says otherwise.
pub(crate) extern "C" fn fatal(_text: *mut c_char, code: Return) -> Return {
    if !IS_FATAL.load(Ordering::Relaxed) {
        return code;
    }
    // Nothing is left to do when that cannot be written.
    let _said = writeln!(
        std::io::stderr(),
        "libmyriexpress: {}",
        code.text().to_string_lossy()
    );
    std::process::exit(-1)
}

/// `MX_ERRORS_RETURN`: have the call return it.
pub(crate) extern "C" fn pass(_text: *mut c_char, code: Return) -> Return {
    code
}
