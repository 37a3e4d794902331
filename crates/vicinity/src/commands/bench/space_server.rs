//! A space with files of the host, for the benchmark. No VM takes part. The process is the one that serves
//! every space. It finds the files in the space's memory, as a restarted process finds files that a VM
//! published before.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memory_plane::{SpaceState, space_memory};
use space::store::{Attributes, ROOT, StoreError, ledger_bytes};
use switch::control::ControlSocket;

use crate::commands::failure::Failure;
use crate::config::{self, MIN_SPACE_SLOTS, SLOT_BYTES, Space};
use crate::processes::space::protocol::{Setting, Size};
use crate::processes::start::SPACE;
use crate::processes::start::{ProcessError, command};

/// The VM name of the space. No such VM exists.
const VM: &str = "bench";

/// Bytes written at a time.
const STEP: usize = 1 << 20;

/// The memory of the slots and of the ledger, and the store that keeps their contents.
struct Filled {
    memory: (File, File),
    size: Size,
    _store: Arc<SpaceState>,
}

/// Serves the files in `folder/files` to this host until standard input ends. Creates all other files that it
/// needs in `folder`.
pub(crate) fn serve(folder: &Path) -> Result<(), Failure> {
    let space = space(folder)?;
    start(folder, &space).map_err(|error| ProcessError::System(error).into())
}

/// Returns the configuration of a space from which any program on this host may fetch.
fn space(folder: &Path) -> Result<Space, Failure> {
    let file = folder.join("space.toml");
    let text =
        format!("[[space]]\nvm = \"{VM}\"\nlisten = \"127.0.0.1:0\"\nallow = [\"127.0.0.1\"]\n");
    fs::write(&file, text).map_err(ProcessError::System)?;
    let mut spaces = config::load(Some(&file), None)?.spaces.into_iter();
    let none = || ProcessError::System(io::ErrorKind::NotFound.into());
    Ok(spaces.next().ok_or_else(none)?)
}

fn start(folder: &Path, space: &Space) -> io::Result<()> {
    let filled = fill(&folder.join("files"))?;
    let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let vm_socket = UnixListener::bind(folder.join("space.sock"))?;
    let (control, theirs) = ControlSocket::pair()?;
    let mut process = command(theirs).args([SPACE, VM]).spawn()?;
    let setting = Setting {
        space,
        size: filled.size,
        memory: &filled.memory,
        clients: Some(&clients),
        vm_socket: vm_socket.as_fd(),
    };
    for (order, fd) in setting.orders() {
        control.send(&order, Some(fd))?;
    }
    eprintln!("serving on {}", clients.local_addr()?);
    io::stdin().read_to_end(&mut Vec::new())?;
    // The process ends when its control socket is closed.
    drop(control);
    process.wait().map(drop)
}

/// Puts the files of a folder into a space's memory.
fn fill(folder: &Path) -> io::Result<Filled> {
    let files = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
    let mut slots = u64::from(MIN_SPACE_SLOTS);
    for file in &files {
        slots += fs::metadata(file)?.len().div_ceil(u64::from(SLOT_BYTES));
    }
    let slots = u32::try_from(slots).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let slot_file = space_memory::create(VM, u64::from(slots) * u64::from(SLOT_BYTES))?;
    let ledger = space_memory::create(VM, ledger_bytes(slots))?;
    let (mine, mine_too) = (slot_file.try_clone()?, ledger.try_clone()?);
    let store = SpaceState::with(mine, mine_too, SLOT_BYTES, slots, slots)?;
    for file in &files {
        publish(&store, file).map_err(io::Error::other)?;
    }
    Ok(Filled {
        memory: (slot_file, ledger),
        size: Size {
            slots,
            limit: slots,
            most: slots,
        },
        _store: store,
    })
}

fn publish(space: &SpaceState, file: &Path) -> Result<(), StoreError> {
    let bytes = fs::read(file).map_err(StoreError::HostMemory)?;
    let name = file.file_name().unwrap_or_default().as_bytes();
    let mut store = space.store();
    let number = store.create(ROOT, name, false, Attributes::default())?;
    store.open(number, true)?;
    let mut at = 0;
    for step in bytes.chunks(STEP) {
        let mut left = step;
        for (place, length) in store.write(number, at, step.len() as u64, Duration::ZERO)? {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let Some((here, rest)) = left.split_at_checked(length) else {
                break;
            };
            let written = space.slot_file().file().write_all_at(here, place);
            written.map_err(StoreError::HostMemory)?;
            left = rest;
        }
        at += step.len() as u64;
    }
    store.close(number, true);
    Ok(())
}
