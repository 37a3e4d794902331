//! Refuses the requests that a foreign page makes a browser send.
//!
//! A page of another origin can have the operator's browser send requests to `localhost`, where `ssh -L` may lead to
//! the control socket. It cannot read the answers, but a request may change something; and with a name that it
//! resolves to 127.0.0.1 (DNS rebinding) it could read the answers, too. Browsers tell who asks:
//! - `Host` has the name in the address bar. Only `localhost`, IP addresses and the configured name are ours: a name
//!   that an attacker resolves is none of these.
//! - `Sec-Fetch-Site` (W3C Fetch Metadata) and `Origin` (RFC 6454) tell whose page asks.
//! - A body of a type that HTML forms send needs no preflight (Fetch, 2.2.2), so none is accepted.
//!
//! Programs that are no browsers send none of these headers, and pass.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// The `Host` that `vicinity` itself and older instructions for curl name.
const PROGRAM: &str = "vicinity";

/// What a request must have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    /// A name of this host that browsers may use.
    pub(crate) host_name: Option<Arc<str>>,
    /// The token that requests for figures must show.
    pub(crate) token: Option<Arc<str>>,
}

/// Passes a request on, or refuses it.
pub(super) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let is_page = super::page::has(request.uri().path());
    match gate.refusal(request.method(), is_page, request.headers()) {
        None => next.run(request).await,
        Some((code, text)) => {
            let mut response = (code, Json(json!({ "error": text }))).into_response();
            if code == StatusCode::UNAUTHORIZED {
                let challenge = header::HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

impl Gate {
    /// Returns why a request is refused, if it is.
    fn refusal(
        &self,
        method: &Method,
        is_page: bool,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, &'static str)> {
        if !self.knows_host(headers) {
            return Some((
                StatusCode::FORBIDDEN,
                "the request names a foreign host; use localhost or an IP address, or give the page's `host-name` in \
                 the configuration",
            ));
        }
        // A link on another site may open the page itself.
        let opens = is_page
            && *method == Method::GET
            && text(headers, "sec-fetch-mode") == Some("navigate");
        if !opens && !is_own(headers) {
            return Some((
                StatusCode::FORBIDDEN,
                "the request comes from a page of another site; open the page of this daemon",
            ));
        }
        if has_form(headers) {
            return Some((
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a body of this type is not accepted; send application/json",
            ));
        }
        if !is_page && !self.has_token(headers) {
            return Some((
                StatusCode::UNAUTHORIZED,
                "the request has no valid token; send `Authorization: Bearer TOKEN` with the token of `token-file`",
            ));
        }
        None
    }

    /// Returns whether a request names this host, or none, as HTTP/1.0 permits.
    fn knows_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next(), hosts.next());
        let Some(host) = host else {
            return true;
        };
        let (Ok(host), None) = (host.to_str(), more) else {
            return false;
        };
        let name = without_port(host);
        let is_browser =
            text(headers, "user-agent").is_some_and(|agent| agent.starts_with("Mozilla/"));
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self
                .host_name
                .as_deref()
                .is_some_and(|own| name.eq_ignore_ascii_case(own))
            || (name == PROGRAM && !is_browser)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let shown = text(headers, "authorization");
        let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
        shown.is_some_and(|shown| equal(shown.as_bytes(), token.as_bytes()))
    }
}

/// Returns a host without its port, and an IPv6 address without its brackets.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Returns whether a request does not come from a page of another site.
fn is_own(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return false;
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let (Ok(origin), Some(host)) = (origin.to_str(), text(headers, "host")) else {
        return false;
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Returns whether the body has one of the three types of HTML forms.
fn has_form(headers: &HeaderMap) -> bool {
    const FORMS: [&str; 3] = [
        "text/plain",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
    ];
    let kind = text(headers, "content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    FORMS.iter().any(|form| kind.eq_ignore_ascii_case(form))
}

/// Compares in a time that does not depend on where the two differ.
fn equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(gate: &Gate, method: &Method, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let refusal = gate.refusal(method, false, &map);
        refusal.map_or(200, |(code, _)| code.as_u16())
    }

    #[test]
    fn fetch_metadata_origin_and_host_of_foreign_pages_are_refused() {
        let gate = Gate {
            host_name: Some("host.example".into()),
            token: None,
        };
        const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0");
        for (expected, headers) in [
            (200, &[("host", "localhost")][..]),
            (200, &[]),
            (200, &[("host", "vicinity"), ("content-type", "")]),
            (200, &[("host", "127.0.0.1:8080"), BROWSER]),
            (200, &[("host", "[::1]:8080"), BROWSER]),
            (200, &[("host", "HOST.example:8443"), BROWSER]),
            (
                200,
                &[
                    ("host", "localhost:8080"),
                    ("sec-fetch-site", "same-origin"),
                ],
            ),
            (
                200,
                &[("host", "localhost:8080"), ("sec-fetch-site", "none")],
            ),
            (
                200,
                &[
                    ("host", "localhost:8080"),
                    ("origin", "http://localhost:8080"),
                ],
            ),
            (403, &[("host", "vicinity"), BROWSER]),
            (403, &[("host", "attacker.example"), BROWSER]),
            (403, &[("host", "attacker.example")]),
            (403, &[("host", "localhost.attacker.example")]),
            (403, &[("host", "127.0.0.1.attacker.example")]),
            (403, &[("host", "localhost"), ("host", "attacker.example")]),
            (403, &[("host", "")]),
            (
                403,
                &[("host", "localhost:8080"), ("sec-fetch-site", "cross-site")],
            ),
            (
                403,
                &[("host", "localhost:8080"), ("sec-fetch-site", "same-site")],
            ),
            (403, &[("host", "localhost:8080"), ("origin", "null")]),
            (
                403,
                &[
                    ("host", "localhost:8080"),
                    ("origin", "http://localhost:9090"),
                ],
            ),
            (
                415,
                &[
                    ("host", "localhost"),
                    ("content-type", "text/plain; charset=utf-8"),
                ],
            ),
            (
                415,
                &[
                    ("host", "localhost"),
                    ("content-type", "Multipart/Form-Data"),
                ],
            ),
            (
                200,
                &[("host", "localhost"), ("content-type", "application/json")],
            ),
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(code(&gate, &method, headers), expected, "{headers:?}");
            }
        }
    }

    #[test]
    fn a_link_of_another_site_opens_the_page_and_nothing_else() {
        let gate = Gate::default();
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost".parse().unwrap());
        headers.insert("sec-fetch-site", "cross-site".parse().unwrap());
        headers.insert("sec-fetch-mode", "navigate".parse().unwrap());
        assert!(gate.refusal(&Method::GET, true, &headers).is_none());
        assert!(gate.refusal(&Method::POST, true, &headers).is_some());
        assert!(gate.refusal(&Method::GET, false, &headers).is_some());
        headers.insert("sec-fetch-mode", "no-cors".parse().unwrap());
        assert!(gate.refusal(&Method::GET, true, &headers).is_some());
    }

    #[test]
    fn without_the_token_there_are_no_figures() {
        let gate = Gate {
            host_name: None,
            token: Some("secret".into()),
        };
        const HOST: (&str, &str) = ("host", "localhost");
        assert_eq!(code(&gate, &Method::GET, &[HOST]), 401);
        for wrong in ["Bearer secre", "Bearer secret2", "Basic secret", "secret"] {
            for _ in 0..250 {
                assert_eq!(
                    code(&gate, &Method::GET, &[HOST, ("authorization", wrong)]),
                    401
                );
            }
        }
        let right = ("authorization", "Bearer secret");
        assert_eq!(code(&gate, &Method::GET, &[HOST, right]), 200);
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost".parse().unwrap());
        assert!(
            gate.refusal(&Method::GET, true, &headers).is_none(),
            "the page itself is no secret"
        );
    }
}
