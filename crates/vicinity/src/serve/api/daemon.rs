//! Requests to the supervisor's tasks on behalf of clients.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::live::{ApiState, Sampler};
use crate::name;
use crate::serve::memory_plane::{orchestrator, space_task};
use crate::serve::network::message::{Answer, Message};
use crate::serve::request::{Addresses, ChangeRequest, Request};
use crate::serve::{direct_groups, message_plane, vsock};
use crate::status::{ControlStatus, GroupStatus, MessageStatus, SpaceStatus, VsockStatus};

/// Longest wait for the answers to one request of a client. A task answers earlier with the last known state, even
/// if its process hangs.
const ANSWERS: Duration = Duration::from_millis(850);

/// The senders of the tasks, and of the supervisor.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Daemon {
    pub(in crate::serve) addresses: watch::Receiver<Addresses>,
    pub(in crate::serve) requests: mpsc::Sender<Request>,
}

/// A client named a network that the daemon does not serve.
#[derive(Debug, thiserror::Error)]
#[error("there is no network {network}{hint}")]
pub(super) struct UnknownNetwork {
    network: String,
    /// A similar name, as a question, if there is one.
    hint: String,
}

impl Daemon {
    /// Returns the sender of a network's task.
    pub(super) fn network(&self, network: &str) -> Result<mpsc::Sender<Message>, UnknownNetwork> {
        let addresses = self.addresses.borrow();
        let networks = &addresses.networks;
        let found = networks.iter().find(|(name, _)| name == network);
        found.map(|(_, address)| address.clone()).ok_or_else(|| {
            let known = networks.iter().map(|(name, _)| name.as_str());
            UnknownNetwork {
                network: network.to_owned(),
                hint: name::hint(network, known),
            }
        })
    }

    /// Returns whether the supervisor answers: `false` once the daemon ends.
    pub(in crate::serve) async fn supervisor_answers(&self) -> bool {
        let (question, answer) = oneshot::channel();
        self.requests
            .send((ChangeRequest::Show, question))
            .await
            .is_ok()
            && answer.await.is_ok()
    }

    /// Returns the message plane's state; `None` without a message plane.
    pub(super) async fn messages(&self) -> Option<MessageStatus> {
        let plane = self.addresses.borrow().messages.clone();
        ask_all(plane, message_plane::Message::Ask).await.pop()
    }

    /// Returns how spaces are sized.
    pub(super) async fn control(&self) -> Option<ControlStatus> {
        let orchestrator = self.addresses.borrow().orchestrator.clone();
        ask_all(orchestrator, orchestrator::Message::Ask)
            .await
            .pop()
    }

    /// Returns the state of every space.
    pub(super) async fn spaces(&self) -> Vec<SpaceStatus> {
        let spaces = self.addresses.borrow().spaces.clone();
        ask_all(spaces, space_task::Message::Ask).await
    }

    pub(super) fn groups(&self) -> Vec<mpsc::Sender<direct_groups::Message>> {
        self.addresses.borrow().groups.clone()
    }

    /// Returns the state of every socket device.
    pub(super) async fn vsocks(&self) -> Vec<VsockStatus> {
        let vsocks = self.addresses.borrow().vsocks.clone();
        let sets = ask_all(vsocks, vsock::Message::Ask).await;
        sets.into_iter().flatten().collect()
    }

    /// Returns the state of every trust group.
    pub(super) async fn direct(&self) -> Vec<GroupStatus> {
        ask_all(self.groups(), direct_groups::Message::Ask).await
    }

    /// Returns the state of everything.
    pub(in crate::serve) async fn api_state(&self) -> ApiState {
        let (networks, direct, spaces, messages) = tokio::join!(
            self.network_answers(),
            self.direct(),
            self.spaces(),
            self.messages()
        );
        ApiState {
            direct,
            spaces,
            messages,
            ..Self::state_of(networks)
        }
    }

    fn state_of(answers: Vec<Answer>) -> ApiState {
        let (networks, ports): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .map(|answer| (answer.network, answer.ports))
            .unzip();
        ApiState {
            pid: Some(std::process::id()),
            networks,
            ports: ports.into_iter().flatten().collect(),
            ..ApiState::default()
        }
    }

    /// Returns the observer's metrics of the host's VMs.
    pub(super) async fn host_metrics(&self, networks: &[Answer]) -> String {
        let state = Self::state_of(networks.to_vec());
        // The observer reads files of `/proc`, which may take milliseconds.
        let read = move || {
            let reading = Sampler::new(0.0, false).read(&state);
            observe::prometheus::of_vms(&reading)
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Returns the state of every network.
    pub(super) async fn network_answers(&self) -> Vec<Answer> {
        let networks = self.addresses.borrow().networks.clone();
        let networks = networks.into_iter().map(|(_, network)| network);
        ask_all(networks, Message::Ask).await
    }
}

/// Asks all of these at once, and waits at most [`ANSWERS`] for their answers. Leaves out a task that does not answer
/// by then.
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
