//! What a client gets for a request (RFC 9110: ranges, conditions).

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
use space::store::{Found, LAST_DATE, Object};

use crate::access::Access;
use crate::body::{Body, Part};
use crate::content_type::kind;
use crate::shared::{Shared, add};

/// Longest path, in bytes, as it comes.
const MAX_PATH: usize = 4096;

/// Answer a request from this address.
pub(crate) fn answer<B>(
    shared: &Arc<Shared>,
    access: &Access,
    from: IpAddr,
    request: &Request<B>,
) -> Response<Body> {
    add(&shared.counts.requests);
    let headers = request.headers();
    let shown = headers.typed_get::<Authorization<Bearer>>();
    if !access.permits(from, shown.as_ref()) {
        add(&shared.counts.refused);
        return refusal(access, shown.is_some());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = words(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let allowed = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, allowed);
        return answer;
    }
    let path = request.uri().path();
    let Some(path) = names(path) else {
        return words(StatusCode::NOT_FOUND, "no such object");
    };
    let found = shared.store().find(path.iter().map(Vec::as_slice));
    match found {
        Found::Nothing => words(StatusCode::NOT_FOUND, "no such object"),
        Found::Unfinished => {
            let mut answer = words(StatusCode::SERVICE_UNAVAILABLE, "it is being written");
            let soon = HeaderValue::from_static("1");
            answer.headers_mut().insert(RETRY_AFTER, soon);
            answer
        }
        Found::Object(object) => {
            let name = path.last().map_or(&b""[..], Vec::as_slice);
            let head = *request.method() == Method::HEAD;
            serve(shared, object, name, headers, head)
        }
    }
}

fn refusal(access: &Access, shown: bool) -> Response<Body> {
    if access.token.is_none() || shown {
        return words(StatusCode::FORBIDDEN, "not for you");
    }
    let mut answer = words(StatusCode::UNAUTHORIZED, "show a token");
    let how = HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, how);
    answer
}

/// The names that a path consists of, as bytes; none if it cannot be one of ours.
fn names(path: &str) -> Option<Vec<Vec<u8>>> {
    if path.len() > MAX_PATH {
        return None;
    }
    let names = path.strip_prefix('/')?.split('/');
    let names = names.map(|name| percent_encoding::percent_decode_str(name).collect::<Vec<_>>());
    // A slash that was written as `%2F` is part of a name, and no name has one.
    Some(names.collect())
}

fn serve(
    shared: &Arc<Shared>,
    object: Object,
    name: &[u8],
    headers: &HeaderMap,
    head: bool,
) -> Response<Body> {
    let size = object.content.size();
    let tag = format!("\"{:x}-{}\"", shared.life(), object.version);
    let modified = UNIX_EPOCH
        .checked_add(object.modified.min(LAST_DATE))
        .unwrap_or(UNIX_EPOCH);
    let tag = tag.parse::<ETag>().ok();
    let mut answer = match condition(headers, tag.as_ref(), modified) {
        Some(status) => empty(status),
        None => match part(headers, tag.as_ref(), modified, size) {
            Wanted::All => content(shared, object, 0..size, head),
            Wanted::Part(span) => {
                let range = ContentRange::bytes(span.clone(), size).ok();
                let mut answer = content(shared, object, span, head);
                *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
                if let Some(range) = range {
                    answer.headers_mut().typed_insert(range);
                }
                answer
            }
            Wanted::Impossible => {
                let mut answer = empty(StatusCode::RANGE_NOT_SATISFIABLE);
                let size = ContentRange::unsatisfied_bytes(size);
                answer.headers_mut().typed_insert(size);
                answer
            }
        },
    };
    let to = answer.headers_mut();
    to.typed_insert(AcceptRanges::bytes());
    to.typed_insert(LastModified::from(modified));
    to.insert(CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    if let Some(tag) = tag {
        to.typed_insert(tag);
    }
    answer
}

/// Conditions in the order of RFC 9110, 13.2.2; the status if one says not to send.
fn condition(headers: &HeaderMap, tag: Option<&ETag>, modified: SystemTime) -> Option<StatusCode> {
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

/// As it stands in a header.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH
        .checked_add(std::time::Duration::from_secs(since.as_secs()))
        .unwrap_or(time)
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part(Span<u64>),
    Impossible,
}

/// The range asked for, if it is one of this version.
fn part(headers: &HeaderMap, tag: Option<&ETag>, modified: SystemTime, size: u64) -> Wanted {
    let text = headers.get(RANGE).and_then(|text| text.to_str().ok());
    let Some(text) = text else {
        return Wanted::All;
    };
    if let Some(condition) = headers.typed_get::<IfRange>() {
        let modified = LastModified::from(modified);
        if condition.is_modified(tag, Some(&modified)) {
            return Wanted::All;
        }
    }
    range(text, size).unwrap_or(Wanted::All)
}

/// A range of bytes (RFC 9110, 14.1.2); none for what is no valid one, and for several at once, which
/// may be answered by all (14.2).
fn range(text: &str, size: u64) -> Option<Wanted> {
    let (first, last) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
    let span = match (number(first)?, number(last)?) {
        (Some(first), Some(last)) if first > last => return None,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
        (Some(first), None) => first..size,
        // The last so many.
        (None, Some(count)) => size.saturating_sub(count)..size,
        (None, None) => return None,
    };
    Some(match span.is_empty() {
        true => Wanted::Impossible,
        false => Wanted::Part(span),
    })
}

/// A number, or nothing; none for anything else. A larger one than there can be is the largest.
fn number(text: &str) -> Option<Option<u64>> {
    match text {
        "" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(text.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    }
}

fn content(shared: &Arc<Shared>, object: Object, span: Span<u64>, head: bool) -> Response<Body> {
    let length = span.end - span.start;
    let body = match head {
        true => Body::Text(None),
        false => Body::Object(Part::new(shared, object.content, span.start, length)),
    };
    let mut answer = Response::new(body);
    answer.headers_mut().typed_insert(ContentLength(length));
    answer
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::Text(None));
    *answer.status_mut() = status;
    answer
}

fn words(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut answer = Response::new(Body::Text(Some(text.into())));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(range: &str, size: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert("range", range.parse().unwrap());
        part(&headers, None, UNIX_EPOCH, size)
    }

    #[test]
    fn ranges_are_as_http_has_them() {
        assert_eq!(wanted("bytes=0-0", 10), Wanted::Part(0..1));
        assert_eq!(wanted("bytes=2-", 10), Wanted::Part(2..10));
        assert_eq!(wanted("bytes=-3", 10), Wanted::Part(7..10));
        assert_eq!(wanted("bytes=-30", 10), Wanted::Part(0..10));
        assert_eq!(wanted("bytes=5-99", 10), Wanted::Part(5..10));
        for absurd in [
            "bytes=10-",
            "bytes=10-20",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(wanted(absurd, 10), Wanted::Impossible, "{absurd}");
        }
        // Of nothing there is no part. One may ask for the same byte a thousand times.
        assert_eq!(wanted("bytes=0-", 0), Wanted::Impossible);
        let many = format!("bytes=0-0{}", ",0-0".repeat(1000));
        assert_eq!(wanted(&many, 10), Wanted::All);
        for garbage in [
            "bytes=5-2",
            "lines=1-2",
            "bytes=x",
            "bytes=99999999999999999999-",
        ] {
            let other = wanted(garbage, 10);
            assert!(!matches!(other, Wanted::Part(_)), "{garbage}: {other:?}");
        }
    }

    #[test]
    fn a_path_is_names() {
        let names = |path| names(path).unwrap_or_default();
        assert_eq!(names("/a/b%20c"), [b"a".to_vec(), b"b c".to_vec()]);
        assert_eq!(names("/%2e%2e/x%2fy"), [b"..".to_vec(), b"x/y".to_vec()]);
        assert_eq!(names("/%ff"), [vec![0xff]]);
        assert!(names("*").is_empty());
    }
}
