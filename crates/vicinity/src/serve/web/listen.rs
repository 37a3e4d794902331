//! The page's TCP address: TLS, a token, and a bound on clients and on their time.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use memory_plane::tls::{self, TlsError};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Gate;
use crate::config::WebListen;

/// The most connections at one time.
const MAX_CONNECTIONS: usize = 64;

/// Time for the TLS handshake, and for the head of each request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest token in bytes.
const MAX_TOKEN: usize = 4096;

/// Why the page has no TCP address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Certificate or key.
    #[error("[web]: {0}")]
    Tls(#[from] TlsError),
    /// The token.
    #[error("[web]: cannot read a token from {}: {why}; write 1 to {MAX_TOKEN} characters without spaces into it",
            file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address.
    #[error(
        "[web]: cannot listen on {address}: {source}; choose another address, or end the other program"
    )]
    Address {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A TCP address that listens.
pub(in crate::serve) struct Address {
    listener: tokio::net::TcpListener,
    tls: TlsAcceptor,
    /// What its requests must have.
    pub(in crate::serve) gate: Gate,
}

impl Address {
    /// Reads the files, and listens.
    pub(in crate::serve) fn open(config: &WebListen) -> Result<Self, ListenError> {
        let token = token(config)?;
        let tls = tls::http1_acceptor(&config.certificate, &config.key)?;
        let address = config.address;
        let failed = |source| ListenError::Address { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            listener: tokio::net::TcpListener::from_std(listener).map_err(failed)?,
            tls,
            gate: Gate {
                host_name: config.host_name.as_deref().map(Arc::from),
                token: Some(token.into()),
            },
        })
    }

    /// Serves clients permanently.
    pub(in crate::serve) async fn serve(self, router: Router) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (tls, router) = (self.tls.clone(), router.clone());
                    tokio::spawn(async move {
                        serve_client(tls, stream, router).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a client of the page");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

async fn serve_client(tls: TlsAcceptor, stream: TcpStream, router: Router) {
    // A handshake that fails or takes too long is the client's fault.
    let Ok(Ok(stream)) = timeout(CLIENT_TIMEOUT, tls.accept(stream)).await else {
        return;
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a client of the page ended early");
    }
}

fn token(config: &WebListen) -> Result<String, ListenError> {
    let file = &config.token_file;
    let wrong = |why: String| ListenError::Token {
        file: file.clone(),
        why,
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    let valid = |byte: u8| byte.is_ascii_graphic();
    match (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(valid) {
        true => Ok(token.to_owned()),
        false => Err(wrong("its contents are no token".to_owned())),
    }
}
