//! The plane of datagrams of a program beside a daemon: for messages to programs of other hosts.
//!
//! The socket is bound to an address of one interface: that of the daemon's uplink, or that which the user chooses. Other hosts have to reach it there
//! without a gateway of IP.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mxoe::Datagrams;

use super::in_process::InProcess;
use crate::address::Board;
use crate::plane::{Plane, ProgramPlane};
use crate::program_address::ProgramAddress;

/// A plane of datagrams, which begins when it is needed.
#[derive(Debug)]
pub struct DatagramPlane {
    board: Board,
    interface: String,
    socket: OnceLock<Option<Socket>>,
    begun: OnceLock<Option<(Arc<InProcess>, PathBuf)>>,
}

#[derive(Debug)]
struct Socket {
    address: ProgramAddress,
    /// Until the plane begins.
    datagrams: Mutex<Option<Datagrams>>,
}

impl DatagramPlane {
    pub(super) fn new(board: Board, interface: String) -> Self {
        Self {
            board,
            interface,
            socket: OnceLock::new(),
            begun: OnceLock::new(),
        }
    }

    fn socket(&self) -> Option<&Socket> {
        self.socket.get_or_init(|| open(&self.interface)).as_ref()
    }
}

impl ProgramPlane for DatagramPlane {
    fn address(&self) -> Option<ProgramAddress> {
        Some(self.socket()?.address)
    }

    fn begin(&self) -> Option<(Arc<dyn Plane>, PathBuf)> {
        let begun = self.begun.get_or_init(|| {
            let datagrams = &self.socket()?.datagrams;
            let mut datagrams = datagrams.lock().unwrap_or_else(PoisonError::into_inner);
            let (plane, gateway) = InProcess::open_program(&self.board, datagrams.take()?).ok()?;
            Some((Arc::new(plane), gateway))
        });
        let (plane, gateway) = begun.as_ref()?;
        let plane: Arc<dyn Plane> = Arc::<InProcess>::clone(plane);
        Some((plane, gateway.clone()))
    }
}

fn open(interface: &str) -> Option<Socket> {
    let socket = Datagrams::open_program_socket(interface).ok()?;
    let datagrams = Datagrams::adopt(socket).ok()?;
    Some(Socket {
        address: ProgramAddress::new(datagrams.address())?,
        datagrams: Mutex::new(Some(datagrams)),
    })
}
