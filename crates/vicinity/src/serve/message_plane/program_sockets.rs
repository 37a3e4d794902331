//! Sockets on the uplink's interface, for programs of the host that serve the interface beside the uplink.
//!
//! A program that may connect to the Unix socket gets a packet socket, which only root can open, and a UDP socket with a receive buffer that only
//! root can have. So its messages to other hosts need no other process (docs/message-hosts.md).

use std::io;
use std::time::Duration;

use message::remote::{InterfaceOffer, OfferedSockets};
use mxoe::{Datagrams, Port};
use tokio::net::UnixListener;
use tokio::time::Instant;

/// Pause between two programs: bounds the work that programs can cause.
const PAUSE: Duration = Duration::from_millis(1);

/// Time between two log lines about sockets that cannot be opened.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// Answers programs until the task is dropped.
pub(super) async fn serve(listener: UnixListener, offer: InterfaceOffer) {
    let mut last_warning: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((program, _)) => match open_sockets(&offer.interface) {
                // A program that has gone needs no sockets.
                Ok(sockets) => drop(offer.send(&program, &sockets)),
                Err(error) if last_warning.is_none_or(|at| at.elapsed() >= WARNING_PERIOD) => {
                    last_warning = Some(Instant::now());
                    tracing::error!(%error, interface = %offer.interface, "cannot open a socket for a program; the \
                        program uses the daemon's");
                }
                Err(_) => {}
            },
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn open_sockets(interface: &str) -> io::Result<OfferedSockets> {
    Ok(OfferedSockets {
        frames: Port::open_shared_socket(interface)?,
        // Without an address on the interface, all frames pass by the other socket.
        datagrams: Datagrams::open_socket(interface).ok(),
    })
}
