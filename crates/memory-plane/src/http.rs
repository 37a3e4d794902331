//! The HTTP server: accepts clients, limits their number and their time, and serves HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::body::Body;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::limits::MIN_PROGRESS;
use crate::response::respond;
use crate::space_state::{SpaceState, increment};
use crate::throttle::{Progress, Throttled};

/// Most clients at one time. Each costs at most some hundred kilobytes of memory.
pub const MAX_CLIENTS: usize = 2048;

/// Most concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 32;

/// Time within which a client must send its first request; with HTTP/1.1, also the head of each later one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes that hyper buffers for a connection before it waits for the socket to be writable.
const SEND_BUFFER: usize = 128 << 10;

/// Unsent bytes that the kernel keeps for a connection (`TCP_NOTSENT_LOWAT`).
const NOTSENT_LOWAT: u32 = 256 << 10;

/// What the server needs to serve clients.
#[derive(Clone)]
pub struct Service {
    /// The space.
    pub state: Arc<SpaceState>,
    /// The clients that may fetch.
    pub access: Arc<Access>,
    /// The TLS configuration; `None` serves plain HTTP.
    pub tls: Option<TlsAcceptor>,
}

/// Serves clients without end.
///
/// # Errors
/// Returns an error if the listening socket cannot be used.
pub async fn serve(service: Service, listener: TcpListener) -> io::Result<Infallible> {
    // System calls of the runtime for this and all connections, and of TLS.
    // syscalls: epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 socketpair accept4 ioctl
    // syscalls: read readv recvfrom recvmsg write writev sendto sendmsg shutdown
    // syscalls: setsockopt getsockopt getsockname getpeername getrandom sched_yield
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let limit = ConnectionLimit::new(MAX_CLIENTS);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            // This client's connection failed, or the process has too many descriptors at the moment.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        if !service.access.may_connect(from.ip()) {
            increment(&service.state.counters.refused);
            continue;
        }
        let Some(permit) = limit.acquire(from.ip()) else {
            increment(&service.state.counters.refused_clients);
            continue;
        };
        let service = service.clone();
        tokio::spawn(async move {
            let counters = &service.state.counters;
            increment(&counters.clients);
            serve_client(&service, stream, from, permit).await;
            counters.clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Serves one client until its connection ends.
async fn serve_client(
    service: &Service,
    stream: TcpStream,
    from: SocketAddr,
    permit: ConnectionPermit,
) {
    // Responses are written as a whole, so Nagle's algorithm would only delay their last packets.
    drop(stream.set_nodelay(true));
    // Otherwise the kernel would buffer megabytes of copied data for each client that reads nothing.
    drop(SockRef::from(&stream).set_tcp_notsent_lowat(NOTSENT_LOWAT));
    let progress = Arc::new(Progress::default());
    let stream = Throttled::new(stream, &progress, &service.state, Some(permit));
    within_limits(service, stream, from.ip(), &progress).await;
}

/// Serves a client on any stream until it ends, for tests and the fuzz target `http`.
pub async fn serve_stream<S>(service: &Service, stream: S, from: IpAddr)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    within_limits(service, stream, from, &Progress::default()).await;
}

/// Serves a connection, with TLS if the space has it, until it ends or the client exceeds its limits of time.
async fn within_limits<S>(service: &Service, stream: S, from: IpAddr, progress: &Progress)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let connection = async {
        match &service.tls {
            None => serve_http(service, stream, from, progress).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => serve_http(service, stream, from, progress).await,
                Err(error) => tracing::debug!(%error, "the TLS handshake with {from} failed"),
            },
        }
    };
    tokio::select! {
        () = connection => {}
        // This covers the TLS handshake, the protocol's preface and the head of the first request together.
        () = progress.no_request(REQUEST_TIMEOUT) => {
            increment(&service.state.counters.stalled);
            tracing::debug!("{from} sent no request in time");
        }
        () = progress.stalled(MIN_PROGRESS) => {
            increment(&service.state.counters.stalled);
            tracing::debug!("{from} read too little in time");
        }
    }
}

async fn serve_http<S>(service: &Service, stream: S, from: IpAddr, progress: &Progress)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(SEND_BUFFER);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(SEND_BUFFER);
    let serve = service_fn(|request: Request<Incoming>| {
        progress.note_request();
        let response = respond(&service.state, &service.access, from, &request);
        async move { Ok::<Response<Body>, Infallible>(response) }
    });
    let connection = http.serve_connection(TokioIo::new(stream), serve);
    if let Err(error) = connection.await {
        tracing::debug!(error, "a client's connection ended early");
    }
}

#[cfg(test)]
mod tests;
