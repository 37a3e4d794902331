//! Clients: connections, their limits, and what is spoken on them.

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
use crate::limits::LEAST;
use crate::places::{Place, Places};
use crate::response::answer;
use crate::shared::{Shared, add};
use crate::throttle::{Moves, Throttled};

/// Clients at one time. Each costs at most some hundred kilobytes.
pub const MAX_CLIENTS: usize = 2048;

/// Requests at one time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 32;

/// A client says its request, or the next one, within so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What hyper gathers for a connection before it waits for the client to take it.
const BUFFER: usize = 128 << 10;

/// Bytes of answers that the kernel keeps of a connection beside those that it has sent.
const UNSENT: u32 = 256 << 10;

/// How clients are served.
#[derive(Clone)]
pub struct Service {
    /// What they get.
    pub shared: Arc<Shared>,
    /// Who gets it.
    pub access: Arc<Access>,
    /// With TLS, or without.
    pub tls: Option<TlsAcceptor>,
}

/// Serve clients for ever.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve(service: Service, listener: TcpListener) -> io::Result<Infallible> {
    // What the runtime does for this and all connections, and what TLS asks for.
    // syscalls: epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 socketpair accept4 ioctl
    // syscalls: read readv recvfrom recvmsg write writev sendto sendmsg shutdown
    // syscalls: setsockopt getsockopt getsockname getpeername getrandom sched_yield
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Places::new(MAX_CLIENTS);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(taken) => taken,
            // Of this client, or for now too many descriptors.
            Err(error) => {
                tracing::debug!(%error, "a client was lost");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        if !service.access.may_ask(from.ip()) {
            add(&service.shared.counts.refused);
            continue;
        }
        let Some(place) = places.take(from.ip()) else {
            add(&service.shared.counts.turned_away);
            continue;
        };
        let service = service.clone();
        tokio::spawn(async move {
            let counts = &service.shared.counts;
            add(&counts.clients);
            client(&service, stream, from, place).await;
            counts.clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Serve one, to the end of its connection.
async fn client(service: &Service, stream: TcpStream, from: SocketAddr, place: Place) {
    // Answers are written whole; waiting for more would only delay their ends.
    drop(stream.set_nodelay(true));
    // Else the kernel keeps megabytes for each that takes nothing, which were copied for it alone.
    drop(SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT));
    let moves = Arc::new(Moves::default());
    let stream = Throttled::new(stream, &moves, &service.shared, Some(place));
    within_limits(service, stream, from.ip(), &moves).await;
}

/// Serve what speaks on a stream as a client would, to its end: what tests and the fuzz target `http` are.
pub async fn serve_stream<S>(service: &Service, stream: S, from: IpAddr)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    within_limits(service, stream, from, &Moves::default()).await;
}

/// A conversation, with TLS where the space has that, for as long as the client asks and takes.
async fn within_limits<S>(service: &Service, stream: S, from: IpAddr, moves: &Moves)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let conversation = async {
        match &service.tls {
            None => converse(service, stream, from, moves).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => converse(service, stream, from, moves).await,
                Err(error) => tracing::debug!(%error, "no TLS with {from}"),
            },
        }
    };
    tokio::select! {
        () = conversation => {}
        // TLS, the protocol's preface and the first request's head together.
        () = moves.silent(PATIENCE) => {
            add(&service.shared.counts.stalled);
            tracing::debug!("{from} made no request");
        }
        () = moves.stalled(LEAST) => {
            add(&service.shared.counts.stalled);
            tracing::debug!("{from} stalled");
        }
    }
}

async fn converse<S>(service: &Service, stream: S, from: IpAddr, moves: &Moves)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(BUFFER);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(BUFFER);
    let serve = service_fn(|request: Request<Incoming>| {
        moves.asked();
        let answer = answer(&service.shared, &service.access, from, &request);
        async move { Ok::<Response<Body>, Infallible>(answer) }
    });
    let conversation = http.serve_connection(TokioIo::new(stream), serve);
    if let Err(error) = conversation.await {
        tracing::debug!(error, "a client's connection ended early");
    }
}

#[cfg(test)]
mod tests;
