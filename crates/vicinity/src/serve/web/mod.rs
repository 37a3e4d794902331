//! The page, and what it shows: `GET /`, `/v1/live`, `/v1/history`.
//!
//! ```text
//!  control.sock ───┐                       ┌─ page: files in the program
//!  view.sock ──────┼─▶ gate ─▶ token? ─▶ router ─┤
//!  [web] listen ───┘   Host,   (TCP)       └─ hub: one sampler, at most 16 listeners, 15 minutes
//!                      Origin
//! ```
//!
//! The page changes nothing and needs no listener of its own: it is on the control socket, on a read-only socket
//! beside it, and on a TCP address if the configuration has one. Browsers carry requests of foreign pages, so [`gate`]
//! refuses those, in the whole API. The sampler of the [`hub`] runs only while a client listens.

mod gate;
mod history;
pub(crate) mod hub;
mod listen;
mod page;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, middleware};
use serde::Deserialize;
use serde_json::json;
use tokio::net::UnixListener;

pub(crate) use self::gate::Gate;
use self::hub::Hub;
pub(super) use self::listen::Address;
pub(crate) use self::listen::ListenError;

/// Returns the routes of the page.
pub(crate) fn routes(hub: Hub) -> Router {
    Router::new()
        .route("/v1/live", get(live))
        .route("/v1/history", get(history_now))
        .with_state(hub)
        .merge(page::routes())
}

/// Has requests of foreign pages refused.
pub(crate) fn guarded(router: Router, gate: Gate) -> Router {
    router
        .layer(middleware::from_fn_with_state(gate, gate::check))
        .layer(middleware::from_fn(page::protect))
}

/// Answers on the read-only socket permanently.
pub(super) async fn serve(socket: UnixListener, router: Router) {
    if let Err(error) = axum::serve(socket, router).await {
        tracing::error!(%error, "the read-only socket ended; restart the daemon");
    }
}

/// Returns the figures, an interval at a time: as server-sent events if the client accepts these, else as lines.
async fn live(State(hub): State<Hub>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).map(|value| value.as_bytes());
    let events = accept.is_some_and(|accept| {
        let wanted = b"text/event-stream";
        accept.windows(wanted.len()).any(|part| part == wanted)
    });
    let kind = match events {
        true => "text/event-stream",
        false => "application/x-ndjson",
    };
    match hub.listen(events) {
        Some(body) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
        None => {
            let text = format!(
                "{} clients listen already, which is the maximum; close a page, or try again later",
                hub::MAX_LISTENERS
            );
            let error = Json(json!({ "error": text }));
            (StatusCode::SERVICE_UNAVAILABLE, error).into_response()
        }
    }
}

/// Which history is wanted.
#[derive(Debug, Deserialize)]
struct Wanted {
    /// This VM's fifteen minutes; without it, a minute of every VM.
    vm: Option<String>,
}

async fn history_now(State(hub): State<Hub>, Query(wanted): Query<Wanted>) -> Response {
    Json(hub.history(wanted.vm.as_deref())).into_response()
}
