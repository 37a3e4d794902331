//! Pushing, in a space's process: the files that it reads for that, and its connections. The process cannot connect
//! itself, so it requests connections from its supervisor, which connects to the configured store only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::header::HeaderValue;
use memory_plane::push::{self, Dial, Pusher, Target};
use memory_plane::{SpaceState, tls};
use switch::control::ControlSocket;
use tokio::sync::oneshot;

use super::protocol::Event;
use super::token;
use crate::config::{self, Push};
use crate::processes::start::ProcessError;

/// A connection, or why there is none.
type Answer = Result<std::net::TcpStream, String>;

/// Gets connections from the supervisor.
#[derive(Debug)]
pub(crate) struct Connections {
    control: Arc<ControlSocket>,
    /// Receives the answer to the outstanding request.
    asker: Mutex<Option<oneshot::Sender<Answer>>>,
}

impl Connections {
    pub(crate) fn new(control: &Arc<ControlSocket>) -> Arc<Self> {
        Arc::new(Self {
            control: Arc::clone(control),
            asker: Mutex::default(),
        })
    }

    fn ask(&self) -> oneshot::Receiver<Answer> {
        let (asker, answer) = oneshot::channel();
        *self.asker() = Some(asker);
        if let Err(error) = self.control.send(&Event::Connect, None) {
            self.answer(Err(format!(
                "cannot request a connection from the supervisor: {error}"
            )));
        }
        answer
    }

    /// Passes on the supervisor's answer.
    pub(crate) fn answer(&self, answer: Answer) {
        if let Some(asker) = self.asker().take() {
            // The receiver may have given up.
            drop(asker.send(answer));
        }
    }

    fn asker(&self) -> MutexGuard<'_, Option<oneshot::Sender<Answer>>> {
        // Nothing between two states of it can panic.
        self.asker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the files that pushing needs.
pub(crate) fn prepare(
    push: &Push,
    state: &Arc<SpaceState>,
    connections: &Arc<Connections>,
) -> Result<Pusher, ProcessError> {
    let target: Target = push.to.parse().map_err(ProcessError::Store)?;
    let credential = push.credential.as_ref().map(credential).transpose()?;
    let tls = push.trust.as_deref().map(tls::connector).transpose();
    let connections = Arc::clone(connections);
    let dial: Dial = Box::new(move || connections.ask());
    let tls = tls.map_err(ProcessError::Tls)?;
    Ok(Pusher::new(state, target, credential, tls, dial))
}

/// Reads a credential from its file.
fn credential(written: &config::Credential) -> Result<push::Credential, ProcessError> {
    match written {
        config::Credential::Token(file) => {
            let header = HeaderValue::try_from(format!("Bearer {}", token::read(file)?));
            let header = header.map_err(|_| ProcessError::Token {
                file: file.display().to_string(),
                why: "it has characters that an HTTP header cannot contain".to_owned(),
            });
            Ok(push::Credential::Token(header?))
        }
        config::Credential::Keys { file, region } => {
            let keys = push::Keys::read(file, region);
            let keys = keys.map_err(|error| ProcessError::Keys {
                file: file.display().to_string(),
                error,
            });
            Ok(push::Credential::Keys(keys?))
        }
    }
}
