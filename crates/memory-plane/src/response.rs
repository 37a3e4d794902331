//! Responses to clients' requests, with ranges and conditional requests (RFC 9110).

use std::net::IpAddr;
use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use headers::authorization::Bearer;
use headers::{
    AcceptRanges, Authorization, ContentLength, ContentRange, ETag, HeaderMapExt, IfMatch,
    IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince, LastModified,
};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use space::store::{LAST_DATE, Lookup, Object};

use crate::access::Access;
use crate::body::{Body, ObjectReader};
use crate::content_type::content_type;
use crate::space_state::{SpaceState, increment};

/// Longest path of a request, in bytes, before percent-decoding.
const MAX_PATH: usize = 4096;

/// Returns the response to a request from this address.
pub(crate) fn respond<B>(
    state: &Arc<SpaceState>,
    access: &Access,
    from: IpAddr,
    request: &Request<B>,
) -> Response<Body> {
    increment(&state.counters.requests);
    let headers = request.headers();
    let credentials = headers.typed_get::<Authorization<Bearer>>();
    if !access.permits(from, credentials.as_ref()) {
        increment(&state.counters.refused);
        return access_denied(access, credentials.is_some());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let path = request.uri().path();
    let Some(path) = path_names(path) else {
        return text_response(StatusCode::NOT_FOUND, "no such object");
    };
    let found = state.store().find(path.iter().map(Vec::as_slice));
    match found {
        Lookup::Nothing => text_response(StatusCode::NOT_FOUND, "no such object"),
        Lookup::Unfinished => {
            let mut response = text_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "the object is being written",
            );
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, soon);
            response
        }
        Lookup::Object(object) => {
            let name = path.last().map_or(&b""[..], Vec::as_slice);
            let is_head = *request.method() == Method::HEAD;
            respond_with_object(state, object, name, headers, is_head)
        }
    }
}

fn access_denied(access: &Access, has_credentials: bool) -> Response<Body> {
    if access.token.is_none() || has_credentials {
        return text_response(StatusCode::FORBIDDEN, "this client may not fetch objects");
    }
    let mut response = text_response(StatusCode::UNAUTHORIZED, "a bearer token is required");
    let how = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, how);
    response
}

/// Splits a path at slashes and percent-decodes its names. Returns `None` for a path that no object can have.
fn path_names(path: &str) -> Option<Vec<Vec<u8>>> {
    if path.len() > MAX_PATH {
        return None;
    }
    let names = path.strip_prefix('/')?.split('/');
    let names = names.map(|name| percent_encoding::percent_decode_str(name).collect::<Vec<_>>());
    // A slash that was encoded as `%2F` becomes part of a name. The store has no such names, so the look-up fails.
    Some(names.collect())
}

fn respond_with_object(
    state: &Arc<SpaceState>,
    object: Object,
    name: &[u8],
    headers: &HeaderMap,
    is_head: bool,
) -> Response<Body> {
    let size = object.content.size();
    let tag = format!("\"{:x}-{}\"", state.start_nanos(), object.version);
    let modified = UNIX_EPOCH
        .checked_add(object.modified.min(LAST_DATE))
        .unwrap_or(UNIX_EPOCH);
    let tag = tag.parse::<ETag>().ok();
    let mut response = match failed_precondition(headers, tag.as_ref(), modified) {
        Some(status) => empty_response(status),
        None => match requested_range(headers, tag.as_ref(), modified, size) {
            RequestedRange::Whole => object_response(state, object, 0..size, is_head),
            RequestedRange::Part(span) => {
                let range = ContentRange::bytes(span.clone(), size).ok();
                let mut response = object_response(state, object, span, is_head);
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                if let Some(range) = range {
                    response.headers_mut().typed_insert(range);
                }
                response
            }
            RequestedRange::Unsatisfiable => {
                let mut response = empty_response(StatusCode::RANGE_NOT_SATISFIABLE);
                let size = ContentRange::unsatisfied_bytes(size);
                response.headers_mut().typed_insert(size);
                response
            }
        },
    };
    let to = response.headers_mut();
    to.typed_insert(AcceptRanges::bytes());
    to.typed_insert(LastModified::from(modified));
    to.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    if let Some(tag) = tag {
        to.typed_insert(tag);
    }
    response
}

/// Evaluates the conditions of a request in the order of RFC 9110, 13.2.2. Returns the status if the object is not to be
/// sent.
fn failed_precondition(
    headers: &HeaderMap,
    tag: Option<&ETag>,
    modified: SystemTime,
) -> Option<StatusCode> {
    let tag = tag?;
    if let Some(condition) = headers.typed_get::<IfMatch>() {
        if !condition.precondition_passes(tag) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if let Some(condition) = headers.typed_get::<IfUnmodifiedSince>() {
        if !condition.precondition_passes(whole_seconds(modified)) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    }
    if let Some(condition) = headers.typed_get::<IfNoneMatch>() {
        if !condition.precondition_passes(tag) {
            return Some(StatusCode::NOT_MODIFIED);
        }
    } else if let Some(condition) = headers.typed_get::<IfModifiedSince>() {
        if !condition.is_modified(whole_seconds(modified)) {
            return Some(StatusCode::NOT_MODIFIED);
        }
    }
    None
}

/// Truncates a time to whole seconds, the resolution of HTTP headers.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH
        .checked_add(std::time::Duration::from_secs(since.as_secs()))
        .unwrap_or(time)
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Whole,
    Part(Span<u64>),
    Unsatisfiable,
}

/// Returns the requested range. A range under an `If-Range` of another version is ignored.
fn requested_range(
    headers: &HeaderMap,
    tag: Option<&ETag>,
    modified: SystemTime,
    size: u64,
) -> RequestedRange {
    let text = headers.get(RANGE).and_then(|text| text.to_str().ok());
    let Some(text) = text else {
        return RequestedRange::Whole;
    };
    if let Some(condition) = headers.typed_get::<IfRange>() {
        let modified = LastModified::from(modified);
        if condition.is_modified(tag, Some(&modified)) {
            return RequestedRange::Whole;
        }
    }
    range(text, size).unwrap_or(RequestedRange::Whole)
}

/// Parses a range of bytes (RFC 9110, 14.1.2). Returns `None` for an invalid range, and for several ranges, which a server
/// may answer with the whole object (14.2).
fn range(text: &str, size: u64) -> Option<RequestedRange> {
    let (first, last) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
    let span = match (number(first)?, number(last)?) {
        (Some(first), Some(last)) if first > last => return None,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
        (Some(first), None) => first..size,
        // A suffix range: the last `count` bytes.
        (None, Some(count)) => size.saturating_sub(count)..size,
        (None, None) => return None,
    };
    Some(match span.is_empty() {
        true => RequestedRange::Unsatisfiable,
        false => RequestedRange::Part(span),
    })
}

/// Parses an optional number: `Some(None)` for an empty string, `None` for invalid text. Numbers above `u64::MAX` are
/// `u64::MAX`.
fn number(text: &str) -> Option<Option<u64>> {
    match text {
        "" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(text.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    }
}

fn object_response(
    state: &Arc<SpaceState>,
    object: Object,
    span: Span<u64>,
    is_head: bool,
) -> Response<Body> {
    let length = span.end - span.start;
    let body = match is_head {
        true => Body::Text(None),
        false => Body::Object(ObjectReader::new(state, object.content, span.start, length)),
    };
    let mut response = Response::new(body);
    response.headers_mut().typed_insert(ContentLength(length));
    response
}

fn empty_response(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Text(None));
    *response.status_mut() = status;
    response
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Text(Some(text.into())));
    *response.status_mut() = status;
    let text_plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text_plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(range: &str, size: u64) -> RequestedRange {
        let mut headers = HeaderMap::new();
        headers.insert("range", range.parse().unwrap());
        requested_range(&headers, None, UNIX_EPOCH, size)
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        assert_eq!(requested("bytes=0-0", 10), RequestedRange::Part(0..1));
        assert_eq!(requested("bytes=2-", 10), RequestedRange::Part(2..10));
        assert_eq!(requested("bytes=-3", 10), RequestedRange::Part(7..10));
        assert_eq!(requested("bytes=-30", 10), RequestedRange::Part(0..10));
        assert_eq!(requested("bytes=5-99", 10), RequestedRange::Part(5..10));
        for unsatisfiable in [
            "bytes=10-",
            "bytes=10-20",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(
                requested(unsatisfiable, 10),
                RequestedRange::Unsatisfiable,
                "{unsatisfiable}"
            );
        }
        // An empty object has no range. A client may request the same byte a thousand times.
        assert_eq!(requested("bytes=0-", 0), RequestedRange::Unsatisfiable);
        let many = format!("bytes=0-0{}", ",0-0".repeat(1000));
        assert_eq!(requested(&many, 10), RequestedRange::Whole);
        for invalid in [
            "bytes=5-2",
            "lines=1-2",
            "bytes=x",
            "bytes=99999999999999999999-",
        ] {
            let other = requested(invalid, 10);
            assert!(
                !matches!(other, RequestedRange::Part(_)),
                "{invalid}: {other:?}"
            );
        }
    }

    #[test]
    fn a_path_is_split_and_percent_decoded() {
        let split = |path| path_names(path).unwrap_or_default();
        assert_eq!(split("/a/b%20c"), [b"a".to_vec(), b"b c".to_vec()]);
        assert_eq!(split("/%2e%2e/x%2fy"), [b"..".to_vec(), b"x/y".to_vec()]);
        assert_eq!(split("/%ff"), [vec![0xff]]);
        assert!(split("*").is_empty());
    }
}
