//! PUT, by HTTP/1.1.

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::PushError;
use crate::body::{Body, Part};
use crate::content_type::kind;

/// What hyper gathers before it waits for the store to take it.
const BUFFER: usize = 128 << 10;

/// Longest body of an answer that is read to its end.
const MAX_ANSWER: usize = 16 << 10;

/// Speak HTTP on a connection. What drives it ends with the sender.
pub(super) async fn begin<S>(stream: S) -> Result<SendRequest<Body>, PushError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut http = http1::Builder::new();
    http.max_buf_size(BUFFER);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Who waits for an answer is told.
        drop(connection.await);
    });
    Ok(sender)
}

/// To put a file of this length under a path, with these headers, too.
pub(super) fn request(
    host: &str,
    headers: HeaderMap,
    path: &str,
    (length, part): (u64, Part),
) -> Result<Request<Body>, PushError> {
    let request = Request::put(path)
        .header(HOST, host)
        .header(CONTENT_LENGTH, length)
        .header(CONTENT_TYPE, kind(path.as_bytes()));
    let request = request.body(Body::Object(part));
    let mut request = request.map_err(|_| PushError::Name)?;
    request.headers_mut().extend(headers);
    Ok(request)
}

/// Send a file and wait until the store has it.
pub(super) async fn send(
    store: &mut SendRequest<Body>,
    request: Request<Body>,
) -> Result<(), PushError> {
    store.ready().await?;
    let answer = store.send_request(request).await?;
    let status = answer.status();
    // The connection is of use again when the answer was read; one that goes on for long is not worth it.
    let words = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    match status.is_success() {
        true => Ok(()),
        false => {
            let words = words.map(|words| words.to_bytes()).unwrap_or_default();
            let text = [status.to_string().as_bytes(), b" ", &words].concat();
            Err(PushError::refused(&text))
        }
    }
}
