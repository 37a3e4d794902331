//! Captures over the control API: the frames that ports send and receive, as an endless pcapng
//! file.
//!
//! Each capture has a thread of the lowest priority ([`priority::lower`]).

use std::borrow::Cow;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use rustix::net::RecvFlags;
use serde::Deserialize;
use serde_json::json;
use switch::capture::{Captured, Direction, MAX_DATAGRAM};
use switch::control::PortId;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::daemon::{Daemon, UnknownNetwork};
use crate::serve::network::message::Message;
use crate::serve::network::watch::{WatchError, Watched};
use crate::{name, priority};

/// Most datagrams, and most pieces of the file, in a queue.
const QUEUE: usize = 16;

/// Bytes of each frame that a capture keeps by default: all of the longest frame.
const ALL: u32 = 256 << 10;

/// Which frames are wanted.
#[derive(Debug, Deserialize)]
pub(in crate::serve) struct CaptureQuery {
    /// Ports as `VM` or `NETWORK/VM`, with commas between them.
    #[serde(default)]
    ports: String,
    /// Bytes of each frame, at most.
    bytes: Option<u32>,
}

/// Why a capture was refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the request names no port; name one as VM or NETWORK/VM")]
    Nothing,
    #[error(transparent)]
    NoNetwork(#[from] UnknownNetwork),
    #[error("no network has a port {vm}{hint}")]
    NoPort { vm: String, hint: String },
    #[error("{vm} is a port of several networks; choose one of: {}", choices.join(", "))]
    Several { vm: String, choices: Vec<String> },
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("the network was removed, or the daemon ends")]
    NetworkEnded,
    #[error("internal error, report it as a bug: {0}")]
    Format(#[from] PcapError),
    #[error("cannot start a thread for the capture: {0}")]
    Thread(#[from] std::io::Error),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = match self {
            Self::Nothing | Self::Several { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NoNetwork(_) | Self::NoPort { .. } | Self::Watch(WatchError::NoPort { .. }) => {
                StatusCode::NOT_FOUND
            }
            Self::Watch(WatchError::TooMany { .. }) => StatusCode::CONFLICT,
            Self::Watch(WatchError::Socket(_)) | Self::Format(_) | Self::Thread(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::NetworkEnded => StatusCode::SERVICE_UNAVAILABLE,
        };
        let error = json!({ "error": self.to_string() });
        (code, axum::Json(error)).into_response()
    }
}

/// A subscription to a port; dropping it ends the subscription.
#[derive(Debug)]
struct Port {
    name: String,
    network: mpsc::Sender<Message>,
    id: PortId,
    number: u32,
    /// The runtime that ends the subscription, on whichever thread this value is dropped.
    daemon: Handle,
}

impl Drop for Port {
    fn drop(&mut self) {
        let (network, id, number) = (self.network.clone(), self.id, self.number);
        // If the network has ended, so has the subscription: ignore the error.
        self.daemon
            .spawn(async move { drop(network.send(Message::Unwatch(id, number)).await) });
    }
}

pub(in crate::serve) async fn capture(
    State(daemon): State<Daemon>,
    Query(wanted): Query<CaptureQuery>,
) -> Response {
    match begin(&daemon, &wanted).await {
        Ok(body) => ([(header::CONTENT_TYPE, "application/x-pcapng")], body).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn begin(daemon: &Daemon, wanted: &CaptureQuery) -> Result<Body, Refused> {
    let bytes = wanted.bytes.unwrap_or(ALL);
    let (mut ports, mut sockets) = (Vec::new(), Vec::new());
    for port in wanted.ports.split(',').filter(|port| !port.is_empty()) {
        let (port, socket) = daemon.watch(port, bytes).await?;
        ports.push(port);
        sockets.push(socket);
    }
    if ports.is_empty() {
        return Err(Refused::Nothing);
    }
    // A data plane handles requests in order. So a data plane that answers this request already
    // copies frames for the capture.
    daemon.network_answers().await;
    let file = file(&ports, bytes)?;
    let (sender, pieces) = mpsc::channel(QUEUE);
    let work = move || {
        priority::lower();
        match Builder::new_current_thread().enable_io().build() {
            Ok(runtime) => runtime.block_on(write(file, sockets, sender)),
            Err(error) => tracing::error!(%error, "cannot start a capture"),
        }
    };
    // The thread ends when the client no longer reads.
    drop(
        thread::Builder::new()
            .name("capture".to_owned())
            .spawn(work)?,
    );
    Ok(Body::new(Pieces {
        pieces,
        _ports: ports,
    }))
}

impl Daemon {
    /// Watches the port of this name.
    async fn watch(&self, name: &str, bytes: u32) -> Result<(Port, OwnedFd), Refused> {
        let (network, vm) = match name.split_once('/') {
            Some((network, vm)) => (network.to_owned(), vm),
            None => (self.network_of(name).await?, name),
        };
        let address = self.network(&network)?;
        let (question, answer) = oneshot::channel();
        let message = Message::Watch(vm.to_owned(), bytes, question);
        address
            .send(message)
            .await
            .map_err(|_| Refused::NetworkEnded)?;
        let Watched {
            port,
            number,
            socket,
        } = answer.await.map_err(|_| Refused::NetworkEnded)??;
        let port = Port {
            name: format!("{network}/{vm}"),
            network: address,
            id: port,
            number,
            daemon: Handle::current(),
        };
        Ok((port, socket))
    }

    /// Returns the only network that has a port of this name.
    async fn network_of(&self, vm: &str) -> Result<String, Refused> {
        let answers = self.network_answers().await;
        let ports = || answers.iter().flat_map(|answer| &answer.ports);
        let found: Vec<_> = ports().filter(|port| port.vm == vm).collect();
        match found.as_slice() {
            [port] => Ok(port.network.clone()),
            [] => Err(Refused::NoPort {
                vm: vm.to_owned(),
                hint: name::hint(vm, ports().map(|port| port.vm.as_str())),
            }),
            several => Err(Refused::Several {
                vm: vm.to_owned(),
                choices: several
                    .iter()
                    .map(|port| format!("{}/{vm}", port.network))
                    .collect(),
            }),
        }
    }
}

/// Returns the beginning of a file, with an interface for each port.
fn file(ports: &[Port], bytes: u32) -> Result<PcapNgWriter<Vec<u8>>, PcapError> {
    let program = concat!("vicinity ", env!("CARGO_PKG_VERSION"));
    let section = SectionHeaderBlock {
        endianness: Endianness::Little,
        options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(program))],
        ..SectionHeaderBlock::default()
    };
    let mut file = PcapNgWriter::with_section_header(Vec::new(), section)?;
    for port in ports {
        file.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: bytes,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(&port.name)),
                // Timestamps are in units of 10⁻⁹ s.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        })?;
    }
    Ok(file)
}

/// Writes frames as they arrive, until the client no longer reads or no port remains.
async fn write(
    mut file: PcapNgWriter<Vec<u8>>,
    sockets: Vec<OwnedFd>,
    reader: mpsc::Sender<Bytes>,
) {
    let (sender, mut datagrams) = mpsc::channel(QUEUE);
    let mut missed = vec![0; sockets.len()];
    let mut relays = JoinSet::new();
    for (interface, socket) in (0..).zip(sockets) {
        relays.spawn(relay(interface, socket, sender.clone()));
    }
    drop(sender);
    loop {
        let piece = std::mem::take(file.get_mut());
        if !piece.is_empty() && reader.send(piece.into()).await.is_err() {
            return;
        }
        let datagram = tokio::select! {
            () = reader.closed() => return,
            datagram = datagrams.recv() => datagram,
        };
        let Some((interface, datagram)) = datagram else {
            return;
        };
        let Some((so_far, frames)) = switch::capture::read(&datagram) else {
            continue;
        };
        let Some(before) = usize::try_from(interface)
            .ok()
            .and_then(|at| missed.get_mut(at))
        else {
            continue;
        };
        let mut lost = so_far.saturating_sub(std::mem::replace(before, so_far));
        for frame in frames {
            let block = block(interface, &frame, std::mem::take(&mut lost));
            // Writing to a file in memory cannot fail.
            drop(file.write_pcapng_block(block));
        }
    }
}

fn block<'b>(interface: u32, frame: &Captured<'b>, lost: u64) -> EnhancedPacketBlock<'b> {
    // The direction from the view of the VM's NIC: inbound is 1, outbound is 2 (pcapng, 4.3.1).
    let flags = match frame.direction {
        Direction::Received => 1,
        Direction::Sent => 2,
    };
    let mut options = vec![EnhancedPacketOption::Flags(flags)];
    if lost > 0 {
        options.push(EnhancedPacketOption::DropCount(lost));
    }
    EnhancedPacketBlock {
        interface_id: interface,
        timestamp: Duration::from_nanos(frame.time),
        original_len: frame.length,
        data: Cow::Borrowed(frame.bytes),
        options,
    }
}

/// Forwards the datagrams of a port until its subscription ends.
async fn relay(interface: u32, socket: OwnedFd, datagrams: mpsc::Sender<(u32, Vec<u8>)>) {
    // This duplicate only signals when the socket is readable. The socket carries datagrams, not a
    // stream.
    let Ok(ready) = socket
        .try_clone()
        .and_then(|same| UnixStream::from_std(same.into()))
    else {
        return;
    };
    let mut bytes = vec![0; MAX_DATAGRAM];
    loop {
        if ready.readable().await.is_err() {
            return;
        }
        let got = ready.try_io(Interest::READABLE, || {
            Ok(rustix::net::recv(
                &socket,
                &mut bytes[..],
                RecvFlags::DONTWAIT,
            )?)
        });
        match got {
            Ok((0, _)) => return,
            Ok((count, _)) => {
                let datagram = bytes.get(..count).unwrap_or_default().to_vec();
                if datagrams.send((interface, datagram)).await.is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The body of a response, made of pieces as they arrive.
///
/// It has the subscriptions, because the server drops it as soon as the client has closed the connection. The thread
/// of the capture notices that only when it has a CPU, and until then a port would reject another capture.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    _ports: Vec<Port>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.poll_recv(context);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
