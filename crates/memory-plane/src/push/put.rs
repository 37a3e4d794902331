//! PUT requests by HTTP/1.1.

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::PushError;
use crate::body::{Body, ObjectReader};
use crate::content_type::content_type;

/// Bytes that hyper buffers before it waits for the socket to be writable.
const SEND_BUFFER: usize = 128 << 10;

/// Longest response body that is read to its end.
const MAX_RESPONSE_BODY: usize = 16 << 10;

/// Starts HTTP on a connection. The task that drives the connection ends when the returned sender is dropped.
pub(super) async fn handshake<S>(stream: S) -> Result<SendRequest<Body>, PushError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.max_buf_size(SEND_BUFFER);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The sender receives the error, too.
        drop(connection.await);
    });
    Ok(sender)
}

/// Returns the request that puts a file of `length` bytes under `path`, with additional headers.
pub(super) fn request(
    host: &str,
    headers: HeaderMap,
    path: &str,
    (length, reader): (u64, ObjectReader),
) -> Result<Request<Body>, PushError> {
    let request = Request::put(path)
        .header(HOST, host)
        .header(CONTENT_LENGTH, length)
        .header(CONTENT_TYPE, content_type(path.as_bytes()));
    let request = request.body(Body::Object(reader));
    let mut request = request.map_err(|_| PushError::Name)?;
    request.headers_mut().extend(headers);
    Ok(request)
}

/// Sends a request and waits for the store's acknowledgement.
pub(super) async fn send(
    store: &mut SendRequest<Body>,
    request: Request<Body>,
) -> Result<(), PushError> {
    store.ready().await?;
    let response = store.send_request(request).await?;
    let status = response.status();
    // The connection can be reused only after the body was read. A longer body is not read to its end.
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BODY)
        .collect()
        .await;
    match status.is_success() {
        true => Ok(()),
        false => {
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let text = [status.to_string().as_bytes(), b" ", &body].concat();
            Err(PushError::refused(&text))
        }
    }
}
