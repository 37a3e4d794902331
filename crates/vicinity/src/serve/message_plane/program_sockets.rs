//! Sockets on the uplink's interface, for programs of the host that serve the interface beside the uplink.
//!
//! A program that may connect to the Unix socket gets a packet socket, which only root can open. So its messages to other hosts need no
//! other process (docs/message-hosts.md).

use std::os::fd::AsFd;
use std::time::Duration;

use message::remote::InterfaceOffer;
use mxoe::Port;
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
            Ok((program, _)) => match Port::open_shared_socket(&offer.interface) {
                // A program that has gone needs no socket.
                Ok(socket) => drop(offer.send(&program, socket.as_fd())),
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
