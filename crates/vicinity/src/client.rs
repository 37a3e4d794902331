//! The client of the control API: HTTP over the daemon's control socket.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
pub(crate) use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Keys;
use crate::runtime_paths::{CONTROL_SOCKET, VIEW_SOCKET};

/// Longest time that the client waits for an answer of the daemon. After this time, the request
/// fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No daemon listens on the control socket.
    #[error(
        "no Vicinity daemon serves {}; start one with `vicinity serve`, or give its folder with \
            --runtime-dir", path.display()
    )]
    NoDaemon {
        /// The runtime folder.
        path: PathBuf,
    },
    /// The user may not connect to the control socket.
    #[error(
        "this user may not connect to {}; run the command as the user that started the daemon, or as root",
        path.display()
    )]
    Forbidden {
        /// The control socket.
        path: PathBuf,
    },
    /// Another error of the socket.
    #[error("cannot connect to {}: {source}; check the path and its permissions", path.display())]
    Socket {
        /// The control socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon does not answer.
    #[error(
        "the daemon did not answer within 10 s; read its log (`journalctl -u vicinity`), then restart it"
    )]
    Timeout,
    /// The daemon refused the request; nothing has changed.
    #[error("{reason}")]
    Refused {
        /// The text of the refusal.
        reason: String,
        /// Whether the request was wrong; otherwise the daemon could not carry it out.
        wrong: bool,
    },
    /// The exchange over the socket failed.
    #[error(
        "the exchange with the daemon failed: {0}; the daemon may have ended (see `journalctl -u vicinity`) or \
            may have another version"
    )]
    Protocol(Cause),
}

/// A request to the daemon.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    kind: &'static str,
    body: Bytes,
}

impl ApiRequest {
    /// Returns a `GET` request.
    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path, "", Bytes::new())
    }

    /// Returns a request without a body.
    pub(crate) fn without_body(method: Method, path: &str) -> Self {
        Self::new(method, path, "", Bytes::new())
    }

    /// Returns a request with these keys as its body.
    pub(crate) fn json(method: Method, path: &str, keys: &Keys) -> Self {
        // The keys come from JSON, so converting them to JSON cannot fail.
        let body = serde_json::to_vec(keys).unwrap_or_default();
        Self::new(method, path, "application/json", body.into())
    }

    fn new(method: Method, path: &str, kind: &'static str, body: Bytes) -> Self {
        let path = path.to_owned();
        Self {
            method,
            path,
            kind,
            body,
        }
    }
}

/// Gets a path of the control API of the daemon that serves `runtime_dir`.
pub(crate) fn get<T: DeserializeOwned>(runtime_dir: &Path, path: &str) -> Result<T, ClientError> {
    request(runtime_dir, ApiRequest::get(path)).map(|(_, answer)| answer)
}

/// Sends a request. The answer comes with the daemon's process id, which is 0 if it is not visible from this
/// process's PID namespace.
pub(crate) fn request<T: DeserializeOwned>(
    runtime_dir: &Path,
    request: ApiRequest,
) -> Result<(u32, T), ClientError> {
    let (pid, body) = text(runtime_dir, request)?;
    let answer = serde_json::from_slice(&body).map_err(protocol_error)?;
    Ok((pid, answer))
}

/// Like [`request`], for an answer that is not JSON.
pub(crate) fn text(runtime_dir: &Path, request: ApiRequest) -> Result<(u32, Bytes), ClientError> {
    runtime()?.block_on(async {
        tokio::time::timeout(ANSWER_TIMEOUT, fetch(runtime_dir, request))
            .await
            .unwrap_or(Err(ClientError::Timeout))
    })
}

async fn fetch(runtime_dir: &Path, request: ApiRequest) -> Result<(u32, Bytes), ClientError> {
    let path = request.path.clone();
    let (pid, response) = begin(runtime_dir, request).await?;
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(protocol_error)?;
    match status {
        StatusCode::OK => Ok((pid, body.to_bytes())),
        _ => Err(refused(status, &path, &body.to_bytes())),
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The daemon ended it.
    Daemon,
    /// SIGINT, SIGTERM or the time limit ended it.
    Interrupted,
    /// The receiver needs no more data.
    Receiver,
}

/// Gets a path whose answer is a stream. Returns when the stream ends, `take` needs no more data, the time
/// limit expires, or a signal comes.
pub(crate) fn stream(
    runtime_dir: &Path,
    path: &str,
    time: Option<Duration>,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<StreamEnd, ClientError> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let interrupted = interrupted().map_err(protocol_error)?;
        let mut interrupted = std::pin::pin!(interrupted);
        let request = ApiRequest::get(path);
        let begun = tokio::time::timeout(ANSWER_TIMEOUT, begin(runtime_dir, request)).await;
        let (_, response) = begun.unwrap_or(Err(ClientError::Timeout))?;
        let status = response.status();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let body = body.collect().await.map_err(protocol_error)?;
            return Err(refused(status, path, &body.to_bytes()));
        }
        let over = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let mut over = std::pin::pin!(over);
        loop {
            let piece = tokio::select! {
                () = &mut interrupted => return Ok(StreamEnd::Interrupted),
                () = &mut over => return Ok(StreamEnd::Interrupted),
                piece = body.frame() => piece,
            };
            let Some(Ok(piece)) = piece else {
                return Ok(StreamEnd::Daemon);
            };
            let taken = piece.data_ref().map(|bytes| take(bytes));
            if taken == Some(ControlFlow::Break(())) {
                return Ok(StreamEnd::Receiver);
            }
        }
    })
}

/// Returns a future that completes at SIGINT or SIGTERM.
fn interrupted() -> io::Result<impl Future<Output = ()>> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, ClientError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(protocol_error)
}

/// Sends a request, and waits for the head of the answer.
async fn begin(
    runtime_dir: &Path,
    request: ApiRequest,
) -> Result<(u32, Response<Incoming>), ClientError> {
    let stream = connect(runtime_dir, &request.method).await?;
    let pid = stream.peer_cred().map_err(protocol_error)?.pid();
    let pid = pid
        .and_then(|pid| u32::try_from(pid).ok())
        .unwrap_or_default();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(protocol_error)?;
    // The task ends with the runtime, or with the answer.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(request.method)
        .uri(&request.path)
        .header(hyper::header::HOST, "vicinity")
        .header(hyper::header::CONTENT_TYPE, request.kind)
        .body(Full::new(request.body))
        .map_err(protocol_error)?;
    let response = sender.send_request(request).await.map_err(protocol_error)?;
    Ok((pid, response))
}

/// Returns a segment of a path, with percent-encoding where needed (RFC 3986, 2.1).
pub(crate) fn segment(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}

fn refused(status: StatusCode, path: &str, body: &[u8]) -> ClientError {
    let words: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let reason = words
        .as_ref()
        .and_then(|words| words.get("error")?.as_str());
    match reason {
        Some(reason) => ClientError::Refused {
            reason: reason.to_owned(),
            wrong: status.is_client_error(),
        },
        None => protocol_error(format!("the answer to {path} is {status}")),
    }
}

/// Connects to the control socket; for a request that changes nothing, else to the read-only one.
async fn connect(runtime_dir: &Path, method: &Method) -> Result<UnixStream, ClientError> {
    let socket = runtime_dir.join(CONTROL_SOCKET);
    let connected = match UnixStream::connect(&socket).await {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && *method == Method::GET => {
            let view = UnixStream::connect(runtime_dir.join(VIEW_SOCKET)).await;
            view.map_err(|_| error)
        }
        connected => connected,
    };
    connected.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoDaemon {
            path: runtime_dir.to_owned(),
        },
        io::ErrorKind::PermissionDenied => ClientError::Forbidden { path: socket },
        _ => ClientError::Socket {
            path: socket,
            source,
        },
    })
}

fn protocol_error(error: impl Into<Cause>) -> ClientError {
    ClientError::Protocol(error.into())
}
