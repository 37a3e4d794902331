//! The control API: HTTP and JSON on the control socket, as `openapi.json` describes it.
//!
//! `GET` tells, and asks the networks; everything else is a change, and the supervisor's to grant.
//! A refused change has the text of the refusal as `error`, for the person who asked.

mod capture;
pub(super) mod metrics;
mod mutations;

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::direct_groups;
use super::memory_plane::orchestrator;
use super::memory_plane::space_task;
use super::message_plane;
use super::network::Message;
use super::network::status_reply::Answer;
use super::supervisor::{Addresses, Request};
use crate::status::{
    ControlStatus, GroupStatus, MessageStatus, NetworkStatus, PortStatus, SpaceStatus,
};

/// What the API is, for programs.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Largest body of a request, in bytes: a configuration of 10,000 ports.
const MAX_BODY: usize = 4 << 20;

/// Longest wait for the answers that a question of a client needs. A network, a space or a group answers
/// before with what it knows, also when its process hangs.
const ANSWERS: Duration = Duration::from_millis(850);

/// Where answers come from.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) addresses: watch::Receiver<Addresses>,
    pub(super) wishes: mpsc::Sender<Request>,
}

/// Answer on `socket` for ever.
pub(super) async fn serve(socket: UnixListener, daemon: Daemon) {
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
        .route("/v1/direct/{vm}/leave", post(mutations::leave))
        .route("/v1/direct/{vm}/join", post(mutations::join))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(scrape))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(daemon);
    if let Err(error) = axum::serve(socket, router).await {
        tracing::error!(%error, "the control API ended");
    }
}

async fn ports(State(daemon): State<Daemon>) -> Json<Vec<PortStatus>> {
    let answers = daemon.ask().await.into_iter();
    Json(answers.flat_map(|answer| answer.ports).collect())
}

async fn networks_now(State(daemon): State<Daemon>) -> Json<Vec<NetworkStatus>> {
    let answers = daemon.ask().await.into_iter();
    Json(answers.map(|answer| answer.network).collect())
}

async fn scrape(State(daemon): State<Daemon>) -> Response {
    let (networks, spaces, control) = tokio::join!(daemon.ask(), daemon.spaces(), daemon.control());
    let text = metrics::text(&networks, &spaces, control.as_slice());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// The message plane's state, or null where there is none.
async fn messages_now(State(daemon): State<Daemon>) -> Json<Option<MessageStatus>> {
    let plane = daemon.addresses.borrow().messages.clone();
    Json(ask_all(plane, message_plane::Message::Ask).await.pop())
}

/// The trust groups' state.
async fn direct_now(State(daemon): State<Daemon>) -> Json<Vec<GroupStatus>> {
    Json(daemon.direct().await)
}

/// The spaces' state.
async fn spaces_now(State(daemon): State<Daemon>) -> Json<Vec<SpaceStatus>> {
    Json(daemon.spaces().await)
}

/// How spaces are sized, or null where none is by the controller.
async fn control_now(State(daemon): State<Daemon>) -> Json<Option<ControlStatus>> {
    Json(daemon.control().await)
}

impl Daemon {
    /// How spaces are sized.
    async fn control(&self) -> Option<ControlStatus> {
        let orchestrator = self.addresses.borrow().orchestrator.clone();
        ask_all(orchestrator, orchestrator::Message::Ask)
            .await
            .pop()
    }

    /// The state of every space.
    async fn spaces(&self) -> Vec<SpaceStatus> {
        let spaces = self.addresses.borrow().spaces.clone();
        ask_all(spaces, space_task::Message::Ask).await
    }

    pub(super) fn groups(&self) -> Vec<mpsc::Sender<direct_groups::Message>> {
        self.addresses.borrow().groups.clone()
    }

    /// The state of every trust group.
    pub(super) async fn direct(&self) -> Vec<GroupStatus> {
        ask_all(self.groups(), direct_groups::Message::Ask).await
    }

    /// The state of every network.
    pub(super) async fn ask(&self) -> Vec<Answer> {
        let networks = self.addresses.borrow().networks.clone();
        let networks = networks.into_iter().map(|(_, network)| network);
        ask_all(networks, Message::Ask).await
    }
}

/// Ask all of these at once, and wait for their answers, [`ANSWERS`] at most. One that does not answer by
/// then is left out.
async fn ask_all<M, A>(
    addresses: impl IntoIterator<Item = mpsc::Sender<M>>,
    message: impl Fn(oneshot::Sender<A>) -> M,
) -> Vec<A> {
    let by = Instant::now() + ANSWERS;
    let mut answers = Vec::new();
    for address in addresses {
        let (question, answer) = oneshot::channel();
        if let Ok(Ok(())) = timeout_at(by, address.send(message(question))).await {
            answers.push(answer);
        }
    }
    let mut told = Vec::new();
    for answer in answers {
        if let Ok(Ok(answer)) = timeout_at(by, answer).await {
            told.push(answer);
        }
    }
    told
}
