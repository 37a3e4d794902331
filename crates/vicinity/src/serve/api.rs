//! The control API: HTTP and JSON on the control socket.
//!
//! `GET /v1/ports` and `GET /v1/networks` return arrays of [`PortStatus`] and
//! [`NetworkStatus`], `GET /v1/messages` a [`MessageStatus`], or null where there is no message
//! plane.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::answer::Answer;
use super::messages;
use super::network::Message;
use crate::status::{MessageStatus, NetworkStatus, PortStatus};

type Networks = Vec<mpsc::Sender<Message>>;
type Plane = Option<mpsc::Sender<messages::Message>>;

/// Answer on `socket` for ever.
pub(super) async fn serve(socket: UnixListener, networks: Networks, plane: Plane) {
    let message_plane = Router::new()
        .route("/v1/messages", get(exchanges))
        .with_state(plane);
    let router = Router::new()
        .route("/v1/ports", get(ports))
        .route("/v1/networks", get(list))
        .with_state(networks)
        .merge(message_plane);
    if let Err(error) = axum::serve(socket, router).await {
        tracing::error!(%error, "the control API ended");
    }
}

async fn ports(State(networks): State<Networks>) -> Json<Vec<PortStatus>> {
    let answers = ask(&networks).await;
    Json(
        answers
            .into_iter()
            .flat_map(|answer| answer.ports)
            .collect(),
    )
}

async fn list(State(networks): State<Networks>) -> Json<Vec<NetworkStatus>> {
    let answers = ask(&networks).await;
    Json(answers.into_iter().map(|answer| answer.network).collect())
}

async fn exchanges(State(plane): State<Plane>) -> Json<Option<MessageStatus>> {
    let Some(plane) = plane else {
        return Json(None);
    };
    let (question, answer) = oneshot::channel();
    match plane.send(messages::Message::Ask(question)).await {
        Ok(()) => Json(answer.await.ok()),
        Err(_) => Json(None),
    }
}

/// The state of every network. All are asked before the first answer is waited for.
async fn ask(networks: &Networks) -> Vec<Answer> {
    let mut questions = Vec::new();
    for network in networks {
        let (question, answer) = oneshot::channel();
        if network.send(Message::Ask(question)).await.is_ok() {
            questions.push(answer);
        }
    }
    let mut answers = Vec::new();
    for question in questions {
        answers.extend(question.await.ok());
    }
    answers
}
