//! The files of the page, in the program, and the headers that confine it.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Path, content type and text of each file.
const FILES: [(&str, &str, &str); 10] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/daemon.js", SCRIPT, include_str!("page/daemon.js")),
    ("/worker.js", SCRIPT, include_str!("page/worker.js")),
    ("/interval.js", SCRIPT, include_str!("page/interval.js")),
    ("/vm_table.js", SCRIPT, include_str!("page/vm_table.js")),
    ("/matrix.js", SCRIPT, include_str!("page/matrix.js")),
    ("/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/format.js", SCRIPT, include_str!("page/format.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page may do: run its own scripts and styles, one of them in a worker, and ask its own daemon.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the routes of the files.
pub(super) fn routes() -> Router {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        let file = move || async move {
            let headers = [
                (header::CONTENT_TYPE, kind),
                // Another version of the daemon has another page.
                (header::CACHE_CONTROL, "no-cache"),
            ];
            (headers, text).into_response()
        };
        router = router.route(path, get(file));
    }
    router
}

/// Returns whether a path is a file of the page.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|(file, _, _)| *file == path)
}

/// Adds the headers that confine what a browser does with an answer.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policies = [
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    for (name, value) in policies {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nothing_of_anybody_else_and_has_no_script_in_its_markup() {
        for (path, _, text) in FILES {
            for foreign in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
            ] {
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(foreign), "{path} has {foreign}");
            }
        }
        let (_, _, html) = FILES[0];
        assert!(!html.contains("style=") && !html.contains(" onclick"));
        for script in html.split("<script").skip(1) {
            assert!(script.split('>').next().unwrap().contains("src="));
        }
    }
}
