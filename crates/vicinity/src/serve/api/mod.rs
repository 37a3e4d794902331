//! The control API: HTTP and JSON on the control socket, as `openapi.json` describes it.
//!
//! `GET` asks the tasks for their state. Every other method is a change, which the supervisor carries out or
//! refuses. The response to a refused change has the reason as `error`.

mod capture;
pub(super) mod daemon;
mod fdb;
mod metrics;
mod mutations;
mod pair_metrics;
mod vsock_metrics;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use tokio::net::UnixListener;

use self::daemon::Daemon;
use crate::serve::network::message::Answer;
use crate::serve::web::{self, Gate, hub::Hub};
use crate::status::{
    ControlStatus, GroupStatus, MessageStatus, NetworkStatus, PortStatus, SpaceStatus, VsockStatus,
};

/// The description of the API in OpenAPI format.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Largest body of a request, in bytes: a configuration of 10,000 ports.
const MAX_BODY: usize = 4 << 20;

/// Answers on `socket` permanently.
pub(super) async fn serve(socket: UnixListener, daemon: Daemon, hub: Hub) {
    let port = delete(mutations::remove_port).patch(mutations::set_port);
    let router = Router::new()
        .route("/v1/ports", get(ports))
        .route(
            "/v1/networks",
            get(networks_now).post(mutations::add_network),
        )
        .route(
            "/v1/networks/{network}",
            delete(mutations::remove_network).patch(mutations::set_network),
        )
        .route("/v1/networks/{network}/fdb", get(fdb::fdb))
        .route("/v1/networks/{network}/ports", post(mutations::add_port))
        .route("/v1/networks/{network}/ports/{vm}", port)
        .route("/v1/config", get(mutations::config).put(mutations::replace))
        .route("/v1/reload", post(mutations::reload))
        .route("/v1/messages", get(messages_now))
        .route("/v1/capture", get(capture::capture))
        .route("/v1/direct", get(direct_now))
        .route("/v1/spaces", get(spaces_now).post(mutations::add_space))
        .route(
            "/v1/spaces/{vm}",
            delete(mutations::remove_space).patch(mutations::set_space),
        )
        .route("/v1/space-control", get(control_now))
        .route("/v1/vsock", get(vsocks_now))
        .route("/v1/direct/{vm}/leave", post(mutations::leave))
        .route("/v1/direct/{vm}/join", post(mutations::join))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(scrape))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(daemon)
        .merge(web::routes(hub));
    let router = web::guarded(router, Gate::default());
    if let Err(error) = axum::serve(socket, router).await {
        tracing::error!(%error, "the control API ended; restart the daemon");
    }
}

/// Returns the routes of clients that may look at everything but the configuration and the VMs' frames, and change
/// nothing.
pub(super) fn read_only(daemon: Daemon, hub: Hub) -> Router {
    Router::new()
        .route("/v1/ports", get(ports))
        .route("/v1/networks", get(networks_now))
        .route("/v1/networks/{network}/fdb", get(fdb::fdb))
        .route("/v1/messages", get(messages_now))
        .route("/v1/direct", get(direct_now))
        .route("/v1/spaces", get(spaces_now))
        .route("/v1/space-control", get(control_now))
        .route("/v1/vsock", get(vsocks_now))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(scrape_with_host))
        .with_state(daemon)
        .merge(web::routes(hub))
}

async fn ports(State(daemon): State<Daemon>) -> Json<Vec<PortStatus>> {
    let answers = daemon.network_answers().await.into_iter();
    Json(answers.flat_map(|answer| answer.ports).collect())
}

async fn networks_now(State(daemon): State<Daemon>) -> Json<Vec<NetworkStatus>> {
    let answers = daemon.network_answers().await.into_iter();
    Json(answers.map(|answer| answer.network).collect())
}

/// Returns all metrics but those of the observer.
async fn metrics_text(daemon: &Daemon, networks: &[Answer]) -> String {
    let (spaces, control, direct, messages, vsocks) = tokio::join!(
        daemon.spaces(),
        daemon.control(),
        daemon.direct(),
        daemon.messages(),
        daemon.vsocks()
    );
    metrics::text(networks, &spaces, control.as_slice())
        + &pair_metrics::text(networks, &direct, messages.as_ref())
        + &vsock_metrics::text(&vsocks)
}

/// Returns the heads of all metrics: names, kinds, and what they say.
pub(super) fn metric_heads() -> String {
    metrics::text(&[], &[], &[]) + &pair_metrics::text(&[], &[], None) + &vsock_metrics::text(&[])
}

async fn scrape(State(daemon): State<Daemon>) -> Response {
    let networks = daemon.network_answers().await;
    let text = metrics_text(&daemon, &networks).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// Returns the metrics with those of the observer.
async fn scrape_with_host(State(daemon): State<Daemon>) -> Response {
    let networks = daemon.network_answers().await;
    let text = metrics_text(&daemon, &networks).await + &daemon.host_metrics(&networks).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Returns the message plane's state, or null without a message plane.
async fn messages_now(State(daemon): State<Daemon>) -> Json<Option<MessageStatus>> {
    Json(daemon.messages().await)
}

/// Returns the trust groups' state.
async fn direct_now(State(daemon): State<Daemon>) -> Json<Vec<GroupStatus>> {
    Json(daemon.direct().await)
}

/// Returns the spaces' state.
async fn spaces_now(State(daemon): State<Daemon>) -> Json<Vec<SpaceStatus>> {
    Json(daemon.spaces().await)
}

/// Returns the socket devices' state.
async fn vsocks_now(State(daemon): State<Daemon>) -> Json<Vec<VsockStatus>> {
    Json(daemon.vsocks().await)
}

/// Returns how spaces are sized, or null if the controller sizes none.
async fn control_now(State(daemon): State<Daemon>) -> Json<Option<ControlStatus>> {
    Json(daemon.control().await)
}
