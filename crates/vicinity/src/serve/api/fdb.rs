//! The entries of a network's FDB.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::daemon::{Daemon, UnknownNetwork};
use crate::serve::network::message::Message;
use crate::status::FdbEntryStatus;

/// Longest time for a list: a full FDB has a thousand pages.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    NoNetwork(#[from] UnknownNetwork),
    #[error(
        "the data plane of network {0} does not run, or did not list its FDB within 5 s; see `vicinity network list`"
    )]
    NoList(String),
}

impl IntoResponse for ListError {
    fn into_response(self) -> Response {
        let code = match self {
            Self::NoNetwork(_) => StatusCode::NOT_FOUND,
            Self::NoList(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, Json(json!({ "error": self.to_string() }))).into_response()
    }
}

/// Returns the entries, in the order of their ports.
pub(super) async fn fdb(State(daemon): State<Daemon>, Path(network): Path<String>) -> Response {
    match daemon.fdb(network).await {
        Ok(entries) => Json(entries).into_response(),
        Err(error) => error.into_response(),
    }
}

impl Daemon {
    async fn fdb(&self, network: String) -> Result<Vec<FdbEntryStatus>, ListError> {
        let address = self.network(&network)?;
        let (question, answer) = oneshot::channel();
        let listed = timeout(LIST_TIMEOUT, async {
            address.send(Message::ListFdb(question)).await.ok()?;
            answer.await.ok()
        });
        let listed = listed.await.ok().flatten();
        listed.ok_or(ListError::NoList(network))
    }
}
