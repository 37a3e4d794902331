//! The requests of the control API that change something.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::oneshot;

use super::daemon::Daemon;
use crate::config::{Edit, EditError, Keys, SaveError, Source};
use crate::serve::direct_groups;
use crate::serve::memory_plane::space_task::SpaceError;
use crate::serve::request::{ChangeError, ChangeRequest};
use crate::status::ConfigStatus;

pub(in crate::serve) async fn config(State(daemon): State<Daemon>) -> Response {
    daemon.request(ChangeRequest::Show).await
}

pub(in crate::serve) async fn replace(State(daemon): State<Daemon>, text: String) -> Response {
    daemon.request(ChangeRequest::Replace(text)).await
}

pub(in crate::serve) async fn reload(State(daemon): State<Daemon>) -> Response {
    daemon.request(ChangeRequest::Reload).await
}

pub(in crate::serve) async fn add_network(
    State(daemon): State<Daemon>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::AddNetwork(keys)).await
}

pub(in crate::serve) async fn set_network(
    State(daemon): State<Daemon>,
    Path(network): Path<String>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::SetNetwork { network, keys }).await
}

pub(in crate::serve) async fn remove_network(
    State(daemon): State<Daemon>,
    Path(network): Path<String>,
) -> Response {
    daemon.edit(Edit::RemoveNetwork { network }).await
}

pub(in crate::serve) async fn add_port(
    State(daemon): State<Daemon>,
    Path(network): Path<String>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::AddPort { network, keys }).await
}

pub(in crate::serve) async fn set_port(
    State(daemon): State<Daemon>,
    Path((network, vm)): Path<(String, String)>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::SetPort { network, vm, keys }).await
}

pub(in crate::serve) async fn remove_port(
    State(daemon): State<Daemon>,
    Path((network, vm)): Path<(String, String)>,
) -> Response {
    daemon.edit(Edit::RemovePort { network, vm }).await
}

pub(in crate::serve) async fn add_space(
    State(daemon): State<Daemon>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::AddSpace(keys)).await
}

pub(in crate::serve) async fn set_space(
    State(daemon): State<Daemon>,
    Path(vm): Path<String>,
    Json(keys): Json<Keys>,
) -> Response {
    daemon.edit(Edit::SetSpace { vm, keys }).await
}

pub(in crate::serve) async fn remove_space(
    State(daemon): State<Daemon>,
    Path(vm): Path<String>,
) -> Response {
    daemon.edit(Edit::RemoveSpace { vm }).await
}

/// Has a VM leave its trust group.
pub(in crate::serve) async fn leave(
    State(daemon): State<Daemon>,
    Path(vm): Path<String>,
) -> Response {
    daemon.set_left(vm, true).await
}

/// Lets a VM join its trust group again.
pub(in crate::serve) async fn join(
    State(daemon): State<Daemon>,
    Path(vm): Path<String>,
) -> Response {
    daemon.set_left(vm, false).await
}

impl Daemon {
    async fn set_left(&self, vm: String, left: bool) -> Response {
        for group in self.groups() {
            let (known, answer) = oneshot::channel();
            let message = direct_groups::Message::SetLeft {
                vm: vm.clone(),
                left,
                known,
            };
            // Neither the sending nor the answer fails before the daemon ends.
            drop(group.send(message).await);
            if answer.await == Ok(true) {
                return Json(self.direct().await).into_response();
            }
        }
        let error = json!({ "error": format!("no trust group has a VM `{vm}`; `vicinity direct list` lists \
            them") });
        (StatusCode::NOT_FOUND, Json(error)).into_response()
    }

    async fn edit(&self, edit: Edit) -> Response {
        self.request(ChangeRequest::Edit(edit)).await
    }

    async fn request(&self, request: ChangeRequest) -> Response {
        let (answer, granted) = oneshot::channel();
        // Neither the sending nor the answer fails before the daemon ends.
        drop(self.requests.send((request, answer)).await);
        match granted.await {
            Ok(Ok(source)) => Json(status(&source)).into_response(),
            Ok(Err(refusal)) => {
                let error = json!({ "error": refusal.to_string() });
                (code(&refusal), Json(error)).into_response()
            }
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
}

fn status(source: &Source) -> ConfigStatus {
    ConfigStatus {
        file: source.path().map(|path| path.display().to_string()),
        text: source.text().to_owned(),
    }
}

fn code(refusal: &ChangeError) -> StatusCode {
    match refusal {
        ChangeError::Edit(EditError::Missing { .. }) => StatusCode::NOT_FOUND,
        ChangeError::Edit(EditError::Exists { .. })
        | ChangeError::Save(SaveError::Changed { .. }) => StatusCode::CONFLICT,
        ChangeError::Edit(_)
        | ChangeError::Config(_)
        | ChangeError::Fixed { .. }
        | ChangeError::Space {
            source: SpaceError::Fixed | SpaceError::TooLarge { .. },
            ..
        } => StatusCode::UNPROCESSABLE_ENTITY,
        ChangeError::Resources { .. }
        | ChangeError::Start { .. }
        | ChangeError::Members(_)
        | ChangeError::Group { .. }
        | ChangeError::Vsock { .. }
        | ChangeError::Space { .. }
        | ChangeError::Save(SaveError::Write { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
